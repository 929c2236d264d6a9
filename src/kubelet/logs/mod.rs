//! The logs of containers: kept within their limits, linked where tools look, and read.
//!
//! A runtime writes `<restart>.log`. [`LogKeeper`] renames it when it is full, to `<restart>.log.<stamp>`, and has the
//! runtime open a new one. [`LogReader`] gives all of it as one text.

mod decode;
mod files;
mod keeper;
mod links;
mod reader;
mod rotate;
mod sizes;
mod stamps;
mod tail;
mod watch;

pub(crate) use files::remove_log;
pub(crate) use keeper::{KeptLog, LogKeeper};
pub(crate) use links::{link_name, remove_dead_links};
pub(crate) use reader::{LogReader, LogRequest};
pub(crate) use sizes::LogLimits;
