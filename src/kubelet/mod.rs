//! One folder for each responsibility of a kubelet.

pub(crate) mod admission;
pub(crate) mod certificates;
pub(crate) mod container_manager;
pub(crate) mod csi;
pub(crate) mod devices;
pub(crate) mod dra;
pub(crate) mod eviction;
pub mod images;
pub(crate) mod kuberuntime;
pub(crate) mod logs;
pub(crate) mod node;
pub(crate) mod node_shutdown;
pub mod offline;
pub(crate) mod probes;
pub(crate) mod resource_managers;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod volumes;
