//! One folder for each responsibility of a kubelet.

pub(crate) mod admission;
pub(crate) mod agent_update;
pub(crate) mod allocation;
pub(crate) mod api_cache;
pub(crate) mod certificates;
pub(crate) mod container_manager;
pub mod csi;
pub mod devices;
pub(crate) mod dra;
pub(crate) mod enrolment;
pub(crate) mod event_file;
pub mod image_archives;
pub mod image_credentials;
pub(crate) mod image_signatures;
pub(crate) mod image_transfer;
pub(crate) mod images;
pub(crate) mod kuberuntime;
pub mod logs;
pub(crate) mod node;
pub mod offline;
pub(crate) mod pod_resources;
pub(crate) mod probes;
pub(crate) mod resource_managers;
pub(crate) mod stats;
pub(crate) mod status;
pub mod volumes;
