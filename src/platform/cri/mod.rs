//! The container runtime interface (runtime.v1): messages and the two services.
//!
//! [`RuntimeService`] and [`ImageService`] have one method for each call. A method ends within its deadline, and
//! either gives what the runtime answered or an [`Error`] that says which call failed, on what, and what is known of
//! its effect. No call is repeated here.

mod call;
mod error;
mod image_service;
mod runtime_service;
pub mod v1;
mod verbose;

pub use error::Error;
pub use image_service::ImageService;
pub use runtime_service::{ContainerEvents, RuntimeService};
