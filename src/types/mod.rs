//! Kubernetes types, quantities, CPU sets, times, errors, and what is written down about this process: log and metrics.
//!
//! Uses no other layer.

pub mod api;
pub(crate) mod cpu_set;
pub(crate) mod error;
#[macro_use]
pub(crate) mod log;
pub(crate) mod metrics;
pub mod sorted;
pub(crate) mod time;
