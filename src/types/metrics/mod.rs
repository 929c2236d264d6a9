//! Counters and histograms of this process, and Prometheus' text format.
//!
//! ```text
//! metrics::count(Count::Evictions, &["memory.available"]);
//! metrics::took(Timed::PlegRelists, &[], begun.elapsed());
//! ```
//!
//! The counts belong to the thread that runs all async code, so nothing is passed around and nothing is locked. Other
//! values of a page are read when the page is requested.

mod buckets;
mod counted;
mod exposition;
#[cfg(test)]
pub(crate) mod parsed;
mod registry;

pub(crate) use counted::{Count, Timed};
pub(crate) use exposition::{Exposition, Kind, Labels, METRICS_CONTENT_TYPE, Number};
pub(crate) use registry::{
    count, expose, forget_probes, last_relist, processors, relisted, took, took_millis, write, write_health_checks,
    write_probes,
};
#[cfg(test)]
pub(crate) use registry::{labels_of, names};
