//! All access to the machine and the network.

pub(crate) mod apiserver;
pub(crate) mod cgroups;
pub(crate) mod config;
pub mod cri;
pub(crate) mod dbus;
pub(crate) mod host;
pub(crate) mod net;
pub(crate) mod plugin_manager;
pub mod registry;
pub mod rpc;
pub mod rt;
pub(crate) mod tracing;
