//! CronJobs over restarts, outages and steps of the clock.

use std::time::Duration;

use super::*;
use crate::types::timestamp::Timestamp;

/// A CronJob on a node whose Jobs end when the test says so.
struct Node {
    spec: CronJobSpec,
    record: Option<ScheduleRecord>,
    /// By time.
    jobs: Vec<(i64, RunState)>,
    events: Vec<String>,
    has_leaving_pods: bool,
}

impl Node {
    fn new(schedule: &str) -> Self {
        let spec = CronJobSpec { schedule: schedule.to_owned(), ..CronJobSpec::default() };
        Self { spec, record: None, jobs: Vec::new(), events: Vec::new(), has_leaving_pods: false }
    }

    /// The CronJob is looked at; returns the time that it starts, and the next look.
    fn look(&mut self, now: &str) -> (Option<String>, Option<String>) {
        let decision = self.decide(time(now));
        (decision.start.map(shown), decision.next.map(shown))
    }

    fn decide(&mut self, now: i64) -> CronDecision {
        let schedule = CronSchedule::parse(&self.spec.schedule, |text| {
            text.strip_suffix('s').and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs)
        });
        let keys: Vec<String> = self.jobs.iter().map(|(time, _)| time.to_string()).collect();
        let runs: Vec<Run<'_>> =
            keys.iter().zip(&self.jobs).map(|(key, (_, state))| Run { key, state: *state }).collect();
        let input = CronInput {
            spec: &self.spec,
            schedule: &schedule.unwrap(),
            zone: &TimeZone::utc(),
            runs: &runs,
            has_leaving_pods: &|| self.has_leaving_pods,
        };
        let decision = decide_cron(&input, self.record.as_ref(), now);
        let replaces = self.spec.concurrency_policy == ConcurrencyPolicy::Replace && decision.waits.is_some();
        let removed: Vec<i64> =
            to_remove(&self.spec, &runs, replaces).into_iter().map(|key| key.parse().unwrap()).collect();
        self.jobs.retain(|(time, _)| !removed.contains(time));
        self.jobs.extend(decision.start.map(|time| (time, RunState::Active)));
        self.record = Some(decision.record.clone());
        self.events.extend(decision.events.iter().map(|event| format!("{event:?}")));
        decision
    }

    fn end(&mut self, at: &str, state: RunState) {
        let (_, of_job) = self.jobs.iter_mut().find(|(start, _)| *start == time(at)).expect(at);
        *of_job = state;
    }

    fn ranges(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.over.len())
    }
}

/// `10:05`, on a day of 2026, or `28T10:05`, or whole.
fn time(text: &str) -> i64 {
    let text = match text.len() {
        5 => format!("2026-11-28T{text}:00Z"),
        8 => format!("2026-11-{text}:00Z"),
        _ => text.to_owned(),
    };
    text.parse::<Timestamp>().unwrap().as_second()
}

fn shown(time: i64) -> String {
    Timestamp::from_second(time).unwrap().to_string().replace("2026-11-28T", "").replace(":00Z", "")
}

#[track_caller]
fn check(found: (Option<String>, Option<String>), start: Option<&str>, next: Option<&str>) {
    assert_eq!((found.0.as_deref(), found.1.as_deref()), (start, next));
}

#[test]
fn each_time_starts_once() {
    let mut node = Node::new("*/10 * * * *");
    check(node.look("10:05"), None, Some("10:10"));
    check(node.look("10:09"), None, Some("10:10"));
    check(node.look("10:10"), Some("10:10"), Some("10:20"));
    check(node.look("10:10"), None, Some("10:20"));
    check(node.look("10:21"), Some("10:20"), Some("10:30"));
    assert_eq!((node.ranges(), node.record.unwrap().last.map(shown)), (1, Some("10:20".to_owned())));
}

#[test]
fn latest_of_missed_times_starts_after_an_outage() {
    let mut node = Node::new("0 * * * *");
    node.look("10:05");
    check(node.look("15:30"), Some("15:00"), Some("16:00"));
    assert_eq!(node.events.len(), 0);
    check(node.look("2026-12-20T00:00:30Z"), Some("2026-12-20T00:00"), Some("2026-12-20T01:00"));
    assert!(node.events[0].contains("TooManyMissedTimes"), "{:?}", node.events);
}

