//! What this process counts, and the text in which counts are told.
//!
//! ```text
//! metrics::count(Count::Evictions, &["memory.available"]);
//! metrics::took(Timed::PlegRelists, &[], begun.elapsed());
//! ```
//!
//! Counts are numbers of the thread that runs everything asynchronous: there is nothing to hand around and nothing to lock.
//! What a page tells beside them is looked up when it is asked for.

mod counted;
mod exposition;
#[cfg(test)]
pub(crate) mod parsed;
mod registry;

pub(crate) use counted::{Count, Timed};
pub(crate) use exposition::{CONTENT_TYPE, Exposition, Kind, Labels, Number};
#[cfg(test)]
pub(crate) use registry::labels_of;
pub(crate) use registry::{count, forget_probes, last_relist, processors, relisted, took, write, write_probes};
