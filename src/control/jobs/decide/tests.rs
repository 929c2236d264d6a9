use std::cell::Cell;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// In 2026.
const CLOCK: i64 = 1_790_000_000;

fn spec(completions: i32, parallelism: i32) -> JobSpec {
    JobSpec { completions: Some(completions), parallelism: Some(parallelism), ..JobSpec::default() }
}

/// A Job on a node whose runtime does as it is told.
struct Node {
    spec: JobSpec,
    restart_policy: RestartPolicy,
    record: JobRecord,
    times: JobTimes,
    start: Instant,
    passed: Duration,
    clock: Option<i64>,
    /// By serial; active unless set.
    states: Vec<(u32, PodState)>,
    events: Vec<String>,
    has_leaving_pods: bool,
    /// How often the decision has looked at the other pods of the node.
    looks: Cell<u32>,
}

impl Node {
    fn new(spec: JobSpec) -> Self {
        Self {
            spec,
            restart_policy: RestartPolicy::Never,
            record: JobRecord::new("u"),
            times: JobTimes::default(),
            start: Instant::now(),
            passed: Duration::ZERO,
            clock: Some(CLOCK),
            states: Vec::new(),
            events: Vec::new(),
            has_leaving_pods: false,
            looks: Cell::new(0),
        }
    }

    fn decide(&mut self) -> Decision {
        let state = |pod: &ActivePod| {
            let known = self.states.iter().rev().find(|(serial, _)| *serial == pod.serial);
            known.map_or(PodState::Active { restarts: 0 }, |(_, state)| *state)
        };
        let has_leaving_pods = || {
            self.looks.set(self.looks.get() + 1);
            self.has_leaving_pods
        };
        let input = JobInput {
            spec: &self.spec,
            restart_policy: self.restart_policy,
            state: &state,
            has_leaving_pods: &has_leaving_pods,
        };
        let clock = self.clock.map(|clock| clock.saturating_add_unsigned(self.passed.as_secs()));
        decide(&input, &self.record, &mut self.times, Moment { now: self.start + self.passed, clock })
    }

    /// Decides and writes until nothing changes. Returns how long to wait.
    fn settle(&mut self) -> Option<Duration> {
        for _ in 0..10 {
            let decision = self.decide();
            if decision.record == self.record {
                return decision.due.map(|due| due.duration_since(self.start + self.passed));
            }
            self.events.extend(decision.events.iter().map(|event| match event {
                JobEvent::Created(_) => "SuccessfulCreate".to_owned(),
                JobEvent::Other(_, reason, _) => reason.to_string(),
            }));
            self.record = decision.record;
        }
        panic!("a decision changes what it has decided: {:?}", self.record);
    }

    /// Lets the back-off pass.
    fn wait(&mut self) {
        let wait = self.settle().expect("a back-off");
        self.passed += wait;
    }

    fn end(&mut self, serial: u32, state: PodState) {
        self.states.push((serial, state));
    }

    fn active(&self) -> Vec<u32> {
        self.record.active.iter().map(|pod| pod.serial).collect()
    }

    /// The agent starts again, with what is on the disk.
    fn restart(&mut self) {
        self.times = JobTimes::default();
    }

    fn condition(&self) -> (&str, &str) {
        (&self.record.condition, &self.record.reason)
    }
}

#[test]
fn job_without_counts_runs_one_pod_to_its_success() {
    let mut node = Node::new(JobSpec::default());
    assert_eq!(node.settle(), None);
    assert_eq!(node.active(), [0]);
    node.end(0, PodState::Succeeded);
    assert_eq!(node.settle(), None);
    assert_eq!((node.active(), node.condition()), (vec![], ("Complete", "")));
    assert_eq!(node.record.ended, [EndedPod { serial: 0, index: None, succeeded: true }]);
    assert_eq!((node.record.started, node.record.finished), (Some(CLOCK), Some(CLOCK)));
    assert_eq!(node.events, ["SuccessfulCreate", "Completed"]);
}

#[test]
fn at_most_parallelism_pods_run_and_no_more_than_are_missing() {
    let mut node = Node::new(spec(5, 2));
    node.settle();
    assert_eq!(node.active(), [0, 1]);
    node.end(0, PodState::Succeeded);
    node.end(1, PodState::Succeeded);
    node.settle();
    assert_eq!(node.active(), [2, 3]);
    node.end(2, PodState::Succeeded);
    node.end(3, PodState::Succeeded);
    node.settle();
    assert_eq!(node.active(), [4]);
    node.end(4, PodState::Succeeded);
    node.settle();
    assert_eq!((node.record.succeeded, node.condition()), (5, ("Complete", "")));
}

