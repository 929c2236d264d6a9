//! When a container is asked, and what a row of answers means. Pure: the moment is an argument.

use std::time::{Duration, Instant};

use crate::kubelet::probes::results::seconds;
use crate::types::api::Probe;

/// Answers in a row against the thresholds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    passed: bool,
    row: u32,
}

impl Tally {
    /// Takes in an answer; the verdict, once there have been enough of the kind in a row.
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

/// The time between two questions; never nothing.
pub(super) fn period(probe: &Probe) -> Duration {
    seconds(probe.period_seconds).max(Duration::from_secs(1))
}

/// The first of the moments `base`, `base + period`, `base + 2 period`, … that is not before `earliest`.
pub(super) fn first_tick(base: Instant, period: Duration, earliest: Instant) -> Instant {
    let Some(ahead) = earliest.checked_duration_since(base) else { return base };
    let late = ahead.as_nanos() % period.as_nanos().max(1);
    match u64::try_from(late) {
        Ok(0) | Err(_) => earliest,
        Ok(late) => earliest + period - Duration::from_nanos(late).min(period),
    }
}

/// The moment after `last`. Of the moments that went by while an answer was waited for only the newest is made up for.
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
        let mut tally = Tally::default();
        let made = answers.chars().map(|answer| match tally.count(answer == '+', &probe) {
            None => '.',
            Some(true) => '+',
            Some(false) => '-',
        });
        assert_eq!(made.collect::<String>(), verdicts, "{answers}");
    }

    #[test]
    fn a_verdict_needs_as_many_answers_in_a_row_as_its_threshold() {
        check((1, 3), "+--+---+", "+..+..-+");
        check((2, 1), "++-+-++", ".+-.-.+");
        check((1, 1), "-+-", "-+-");
        check((3, 2), "-+--+++-+", "...-..+..");
    }

    #[test]
    fn a_verdict_is_repeated_for_as_long_as_the_row_goes_on() {
        check((1, 2), "----++", ".---++");
    }

    #[test]
    fn moments_go_on_from_the_base_whenever_they_are_asked_for() {
        let base = Instant::now();
        let at = |millis: u64| base + Duration::from_millis(millis);
        let period = Duration::from_secs(10);
        for (earliest, tick) in [(0, 0), (1, 10_000), (9_999, 10_000), (10_000, 10_000), (10_001, 20_000)] {
            assert_eq!(first_tick(base, period, at(earliest)), at(tick), "{earliest}");
        }
        assert_eq!(first_tick(at(5), period, base), at(5), "before the base");
    }

    #[test]
    fn a_late_answer_is_followed_at_once_by_one_question_and_not_by_all_that_were_missed() {
        let last = Instant::now();
        let at = |millis: u64| last + Duration::from_millis(millis);
        let period = Duration::from_secs(10);
        for (now, next) in [(0, 10_000), (9_999, 10_000), (10_500, 10_000), (19_999, 10_000), (35_000, 30_000)] {
            assert_eq!(next_tick(last, period, at(now)), at(next), "{now}");
        }
    }
}
