//! What the node takes on: admission of pods, their CPUs and devices, resizes that wait until they fit.

mod admission;
mod cpu_assignment;
mod device_allocations;
mod node_reads;
mod pending_resizes;
mod readmissions;

pub(crate) use admission::{Gates, Labels, PodAdmission, in_order_of_admission};
pub(crate) use cpu_assignment::CpuAssignment;
pub(crate) use device_allocations::DeviceAllocations;
pub(crate) use node_reads::NodeReads;
pub(crate) use pending_resizes::{PendingResizes, ResizeContext, RetryTrigger, on_resize_work_done};
pub(crate) use readmissions::Readmissions;
