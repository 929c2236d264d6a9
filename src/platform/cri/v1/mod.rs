//! The messages of runtime.v1 as of CRI API 0.36. Pure.
//!
//! Contains everything that a kubelet on Linux sends or reads. Omitted: Windows, the metrics calls
//! (`ListMetricDescriptors`, `ListPodSandboxMetrics`) and the streamed lists (`StreamContainers` and others).
//!
//! Times are in Unix nanoseconds, unless a field says otherwise.

mod container;
mod events;
mod image;
mod resources;
mod runtime_status;
mod sandbox;
mod sandbox_status;
mod security;
mod signal;
mod stats;
#[cfg(test)]
mod tests;

pub use container::*;
pub use events::*;
pub use image::*;
pub use resources::*;
pub use runtime_status::*;
pub use sandbox::*;
pub use sandbox_status::*;
pub use security::*;
pub use signal::Signal;
pub use stats::*;
