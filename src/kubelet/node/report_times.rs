//! Times of the periodic node status reports. Pure: time is an argument.

use std::time::{Duration, Instant};

use crate::types::time::jitter;

/// A report is due one period after the last one; after a report with changes, between 0.5 and 1.5 periods, because
/// all nodes of a cluster may have changed at the same time.
#[derive(Debug)]
pub(crate) struct ReportTimes {
    period: Duration,
    due: Option<Instant>,
}

impl ReportTimes {
    pub(crate) fn new(period: Duration) -> Self {
        Self { period, due: None }
    }

    /// True before the first report.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now)
    }

    /// `None`: at once.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Records an accepted report; `random` is uniformly distributed.
    pub(crate) fn on_reported(&mut self, had_news: bool, now: Instant, random: u32) {
        let is_first = self.due.is_none();
        let wait = match had_news || is_first {
            true => jitter(self.period / 2, 2.0, random),
            false => self.period,
        };
        self.due = Some(now + wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_after_a_change_is_spread_and_then_regular() {
        let period = Duration::from_secs(300);
        let mut times = ReportTimes::new(period);
        let now = Instant::now();
        assert!(times.is_due(now));
        times.on_reported(false, now, 0);
        assert_eq!(times.due(), Some(now + period / 2));
        times.on_reported(false, now + period / 2, u32::MAX);
        assert_eq!(times.due(), Some(now + period / 2 + period));
        times.on_reported(true, now, u32::MAX);
        assert_eq!(times.due(), Some(now + period * 3 / 2));
        assert!(!times.is_due(now + period) && times.is_due(now + period * 2));
    }
}
