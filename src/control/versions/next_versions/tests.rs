//! Next versions: when they are pulled, taken and given up.

use std::task::{Context, Poll, Waker};

use super::*;
use crate::control::pod_table::NodeStatusChange;
use crate::control::pod_table::testing::{Node, with_node};
use crate::control::versions::Versions;
use crate::kubelet::node::{BoardMoment, StatusInputs};
use crate::state::pods::{RuntimeState, SourceName, SourcePod, SourceUpdate, VersionAction, VersionActionRequest};
use crate::types::api::{ContainerStateWaiting, PodPhase, Time, decode};
use crate::types::board::{BoardReadings, PowerSupply};

fn version(uid: &str, annotations: &serde_json::Value) -> Arc<Pod> {
    let mut annotations = annotations.clone();
    annotations["kubernetes.io/config.source"] = "file".into();
    let pod = serde_json::json!({
        "metadata": {"name": "web", "namespace": "default", "uid": uid, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": format!("app:{uid}"), "imagePullPolicy": "IfNotPresent"}]},
    });
    Arc::new(decode::<Pod>(pod).unwrap().value)
}

/// Uids that this node derives from manifests.
const FIRST: &str = "111111111111111111111111020e7021";
const SECOND: &str = "22222222222222222222222248be6695";
const THIRD: &str = "3333333333333333333333336e725e81";

fn offer(node: &mut Node, versions: &mut PodVersions, uid: &str, annotations: &serde_json::Value) {
    let source = SourcePod { pod: version(uid, annotations), origin: "/m/web.yaml".into() };
    let update = SourceUpdate {
        source: SourceName::File,
        pods: vec![source],
        objects: Vec::new(),
        mirrors: Vec::new(),
        problems: Vec::new(),
        unread: Vec::new(),
        complete: true,
        relisted: false,
    };
    let update = versions.on_sources(update, &node.pods);
    node.pods.receive(update);
}

/// A node whose runtime is ready, with the first version of a pod, and then the second.
fn updated(mut node: Node, annotations: &serde_json::Value) -> (Node, PodVersions, NextVersions) {
    node.pods.relisted();
    let ready = RuntimeState { ready: true, ..RuntimeState::default() };
    node.pods.record_runtime(ready, rt::now());
    let mut versions = PodVersions::new(Versions::default(), node.inbox.clone());
    offer(&mut node, &mut versions, FIRST, annotations);
    offer(&mut node, &mut versions, SECOND, annotations);
    let nexts = NextVersions::new(Owned::default().view(), node.inbox.clone());
    (node, versions, nexts)
}

/// As none of the pods has an annotation, it has no state.
fn locks(node: &Node) -> UpdateLocks {
    UpdateLocks::without_state(node.inbox.clone())
}

fn runs(node: &Node, versions: &PodVersions) -> String {
    let records = node.pods.records();
    let source = records.sources.pods().next();
    let runs = source.and_then(|source| versions.read().runs(source).map(|pod| pod.metadata.uid.to_string()));
    runs.unwrap_or_default()
}

fn line(nexts: &NextVersions) -> Option<String> {
    nexts.pulls.read().line(&FIRST.into(), rt::now())
}

#[test]
fn next_version_is_taken_once_its_images_are_there() {
    with_node(|node| {
        let (node, mut versions, mut nexts) = updated(node, &serde_json::json!({}));
        let now = rt::now();
        assert_eq!(nexts.round(&mut versions, &mut locks(&node), &node.pods, now), []);
        assert_eq!((runs(&node, &versions).as_str(), nexts.tasks.len()), (FIRST, 1));
        assert_eq!(line(&nexts).as_deref(), Some("pulling (0s so far, attempt 1)"));
        assert_eq!(nexts.next_due(), None);
        let effects = nexts.on_pulled(&SECOND.into(), Ok(()), &mut versions, now);
        assert_eq!((effects, runs(&node, &versions).as_str(), line(&nexts)), (vec![Effect::Reconcile], SECOND, None));
        assert_eq!(
            (nexts.round(&mut versions, &mut locks(&node), &node.pods, now), nexts.tasks.len()),
            (Vec::new(), 0)
        );
    });
}

#[test]
fn held_pod_is_an_input_of_the_node_status() {
    with_node(|node| {
        let (node, mut versions, _) = updated(node, &serde_json::json!({}));
        let held = |versions: &PodVersions| versions.show_held_pods(&node.pods);
        let status = |pods: &str| Some(Effect::NodeStatus(NodeStatusChange::HeldPods(pods.to_owned())));
        assert_eq!(held(&versions), status(""));
        let (response, _answers) = async_channel::bounded(1);
        let pod = version(FIRST, &serde_json::json!({}));
        versions.on_request(VersionActionRequest { pod, action: VersionAction::Hold, response });
        assert_eq!(held(&versions), status("default/web held"));
    });
}

#[test]
fn held_pods_stay_as_reported_while_the_runtime_is_not_ready() {
    with_node(|node| {
        let versions = PodVersions::new(Versions::default(), node.inbox.clone());
        assert_eq!(versions.show_held_pods(&node.pods), None);
    });
}

#[test]
fn held_pull_of_a_next_version_is_no_failure() {
    with_node(|node| {
        let (node, mut versions, mut nexts) = updated(node, &serde_json::json!({}));
        let now = rt::now();
        nexts.round(&mut versions, &mut locks(&node), &node.pods, now);
        let until = Some(now + Duration::from_secs(60));
        let held = Err(Waiting { until, ..Waiting::new(Reason::IMAGE_PULL_WAITING, "Pull of image waits: x") });
        assert_eq!(nexts.on_pulled(&SECOND.into(), held, &mut versions, now), [], "no warning");
        assert_eq!((runs(&node, &versions).as_str(), nexts.next_due()), (FIRST, until));
        let expected = "waiting (0s so far, attempt 1): ImagePullWaiting: Pull of image waits: x";
        assert_eq!(line(&nexts).as_deref(), Some(expected));
    });
}

#[test]
fn failed_pull_keeps_the_present_version_and_is_repeated() {
    with_node(|node| {
        let (node, mut versions, mut nexts) = updated(node, &serde_json::json!({}));
        let now = rt::now();
        nexts.round(&mut versions, &mut locks(&node), &node.pods, now);
        let failed = |until| Err(Waiting { until, ..Waiting::new(Reason::ERR_IMAGE_PULL, "no route") });
        let later = now + Duration::from_secs(10);
        let effects = nexts.on_pulled(&SECOND.into(), failed(Some(later)), &mut versions, now);
        let [Effect::Record(event)] = effects.as_slice() else { panic!("{effects:?}") };
        assert_eq!((event.pod.as_str(), &event.reason), (FIRST, &Reason::UPDATE_WAITS));
        assert_eq!((runs(&node, &versions).as_str(), nexts.next_due()), (FIRST, Some(later)));
        assert_eq!(
            line(&nexts).as_deref(),
            Some("pulling again in 10s (0s so far, attempt 1): ErrImagePull: no route")
        );
        nexts.round(&mut versions, &mut locks(&node), &node.pods, now);
        assert!(nexts.tasks.is_empty(), "the back-off lasts");
        nexts.round(&mut versions, &mut locks(&node), &node.pods, later);
        assert_eq!(nexts.tasks.len(), 1);
        let effects = nexts.on_pulled(&SECOND.into(), failed(None), &mut versions, later);
        assert_eq!(effects, [], "one event for each next version");
        // New Secrets may be what it lacked.
        nexts.retry(later);
        nexts.round(&mut versions, &mut locks(&node), &node.pods, later);
        assert_eq!(nexts.tasks.len(), 1);
    });
}

#[test]
fn newer_version_replaces_the_one_being_pulled_and_a_removed_pod_cancels() {
    with_node(|node| {
        let (mut node, mut versions, mut nexts) = updated(node, &serde_json::json!({}));
        let now = rt::now();
        nexts.round(&mut versions, &mut locks(&node), &node.pods, now);
        offer(&mut node, &mut versions, THIRD, &serde_json::json!({}));
        nexts.round(&mut versions, &mut locks(&node), &node.pods, now);
        assert_eq!(nexts.tasks.keys().map(PodUid::as_str).collect::<Vec<_>>(), [THIRD]);
        // The event of the pull that was cancelled comes late.
        assert_eq!(nexts.on_pulled(&SECOND.into(), Ok(()), &mut versions, now), []);
        assert_eq!(runs(&node, &versions), FIRST);
        let mut versions = PodVersions::new(Versions::default(), node.inbox.clone());
        nexts.round(&mut versions, &mut locks(&node), &node.pods, now);
        assert_eq!((nexts.tasks.len(), line(&nexts)), (0, None));
    });
}

#[test]
fn full_disk_gives_the_present_version_up_only_if_no_version_is_kept() {
    for (annotations, expected) in
        [(serde_json::json!({}), FIRST), (serde_json::json!({"coracle.dev/keep-versions": "1"}), SECOND)]
    {
        with_node(move |node| {
            let (node, mut versions, mut nexts) = updated(node, &annotations);
            let now = rt::now();
            nexts.round(&mut versions, &mut locks(&node), &node.pods, now);
            let full = Waiting::new(Reason::ERR_IMAGE_PULL, "write /x: no space left on device");
            nexts.on_pulled(&SECOND.into(), Err(full), &mut versions, now);
            assert_eq!(runs(&node, &versions), expected);
        });
    }
}

#[test]
fn pod_without_a_running_container_that_cannot_start_is_replaced_at_once() {
    let status = |phase, reason: Option<Reason>, runs: bool| {
        let waiting = |reason| ContainerState::Waiting(ContainerStateWaiting { reason, ..Default::default() });
        let of = |state| ContainerStatus { state, ..ContainerStatus::default() };
        let mut all = vec![of(reason.map(waiting))];
        if runs {
            all.push(of(Some(ContainerState::Running(Default::default()))));
        }
        PodStatus { phase, container_statuses: all, ..PodStatus::default() }
    };
    for (phase, reason, runs, expected) in [
        (PodPhase::Failed, None, false, true),
        (PodPhase::Pending, None, false, false),
        (PodPhase::Pending, Some(Reason::CONTAINER_CREATING), false, false),
        (PodPhase::Pending, Some(Reason::IMAGE_PULL_BACK_OFF), false, true),
        (PodPhase::Running, Some(Reason::CRASH_LOOP_BACK_OFF), true, false),
        (PodPhase::Running, None, true, false),
    ] {
        assert_eq!(does_not_serve(&status(phase, reason.clone(), runs)), expected, "{phase:?} {reason:?} {runs}");
    }
}

#[test]
fn version_that_needs_the_mains_waits_on_battery() {
    with_node(|node| {
        let (node, mut versions, mut nexts) = updated(node, &serde_json::json!({"coracle.dev/needs-mains": "true"}));
        let now = rt::now();
        nexts.round(&mut versions, &mut locks(&node), &node.pods, now);
        let attempt = |needs: bool, is_online: bool, pulls: fn(&StatusInputs)| {
            let board = Rc::new(StatusInputs::default());
            power(&board, is_online);
            let view = StatusView::new(&board);
            let next = version(SECOND, &serde_json::json!({"coracle.dev/needs-mains": needs.to_string()}));
            let pulls = async {
                pulls(&board);
                Ok(())
            };
            let attempt = std::pin::pin!(with_mains(&next, &view, pulls));
            attempt.poll(&mut Context::from_waker(Waker::noop()))
        };
        let waits = |attempt: Poll<Result<(), Waiting>>| match attempt {
            Poll::Ready(attempt) => attempt.err(),
            Poll::Pending => panic!("nothing to wait for"),
        };
        assert_eq!(waits(attempt(true, true, |_| {})), None);
        assert_eq!(waits(attempt(false, false, |_| {})), None);
        let waiting = waits(attempt(true, false, |_| panic!("nothing is pulled on battery"))).unwrap();
        assert_eq!(
            waits(attempt(true, true, |board| power(board, false))),
            Some(waiting.clone()),
            "mains lost meanwhile"
        );
        assert_eq!(waiting.until, Some(now + MAINS_RETRY_DELAY));
        let effects = nexts.on_pulled(&SECOND.into(), Err(waiting.clone()), &mut versions, now);
        let failure = "OnBattery: the board runs on its battery";
        let message = format!("The present version runs on until the board has mains power: {failure}");
        let event = PodEvent::of_pod(&FIRST.into(), EventKind::Warning, Reason::UPDATE_WAITS, message);
        assert_eq!((effects, runs(&node, &versions).as_str()), (vec![Effect::Record(event)], FIRST));
        assert_eq!(line(&nexts), Some(format!("waiting (0s so far, attempt 1): {failure}")));
        assert_eq!(nexts.on_pulled(&SECOND.into(), Err(waiting), &mut versions, now), [], "one event");
        assert_eq!(nexts.next_due(), Some(now + MAINS_RETRY_DELAY));
    });
}

/// Sets whether the board has mains power or its battery discharges.
fn power(board: &StatusInputs, is_online: bool) {
    let supply = |is_battery: bool| PowerSupply {
        name: if is_battery { "BAT0" } else { "AC" }.to_owned(),
        is_battery,
        is_online: (!is_battery).then_some(is_online),
        percent: None,
        is_discharging: is_battery && !is_online,
    };
    let readings = BoardReadings { supplies: vec![supply(false), supply(true)], ..BoardReadings::default() };
    let time = BoardMoment { now: Time::from_unix_nanos(0), instant: rt::now(), built: Some(0), is_alarmed: false };
    board.board.borrow_mut().note(readings, &time);
}
