//! API types: the pod and its parts, quantities, reasons. Pure.
//!
//! Names and JSON are those of `v1.Pod`. [`decode`] reads a type from a [`serde_json::Value`], [`ObjectText`] from
//! text; [`encode_text`] writes one as text, [`encode`] as a value.

#[macro_use]
mod object;

mod affinity;
mod agent_document;
mod bytes;
mod config_objects;
mod container;
mod container_hash;
mod container_status;
mod declared_features;
mod decode;
pub mod defaults;
mod device_attribute;
mod encode;
mod env_vars;
mod event;
mod expansion;
#[cfg(test)]
pub(crate) mod fields;
mod int_or_string;
mod job;
mod kubeconfig;
mod map;
mod metadata;
mod node;
mod object_text;
mod pod;
mod pod_fields;
mod pod_status;
mod port_reference;
mod probe;
mod qos;
mod quantity;
mod reason;
mod resources;
mod security;
mod service;
mod spec_hash;
mod storage_medium;
mod sysctl;
mod text_objects;
mod texts;
mod time;
pub mod validation;
mod value_path;
mod volume;
mod volume_claim;
mod workload;
pub mod yaml;
mod yaml_out;

pub use affinity::*;
pub use agent_document::*;
pub use bytes::Bytes;
pub use config_objects::*;
pub use container::*;
pub use container_hash::{container_hash, container_hash_text, fnv_32a};
pub use container_status::*;
pub use declared_features::{DECLARED_FEATURES, required_features};
pub use decode::{Decode, DecodeContext, DecodeError, Decoded, Input, MAX_UNKNOWN_FIELDS, decode, decode_bytes};
pub(crate) use decode::{Entry, Object, read_object};
pub use device_attribute::{
    DeviceAttribute, DeviceAttributes, DeviceSelectors, MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES, is_attribute_name,
};
pub use encode::{Encode, Json, encode, encode_text};
pub use env_vars::{EnvVarRef, EnvVars};
pub use event::*;
pub use expansion::{CommandTooLong, MAX_ARGUMENT_BYTES, MAX_ENVIRONMENT_BYTES, expand_bytes, expand_command, text_of};
pub use int_or_string::IntOrString;
pub use job::*;
pub use kubeconfig::*;
pub use map::Map;
pub use metadata::{Dropped, ObjectMeta, OwnerReference, PodUid};
pub use node::*;
pub(crate) use object::{decode_word, record};
pub use object_text::ObjectText;
pub use pod::*;
pub use pod_fields::{FieldProblem, metadata_field, resource_field};
pub use pod_status::*;
pub use port_reference::PortError;
pub use probe::*;
pub use qos::{is_guaranteed_container, qos_class};
pub use quantity::{Format, Quantity, QuantityError};
pub use reason::Reason;
pub use resources::*;
pub use security::*;
pub use service::*;
pub use spec_hash::{container_spec_hash, pod_spec_hash};
pub use storage_medium::StorageMedium;
pub use sysctl::{KernelVersion, SysctlNamespace, dotted_sysctl, is_safe_sysctl, kernel_version};
pub use text_objects::{
    PodResourceClaimKeys, PodResourceClaimStatusKeys, PodResourceClaimStatuses, PodResourceClaims, PodSchedulingGates,
    TextKeys, TextObject, TextObjects,
};
pub use texts::{Texts, Unread, UnreadList};
pub use time::Time;
pub use validation::{is_extended_resource, log_directory_fault};
pub use value_path::{decode_leniently, leave_out};
pub use volume::*;
pub use volume_claim::*;
pub use workload::*;
pub use yaml_out::to_yaml;

/// The upstream kubelet version that this one is compatible with, reported to clients that ask.
pub const KUBERNETES_VERSION: &str = "v1.36.2";

#[cfg(test)]
mod tests;
