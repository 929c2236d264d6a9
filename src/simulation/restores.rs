//! The API server is restored from a backup.

use std::time::Duration;

use super::container_runtime::{CallFault, Faults};
use super::life::live;
use super::plan::{Episode, Plan, StepKind};
use super::wanted::Traits;
use super::{Start, after, create, kill_agent, live_through, live_within, need_root};

/// The backup is younger than the last renewal of a lease that is renewed every 150 seconds. A restart of the
/// agent, which reads its old lease and lists newer objects, is not taken for a restore.
#[test]
fn restored_backup_is_noticed_by_the_next_lease() {
    need_root();
    let pod = Traits { token: true, ..Traits::default() };
    for (last, is_restored) in [(after(2, StepKind::Restore), true), (kill_agent(), false)] {
        let episode = |steps| Episode { steps, quiet: Duration::from_secs(10), offline: false };
        let since_the_backup = (0..6).map(|_| create(pod)).chain([last]);
        let episodes = vec![episode(vec![create(pod)]), episode(since_the_backup.collect())];
        for seed in 0..4 {
            let report = live(&Plan { seed, lease: Duration::from_secs(600), episodes: episodes.clone() });
            let notices = report.lines.iter().filter(|line| line.contains("restored to an older state")).count();
            let lines = || report.lines.join("\n");
            assert!(notices == usize::from(is_restored) && report.violation.is_none(), "seed {seed}:\n{}", lines());
        }
    }
}

/// So much was written after the restore that the versions have caught up: the renewal of the lease shows nothing. Then a
/// pod exits that the API server does not have any more.
#[test]
fn restored_backup_is_noticed_by_a_pod_that_is_denied() {
    let pods = |count| (0..count).map(|_| create(Traits { token: true, ..Default::default() }));
    let restore = [after(20, StepKind::Restore)];
    let writes = (0..100).map(|_| after(0, StepKind::ChangeConfigMap));
    let exit = [after(1, StepKind::Exit { which: 3, code: 1 })];
    live_within(
        Duration::from_secs(600),
        &[(pods(1).collect(), Start::None), (pods(6).chain(restore).chain(writes).chain(exit).collect(), Start::None)],
    );
}

/// A container restarts when the API server was restored. Without its events, the next renewal of the lease would show that
/// up to 150 seconds later.
#[test]
fn restored_backup_is_noticed_by_the_next_event() {
    need_root();
    let pods = |count| (0..count).map(|_| create(Traits { token: true, ..Default::default() }));
    let restore = [after(20, StepKind::Restore), after(1, StepKind::Exit { which: 0, code: 1 })];
    let episode = |steps| Episode { steps, quiet: Duration::from_secs(10), offline: false };
    let episodes = vec![episode(pods(1).collect()), episode(pods(6).chain(restore).collect())];
    for seed in 0..4 {
        let report = live(&Plan { seed, lease: Duration::from_secs(600), episodes: episodes.clone() });
        let mut restored = report.lines.iter().skip_while(|line| !line.contains("STEP    Restore"));
        let first = restored.find(|line| line.contains("/leases/") || line.contains("restored to an older state"));
        let is_noticed = first.is_some_and(|line| line.contains("restored to an older state"));
        assert!(is_noticed && report.violation.is_none(), "seed {seed}:\n{}", report.lines.join("\n"));
    }
}

/// Many pods exit while the API server is restored within seconds. Each of their statuses shows the restore until the list
/// arrives, and no list interrupts another one.
#[test]
fn statuses_of_all_pods_list_a_restored_server_once() {
    need_root();
    let pods = |count| (0..count).map(|_| create(Traits::default()));
    let exits = || (0..12).map(|which| after(0, StepKind::Exit { which, code: 1 }));
    // The server is back when the episode's faults end.
    let steps = exits().chain([after(20, StepKind::Restore)]).chain(exits()).chain([after(2, StepKind::EndWatches)]);
    let episode = |steps| Episode { steps, quiet: Duration::from_secs(10), offline: false };
    let episodes = vec![episode(pods(12).collect()), episode(steps.collect())];
    for seed in 0..4 {
        let report = live(&Plan { seed, lease: Duration::from_secs(600), episodes: episodes.clone() });
        let restored = || report.lines.iter().skip_while(|line| !line.contains("STEP    Restore"));
        let lists =
            restored().filter(|line| line.contains("/api/v1/pods?") && line.contains("sendInitialEvents")).count();
        let statuses = restored().filter(|line| line.contains("PATCH /api/v1/namespaces/default/pods/")).count();
        // An event that comes first is another witness.
        let is_calm = statuses >= 12 && (1..=2).contains(&lists) && report.violation.is_none();
        assert!(is_calm, "seed {seed}: {lists} lists, {statuses} statuses:\n{}", report.lines.join("\n"));
    }
}

/// A pod has ended and its deletion is confirmed, but the runtime hangs, so that its worker is still there. Then the API
/// server is restored to a state in which the pod was not deleted.
#[test]
fn restored_pod_is_not_deleted() {
    let pods = |count| (0..count).map(|_| create(Traits { token: true, ..Default::default() }));
    let fault = CallFault::Hangs;
    let hangs = StepKind::CallGoesWrong { method: "RemovePodSandbox", skip: 0, fault };
    let gone = StepKind::RuntimeGone { lasts: Duration::from_secs(60) };
    let steps = [
        after(20, hangs),
        after(0, StepKind::DeletePod { which: 0, grace: None }),
        after(2, StepKind::Restore),
        after(1, gone),
        after(60, StepKind::EndWatches),
    ];
    live_through(&[(pods(1).collect(), Start::None), (pods(6).chain(steps).collect(), Start::None)]);
}

/// A pod is being stopped when the API server is restored to a state in which it was not deleted. It ends, and the same
/// happens again before its owner has noticed.
#[test]
fn pod_that_ends_after_one_restore_stays_ended_after_the_next() {
    let pods = |count| (0..count).map(|_| create(Traits::default()));
    let slow = create(Traits { stubborn: true, ..Traits::default() });
    let delete = after(20, StepKind::DeletePod { which: 0, grace: Some(60) });
    let restore = [after(2, StepKind::Restore), after(20, StepKind::EndWatches)];
    live_through(&[
        (vec![slow], Start::None),
        (pods(6).chain([delete]).chain(restore.clone()).collect(), Start::None),
        (pods(6).chain(restore).collect(), Start::None),
    ]);
}

/// A pod is deleted while the runtime hangs, and the API server is restored to a state in which it was not. Its stop
/// begins two minutes later, when the call ends, although the pod runs and is wanted again.
#[test]
fn restored_pod_whose_stop_hangs_ends_all_the_same() {
    let pods = |count| (0..count).map(|_| create(Traits::default()));
    let faults = Faults { hung: 1000, ..Faults::default() };
    let steps = [
        after(20, StepKind::RuntimeFails { faults, lasts: Duration::from_secs(5) }),
        after(1, StepKind::DeletePod { which: 0, grace: None }),
        after(6, StepKind::Restore),
        after(20, StepKind::EndWatches),
    ];
    live_through(&[(pods(1).collect(), Start::None), (pods(6).chain(steps).collect(), Start::None)]);
}
