//! A Service of a manifest: a name for pods of this node. Pure.

use crate::types::api::{Map, Service};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManifestService {
    /// Labels that a pod of the same namespace must have. Never empty.
    pub(crate) selector: Map<String>,
    pub(crate) publish_not_ready_addresses: bool,
}

impl From<Service> for ManifestService {
    fn from(from: Service) -> Self {
        let spec = from.spec;
        Self { selector: spec.selector, publish_not_ready_addresses: spec.publish_not_ready_addresses }
    }
}
