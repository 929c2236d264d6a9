//! The sync loop, the pod workers, and the pod sources and servers that feed them.

pub(crate) mod cluster;
pub(crate) mod eviction;
pub(crate) mod jobs;
pub(crate) mod local_api;
pub(crate) mod node_shutdown;
pub(crate) mod pleg;
pub(crate) mod pod_admission;
pub mod pod_sources;
pub(crate) mod pod_table;
pub(crate) mod pod_workers;
pub(crate) mod server;
pub(crate) mod sync_loop;
pub(crate) mod versions;
