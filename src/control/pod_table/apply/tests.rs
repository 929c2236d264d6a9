use std::time::Duration;

use super::*;
use crate::control::pod_table::testing::{Node, pod, with_node};
use crate::control::pod_workers::State;
use crate::kubelet::status::{PodFailure, Resize};
use crate::platform::rt;
use crate::state::pods::{ContainerState, Exit, ObservedContainer, ObservedPod, PodEvent};
use crate::types::api::{Container, EventKind, PodPhase, Reason};

const CAUSES: [EndCause; 5] =
    [EndCause::DeadlineExceeded, EndCause::Evicted, EndCause::NodeShutdown, EndCause::Preempted, EndCause::Rejected];

fn end(uid: &PodUid, cause: EndCause, reason: Reason) -> Effect {
    let event = Some(PodEvent::of_pod(uid, EventKind::Warning, reason.clone(), "message"));
    let failed = PodFailure { reason, message: "message".into(), disruption: None };
    Effect::End(EndPod { uid: uid.clone(), cause, failed, grace: Duration::from_secs(7), event })
}

fn admitted(node: &mut Node, uid: &str) -> PodUid {
    let uid = PodUid::from(uid);
    let admit = Effect::Admit { uid: uid.clone(), after: Vec::new() };
    node.pods.apply([Effect::Update(pod(uid.as_str())), admit], rt::now());
    uid
}

#[test]
fn every_end_terminates_the_worker_and_records_its_reason() {
    with_node(|mut node| {
        for cause in CAUSES {
            let uid = admitted(&mut node, &format!("{cause:?}"));
            node.pods.take_dirty();
            node.pods.apply([end(&uid, cause, Reason::EVICTED)], rt::now());
            let state = node.pods.worker(&uid).map(|worker| worker.state);
            assert_eq!(state, Some(State::Terminating { grace: Duration::from_secs(7) }), "{cause:?}");
            assert_eq!(node.pods.failed.get(&uid).map(|failed| &failed.reason), Some(&Reason::EVICTED));
            assert!(node.pods.take_dirty().contains(&uid), "{cause:?}");
        }
        let recorded = node.ring.borrow().events("node").count();
        assert_eq!(recorded, CAUSES.len());
    });
}

#[test]
fn ending_pod_keeps_its_reason_and_the_shorter_grace() {
    with_node(|mut node| {
        let uid = admitted(&mut node, "a");
        node.pods.apply([Effect::Remove(uid.clone())], rt::now());
        node.pods.apply([end(&uid, EndCause::NodeShutdown, Reason::TERMINATED)], rt::now());
        let state = node.pods.worker(&uid).map(|worker| worker.state);
        assert_eq!(state, Some(State::Terminating { grace: Duration::from_secs(7) }));
        assert!(node.pods.failed.get(&uid).is_none());
    });
}

#[test]
fn removed_pod_is_shown_as_ending_until_forgotten() {
    with_node(|mut node| {
        let uid = admitted(&mut node, "a");
        node.pods.apply([Effect::Remove(uid.clone())], rt::now());
        assert!(node.pods.records().ending.contains_key(&uid));
        node.pods.forget(&uid);
        assert!(node.pods.records().ending.is_empty());
        assert!(!node.pods.is_admitted(&uid) && !node.pods.take_dirty().contains(&uid));
    });
}

#[test]
fn pod_keeps_its_place_unless_preempted_or_rejected() {
    with_node(|mut node| {
        for cause in CAUSES {
            let uid = admitted(&mut node, &format!("{cause:?}"));
            node.pods.apply([end(&uid, cause, Reason::EVICTED)], rt::now());
            let keeps = !matches!(cause, EndCause::Preempted | EndCause::Rejected);
            assert_eq!(node.pods.is_admitted(&uid), keeps, "{cause:?}");
        }
    });
}

#[test]
fn changed_node_addresses_appear_in_every_status() {
    with_node(|mut node| {
        let uids = ["a", "b"].map(|uid| admitted(&mut node, uid));
        node.pods.take_dirty();
        let shown = |node: &mut Node, uid: &PodUid| {
            node.pods.refresh_status(uid, Resize::default(), &[]);
            node.pods.records().statuses.status(uid).map(|status| status.host_ip.clone())
        };
        assert_eq!(shown(&mut node, &uids[0]).as_deref(), Some("10.77.0.1"));
        assert!(node.pods.runtime().node.node_ips.update(&["10.0.0.9".parse().unwrap()]));
        node.pods.mark_all_statuses();
        let dirty = node.pods.take_dirty();
        for uid in &uids {
            assert!(dirty.contains(uid));
            assert_eq!(shown(&mut node, uid).as_deref(), Some("10.0.0.9"));
        }
    });
}

#[test]
fn exits_decide_the_phase_of_a_preempted_pod() {
    with_node(|mut node| {
        let mut main = Pod::clone(&pod("a"));
        main.spec.containers = vec![Container { name: "main".to_owned(), ..Container::default() }];
        let uid = main.metadata.uid.clone();
        let admit = Effect::Admit { uid: uid.clone(), after: Vec::new() };
        node.pods.apply([Effect::Update(Arc::new(main)), admit], rt::now());
        let refresh = |node: &mut Node, uid: &PodUid| {
            node.pods.refresh_status(uid, Resize::default(), &[]);
            node.pods.records().statuses.status(uid).map(|status| status.phase)
        };
        let see = |node: &mut Node, state| {
            let mut seen = ObservedPod::new(uid.clone(), "default", "a");
            *seen.containers = vec![ObservedContainer::seen("c", "main", "s", state)];
            let look = node.pods.observed().begin();
            node.pods.observe(seen, &look);
        };
        see(&mut node, ContainerState::Running { started_at: 1 });
        refresh(&mut node, &uid);
        node.pods.apply([end(&uid, EndCause::Preempted, Reason::PREEMPTING)], rt::now());
        assert_eq!(refresh(&mut node, &uid), Some(PodPhase::Failed));
        see(&mut node, ContainerState::Exited(Box::new(Exit { code: 0, ..Exit::default() })));
        assert_eq!(refresh(&mut node, &uid), Some(PodPhase::Succeeded));
    });
}