#[test]
fn time_that_is_too_late_does_not_start() {
    let mut node = Node::new("0 * * * *");
    node.spec.starting_deadline_seconds = Some(600);
    node.look("10:05");
    check(node.look("11:10"), Some("11:00"), Some("12:00"));
    check(node.look("12:11"), None, Some("13:00"));
    check(node.look("13:00"), Some("13:00"), Some("14:00"));
}

#[test]
fn suspended_cron_job_starts_nothing_and_then_its_latest_missed_time() {
    let mut node = Node::new("0 * * * *");
    node.look("10:05");
    node.spec.suspend = true;
    check(node.look("12:30"), None, None);
    node.spec.suspend = false;
    check(node.look("13:30"), Some("13:00"), Some("14:00"));
}

#[test]
fn clock_set_back_repeats_no_time() {
    let mut node = Node::new("*/10 * * * *");
    node.look("10:05");
    node.look("10:10");
    node.look("10:20");
    check(node.look("10:08"), None, Some("10:30"));
    check(node.look("10:29"), None, Some("10:30"));
    check(node.look("10:30"), Some("10:30"), Some("10:40"));
}

#[test]
fn clock_that_was_years_ahead_does_not_silence_the_cron_job() {
    let mut node = Node::new("0 * * * *");
    node.look("10:05");
    check(node.look("2038-01-01T00:30:00Z"), Some("2038-01-01T00:00"), Some("2038-01-01T01:00"));
    check(node.look("10:20"), None, Some("11:00"));
    check(node.look("11:00"), Some("11:00"), Some("12:00"));
    // The years come, and their time of then is over.
    check(node.look("2038-01-01T00:10:00Z"), None, Some("2038-01-01T01:00"));
}

#[test]
fn clock_that_was_ahead_at_first_counts_from_its_right_time() {
    let mut node = Node::new("0 * * * *");
    node.look("2038-01-01T00:30:00Z");
    check(node.look("10:20"), None, Some("11:00"));
    check(node.look("11:00"), Some("11:00"), Some("12:00"));
}

#[test]
fn outages_do_not_make_the_record_grow() {
    let mut node = Node::new("0 * * * *");
    for day in 1..=28 {
        node.look(&format!("{day:02}T08:30"));
        node.look(&format!("{day:02}T09:00"));
        assert!(node.ranges() <= MAX_TIME_RANGES, "{:?}", node.record);
    }
    check(node.look("28T08:40"), None, Some("10:00"));
    let mut node = Node::new("0 * * * *");
    node.look("10:05");
    for year in 2030..2060 {
        node.look(&format!("{year}-01-01T00:30:00Z"));
        node.look("10:20");
        assert!(node.ranges() <= MAX_TIME_RANGES, "{:?}", node.record);
    }
    check(node.look("11:00"), Some("11:00"), Some("12:00"));
}

#[test]
fn forbidden_overlap_starts_the_latest_time_after_the_end_of_the_job() {
    let mut node = Node::new("*/10 * * * *");
    node.spec.concurrency_policy = ConcurrencyPolicy::Forbid;
    node.look("10:05");
    node.look("10:10");
    check(node.look("10:20"), None, None);
    assert_eq!(node.decide(time("10:33")).waits.map(shown).as_deref(), Some("10:30"));
    node.end("10:10", RunState::Failed);
    node.has_leaving_pods = true;
    check(node.look("10:34"), None, None);
    node.has_leaving_pods = false;
    check(node.look("10:35"), Some("10:30"), Some("10:40"));
}

