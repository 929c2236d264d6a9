use super::*;
use crate::kubelet::kuberuntime::{Action, Place};
use crate::types::api::Reason;

fn pod(image: &str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.uid = PodUid::from("u");
    pod.metadata.name = image.to_owned();
    Arc::new(pod)
}

fn start() -> Plan {
    Plan { actions: vec![Action::StartContainer { place: Place::Main(0), restart_count: 0 }], ..Plan::default() }
}

/// What a worker would do now, as a word.
#[track_caller]
fn check(worker: &Worker, plan: Plan, expected: Next) {
    assert_eq!(worker.next(Instant::now(), || plan), expected);
}

/// Lets the worker end the work that it is at.
fn done(worker: &mut Worker, kind: Kind, purged: bool) {
    worker.busy = Some(kind);
    worker.succeeded(kind, purged, Instant::now());
}

#[test]
fn a_pod_without_anything_to_do_rests() {
    check(&Worker::new(pod("a")), Plan::default(), Next::Rest);
}

#[test]
fn a_worker_at_work_begins_nothing_else() {
    let mut worker = Worker::new(pod("a"));
    worker.busy = Some(Kind::Sync);
    check(&worker, start(), Next::Rest);
}

#[test]
fn a_container_in_back_off_wakes_the_worker_when_it_is_over() {
    let moment = Instant::now() + Duration::from_secs(10);
    let plan = Plan { backing_off: vec![(Place::Main(0), moment)], ..Plan::default() };
    check(&Worker::new(pod("a")), plan, Next::Wait(moment));
}

