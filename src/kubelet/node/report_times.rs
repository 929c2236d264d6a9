//! When the node's status is told although nothing has changed. Pure: the moment is an argument.

use std::time::{Duration, Instant};

use crate::types::time::jitter;

/// The status is told a period after it was told last, and after news somewhere between half of one and one and a half:
/// all nodes of a cluster may have had theirs at once.
#[derive(Debug)]
pub(crate) struct ReportTimes {
    period: Duration,
    due: Option<Instant>,
}

impl ReportTimes {
    pub(crate) fn new(period: Duration) -> Self {
        Self { period, due: None }
    }

    /// Nothing has been told yet, or not for long.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.due.is_none_or(|due| due <= now)
    }

    /// `None`: at once.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// It has arrived at the server; `random` is any number, evenly spread.
    pub(crate) fn told(&mut self, had_news: bool, now: Instant, random: u32) {
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
    fn after_news_the_next_report_is_spread_and_then_it_comes_evenly() {
        let period = Duration::from_secs(300);
        let mut times = ReportTimes::new(period);
        let now = Instant::now();
        assert!(times.is_due(now));
        times.told(false, now, 0);
        assert_eq!(times.due(), Some(now + period / 2));
        times.told(false, now + period / 2, u32::MAX);
        assert_eq!(times.due(), Some(now + period / 2 + period));
        times.told(true, now, u32::MAX);
        assert_eq!(times.due(), Some(now + period * 3 / 2));
        assert!(!times.is_due(now + period) && times.is_due(now + period * 2));
    }
}
