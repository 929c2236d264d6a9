//! Container logs: rotation, symlinks and reading.
//!
//! The runtime writes `<restart>.log`. [`LogManager`] renames a full log to `<restart>.log.<stamp>` and makes the
//! runtime open a new one. [`LogReader`] reads all files of a log as one text.

mod decode;
mod files;
mod limits;
mod links;
mod log_manager;
mod reader;
mod rotate;
mod rotated_names;
mod tail;
mod watch;

pub(crate) use decode::LogStream;
pub use decode::check_log;
pub(crate) use files::remove_log;
pub(crate) use limits::LogLimits;
pub(crate) use links::{link_name, remove_dead_links};
pub(crate) use log_manager::{LogManager, ManagedLog};
pub(crate) use reader::{LogReader, LogRequest};
