//! Every runtime call in a pod's life fails once, or the agent is killed during it. The pod must nevertheless be
//! started and ended correctly, nothing may be created twice, and no other pod may be affected.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::container_runtime::CallFault;
use super::life::{Report, live};
use super::plan::{Episode, HeldCall, Plan, Step, StepKind};
use super::wanted::Traits;
use super::{after, need_root};

/// The point in the pod's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// Its manifest is written.
    Start,
    /// One of its containers has exited.
    Restart,
    /// One of its containers has exited for the second time: the first dead one is removed.
    SecondRestart,
    /// The connection to the runtime is cut: the agent relists.
    Reconnect,
    /// Another agent finds it running.
    Adoption,
    /// Its manifest is removed.
    Removal,
}

/// Every call made at each moment, and how many calls of its kind precede it.
const CALLS: &[(Moment, &[(&str, u32)])] = &[
    (
        Moment::Start,
        &[
            ("RunPodSandbox", 0),
            ("PodSandboxStatus", 0),
            ("PodSandboxStatus", 1),
            ("ImageStatus", 0),
            ("ImageStatus", 1),
            ("PullImage", 0),
            ("CreateContainer", 0),
            ("CreateContainer", 1),
            ("StartContainer", 0),
            ("StartContainer", 1),
            ("ListPodSandbox", 0),
            ("ListContainers", 0),
            ("ContainerStatus", 0),
            ("ContainerStatus", 1),
        ],
    ),
    (
        Moment::Restart,
        &[
            ("ContainerStatus", 0),
            ("ContainerStatus", 1),
            ("ListPodSandbox", 0),
            ("ListContainers", 0),
            ("ImageStatus", 0),
            ("CreateContainer", 0),
            ("StartContainer", 0),
        ],
    ),
    (Moment::SecondRestart, &[("RemoveContainer", 0)]),
    (Moment::Reconnect, &[("Version", 0), ("Status", 0), ("ListPodSandbox", 0), ("ListContainers", 0)]),
    (
        Moment::Adoption,
        &[
            ("Version", 0),
            ("Status", 0),
            ("RuntimeConfig", 0),
            ("ListPodSandbox", 0),
            ("ListContainers", 0),
            ("PodSandboxStatus", 0),
            ("ContainerStatus", 0),
        ],
    ),
    (
        Moment::Removal,
        &[
            ("ListPodSandbox", 0),
            ("ListContainers", 0),
            ("StopContainer", 0),
            ("StopPodSandbox", 0),
            ("ContainerStatus", 0),
            ("PodSandboxStatus", 0),
            ("RemovePodSandbox", 0),
        ],
    ),
];

/// Maximum number of mutating calls: a start takes 6, a removal 4, and one of them fails.
const MAX_MUTATING_CALLS: u64 = 16;

#[derive(Clone, Copy, Debug)]
struct Case {
    phase: Moment,
    call: &'static str,
    skip: u32,
}

fn cases() -> impl Iterator<Item = Case> {
    CALLS.iter().flat_map(|(time, calls)| calls.iter().map(|&(call, skip)| Case { phase: *time, call, skip }))
}

impl Moment {
    /// The episodes before it. At their end a pod `static-1` runs, and, except before the start, `static-2`.
    fn prepared(self) -> Vec<Episode> {
        let mut episodes = vec![episode(vec![after(1, StepKind::WriteManifest(Traits::default()))])];
        if self != Self::Start {
            episodes.push(episode(vec![write_web()]));
        }
        if self == Self::SecondRestart {
            episodes.push(episode(vec![after(1, StepKind::Exit { which: 1, code: 1 })]));
        }
        episodes
    }

    fn happens(self) -> Step {
        match self {
            Self::Start => write_web(),
            Self::Restart => after(1, StepKind::Exit { which: 1, code: 1 }),
            // Its other container started before.
            Self::SecondRestart => after(1, StepKind::Exit { which: 2, code: 1 }),
            Self::Reconnect => after(1, StepKind::RuntimeGone { lasts: Duration::from_millis(10) }),
            Self::Adoption => after(1, StepKind::KillAgent { down: Duration::from_secs(2) }),
            Self::Removal => after(1, StepKind::RemoveManifest(1)),
        }
    }
}

/// A pod with two containers, and an image that is pulled.
fn write_web() -> Step {
    after(1, StepKind::WriteManifest(Traits { side: true, pull: true, ..Traits::default() }))
}

fn episode(steps: Vec<Step>) -> Episode {
    Episode { steps, ..Episode::default() }
}

impl Case {
    fn wrong(self, fault: CallFault) -> Step {
        after(0, StepKind::CallGoesWrong { method: self.call, skip: self.skip, fault })
    }

    /// A simulation up to this moment, in which the call fails with `fault`, followed by `ends`.
    fn live(self, seed: u64, fault: CallFault, ends: Option<StepKind>) -> Report {
        let mut episodes = self.phase.prepared();
        let mut steps = match self.phase {
            // The killed agent makes no further calls.
            Moment::Adoption => vec![self.phase.happens(), self.wrong(fault)],
            _ => vec![self.wrong(fault), self.phase.happens()],
        };
        // A hanging call has a deadline of two minutes.
        let hangs = matches!(fault, CallFault::Hangs | CallFault::HangsAfterItsEffect);
        steps.push(match ends {
            Some(what) => after(0, what),
            None => after(if hangs { 150 } else { 20 }, StepKind::EndWatches),
        });
        // The relist finds what was missed.
        episodes.push(Episode { quiet: Duration::from_secs(65), ..episode(steps) });
        live(&Plan { seed, lease: Duration::from_secs(40), episodes })
    }
}