#[test]
fn work_queue_replaces_no_pod_after_its_first_success() {
    let mut node = Node::new(JobSpec { parallelism: Some(3), ..JobSpec::default() });
    node.settle();
    assert_eq!(node.active(), [0, 1, 2]);
    node.end(1, PodState::Succeeded);
    node.settle();
    node.end(0, PodState::Failed);
    node.passed = SECOND * 1000;
    node.settle();
    assert_eq!((node.active(), node.condition()), (vec![2], ("", "")));
    node.end(2, PodState::Succeeded);
    node.settle();
    assert_eq!(node.condition(), ("Complete", ""));
}

#[test]
fn failed_pods_are_replaced_after_a_back_off_that_doubles_up_to_six_minutes() {
    let mut node = Node::new(JobSpec { backoff_limit: Some(8), ..JobSpec::default() });
    node.settle();
    let mut waits = Vec::new();
    for serial in 0..8 {
        node.end(serial, PodState::Failed);
        let wait = node.settle().expect("a back-off");
        assert_eq!(node.active(), Vec::<u32>::new());
        node.passed += wait;
        node.settle();
        assert_eq!(node.active(), [serial + 1]);
        waits.push(wait.as_secs());
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 320, 360, 360]);
    node.end(8, PodState::Failed);
    node.settle();
    assert_eq!((node.condition(), node.record.failed), (("Failed", "BackoffLimitExceeded"), 9));
    assert_eq!(node.events.last().map(String::as_str), Some("BackoffLimitExceeded"));
    assert_eq!(node.record.ended.len(), SHOWN_ENDED_PODS);
}

#[test]
fn success_resets_the_back_off() {
    let mut node = Node::new(spec(3, 1));
    node.settle();
    node.end(0, PodState::Failed);
    node.wait();
    node.settle();
    node.end(1, PodState::Succeeded);
    assert_eq!((node.settle(), node.active()), (None, vec![2]));
    node.end(2, PodState::Failed);
    assert_eq!(node.settle(), Some(SECOND * 10));
}

#[test]
fn restarts_of_containers_count_against_the_limit_with_on_failure() {
    let limited = |limit, restarts| {
        let mut node = Node::new(JobSpec { backoff_limit: Some(limit), ..JobSpec::default() });
        node.restart_policy = RestartPolicy::OnFailure;
        node.settle();
        node.end(0, PodState::Active { restarts });
        node.settle();
        node.condition().1.to_owned()
    };
    let exceeded = "BackoffLimitExceeded";
    assert_eq!([limited(0, 0), limited(0, 1), limited(3, 2), limited(3, 3)], ["", exceeded, "", exceeded]);
}

#[test]
fn deadline_ends_the_pods_that_run() {
    let mut node = Node::new(JobSpec { active_deadline_seconds: Some(60), ..spec(4, 2) });
    assert_eq!(node.settle(), Some(SECOND * 60));
    node.end(0, PodState::Succeeded);
    node.passed = SECOND * 59;
    assert_eq!(node.settle(), Some(SECOND));
    node.passed = SECOND * 60;
    assert_eq!(node.settle(), None);
    assert_eq!((node.condition(), node.active()), (("Failed", "DeadlineExceeded"), vec![]));
    assert_eq!((node.record.succeeded, node.record.failed), (1, 2));
}

#[test]
fn deadline_counts_over_restarts_and_no_clock_step_reaches_it() {
    let mut node = Node::new(JobSpec { active_deadline_seconds: Some(60), ..JobSpec::default() });
    node.settle();
    node.passed = SECOND * 20;
    node.restart();
    assert_eq!(node.settle(), Some(SECOND * 40));
    // Within a process, a step of the clock changes nothing.
    node.clock = Some(CLOCK + 100_000);
    assert_eq!(node.settle(), Some(SECOND * 40));
    node.clock = Some(CLOCK - 100_000);
    node.restart();
    assert_eq!(node.settle(), Some(SECOND * 60), "a clock behind the start counts from now");
}

