//! What image garbage collection knows between two collections.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Instant;

use super::policy::ImageRecords;
use crate::platform::config::ImageGc;

/// The settings and the state of image garbage collection.
#[derive(Debug)]
pub(in crate::kubelet::images) struct GcState {
    pub(super) settings: ImageGc,
    pub(super) records: RefCell<ImageRecords>,
    /// The last collection failed.
    pub(super) has_failed: Cell<bool>,
    /// Images were pulled since the sync loop last asked.
    pub(super) has_pulled: Cell<bool>,
    /// All images were listed at least once.
    pub(super) has_listed: Cell<bool>,
    /// The runtime's image directory and, if reported, its writable layers.
    pub(super) disks: RefCell<Option<(PathBuf, Option<PathBuf>)>>,
}

impl GcState {
    pub(in crate::kubelet::images) fn new(settings: ImageGc, now: Instant) -> Self {
        Self {
            settings,
            records: RefCell::new(ImageRecords::new(now)),
            has_failed: Cell::new(false),
            has_pulled: Cell::new(false),
            has_listed: Cell::new(false),
            disks: RefCell::default(),
        }
    }

    /// Records a pull.
    pub(in crate::kubelet::images) fn on_pulled(&self, id: &str, now: Instant) {
        self.records.borrow_mut().pulled(id, now);
        self.has_pulled.set(true);
    }
}