/// Runs all of these cases, several at once.
#[track_caller]
fn in_each(cases: impl Iterator<Item = Case>, fault: CallFault, ends: Option<&StepKind>) {
    in_each_seed(cases.map(|case| (case, 1)), fault, ends);
}

/// As [`in_each`], with a seed for each case.
#[track_caller]
fn in_each_seed(cases: impl Iterator<Item = (Case, u64)>, fault: CallFault, ends: Option<&StepKind>) {
    need_root();
    let cases: Vec<(Case, u64)> = cases.collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((case, seed)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let report = case.live(*seed, fault, ends.cloned());
            if let Some(what) = wrong(&report) {
                let tail = report.lines.len().saturating_sub(60);
                let trace = report.lines.get(tail..).unwrap_or_default().join("\n");
                failed.lock().unwrap().push(format!("{case:?}: {what}\n{trace}"));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn wrong(report: &Report) -> Option<String> {
    if let Some(violation) = &report.violation {
        return Some(format!("{violation:?}"));
    }
    let count = |what: &str| report.counts.get(what).copied().unwrap_or_default();
    if count("calls that went wrong by name") != 1 {
        return Some("the call was not made".into());
    }
    let most = report.most.get("changing CRI calls in an episode").copied().unwrap_or_default();
    (most > MAX_MUTATING_CALLS).then(|| format!("{most} mutating calls"))
}

fn goes_wrong_everywhere(fault: CallFault) {
    in_each(cases(), fault, None);
}

#[test]
fn pod_survives_any_call_failing() {
    goes_wrong_everywhere(CallFault::Fails);
}

#[test]
fn pod_survives_any_call_failing_as_unavailable() {
    goes_wrong_everywhere(CallFault::FailsAsUnavailable);
}

/// Pulls have no deadline, because a line may be slow.
#[test]
fn pod_survives_any_call_hanging() {
    in_each(cases().filter(|case| case.call != "PullImage"), CallFault::Hangs, None);
}

#[test]
fn pod_survives_any_call_hanging_after_its_effect() {
    in_each(cases().filter(|case| case.call != "PullImage"), CallFault::HangsAfterItsEffect, None);
}

#[test]
fn pod_survives_any_call_answering_garbage() {
    goes_wrong_everywhere(CallFault::AnswersGarbage);
}

#[test]
fn pod_survives_any_call_answered_without_http() {
    goes_wrong_everywhere(CallFault::SpeaksNoHttp);
}

#[test]
fn pod_survives_any_call_being_cut_before_its_effect() {
    goes_wrong_everywhere(CallFault::IsCutBeforeItsEffect);
}

#[test]
fn pod_survives_any_call_being_cut_after_its_effect() {
    goes_wrong_everywhere(CallFault::IsCutAfterItsEffect);
}

#[test]
fn pod_survives_any_call_being_cut_in_its_answer() {
    goes_wrong_everywhere(CallFault::IsCutInItsAnswer);
}

#[test]
fn next_agent_continues_when_a_call_was_dropped_with_its_agent() {
    in_each(cases(), CallFault::IsHeld, Some(&StepKind::KillAgentInCall(HeldCall::Dropped)));
}

#[test]
fn next_agent_continues_when_a_call_took_effect_after_a_kill() {
    in_each(cases(), CallFault::IsHeld, Some(&StepKind::KillAgentInCall(HeldCall::DoneUnseen)));
}

#[test]
fn killed_agents_call_may_take_effect_after_the_next_agents_list() {
    in_each(cases(), CallFault::IsHeld, Some(&StepKind::KillAgentInCall(HeldCall::DoneLate)));
}

#[test]
fn slow_call_of_one_pod_delays_no_other() {
    // While a list call is slow, the agent starts nothing new and notices no exit.
    let lists = ["Version", "Status", "RuntimeConfig", "ListPodSandbox", "ListContainers"];
    let is_list = |case: &Case| lists.contains(&case.call);
    let [lists, others]: [Vec<Case>; 2] =
        [cases().filter(is_list).collect(), cases().filter(|one| !is_list(one)).collect()];
    // After the loss of the connection nothing starts before the runtime has answered.
    let is_first = |case: &Case| [Moment::Adoption, Moment::Reconnect].contains(&case.phase);
    let lists = lists.into_iter().filter(|case| !is_first(case));
    in_each(lists, CallFault::IsSlow, Some(&StepKind::OthersGoOn { restart: false }));
    in_each(others.into_iter(), CallFault::IsSlow, Some(&StepKind::OthersGoOn { restart: true }));
}

/// Some of these runtimes have events, and some have none.
#[test]
fn slow_call_of_a_restart_delays_no_other_with_and_without_events() {
    let lists = ["ListPodSandbox", "ListContainers"];
    let restarts = cases().filter(|case| case.phase == Moment::Restart && !lists.contains(&case.call));
    in_each_seed(restarts.zip(2..), CallFault::IsSlow, Some(&StepKind::OthersGoOn { restart: true }));
}