#[test]
fn job_starts_before_the_clock_is_set_and_gets_its_start_time_later() {
    let mut node = Node::new(JobSpec { active_deadline_seconds: Some(60), ..JobSpec::default() });
    node.clock = None;
    node.settle();
    assert_eq!((node.active(), node.record.started), (vec![0], None));
    (node.passed, node.clock) = (SECOND * 30, Some(CLOCK));
    assert_eq!(node.settle(), Some(SECOND * 30));
    assert_eq!(node.record.started, Some(CLOCK));
}

#[test]
fn suspended_job_ends_its_pods_without_counting_them() {
    let mut node = Node::new(JobSpec { active_deadline_seconds: Some(60), ..spec(2, 2) });
    node.settle();
    node.end(0, PodState::Succeeded);
    node.settle();
    node.spec.suspend = true;
    node.passed = SECOND * 100;
    assert_eq!(node.settle(), None, "a suspended Job has no deadline");
    let record = &node.record;
    assert_eq!((node.active(), record.succeeded, record.failed, record.started), (vec![], 1, 0, None));
    node.spec.suspend = false;
    assert_eq!(node.settle(), Some(SECOND * 60));
    assert_eq!(node.active(), [2]);
    assert_eq!(node.events[2..], ["Suspended", "Resumed", "SuccessfulCreate"]);
}

#[test]
fn pod_that_has_done_its_work_counts_in_a_suspended_job() {
    let mut node = Node::new(spec(3, 3));
    node.settle();
    node.end(1, PodState::Ending);
    node.spec.suspend = true;
    node.settle();
    assert_eq!((node.active(), node.record.succeeded), (vec![1], 0));
    node.end(1, PodState::Succeeded);
    node.settle();
    assert_eq!((node.active(), node.record.succeeded), (vec![], 1));
}

#[test]
fn lower_parallelism_keeps_pods_that_have_done_their_work() {
    let mut node = Node::new(spec(9, 3));
    node.settle();
    node.end(2, PodState::Ending);
    node.spec.parallelism = Some(2);
    node.settle();
    assert_eq!(node.active(), [2, 0]);
}

#[test]
fn lower_parallelism_ends_the_newest_pods() {
    let mut node = Node::new(spec(9, 4));
    node.settle();
    node.spec.parallelism = Some(1);
    node.settle();
    assert_eq!((node.active(), node.record.failed), (vec![0], 0));
    node.spec.parallelism = Some(0);
    node.settle();
    assert_eq!((node.active(), node.condition()), (vec![], ("", "")));
}

#[test]
fn each_index_succeeds_once() {
    let mut node = Node::new(JobSpec { completion_mode: CompletionMode::Indexed, ..spec(3, 2) });
    node.settle();
    let indexes = |node: &Node| node.record.active.iter().map(|pod| pod.index).collect::<Vec<_>>();
    assert_eq!(indexes(&node), [Some(0), Some(1)]);
    node.end(1, PodState::Succeeded);
    node.settle();
    assert_eq!(indexes(&node), [Some(0), Some(2)]);
    node.end(0, PodState::Failed);
    node.wait();
    node.settle();
    assert_eq!(indexes(&node), [Some(2), Some(0)]);
    node.end(2, PodState::Succeeded);
    node.end(3, PodState::Succeeded);
    node.settle();
    assert_eq!((&*node.record.completed, node.condition()), (&[(0, 2)][..], ("Complete", "")));
}

#[test]
fn pods_of_a_finished_job_are_shown_until_its_time_is_over() {
    let mut node = Node::new(JobSpec { ttl_seconds_after_finished: Some(100), ..JobSpec::default() });
    node.settle();
    node.end(0, PodState::Succeeded);
    assert_eq!(node.settle(), Some(SECOND * 100));
    node.passed = SECOND * 40;
    node.restart();
    assert_eq!((node.settle(), node.record.ended.len()), (Some(SECOND * 60), 1));
    node.passed = SECOND * 100;
    assert_eq!((node.settle(), node.record.ended.len()), (None, 0));
    assert_eq!(node.condition(), ("Complete", ""), "it is over, and does not run again");
}

#[test]
fn pods_of_a_former_job_end_before_new_ones_are_made() {
    let mut node = Node::new(JobSpec::default());
    node.has_leaving_pods = true;
    node.settle();
    assert_eq!(node.active(), Vec::<u32>::new());
    node.has_leaving_pods = false;
    node.settle();
    assert_eq!(node.active(), [0]);
}