#[test]
fn after_a_failure_nothing_is_tried_before_a_wait_that_grows_up_to_ten_seconds() {
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
fn a_changed_pod_does_not_wait_for_the_failure_of_the_old_one() {
    let mut worker = Worker::new(pod("a"));
    worker.failed("no".to_owned(), Instant::now(), |wait| wait);
    worker.wanted(pod("b"));
    check(&worker, start(), Next::Work(Work::Look));
}

#[test]
fn a_pod_that_was_not_seen_after_its_work_is_looked_at_before_anything_is_done_again() {
    let mut worker = Worker::new(pod("a"));
    worker.stale = true;
    check(&worker, start(), Next::Work(Work::Look));
}

#[test]
fn after_a_failure_the_pod_is_looked_at_before_the_next_try_and_the_look_shortens_no_wait() {
    let mut worker = Worker::new(pod("a"));
    let mut now = Instant::now();
    let mut waits = Vec::new();
    for _ in 0..3 {
        worker.failed("no".to_owned(), now, |wait| wait);
        let Next::Wait(moment) = worker.next(now, start) else { panic!("a failure is waited for") };
        waits.push(moment.duration_since(now).as_secs());
        now = moment;
        assert_eq!(worker.next(now, start), Next::Work(Work::Look));
        look(&mut worker, now);
        assert_eq!(worker.next(now, start), Next::Work(Work::Sync(start())));
    }
    assert_eq!(waits, [1, 2, 4]);
    worker.rests();
    worker.failed("no".to_owned(), now, |wait| wait);
    assert_eq!(worker.next(now, start), Next::Wait(now + Duration::from_secs(1)), "all was well in between");
}

#[test]
fn a_container_that_could_not_be_started_is_looked_for_before_the_next_try() {
    let mut worker = Worker::new(pod("a"));
    let now = Instant::now();
    worker.tried("main".to_owned(), Some(Waiting::new(Reason::CREATE_CONTAINER_ERROR, "")), now, |wait| wait);
    let moment = worker.held_until("main").unwrap();
    // Another container of the pod is not held up by it.
    assert_eq!(worker.next(now, start), Next::Work(Work::Sync(start())));
    assert_eq!(worker.next(moment, start), Next::Work(Work::Look));
    look(&mut worker, moment);
    assert_eq!(worker.next(moment, start), Next::Work(Work::Sync(start())));
}

/// A look that goes well.
fn look(worker: &mut Worker, now: Instant) {
    worker.begun(&Work::Look, now);
    worker.stale = false;
    worker.succeeded(Kind::Look, false, now);
}

#[test]
fn a_sandbox_that_does_not_last_is_made_again_with_growing_waits() {
    let plan = || Plan { actions: vec![Action::CreateSandbox { attempt: 0 }], ..Plan::default() };
    let mut worker = Worker::new(pod("a"));
    let mut now = Instant::now();
    let mut waits = Vec::new();
    for _ in 0..4 {
        assert_eq!(worker.next(now, plan), Next::Work(Work::Sync(plan())));
        worker.begun(&Work::Sync(plan()), now);
        worker.succeeded(Kind::Sync, false, now);
        let Next::Wait(moment) = worker.next(now, plan) else { panic!("made again at once") };
        waits.push(moment.duration_since(now).as_secs());
        check(&worker, start(), Next::Work(Work::Sync(start())));
        now = moment;
    }
    assert_eq!(waits, [1, 2, 4, 8]);
    now += REMAKE_QUIET * 2;
    worker.begun(&Work::Sync(plan()), now);
    worker.succeeded(Kind::Sync, false, now);
    assert_eq!(worker.next(now, plan), Next::Wait(now + Duration::from_secs(1)), "the last one had proved itself");
}

#[test]
fn what_has_ended_is_removed_when_nothing_else_is_to_be_done_and_holds_up_nothing() {
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
fn a_pod_that_is_not_wanted_is_stopped_cleaned_away_and_forgotten() {
    let mut worker = Worker::new(pod("a"));
    worker.unwanted(Duration::from_secs(5));
    check(&worker, start(), Next::Work(Work::Stop { grace: Duration::from_secs(5), by_lists: false }));
    done(&mut worker, Kind::Stop, false);
    check(&worker, start(), Next::Work(Work::CleanUp { purge: true }));
    done(&mut worker, Kind::CleanUp, true);
    check(&worker, start(), Next::Forget);
}

#[test]
fn a_pod_that_has_completed_keeps_its_records_until_no_source_wants_it() {
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
fn a_terminate_interrupts_a_sync_and_a_shorter_one_interrupts_a_stop() {
    let mut worker = Worker::new(pod("a"));
    worker.busy = Some(Kind::Sync);
    assert!(worker.terminate(Duration::from_secs(30)));
    worker.busy = Some(Kind::Stop);
    assert!(!worker.terminate(Duration::from_secs(60)), "a longer grace changes nothing");
    assert!(worker.terminate(Duration::from_secs(2)));
    assert_eq!(worker.state, State::Terminating { grace: Duration::from_secs(2) });
}

#[test]
fn a_pod_is_given_at_least_a_second() {
    let mut worker = Worker::new(pod("a"));
    worker.terminate(Duration::ZERO);
    assert_eq!(worker.state, State::Terminating { grace: Duration::from_secs(1) });
}

#[test]
fn a_pod_that_is_wanted_again_while_it_ends_comes_after_it() {
    let mut worker = Worker::new(pod("a"));
    worker.unwanted(Duration::from_secs(5));
    worker.wanted(pod("b"));
    assert_eq!(worker.successor.as_ref().map(|pod| pod.metadata.name.as_str()), Some("b"));
    check(&worker, start(), Next::Work(Work::Stop { grace: Duration::from_secs(5), by_lists: false }));
    worker.unwanted(Duration::from_secs(5));
    assert_eq!(worker.successor, None, "wanted again, and then not");
}

#[test]
fn a_pod_known_only_from_the_runtime_is_ended() {
    let identity = Identity { uid: PodUid::from("u"), namespace: "default".to_owned(), name: "stray".to_owned() };
    let worker = Worker::orphan(identity, Duration::from_secs(7));
    check(&worker, start(), Next::Work(Work::Stop { grace: Duration::from_secs(7), by_lists: false }));
}

/// A pod with files made from a ConfigMap.
fn pod_with_files(image: &str) -> Arc<Pod> {
    let mut pod = Pod::clone(&pod(image));
    pod.spec.volumes = vec![crate::types::api::Volume {
        name: "v".to_owned(),
        source: crate::types::api::VolumeSource::ConfigMap(Box::default()),
    }];
    Arc::new(pod)
}

/// Work that goes well.
fn work(worker: &mut Worker, work: Work) {
    worker.begun(&work, Instant::now());
    worker.succeeded(work.kind(), false, Instant::now());
}

#[test]
fn files_in_volumes_are_brought_up_to_date_once_for_every_change() {
    let mut worker = Worker::new(pod_with_files("a"));
    check(&worker, Plan::default(), Next::Work(Work::Refresh));
    // A sync sets volumes up as well.
    work(&mut worker, Work::Sync(start()));
    check(&worker, Plan::default(), Next::Rest);
    worker.objects_changed();
    check(&worker, start(), Next::Work(Work::Sync(start())));
    work(&mut worker, Work::Refresh);
    check(&worker, Plan::default(), Next::Rest);
    worker.wanted(pod_with_files("b"));
    check(&worker, Plan::default(), Next::Work(Work::Refresh));
    // One that comes while the files are written is not lost.
    worker.begun(&Work::Refresh, Instant::now());
    worker.objects_changed();
    worker.succeeded(Kind::Refresh, false, Instant::now());
    check(&worker, Plan::default(), Next::Work(Work::Refresh));
    check(&Worker::new(pod("a")), Plan::default(), Next::Rest);
}

#[test]
fn files_that_could_not_be_written_are_tried_again_later_and_after_a_change_at_once() {
    let mut worker = Worker::new(pod_with_files("a"));
    let now = Instant::now();
    let mut waits = Vec::new();
    for _ in 0..2 {
        worker.begun(&Work::Refresh, now);
        worker.not_refreshed(now, |wait| wait);
        let Next::Wait(moment) = worker.next(now, Plan::default) else { panic!("a failure is waited for") };
        waits.push(moment.duration_since(now).as_secs());
        assert_eq!(worker.next(moment, Plan::default), Next::Work(Work::Refresh));
    }
    assert_eq!(waits, [1, 2]);
    worker.objects_changed();
    assert_eq!(worker.next(now, Plan::default), Next::Work(Work::Refresh));
}

#[test]
fn a_container_that_waits_for_an_object_is_tried_when_it_comes_and_no_other_is() {
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
    assert_eq!(worker.next(now, start), Next::Work(Work::Look));
}

#[test]
fn a_pod_that_cannot_be_looked_at_is_ended_by_the_lists_after_three_tries() {
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
    // What came of it in the end forgives the failures before.
    done(&mut worker, Kind::Stop, false);
    assert_eq!(worker.failures, 0);
}

#[test]
fn what_is_left_of_a_pod_that_has_ended_is_given_back_once_and_its_records_stay() {
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
