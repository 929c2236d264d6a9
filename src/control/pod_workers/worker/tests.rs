use super::*;
use crate::kubelet::kuberuntime::{Action, ContainerIndex};
use crate::types::api::{Reason, annotations};

fn pod(image: &str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.uid = PodUid::from("u");
    pod.metadata.name = image.to_owned();
    Arc::new(pod)
}

fn start() -> Plan {
    Plan {
        actions: vec![Action::StartContainer { container: ContainerIndex::Main(0), restart_count: 0 }],
        ..Plan::default()
    }
}

/// Checks what the worker would do now.
#[track_caller]
fn check(worker: &Worker, plan: Plan, expected: Next) {
    assert_eq!(worker.next(Instant::now(), || plan), expected);
}

/// Completes the worker's running work.
fn done(worker: &mut Worker, kind: Kind, purged: bool) {
    worker.busy = Some(kind);
    worker.succeeded(kind, purged, Instant::now());
}

#[test]
fn pod_without_work_rests() {
    check(&Worker::new(pod("a")), Plan::default(), Next::Rest);
}

#[test]
fn busy_worker_starts_nothing_else() {
    let mut worker = Worker::new(pod("a"));
    worker.busy = Some(Kind::Sync);
    check(&worker, start(), Next::Rest);
}

#[test]
fn worker_wakes_when_a_container_back_off_ends() {
    let time = Instant::now() + Duration::from_secs(10);
    let plan = Plan { backing_off: vec![(ContainerIndex::Main(0), time)], ..Plan::default() };
    check(&Worker::new(pod("a")), plan, Next::Wait(time));
}

