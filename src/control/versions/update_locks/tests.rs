//! Update locks: decisions that wait, and what becomes of them.

use super::*;
use crate::control::pod_table::testing::{Node, pod, with_node};
use crate::types::api::annotations::HOLD;

/// A running pod with this annotation.
fn running(node: &mut Node, uid: &str, annotation: &'static str, value: &str) -> PodUid {
    let mut pod = Pod::clone(&pod(uid));
    pod.metadata.annotations.insert(annotation, value.to_owned());
    node.pods.apply([Effect::Update(Arc::new(pod))], rt::now());
    uid.into()
}

fn locks(node: &Node) -> UpdateLocks {
    UpdateLocks::without_state(node.inbox.clone())
}

fn permits(locks: &mut UpdateLocks, uid: &PodUid, node: &Node) -> bool {
    locks.permits(uid, Decision::Rollback, &node.pods, rt::now())
}

/// Takes the lock of the pod for the node.
fn take(locks: &mut UpdateLocks, uid: &PodUid, node: &Node) {
    permits(locks, uid, node);
    let file = File::open("/dev/null").unwrap();
    locks.on_tried(uid, Ok(UpdateLock::Taken(Some(file))), rt::now());
    assert!(permits(locks, uid, node));
}

fn reasons(effects: &[Effect]) -> Vec<(&str, bool)> {
    let reason = |effect: &Effect| match effect {
        Effect::Record(event) => Some((event.reason.as_str().to_owned(), true)),
        Effect::Condition { condition, .. } => Some(("condition".to_owned(), condition.is_some())),
        _ => None,
    };
    let found: Vec<(String, bool)> = effects.iter().filter_map(reason).collect();
    found.into_iter().map(|(name, is)| (&*name.leak(), is)).collect()
}

#[test]
fn decision_waits_while_the_application_holds_the_lock() {
    with_node(|mut node| {
        let uid = running(&mut node, "a", UPDATE_LOCK, "state/lock");
        let (mut locks, now) = (locks(&node), rt::now());
        assert!(!permits(&mut locks, &uid, &node), "the lock has to be tried");
        assert_eq!((locks.attempts.len(), locks.round(&node.pods, now)), (1, Vec::new()));
        locks.on_tried(&uid, Ok(UpdateLock::Held), now);
        assert!(!permits(&mut locks, &uid, &node));
        let effects = locks.round(&node.pods, now);
        assert_eq!(reasons(&effects), [("UpdateHeld", true), ("condition", true)]);
        assert!(locks.view().read().line(&uid).is_some_and(|line| line.starts_with("held by the application since ")));
        assert_eq!(locks.next_due(&node.pods), Some(now + LOCK_RETRY_DELAY));
        // It still waits: nothing is news.
        assert!(!permits(&mut locks, &uid, &node));
        assert_eq!(locks.round(&node.pods, now), []);
        assert!(!locks.permits(&uid, Decision::Rollback, &node.pods, now + LOCK_RETRY_DELAY));
        locks.on_tried(&uid, Ok(UpdateLock::Taken(None)), now);
        assert!(permits(&mut locks, &uid, &node));
    });
}

#[test]
fn decision_that_no_longer_asks_is_given_up() {
    with_node(|mut node| {
        let uid = running(&mut node, "a", HOLD, "true");
        let (mut locks, now) = (locks(&node), rt::now());
        assert!(!permits(&mut locks, &uid, &node));
        locks.round(&node.pods, now);
        assert_eq!(locks.stored.len(), 1);
        assert_eq!(reasons(&locks.round(&node.pods, now)), [("condition", false)]);
        assert_eq!((locks.stored.len(), locks.next_due(&node.pods)), (0, None));
    });
}

#[test]
fn pods_without_annotations_need_no_look() {
    with_node(|mut node| {
        let uid = running(&mut node, "a", HOLD, "false");
        let mut locks = locks(&node);
        assert!(permits(&mut locks, &uid, &node) && permits(&mut locks, &"unknown".into(), &node));
        assert!(locks.checks(&node.pods).is_empty() && locks.attempts.is_empty());
    });
}

