//! The container runtime interface (runtime.v1): messages and both services.
//!
//! [`RuntimeService`] and [`ImageService`] have one method per call. A method returns by its deadline with the
//! runtime's response, or with an [`Error`] that names the call and its object and states whether it may have had an
//! effect. No call is retried here.

mod call;
mod error;
mod image_service;
mod runtime_service;
pub mod v1;
mod verbose;

pub use error::Error;
pub use image_service::ImageService;
pub use runtime_service::{ContainerEvents, RuntimeService};
