//! How far a fetch is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of an image that is being fetched.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes of the blobs on the disk, from this fetch or an earlier one.
    pub(super) present_bytes: AtomicU64,
    /// Total bytes of the blobs to fetch; 0 until the manifest is known.
    pub(super) total_bytes: AtomicU64,
    /// Bytes that were here before this fetch.
    pub(super) before: AtomicU64,
}

impl Progress {
    /// The manifest is known.
    pub(super) fn begin(&self, total: u64, present: u64) {
        self.present_bytes.store(present, Ordering::Relaxed);
        self.before.store(present, Ordering::Relaxed);
        // 0 would mean that the manifest is still unknown.
        self.total_bytes.store(total.max(1), Ordering::Relaxed);
    }

    /// A part has `length` bytes, and was counted with `counted`.
    pub(super) fn correct(&self, counted: u64, length: u64) {
        for count in [&self.present_bytes, &self.before] {
            let corrected = |count: u64| Some(count.saturating_sub(counted).saturating_add(length));
            let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, corrected);
        }
    }

    #[cfg(test)]
    pub(crate) fn of(before: u64, present_bytes: u64, total_bytes: u64) -> Self {
        let [before, present, total] = [before, present_bytes, total_bytes].map(AtomicU64::new);
        Self { present_bytes: present, total_bytes: total, before }
    }

    /// Bytes on the disk, and total bytes; `None` until the manifest is known.
    pub(crate) fn bytes(&self) -> Option<(u64, u64)> {
        let total = self.total_bytes.load(Ordering::Relaxed);
        (total > 0).then(|| (self.present_bytes.load(Ordering::Relaxed), total))
    }

    /// How long the rest takes if it comes as fast as the bytes since the fetch began.
    pub(crate) fn time_left(&self, since_begin: Duration) -> Option<Duration> {
        let (here, total) = self.bytes()?;
        let came = here.checked_sub(self.before.load(Ordering::Relaxed)).filter(|came| *came > 0)?;
        let seconds = u128::from(total.saturating_sub(here)) * since_begin.as_millis() / u128::from(came) / 1000;
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)))
    }
}
