//! Ending pods before the node runs out of memory, disk or processes, and those that write more than they may.
//!
//! [`observe()`] looks at what the node has left, [`ThresholdState`] decides what of it is too little and for how long,
//! [`Layout`] what the node itself can give back, [`rank()`] who goes first. Who runs what, and when, is the sync loop's.

mod image_layout;
mod local_storage;
mod message;
mod observations;
mod pod_measurement;
mod rank;
mod signals;
mod thresholds;
mod usage;

pub(crate) use image_layout::Layout;
pub(crate) use local_storage::{exceeded, has_limits};
pub(crate) use message::node_was_low;
pub(crate) use observations::{Places, observe};
pub(crate) use pod_measurement::{Candidate, Measure};
pub(crate) use rank::rank;
pub(crate) use signals::{Observations, Starved};
pub(crate) use thresholds::{ThresholdState, is_close, is_resolved};
pub(crate) use usage::{Measured, PodUsage};
