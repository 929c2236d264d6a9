//! Counts the bytes that image fetches take from the link, and limits them.
//!
//! Fetches run on threads of their own and share one meter. The day's use is recorded on the disk before it is used, a
//! part of the budget at a time, so a power cut forgets no byte.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::pull_budget::{BudgetDay, Left, Moment, reserve};
use crate::platform::host::{clock, file};
use crate::platform::rt;
use crate::types::error::ErrorChain;

#[derive(Debug)]
pub(crate) struct Meter {
    per_day: Option<u64>,
    per_second: Option<u64>,
    path: PathBuf,
    boot: String,
    ledger: Mutex<Ledger>,
    /// Held while the record is written.
    writing: Mutex<()>,
    /// Bytes that images may still use of the cluster's budget.
    cluster_left: AtomicU64,
    /// Bytes used since the cluster's budget was charged.
    uncharged: AtomicU64,
    /// When the next byte may come.
    next: Mutex<Instant>,
}

#[derive(Debug)]
struct Ledger {
    day: BudgetDay,
    /// The bytes in the record.
    recorded: u64,
}

/// Longest record, in bytes.
const MAX_TRANSFER_RECORD_BYTES: u64 = 256;
/// A limited fetch sleeps at most this long at once.
const MAX_TRANSFER_SLEEP: Duration = Duration::from_millis(200);
/// Reads a second of a fetch with a limited rate.
const READS_PER_SECOND: u64 = 4;
const MIN_READ_BYTES: u64 = 512;

