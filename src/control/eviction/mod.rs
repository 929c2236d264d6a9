//! Eviction under memory, disk and pid pressure, and for exceeded storage limits.
//!
//! [`EvictionManager`] schedules the checks and evicts pods. A check (`pressure_check.rs`) measures the available resources
//! (`observations.rs`), finds the thresholds that are met ([`ThresholdState`]), determines what the node can remove
//! ([`Layout`]) and orders the pods ([`rank()`]). [`StorageLimits`] measures pods against their own limits.

mod image_layout;
mod local_storage;
mod manager;
mod message;
mod observations;
mod pod_measurement;
mod pressure_check;
mod rank;
mod signals;
mod storage_limits;
mod thresholds;
mod usage;

pub(crate) use manager::EvictionManager;
pub(crate) use storage_limits::StorageLimits;

use image_layout::Layout;
use local_storage::{ExceededLimit, exceeded, has_limits};
use message::node_was_low;
use observations::FilesystemPaths;
use pod_measurement::{Candidate, Measure};
use rank::rank;
use signals::{Observations, Starved};
use thresholds::{ThresholdState, is_close, is_resolved};
use usage::{MeasuredPod, PodUsage};
