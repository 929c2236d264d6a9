//! A service as its variables tell it. Pure.

use std::net::IpAddr;

use crate::api::Protocol;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// A service without an address of its own has no variables.
    pub(crate) cluster_ip: Option<IpAddr>,
    pub(crate) ports: Vec<ServicePort>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServicePort {
    /// Empty for the only port of a service.
    pub(crate) name: String,
    pub(crate) port: i32,
    pub(crate) protocol: Protocol,
}