#[test]
fn unusable_lock_is_told_and_holds_nothing() {
    with_node(|mut node| {
        let uid = running(&mut node, "a", UPDATE_LOCK, "state/lock");
        let mut locks = locks(&node);
        permits(&mut locks, &uid, &node);
        let effects = locks.on_tried(&uid, Err("state/lock: not a regular file".to_owned()), rt::now());
        assert_eq!(reasons(&effects), [("UpdateLockUnusable", true)]);
        assert!(permits(&mut locks, &uid, &node));
    });
}

#[test]
fn lock_of_one_pod_is_not_kept_while_another_one_is_held() {
    with_node(|mut node| {
        let pods = ["a", "b"].map(|uid| running(&mut node, uid, UPDATE_LOCK, "state/lock"));
        let (mut locks, now) = (locks(&node), rt::now());
        let file = File::open("/dev/null").unwrap();
        assert!(!locks.permit_all(&pods, Decision::Preemption, &node.pods, now));
        locks.on_tried(&pods[0], Ok(UpdateLock::Taken(Some(file))), now);
        locks.on_tried(&pods[1], Ok(UpdateLock::Held), now);
        assert!(!locks.permit_all(&pods, Decision::Preemption, &node.pods, now));
        assert!(locks.taken.is_empty());
        // Both are tried again.
        let later = now + LOCK_RETRY_DELAY;
        assert!(!locks.permit_all(&pods, Decision::Preemption, &node.pods, later));
        pods.iter().for_each(|uid| drop(locks.on_tried(uid, Ok(UpdateLock::Taken(None)), later)));
        assert!(locks.permit_all(&pods, Decision::Preemption, &node.pods, later));
    });
}

#[test]
fn lock_that_was_taken_for_nothing_is_released() {
    with_node(|mut node| {
        let uid = running(&mut node, "a", UPDATE_LOCK, "state/lock");
        let (mut locks, now) = (locks(&node), rt::now());
        take(&mut locks, &uid, &node);
        locks.round(&node.pods, now);
        // Nothing stopped the pod.
        locks.round(&node.pods, now);
        let later = locks.next_due(&node.pods).unwrap();
        locks.round(&node.pods, later);
        assert_eq!((locks.taken.len(), locks.next_due(&node.pods)), (0, None));
    });
}

/// Its containers may take long to end, and the end is an event.
#[test]
fn lock_of_pod_being_stopped_makes_nothing_due() {
    with_node(|mut node| {
        let uid = running(&mut node, "a", UPDATE_LOCK, "state/lock");
        let (mut locks, now) = (locks(&node), rt::now());
        take(&mut locks, &uid, &node);
        node.pods.apply([Effect::Remove(uid.clone())], now);
        assert!(matches!(node.pods.worker(&uid).map(|worker| worker.state), Some(State::Terminating { .. })));
        locks.round(&node.pods, now);
        locks.round(&node.pods, now);
        assert_eq!((locks.taken.len(), locks.next_due(&node.pods)), (1, None));
    });
}

#[test]
fn restart_of_the_agent_does_not_begin_the_limit_again() {
    with_node(|mut node| {
        let uid = running(&mut node, "a", HOLD, "true");
        let mut locks = locks(&node);
        locks.stored.insert(uid.clone(), (Duration::from_secs(7), Time::from_unix_nanos(0)));
        locks.stored = from_json(to_json(&locks.stored, "boot").unwrap().as_bytes(), "boot").unwrap();
        permits(&mut locks, &uid, &node);
        assert_eq!(locks.held.read().pods.get(&uid).map(|held| held.since), Some(Duration::from_secs(7)));
        let text = to_json(&locks.stored, "boot").unwrap();
        assert_eq!(from_json(text.as_bytes(), "another"), None, "after a reboot no application holds a lock");
        assert_eq!(from_json(b"{", "boot"), None);
    });
}
