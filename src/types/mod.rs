//! Kubernetes types, quantities, CPU sets, times and errors; logging and metrics.
//!
//! Uses no other layer.

pub mod api;
pub(crate) mod architecture;
pub(crate) mod board;
pub(crate) mod cpu_set;
pub(crate) mod cron_schedule;
pub(crate) mod decimal;
pub(crate) mod error;
#[macro_use]
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod owned;
pub mod sorted;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod time_windows;
pub(crate) mod time_zone;
pub mod timestamp;