#[test]
fn failures_are_retried_after_growing_waits_up_to_ten_seconds() {
    let mut worker = Worker::new(pod("a"));
    let now = Instant::now();
    let waits: Vec<u64> = (0..6)
        .map(|_| {
            worker.failed("no".to_owned(), now, |wait| wait);
            match worker.next(now, start) {
                Next::Wait(moment) => moment.duration_since(now).as_secs(),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
}

#[test]
fn failed_resize_delays_neither_starts_nor_a_changed_pod() {
    let mut worker = Worker::new(pod("a"));
    let now = Instant::now();
    let resize = || Plan { actions: vec![Action::ResizePod], ..Plan::default() };
    worker.resized(true, now, |wait| wait);
    let retry = now + FIRST_WORK_RETRY_DELAY;
    assert_eq!(worker.next(now, resize), Next::Wait(retry));
    let both = || Plan { actions: [resize().actions, start().actions].concat(), ..Plan::default() };
    let only_start = Plan { resize_waits: true, ..start() };
    assert_eq!(worker.next(now, both), Next::Work(Work::Sync(only_start)));
    assert_eq!(worker.next(retry, both), Next::Work(Work::Sync(both())));
    worker.update_pod(pod("b"));
    assert_eq!(worker.next(now, resize), Next::Work(Work::Sync(resize())));
}

#[test]
fn changed_pod_does_not_wait_for_an_earlier_failure() {
    let mut worker = Worker::new(pod("a"));
    worker.failed("no".to_owned(), Instant::now(), |wait| wait);
    worker.update_pod(pod("b"));
    check(&worker, start(), Next::Work(Work::Relist));
}

#[test]
fn pod_not_observed_after_work_is_observed_before_more_work() {
    let mut worker = Worker::new(pod("a"));
    worker.stale = true;
    check(&worker, start(), Next::Work(Work::Relist));
}

#[test]
fn observation_precedes_a_retry_and_shortens_no_wait() {
    let mut worker = Worker::new(pod("a"));
    let mut now = Instant::now();
    let mut waits = Vec::new();
    for _ in 0..3 {
        worker.failed("no".to_owned(), now, |wait| wait);
        let Next::Wait(time) = worker.next(now, start) else { panic!("a failure is waited for") };
        waits.push(time.duration_since(now).as_secs());
        now = time;
        assert_eq!(worker.next(now, start), Next::Work(Work::Relist));
        look(&mut worker, now);
        assert_eq!(worker.next(now, start), Next::Work(Work::Sync(start())));
    }
    assert_eq!(waits, [1, 2, 4]);
    worker.rests();
    worker.failed("no".to_owned(), now, |wait| wait);
    assert_eq!(worker.next(now, start), Next::Wait(now + Duration::from_secs(1)), "all was well in between");
}

#[test]
fn pod_is_observed_before_a_failed_container_start_is_retried() {
    let mut worker = Worker::new(pod("a"));
    let now = Instant::now();
    worker.tried("main".to_owned(), Some(Waiting::new(Reason::CREATE_CONTAINER_ERROR, "")), now, |wait| wait);
    let time = worker.held_until("main").unwrap();
    // Other containers of the pod are not delayed.
    assert_eq!(worker.next(now, start), Next::Work(Work::Sync(start())));
    assert_eq!(worker.next(time, start), Next::Work(Work::Relist));
    look(&mut worker, time);
    assert_eq!(worker.next(time, start), Next::Work(Work::Sync(start())));
}

/// A successful observation.
fn look(worker: &mut Worker, now: Instant) {
    worker.begun(&Work::Relist, now);
    worker.stale = false;
    worker.succeeded(Kind::Relist, false, now);
}

#[test]
fn short_lived_sandboxes_are_recreated_with_growing_waits() {
    let plan = || Plan { actions: vec![Action::CreateSandbox { attempt: 0 }], ..Plan::default() };
    let mut worker = Worker::new(pod("a"));
    let mut now = Instant::now();
    let mut waits = Vec::new();
    for _ in 0..4 {
        assert_eq!(worker.next(now, plan), Next::Work(Work::Sync(plan())));
        worker.begun(&Work::Sync(plan()), now);
        worker.succeeded(Kind::Sync, false, now);
        let Next::Wait(time) = worker.next(now, plan) else { panic!("made again at once") };
        waits.push(time.duration_since(now).as_secs());
        check(&worker, start(), Next::Work(Work::Sync(start())));
        now = time;
    }
    assert_eq!(waits, [1, 2, 4, 8]);
    now += SANDBOX_SETTLED_TIME * 2;
    worker.begun(&Work::Sync(plan()), now);
    worker.succeeded(Kind::Sync, false, now);
    assert_eq!(worker.next(now, plan), Next::Wait(now + Duration::from_secs(1)), "the last one had proved itself");
}

#[test]
fn dead_sandboxes_are_collected_before_the_next_one() {
    let garbage = || vec![Garbage::Sandbox { id: "s".to_owned() }];
    let plan = |garbage| Plan { actions: vec![Action::CreateSandbox { attempt: 2 }], garbage, ..Plan::default() };
    let mut worker = Worker::new(pod("a"));
    let now = Instant::now();
    worker.begun(&Work::Sync(plan(Vec::new())), now);
    worker.succeeded(Kind::Sync, false, now);
    assert_eq!(worker.next(now, || plan(garbage())), Next::Work(Work::Collect(garbage())));
    worker.begun(&Work::Collect(garbage()), now);
    worker.not_collected(now, |wait| wait);
    let wait = Next::Wait(now + Duration::from_secs(1));
    assert_eq!(worker.next(now, || plan(garbage())), wait, "what cannot be removed holds up no sandbox");
    assert_eq!(worker.next(now, || plan(Vec::new())), wait);
}

#[test]
fn garbage_is_collected_only_when_idle_and_delays_no_work() {
    let garbage = || vec![Garbage::Sandbox { id: "s".to_owned() }];
    let plan = |actions| Plan { actions, garbage: garbage(), ..Plan::default() };
    let mut worker = Worker::new(pod("a"));
    let busy = plan(start().actions);
    check(&worker, busy.clone(), Next::Work(Work::Sync(busy.clone())));
    check(&worker, plan(Vec::new()), Next::Work(Work::Collect(garbage())));
    let now = Instant::now();
    worker.not_collected(now, |wait| wait);
    assert_eq!(worker.next(now, || plan(Vec::new())), Next::Wait(now + Duration::from_secs(1)));
    assert_eq!(worker.next(now, || busy.clone()), Next::Work(Work::Sync(busy)));
}

#[test]
fn unwanted_pod_is_stopped_cleaned_up_and_forgotten() {
    let mut worker = Worker::new(pod("a"));
    worker.unwanted(Duration::from_secs(5));
    check(&worker, start(), Next::Work(Work::Stop { grace: Duration::from_secs(5), by_lists: false }));
    done(&mut worker, Kind::Stop, false);
    check(&worker, start(), Next::Work(Work::CleanUp { purge: true }));
    done(&mut worker, Kind::CleanUp, true);
    check(&worker, start(), Next::Forget);
}

#[test]
fn pod_whose_containers_cannot_be_removed_has_ended_and_is_purged_later() {
    let mut worker = Worker::new(pod("a"));
    worker.unwanted(Duration::from_secs(1));
    done(&mut worker, Kind::Stop, false);
    let now = Instant::now();
    for wait in [1, 2, 4] {
        worker.busy = Some(Kind::CleanUp);
        assert_eq!(worker.is_stuck_garbage(), wait > 1);
        worker.not_purged("busy".to_owned(), now, |wait| wait);
        assert_eq!((worker.state, worker.is_stuck_garbage()), (State::Finished, true));
        assert_eq!(worker.next(now, Plan::default), Next::Wait(now + Duration::from_secs(wait)));
        let later = now + Duration::from_secs(60);
        assert_eq!(worker.next(later, Plan::default), Next::Work(Work::CleanUp { purge: true }));
    }
    done(&mut worker, Kind::CleanUp, true);
    check(&worker, Plan::default(), Next::Forget);
}

#[test]
fn completed_pod_keeps_its_records_while_a_source_wants_it() {
    let mut worker = Worker::new(pod("a"));
    worker.completed();
    done(&mut worker, Kind::Stop, false);
    check(&worker, start(), Next::Work(Work::CleanUp { purge: false }));
    done(&mut worker, Kind::CleanUp, false);
    check(&worker, start(), Next::Rest);
    worker.unwanted(Duration::from_secs(5));
    check(&worker, start(), Next::Work(Work::CleanUp { purge: true }));
    done(&mut worker, Kind::CleanUp, true);
    check(&worker, start(), Next::Forget);
}

#[test]
fn static_pod_has_ended_for_good_only_if_it_completed() {
    for (source, completes, expected) in
        [("api", true, true), ("api", false, true), ("file", true, true), ("file", false, false)]
    {
        let mut pod = Pod::default();
        pod.metadata.annotations.insert(annotations::CONFIG_SOURCE, source.to_owned());
        let mut worker = Worker::new(Arc::new(pod));
        if completes {
            worker.completed();
        }
        worker.terminate(Duration::from_secs(5));
        assert!(!worker.has_ended_for_good(false), "{source}: its containers may run");
        assert_eq!(worker.has_ended_for_good(true), completes, "{source}: terminated, and its containers have exited");
        done(&mut worker, Kind::Stop, false);
        assert_eq!(worker.has_ended_for_good(true), expected, "{source}, completes: {completes}");
    }
}

#[test]
fn terminate_interrupts_a_sync_and_shorter_grace_interrupts_a_stop() {
    let mut worker = Worker::new(pod("a"));
    worker.busy = Some(Kind::Sync);
    assert!(worker.terminate(Duration::from_secs(30)));
    worker.busy = Some(Kind::Stop);
    assert!(!worker.terminate(Duration::from_secs(60)), "a longer grace changes nothing");
    assert!(worker.terminate(Duration::from_secs(2)));
    assert_eq!(worker.state, State::Terminating { grace: Duration::from_secs(2) });
}

#[test]
fn grace_period_is_at_least_a_second() {
    let mut worker = Worker::new(pod("a"));
    worker.terminate(Duration::ZERO);
    assert_eq!(worker.state, State::Terminating { grace: Duration::from_secs(1) });
}

#[test]
fn pod_wanted_again_while_ending_becomes_the_successor() {
    let mut worker = Worker::new(pod("a"));
    worker.unwanted(Duration::from_secs(5));
    worker.update_pod(pod("b"));
    assert_eq!(worker.successor.as_ref().map(|pod| pod.metadata.name.as_str()), Some("b"));
    check(&worker, start(), Next::Work(Work::Stop { grace: Duration::from_secs(5), by_lists: false }));
    worker.unwanted(Duration::from_secs(5));
    assert_eq!(worker.successor, None, "wanted again, and then not");
}

#[test]
fn pod_known_only_from_the_runtime_is_ended() {
    let identity = Identity { uid: PodUid::from("u"), namespace: "default".to_owned(), name: "stray".to_owned() };
    let worker = Worker::orphan(identity, Duration::from_secs(7));
    check(&worker, start(), Next::Work(Work::Stop { grace: Duration::from_secs(7), by_lists: false }));
}

/// A pod with files from a ConfigMap.
fn pod_with_files(image: &str) -> Arc<Pod> {
    let mut pod = Pod::clone(&pod(image));
    pod.spec.volumes = vec![crate::types::api::Volume {
        name: "v".to_owned(),
        source: crate::types::api::VolumeSource::ConfigMap(Box::default()),
    }];
    Arc::new(pod)
}

/// Successful work.
fn work(worker: &mut Worker, work: Work) {
    worker.begun(&work, Instant::now());
    worker.succeeded(work.kind(), false, Instant::now());
}

#[test]
fn volume_files_are_refreshed_once_per_change() {
    let mut worker = Worker::new(pod_with_files("a"));
    check(&worker, Plan::default(), Next::Work(Work::Refresh));
    // A sync also sets up the volumes.
    work(&mut worker, Work::Sync(start()));
    check(&worker, Plan::default(), Next::Rest);
    worker.objects_changed();
    check(&worker, start(), Next::Work(Work::Sync(start())));
    work(&mut worker, Work::Refresh);
    check(&worker, Plan::default(), Next::Rest);
    worker.update_pod(pod_with_files("b"));
    check(&worker, Plan::default(), Next::Work(Work::Refresh));
    // A change during a refresh is not lost.
    worker.begun(&Work::Refresh, Instant::now());
    worker.objects_changed();
    worker.succeeded(Kind::Refresh, false, Instant::now());
    check(&worker, Plan::default(), Next::Work(Work::Refresh));
    check(&Worker::new(pod("a")), Plan::default(), Next::Rest);
}

#[test]
fn failed_refresh_is_retried_later_and_at_once_after_a_change() {
    let mut worker = Worker::new(pod_with_files("a"));
    let now = Instant::now();
    let mut waits = Vec::new();
    for _ in 0..2 {
        worker.begun(&Work::Refresh, now);
        worker.not_refreshed(now, |wait| wait);
        let Next::Wait(time) = worker.next(now, Plan::default) else { panic!("a failure is waited for") };
        waits.push(time.duration_since(now).as_secs());
        assert_eq!(worker.next(time, Plan::default), Next::Work(Work::Refresh));
    }
    assert_eq!(waits, [1, 2]);
    worker.objects_changed();
    assert_eq!(worker.next(now, Plan::default), Next::Work(Work::Refresh));
}

#[test]
fn object_change_retries_only_containers_that_wait_for_an_object() {
    let mut worker = Worker::new(pod("a"));
    let now = Instant::now();
    let reasons = [
        ("main", Reason::CREATE_CONTAINER_CONFIG_ERROR),
        ("pulls", Reason::ERR_IMAGE_PULL),
        ("backs-off", Reason::IMAGE_PULL_BACK_OFF),
        ("other", Reason::RUN_CONTAINER_ERROR),
    ];
    for (name, reason) in reasons {
        worker.tried(name.to_owned(), Some(Waiting::new(reason, "")), now, |wait| wait);
    }
    worker.objects_changed();
    for name in ["main", "pulls", "backs-off"] {
        assert_eq!(worker.held_until(name), None, "{name}");
    }
    assert!(worker.held_until("other").is_some());
    worker.failed("no".to_owned(), now, |wait| wait);
    worker.objects_changed();
    assert_eq!(worker.next(now, start), Next::Work(Work::Relist));
}

#[test]
fn unobservable_pod_is_stopped_by_lists_after_three_failures() {
    let mut worker = Worker::new(pod("a"));
    worker.unwanted(Duration::from_secs(5));
    let now = Instant::now();
    let by_lists: Vec<bool> = (0..5)
        .map(|_| {
            let Next::Work(Work::Stop { by_lists, .. }) = worker.next(now, start) else { panic!("it shall end") };
            worker.failed("no status".to_owned(), now, |_| Duration::ZERO);
            by_lists
        })
        .collect();
    assert_eq!(by_lists, [false, false, false, true, true]);
    // Success resets the failure count.
    done(&mut worker, Kind::Stop, false);
    assert_eq!(worker.failures, 0);
}

#[test]
fn finished_pod_gives_back_dead_containers_once() {
    let dead = vec![Garbage::Sandbox { id: "s".to_owned() }];
    let mut worker = Worker::new(pod("a"));
    worker.give_back(dead.clone());
    check(&worker, Plan::default(), Next::Rest);
    worker.terminate(Duration::ZERO);
    done(&mut worker, Kind::Stop, false);
    done(&mut worker, Kind::CleanUp, false);
    assert!(worker.can_give_back());
    worker.give_back(dead.clone());
    check(&worker, Plan::default(), Next::Work(Work::Collect(dead.clone())));
    done(&mut worker, Kind::Collect, false);
    worker.give_back(dead);
    check(&worker, Plan::default(), Next::Rest);
}

#[test]
fn successor_that_always_restarts_keeps_the_former_containers() {
    for (policy, purge) in
        [(RestartPolicy::Always, false), (RestartPolicy::OnFailure, true), (RestartPolicy::Never, true)]
    {
        let mut worker = Worker::new(pod("a"));
        worker.unwanted(Duration::from_secs(5));
        let mut again = Pod::clone(&pod("a"));
        again.spec.restart_policy = policy;
        worker.update_pod(Arc::new(again));
        done(&mut worker, Kind::Stop, false);
        check(&worker, Plan::default(), Next::Work(Work::CleanUp { purge }));
        done(&mut worker, Kind::CleanUp, purge);
        check(&worker, Plan::default(), Next::Forget);
    }
}