impl Meter {
    /// Continues the day of the record at `path`.
    pub(crate) fn open(per_day: Option<u64>, per_second: Option<u64>, path: PathBuf) -> Self {
        let boot = clock::boot_id();
        let now = current_moment(&boot);
        let recorded = per_day.and_then(|_| match file::read_all(&path, MAX_TRANSFER_RECORD_BYTES) {
            Ok(bytes) => {
                let day = BudgetDay::read(&String::from_utf8_lossy(&bytes));
                if day.is_none() {
                    log!(warn, "record of image bytes is damaged, starting from zero", path = path.display());
                }
                day
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    let error = ErrorChain(&error);
                    log!(warn, "failed to read image bytes, starting from zero", path = path.display(), error = error);
                }
                None
            }
        });
        let day = recorded.unwrap_or_else(|| BudgetDay::new(&now));
        let ledger = Ledger { recorded: day.used, day };
        Self {
            per_day,
            per_second,
            path,
            boot,
            ledger: Mutex::new(ledger),
            writing: Mutex::default(),
            cluster_left: AtomicU64::new(u64::MAX),
            uncharged: AtomicU64::default(),
            next: Mutex::new(rt::now()),
        }
    }

    #[cfg(test)]
    pub(crate) fn unlimited() -> Self {
        Self::open(None, None, PathBuf::new())
    }

    /// What is left of the own budget; `None` without one.
    pub(super) fn left(&self) -> Option<Left> {
        let most = self.per_day?;
        let now = current_moment(&self.boot);
        let ledger = self.today(&now);
        Some(Left { bytes: most.saturating_sub(ledger.day.used), day: ledger.day.left(&now) })
    }

    /// Bytes used today, and the budget.
    pub(super) fn used(&self) -> Option<(u64, u64)> {
        let most = self.per_day?;
        Some((self.today(&current_moment(&self.boot)).day.used, most))
    }

    /// How many bytes a fetch may ask for.
    pub(super) fn room(&self, is_urgent: bool) -> u64 {
        if is_urgent {
            return u64::MAX;
        }
        let own_bytes_left = self.left().map_or(u64::MAX, |left| left.bytes);
        own_bytes_left.min(self.cluster_left.load(Ordering::Relaxed))
    }

    /// Takes up to `limit` bytes before they are read; 0 if none are left.
    pub(super) fn take(&self, limit: u64, is_urgent: bool) -> io::Result<u64> {
        let mut taken = match self.per_second.filter(|_| !is_urgent) {
            Some(rate) => limit.min((rate / READS_PER_SECOND).max(MIN_READ_BYTES)),
            None => limit,
        };
        if !is_urgent {
            let left = self
                .cluster_left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(taken)));
            taken = taken.min(left.unwrap_or_default());
        }
        let Some(per_day) = self.per_day else {
            self.uncharged.fetch_add(taken, Ordering::Relaxed);
            return Ok(taken);
        };
        let is_unrecorded = {
            let mut ledger = self.today(&current_moment(&self.boot));
            if !is_urgent {
                taken = taken.min(per_day.saturating_sub(ledger.day.used));
            }
            ledger.day.used = ledger.day.used.saturating_add(taken);
            ledger.day.used > ledger.recorded
        };
        self.uncharged.fetch_add(taken, Ordering::Relaxed);
        if is_unrecorded {
            self.record(|used| reserve(used, per_day))?;
        }
        Ok(taken)
    }

    /// Takes bytes that were taken but did not come back.
    pub(super) fn refund(&self, bytes: u64, is_urgent: bool) {
        if !is_urgent {
            let _ = self
                .cluster_left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_add(bytes)));
        }
        let _ = self
            .uncharged
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |uncharged| Some(uncharged.saturating_sub(bytes)));
        let mut ledger = self.ledger();
        ledger.day.used = ledger.day.used.saturating_sub(bytes);
    }

    /// Waits as the rate asks after these bytes, unless `cancelled`.
    pub(super) fn pace(&self, bytes: u64, cancelled: &AtomicBool) {
        let Some(rate) = self.per_second else { return };
        let wait = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1));
        let due = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            *next = (*next).max(rt::now()) + wait;
            *next
        };
        loop {
            let delay = due.saturating_duration_since(rt::now());
            if delay.is_zero() || cancelled.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(delay.min(MAX_TRANSFER_SLEEP));
        }
    }

    /// Records the exact use at the end of a fetch.
    pub(super) fn settle(&self) {
        let is_recorded = {
            let ledger = self.ledger();
            ledger.day.used == ledger.recorded
        };
        if self.per_day.is_none() || is_recorded {
            return;
        }
        if let Err(error) = self.record(|used| used) {
            let error = ErrorChain(&error);
            log!(warn, "failed to record image bytes", path = self.path.display(), error = error);
        }
    }

    /// The bytes used since the last call.
    pub(super) fn take_uncharged(&self) -> u64 {
        self.uncharged.swap(0, Ordering::Relaxed)
    }

    /// Bytes that images may still use of the cluster's budget.
    pub(super) fn set_cluster_left(&self, bytes: u64) {
        self.cluster_left.store(bytes, Ordering::Relaxed);
    }

    /// Writes the record with the bytes that `recorded` makes of those used.
    fn record(&self, recorded: impl Fn(u64) -> u64) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (text, bytes) = {
            let ledger = self.ledger();
            let bytes = recorded(ledger.day.used);
            (ledger.day.write(bytes), bytes)
        };
        file::replace(&self.path, text.as_bytes())?;
        self.ledger().recorded = bytes;
        Ok(())
    }

    /// The ledger of this day.
    fn today(&self, now: &Moment) -> MutexGuard<'_, Ledger> {
        let mut ledger = self.ledger();
        if ledger.day.left(now).is_zero() {
            *ledger = Ledger { day: BudgetDay::new(now), recorded: 0 };
        }
        ledger
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn current_moment(boot: &str) -> Moment {
    Moment { boot: boot.to_owned(), uptime: clock::uptime(), second: clock::now().unix_seconds() }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct File(PathBuf);

    impl File {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("coracle-meter-{name}-{}", std::process::id())))
        }

        fn bytes(&self) -> u64 {
            BudgetDay::read(&std::fs::read_to_string(&self.0).unwrap()).unwrap().used
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn use_is_recorded_before_it_happens_and_survives_a_restart() {
        let file = File::new("record");
        let open = || Meter::open(Some(320_000), None, file.0.clone());
        let meter = open();
        assert_eq!(meter.take(1_000, false).unwrap(), 1_000);
        assert_eq!(file.bytes(), 11_000, "a part of the budget ahead");
        for _ in 0..10 {
            meter.take(1_000, false).unwrap();
            assert!(file.bytes() >= meter.used().unwrap().0);
        }
        // A kill without settling counts what was reserved.
        assert_eq!(open().used(), Some((11_000, 320_000)));
        meter.refund(500, false);
        meter.settle();
        assert_eq!(open().used(), Some((10_500, 320_000)));
        let meter = open();
        assert_eq!(meter.take(1 << 20, false).unwrap(), 309_500);
        assert_eq!((meter.take(1, false).unwrap(), meter.room(false)), (0, 0));
        assert_eq!(meter.take(5, true).unwrap(), 5, "urgent pods are not held");
        assert_eq!(meter.used(), Some((320_005, 320_000)), "their bytes count");
        std::fs::write(&file.0, "damaged").unwrap();
        assert_eq!(open().used(), Some((0, 320_000)));
    }

    #[test]
    fn cluster_budget_limits_and_is_charged() {
        let meter = Meter::unlimited();
        meter.set_cluster_left(1_000);
        assert_eq!(meter.take(700, false).unwrap(), 700);
        assert_eq!(meter.take(700, false).unwrap(), 300);
        assert_eq!(meter.take(700, false).unwrap(), 0);
        meter.refund(100, false);
        assert_eq!((meter.room(false), meter.take_uncharged(), meter.take_uncharged()), (100, 900, 0));
    }

    #[test]
    fn rate_is_kept_between_fetches() {
        let meter = Meter::open(None, Some(10_000), PathBuf::new());
        assert_eq!(meter.take(64 << 10, false).unwrap(), 2_500);
        assert_eq!(meter.take(64 << 10, true).unwrap(), 64 << 10);
        let (begun, go_on) = (Instant::now(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..2).for_each(|_| meter.pace(1_000, &go_on)));
            }
        });
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(400), "{took:?}");
        let begun = Instant::now();
        meter.pace(1 << 30, &AtomicBool::new(true));
        assert!(begun.elapsed() < Duration::from_secs(1));
    }
}
