//! The cgroups of the node and of its pods.
//!
//! On a machine without cgroup v2 controllers, or with `cgroupsPerQOS: false`, this does nothing: the runtime chooses
//! the cgroups of containers.

pub(crate) mod kernel_parameters;
mod manager;
mod node_values;
mod pod_values;
mod resize_steps;
mod settings;

pub(crate) use manager::ContainerManager;
pub(crate) use resize_steps::ResizeSteps;
pub(crate) use settings::Settings;
