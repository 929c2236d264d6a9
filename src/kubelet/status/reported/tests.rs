//! The rules of merging statuses.

use super::*;
use crate::types::api::{Container, ContainerStateRunning, ContainerStateWaiting, PodCondition, Reason};

fn second(second: i64) -> Time {
    Time::from_unix_nanos(second * 1_000_000_000)
}

fn condition(kind: &'static str, status: ConditionStatus) -> PodCondition {
    PodCondition { kind: kind.into(), status, last_transition_time: Some(second(1)), ..PodCondition::default() }
}

fn status(phase: PodPhase, conditions: Vec<PodCondition>) -> PodStatus {
    PodStatus { phase, conditions, ..PodStatus::default() }
}

fn kinds(status: &PodStatus) -> Vec<&str> {
    status.conditions.iter().map(|condition| &*condition.kind).collect()
}

fn waiting(name: &str) -> ContainerStatus {
    let state = ContainerState::Waiting(ContainerStateWaiting::default());
    ContainerStatus { name: name.to_owned(), state: Some(state), ..ContainerStatus::default() }
}

fn running(name: &str) -> ContainerStatus {
    let state = ContainerState::Running(ContainerStateRunning::default());
    ContainerStatus { state: Some(state), ready: true, started: Some(true), ..waiting(name) }
}

fn is_lost(status: &ContainerStatus) -> bool {
    let lost = matches!(&status.state, Some(ContainerState::Terminated(end)) if end.exit_code == 137);
    assert!(!lost || !status.ready);
    lost
}

#[test]
fn no_terminal_phase_is_reported_while_a_container_may_run() {
    let shown = status(PodPhase::Running, Vec::new());
    let new = PodStatus { reason: Reason::EVICTED, ..status(PodPhase::Failed, Vec::new()) };
    let told = reported(&shown, &new, true, second(9));
    assert_eq!((told.phase, told.reason), (PodPhase::Running, Reason::default()));
    let told = reported(&shown, &new, false, second(9));
    assert_eq!((told.phase, told.reason), (PodPhase::Failed, Reason::EVICTED));
}

#[test]
fn foreign_conditions_are_the_servers_and_own_ones_are_new() {
    let shown = status(
        PodPhase::Running,
        vec![condition(conditions::READY, ConditionStatus::False), condition("x", ConditionStatus::True)],
    );
    let new = status(
        PodPhase::Running,
        vec![condition("x", ConditionStatus::False), condition(conditions::READY, ConditionStatus::True)],
    );
    let told = reported(&shown, &new, true, second(9));
    assert_eq!(kinds(&told), ["x", conditions::READY]);
    assert!(told.conditions.iter().all(|condition| condition.status == ConditionStatus::True));
}

#[test]
fn disruption_is_reported_with_the_terminal_phase() {
    let shown = status(PodPhase::Running, Vec::new());
    let new = status(PodPhase::Failed, vec![condition(conditions::DISRUPTION_TARGET, ConditionStatus::True)]);
    assert!(kinds(&reported(&shown, &new, true, second(9))).is_empty());
    let told = reported(&shown, &new, false, second(9));
    assert_eq!(kinds(&told), [conditions::DISRUPTION_TARGET]);
    assert_eq!(told.conditions[0].last_transition_time, Some(second(9)));
}

#[test]
fn pod_in_a_terminal_phase_is_not_ready() {
    let ready = [conditions::READY, conditions::CONTAINERS_READY].map(|kind| condition(kind, ConditionStatus::True));
    let shown = status(PodPhase::Running, ready.to_vec());
    let told = reported(&shown, &status(PodPhase::Succeeded, ready.to_vec()), false, second(9));
    for condition in &told.conditions {
        assert_eq!((condition.status, &condition.reason), (ConditionStatus::False, &Reason::POD_COMPLETED));
        assert_eq!(condition.last_transition_time, Some(second(9)));
    }
}

#[test]
fn container_whose_exit_was_not_observed_is_lost() {
    let mut now = status(PodPhase::Running, Vec::new());
    now.container_statuses = vec![running("a"), waiting("b")];
    let last = terminated(&Pod::default(), &now, None, second(9));
    assert!(last.container_statuses.iter().all(is_lost));
    assert_eq!(last.phase, PodPhase::Failed);
}

#[test]
fn container_that_was_not_reached_is_not_lost() {
    let mut pod = Pod::default();
    pod.spec.init_containers = vec![Container::default()];
    let mut now = status(PodPhase::Pending, Vec::new());
    now.init_container_statuses = vec![running("i"), waiting("j")];
    now.container_statuses = vec![waiting("main")];
    let last = terminated(&pod, &now, None, second(9));
    assert_eq!(last.init_container_statuses.iter().map(is_lost).collect::<Vec<_>>(), [true, false]);
    assert!(!is_lost(&last.container_statuses[0]));

    now.container_statuses = vec![running("main")];
    let last = terminated(&pod, &now, None, second(9));
    assert!(is_lost(&last.container_statuses[0]));
}

#[test]
fn observed_termination_is_kept() {
    let mut now = status(PodPhase::Succeeded, Vec::new());
    let end = ContainerState::Terminated(Box::default());
    now.container_statuses = vec![ContainerStatus { state: Some(end), ..waiting("a") }];
    assert_eq!(terminated(&Pod::default(), &now, None, second(9)), now);
}

/// The runtime's last list is older than the end of the pod, and the API server brings the reported status back.
#[test]
fn reported_loss_does_not_change_while_an_old_list_shows_the_container() {
    let mut pod = Pod::default();
    pod.spec.init_containers = vec![Container::default()];
    let mut now = status(PodPhase::Running, Vec::new());
    now.init_container_statuses = vec![running("i")];
    now.container_statuses = vec![running("a")];
    let first = terminated(&pod, &now, None, second(9));
    assert_eq!(terminated(&pod, &now, Some(&first), second(30)), first);
    // Another instance of it has another outcome.
    now.container_statuses[0].container_id = "fake://2".to_owned();
    let second_loss = terminated(&pod, &now, Some(&first), second(30));
    assert_ne!(second_loss.container_statuses, first.container_statuses);
}
