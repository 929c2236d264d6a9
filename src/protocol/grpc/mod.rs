//! gRPC over HTTP/2: message framing, timeouts, and the status that ends a call. Pure.

mod message;
mod percent;
mod status;
mod timeout;

pub use message::{FramingError, MAX_MESSAGE_BYTES, USUAL_MESSAGE_BYTES, frame_message, take_message};
pub use status::{Code, Status};
pub use timeout::{read_timeout, write_timeout};

/// The content type of requests and responses.
pub const GRPC_CONTENT_TYPE: &str = "application/grpc";
