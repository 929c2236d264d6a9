//! Validation of pods, ConfigMaps, Secrets, Services, claims and the document of the agent, field by field. Pure.
//!
//! The rules are those of `ValidatePodCreate` (`pkg/apis/core/validation/validation.go`) as far as they concern a node:
//! fields that only a scheduler reads (pod affinity, topology spread) are not checked, and neither is what decoding
//! already refuses (unknown words, two sources of a volume). Every check takes at most O(n log n).

mod agent;
mod config_objects;
mod containers;
mod dns;
mod environment;
mod faults;
mod field_selectors;
mod file_paths;
mod metadata;
mod mounts;
pub mod names;
mod node_affinity;
mod pod_spec;
mod ports;
mod probes;
mod projections;
mod remote_volumes;
mod resources;
mod scope;
mod security;
mod services;
mod static_pod;
mod volume_claims;
mod volumes;

pub use faults::{FieldError, MAX_FAULTS};
pub use resources::is_extended_resource;
pub use static_pod::{log_directory_fault, static_pod_api_references};

use self::faults::Faults;
use super::decode::Path;
use super::{AgentDocument, ConfigMap, Pod, Secret, Service, VolumeClaim};

/// Validates a pod that has its name, its namespace and its defaults. Returns at most [`MAX_FAULTS`] errors.
pub fn validate_pod(pod: &Pod) -> Vec<FieldError> {
    let mut faults = Faults::default();
    metadata::check(&pod.metadata, &Path::Root.key("metadata"), &mut faults);
    pod_spec::check(&pod.spec, &pod.metadata, &Path::Root.key("spec"), &mut faults);
    faults.into_list()
}

/// Validates a pod from a manifest, which has its uid, must be able to have its directories, and must not refer to
/// objects of the API server.
pub fn validate_static_pod(pod: &Pod) -> Vec<FieldError> {
    let mut faults = validate_pod(pod);
    let mut more = Faults::default();
    static_pod::check_uid(&pod.metadata, &mut more);
    static_pod::check_log_directory(&pod.metadata, &mut more);
    static_pod::check_update_lock(pod, &mut more);
    faults.extend(more.into_list());
    faults.extend(static_pod_api_references(pod));
    faults
}

/// Validates a ConfigMap that has its name and its namespace.
pub fn validate_config_map(config_map: &ConfigMap) -> Vec<FieldError> {
    let mut faults = Faults::default();
    config_objects::check_config_map(config_map, &mut faults);
    faults.into_list()
}

/// Validates a Secret that has its name and namespace, and its `stringData` merged into `data`.
pub fn validate_secret(secret: &Secret) -> Vec<FieldError> {
    let mut faults = Faults::default();
    config_objects::check_secret(secret, &mut faults);
    faults.into_list()
}

/// Validates a PersistentVolumeClaim that has its name and its namespace.
pub fn validate_volume_claim(claim: &VolumeClaim) -> Vec<FieldError> {
    let mut faults = Faults::default();
    volume_claims::check_claim(claim, &mut faults);
    faults.into_list()
}

/// Validates a Service that has its name and its namespace.
pub fn validate_service(service: &Service) -> Vec<FieldError> {
    let mut faults = Faults::default();
    services::check_service(service, &mut faults);
    faults.into_list()
}

/// Validates the document that names the version of the agent.
pub fn validate_agent(document: &AgentDocument) -> Vec<FieldError> {
    let mut faults = Faults::default();
    agent::check_agent(document, &mut faults);
    faults.into_list()
}

#[cfg(test)]
mod tests;
