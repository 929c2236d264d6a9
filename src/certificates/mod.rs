//! The node's certificates: as a client of the API server, and as a server of its own.
//!
//! Nothing here ends the process or touches a pod. A certificate that has expired, a clock that is wrong, a server that
//! cannot be reached: the node goes on, says so, and takes up a new certificate as soon as one can be had.

mod key;
mod pair;
mod pem;
mod request;
mod rotation;
mod signing_request;
mod store;
