//! Eviction under memory, disk and pid pressure, and for exceeded storage limits.
//!
//! [`observe()`] measures the available resources, [`ThresholdState`] finds the thresholds that are met, [`Layout`]
//! determines what the node can remove, and [`rank()`] orders the pods. The sync loop runs these steps.

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
pub(crate) use local_storage::{ExceededLimit, exceeded, has_limits};
pub(crate) use message::node_was_low;
pub(crate) use observations::{FilesystemPaths, observe};
pub(crate) use pod_measurement::{Candidate, Measure};
pub(crate) use rank::rank;
pub(crate) use signals::{Observations, Starved};
pub(crate) use thresholds::{ThresholdState, is_close, is_resolved};
pub(crate) use usage::{MeasuredPod, PodUsage};
