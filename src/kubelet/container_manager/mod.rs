//! The control groups of the node and of its pods: which there are, and what they are set to.
//!
//! On a machine without cgroup v2 controllers, or with `cgroupsPerQOS: false`, there is nothing here to do: the runtime
//! puts containers where it likes.

pub(crate) mod kernel_parameters;
mod manager;
mod node_values;
mod pod_values;
mod resize;
mod settings;

pub(crate) use manager::ContainerManager;
pub(crate) use resize::{Verdict, keep_resources, verdict};
pub(crate) use settings::Settings;
