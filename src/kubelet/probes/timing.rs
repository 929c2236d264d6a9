//! The times of a probe, and the thresholds of its results. Pure: time is an argument.

use std::time::{Duration, Instant};

use crate::kubelet::probes::results::seconds;
use crate::types::api::Probe;

/// Counts consecutive results against the thresholds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResultRun {
    passed: bool,
    row: u32,
}

impl ResultRun {
    /// Adds a result; returns a verdict once its threshold is reached.
    pub(super) fn count(&mut self, passed: bool, probe: &Probe) -> Option<bool> {
        if passed != self.passed {
            self.row = 0;
        }
        self.passed = passed;
        self.row = self.row.saturating_add(1);
        let threshold = if passed { probe.success_threshold } else { probe.failure_threshold };
        (i64::from(self.row) >= i64::from(threshold)).then_some(passed)
    }
}

/// The probe period; never zero.
pub(super) fn period(probe: &Probe) -> Duration {
    seconds(probe.period_seconds).max(Duration::from_secs(1))
}

/// The first of the times `base`, `base + period`, `base + 2 period`, … that is not before `earliest`.
pub(super) fn first_tick(base: Instant, period: Duration, earliest: Instant) -> Instant {
    let Some(ahead) = earliest.checked_duration_since(base) else { return base };
    let late = ahead.as_nanos() % period.as_nanos().max(1);
    match u64::try_from(late) {
        Ok(0) | Err(_) => earliest,
        Ok(late) => earliest + period - Duration::from_nanos(late).min(period),
    }
}

/// The tick after `last`. If ticks were missed while a probe was running, only the newest one runs late.
pub(super) fn next_tick(last: Instant, period: Duration, now: Instant) -> Instant {
    let behind = now.saturating_duration_since(last).as_nanos() / period.as_nanos().max(1);
    let steps = u32::try_from(behind.max(1)).unwrap_or(u32::MAX);
    last + period.saturating_mul(steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{ExecAction, ProbeHandler};

    fn probe(success_threshold: i32, failure_threshold: i32) -> Probe {
        Probe {
            handler: ProbeHandler::Exec(ExecAction::default()),
            initial_delay_seconds: 0,
            timeout_seconds: 1,
            period_seconds: 10,
            success_threshold,
            failure_threshold,
            termination_grace_period_seconds: None,
        }
    }

    #[track_caller]
    fn check(thresholds: (i32, i32), answers: &str, verdicts: &str) {
        let probe = probe(thresholds.0, thresholds.1);
        let mut tally = ResultRun::default();
        let made = answers.chars().map(|response| match tally.count(response == '+', &probe) {
            None => '.',
            Some(true) => '+',
            Some(false) => '-',
        });
        assert_eq!(made.collect::<String>(), verdicts, "{answers}");
    }

    #[test]
    fn verdict_needs_threshold_consecutive_results() {
        check((1, 3), "+--+---+", "+..+..-+");
        check((2, 1), "++-+-++", ".+-.-.+");
        check((1, 1), "-+-", "-+-");
        check((3, 2), "-+--+++-+", "...-..+..");
    }

    #[test]
    fn verdict_repeats_while_the_results_continue() {
        check((1, 2), "----++", ".---++");
    }

    #[test]
    fn ticks_continue_from_the_base() {
        let base = Instant::now();
        let at = |millis: u64| base + Duration::from_millis(millis);
        let period = Duration::from_secs(10);
        for (earliest, tick) in [(0, 0), (1, 10_000), (9_999, 10_000), (10_000, 10_000), (10_001, 20_000)] {
            assert_eq!(first_tick(base, period, at(earliest)), at(tick), "{earliest}");
        }
        assert_eq!(first_tick(at(5), period, base), at(5), "before the base");
    }

    #[test]
    fn late_result_is_followed_by_one_probe_at_once() {
        let last = Instant::now();
        let at = |millis: u64| last + Duration::from_millis(millis);
        let period = Duration::from_secs(10);
        for (now, next) in [(0, 10_000), (9_999, 10_000), (10_500, 10_000), (19_999, 10_000), (35_000, 30_000)] {
            assert_eq!(next_tick(last, period, at(now)), at(next), "{now}");
        }
    }
}