/// Each start misses a time.
#[test]
fn clock_set_back_repeats_no_time_between_forbidden_ones() {
    let mut node = Node::new("* * * * *");
    node.spec.concurrency_policy = ConcurrencyPolicy::Forbid;
    node.look("10:10");
    for minute in (11..59).step_by(3) {
        let start = format!("10:{minute}");
        check(node.look(&start), Some(&start), Some(&format!("10:{}", minute + 1)));
        node.look(&format!("10:{}", minute + 1));
        node.end(&start, RunState::Succeeded);
    }
    assert!(node.ranges() <= MAX_TIME_RANGES, "{:?}", node.record);
    for now in ["10:11", "10:30", "10:53"] {
        assert_eq!(node.look(now).0, None, "{now}");
    }
}

#[test]
fn replaced_job_is_gone_with_its_pods_before_the_next_starts() {
    let mut node = Node::new("*/10 * * * *");
    node.spec.concurrency_policy = ConcurrencyPolicy::Replace;
    node.look("10:05");
    node.look("10:10");
    check(node.look("10:20"), None, None);
    assert_eq!(node.jobs, []);
    node.has_leaving_pods = true;
    check(node.look("10:20"), None, None);
    node.has_leaving_pods = false;
    check(node.look("10:21"), Some("10:20"), Some("10:30"));
}

#[test]
fn allowed_overlap_starts_beside_an_active_job() {
    let mut node = Node::new("*/10 * * * *");
    node.look("10:05");
    node.look("10:10");
    node.look("10:20");
    assert_eq!(node.jobs.len(), 2);
}

#[test]
fn last_jobs_stay_and_active_ones_count_for_no_limit() {
    let mut node = Node::new("* * * * *");
    node.look("10:00");
    for minute in 1..=9 {
        let now = format!("10:0{minute}");
        node.look(&now);
        node.end(&now, if minute % 3 == 0 { RunState::Failed } else { RunState::Succeeded });
    }
    node.end("10:08", RunState::Active);
    node.look("10:09");
    let left = |node: &Node| node.jobs.iter().map(|(time, _)| shown(*time)).collect::<Vec<_>>();
    assert_eq!(left(&node), ["10:05", "10:07", "10:08", "10:09"]);
    node.spec.successful_jobs_history_limit = Some(0);
    node.spec.failed_jobs_history_limit = Some(0);
    node.look("10:09");
    assert_eq!(left(&node), ["10:08"]);
    node.end("10:08", RunState::Expired);
    node.look("10:09");
    assert_eq!(left(&node), Vec::<String>::new());
}

#[test]
fn interval_counts_from_the_last_start() {
    let mut node = Node::new("@every 90s");
    node.look("10:00");
    check(node.look("10:01"), None, Some("2026-11-28T10:01:30Z").map(|_| "10:01:30Z"));
    check(node.look("2026-11-28T10:01:30Z"), Some("10:01:30Z"), Some("10:03"));
    check(node.look("10:04"), Some("10:03"), Some("10:04:30Z"));
}

/// A wall clock with any steps and outages: no time starts twice, and a quiet clock misses none.
#[test]
fn no_time_starts_twice_in_random_lives() {
    for seed in 1..=300_u64 {
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |limit: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            i64::try_from(x % limit).unwrap()
        };
        let mut node = Node::new("*/7 * * * *");
        let (mut now, mut started, mut outages) = (time("10:00"), Vec::new(), 1);
        for _ in 0..200 {
            match below(20) {
                // No more outages than ranges are kept.
                0 if outages < MAX_TIME_RANGES => {
                    outages += 1;
                    now += below(5 * 86_400);
                }
                1 => now -= below(3600),
                2 => now += below(6 * 3600),
                _ => now += below(300),
            }
            let before = node.record.clone();
            let decision = node.decide(now);
            if let Some(start) = decision.start {
                assert!(!started.contains(&start), "{seed}: {} twice", shown(start));
                assert!(start <= now, "{seed}");
                started.push(start);
            }
            if below(10) == 0 {
                // The power fails before the record is on the disk; the Job was not started.
                node.record = before;
                started.retain(|time| decision.start != Some(*time));
            }
            assert!(node.ranges() <= MAX_TIME_RANGES, "{seed}");
            assert!(decision.next.is_some_and(|next| next > now), "{seed}: due at once");
        }
        assert!(started.len() > 5, "{seed}: {}", started.len());
    }
}