/// A hundred Jobs are decided about at each change of a pod.
#[test]
fn job_that_has_its_pods_does_not_look_at_those_of_others() {
    let mut node = Node::new(spec(10, 3));
    node.settle();
    assert_eq!((node.active(), node.looks.take()), (vec![0, 1, 2], 1));
    node.settle();
    assert_eq!(node.looks.take(), 0);
}

#[test]
fn damaged_record_keeps_its_job_from_running() {
    let mut node = Node::new(JobSpec::default());
    node.record = JobRecord::damaged();
    node.settle();
    assert_eq!((node.active(), node.condition()), (vec![], ("Failed", "RecordDamaged")));
}

/// Xorshift: the same seed gives the same life.
struct Random(Cell<u64>);

impl Random {
    fn below(&self, limit: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.set(x);
        x % limit
    }
}

/// What really happened to the pods of a Job.
#[derive(Default)]
struct World {
    /// Serials that have run, each with its end.
    ran: Vec<(u32, Option<PodState>)>,
}

/// One life of a Job with power cuts between any two steps: decide, write, act, see.
fn live(seed: u64) {
    let random = Random(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
    let (completions, parallelism) = (1 + random.below(6), 1 + random.below(4));
    let mut spec = spec(i32::try_from(completions).unwrap(), i32::try_from(parallelism).unwrap());
    spec.backoff_limit = Some(i32::try_from(random.below(6)).unwrap());
    if random.below(2) == 0 {
        spec.completion_mode = CompletionMode::Indexed;
    }
    let mut node = Node::new(spec);
    let mut world = World::default();
    // The records on the disk that were in effect, which no later one takes back.
    let mut seen = (0, 0);
    for _ in 0..400 {
        // The pods of the record on the disk run, unless they have ended.
        for pod in &node.record.active {
            assert!(!node.record.ended.iter().any(|ended| ended.serial == pod.serial), "{seed}: runs again");
            if !world.ran.iter().any(|(serial, _)| *serial == pod.serial) {
                world.ran.push((pod.serial, None));
            }
        }
        let running: Vec<u32> = node.active();
        assert!(running.len() <= usize::try_from(parallelism).unwrap(), "{seed}");
        for (serial, end) in world.ran.iter_mut().filter(|(serial, end)| end.is_none() && running.contains(serial)) {
            let state = match random.below(4) {
                0 => PodState::Succeeded,
                1 if random.below(3) == 0 => PodState::Failed,
                _ => continue,
            };
            *end = Some(state);
            node.end(*serial, state);
        }
        let decision = node.decide();
        match random.below(5) {
            // The power fails before the record is on the disk.
            0 => node.restart(),
            1 => {
                node.record = decision.record;
                node.restart();
            }
            _ => node.record = decision.record,
        }
        let counted = (node.record.succeeded, node.record.failed);
        assert!(counted.0 >= seen.0 && counted.1 >= seen.1, "{seed}: {counted:?} after {seen:?}");
        seen = counted;
        let really = world.ran.iter().filter(|(_, end)| *end == Some(PodState::Succeeded)).count();
        assert!(usize::try_from(counted.0).unwrap() <= really, "{seed}: counted twice");
        let indexes: i64 = node.record.completed.iter().map(|(first, last)| last - first + 1).sum();
        let is_indexed = node.spec.completion_mode == CompletionMode::Indexed;
        assert!(!is_indexed || indexes == i64::from(counted.0), "{seed}: an index succeeded twice");
        node.passed += SECOND * u32::try_from(random.below(30)).unwrap();
        if node.record.is_finished() {
            assert_eq!(node.active(), Vec::<u32>::new());
            let is_complete = node.record.condition == JOB_COMPLETE;
            assert_eq!(is_complete, u64::from(counted.0) >= completions, "{seed}");
            assert!(!is_complete || u64::from(counted.0) == completions, "{seed}: more than was asked for");
            let before = node.record.clone();
            node.restart();
            node.settle();
            assert_eq!(node.record, before, "{seed}: a finished Job changes nothing");
            return;
        }
    }
    panic!("{seed}: never finished: {:?}", node.record);
}

#[test]
fn power_cuts_between_any_two_steps_count_no_completion_twice() {
    (1..=2000).for_each(live);
}
