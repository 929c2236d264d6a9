//! Rules that no recording covers, and invariants for every sequence of states.

use std::net::Ipv6Addr;

use super::*;
use crate::state::pods::{self, Exit, ObservedContainer, ObservedSandbox, ObservedUser, SandboxState};
use crate::types::api::{
    ConditionStatus, Container, ContainerRestartRule, ContainerState, ContainerStateTerminated, ContainerStatus,
    ExitCodesOperator, PodCondition, PodReadinessGate, RecursiveReadOnlyMode, ResourceList, ResourceRequirements,
    RestartPolicy, RestartRuleAction, RestartRuleOnExitCodes, VolumeMount, annotations, conditions,
};

/// The observed state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    Created,
    Running,
    Exited(i32),
    Unknown,
}

const EVERY: [Seen; 6] = [Seen::Nothing, Seen::Created, Seen::Running, Seen::Exited(0), Seen::Exited(1), Seen::Unknown];

/// A pod and its sequence of statuses.
struct Life {
    pod: Pod,
    status: Option<PodStatus>,
    waiting: SortedMap<String, Waiting>,
    probed: SortedMap<String, ContainerProbeState>,
    host_ips: Vec<IpAddr>,
    sandbox: Option<ObservedSandbox>,
    second: i64,
    attempt: u32,
    ended: bool,
    recursive_read_only: Option<bool>,
    replaced: Vec<String>,
    shows_sandbox: bool,
}

impl Life {
    fn new(policy: RestartPolicy, init: &[&str], main: &[&str]) -> Self {
        let named = |name: &&str| Container { name: (*name).to_owned(), ..Container::default() };
        let mut pod = Pod::default();
        pod.spec.restart_policy = policy;
        pod.spec.init_containers = init.iter().map(named).collect();
        pod.spec.containers = main.iter().map(named).collect();
        let sandbox = ObservedSandbox {
            id: "s0".to_owned(),
            attempt: 0,
            state: SandboxState::Ready,
            created_at: 0,
            host_network: false,
            ips: vec!["10.0.0.9".parse().unwrap()],
            has_address: true,
            pid: None,
        };
        Self {
            pod,
            status: None,
            waiting: SortedMap::new(),
            probed: SortedMap::new(),
            host_ips: vec!["10.77.0.1".parse().unwrap()],
            sandbox: Some(sandbox),
            second: 0,
            attempt: 0,
            ended: false,
            recursive_read_only: None,
            replaced: Vec::new(),
            shows_sandbox: true,
        }
    }

    fn main(policy: RestartPolicy) -> Self {
        Self::new(policy, &[], &["main"])
    }

    /// Generates the next status from one instance of each named container, newest first.
    fn see(&mut self, containers: &[(&str, Seen)]) -> PodStatus {
        self.see_failed(containers, None)
    }

    fn see_failed(&mut self, containers: &[(&str, Seen)], failed: Option<&PodFailure>) -> PodStatus {
        let mut observed = ObservedPod::new("u".into(), "default", "web");
        observed.sandboxes.extend(self.sandbox.clone());
        observed.containers =
            containers.iter().filter_map(|(name, seen)| instance(name, *seen, self.attempt)).collect();
        self.second += 1;
        let status = pod_status(&StatusInput {
            devices: &[],
            replaced: &self.replaced,
            shows_sandbox: self.shows_sandbox,
            own_conditions: &[],
            pod: &self.pod,
            observed: &observed,
            previous: self.status.as_ref(),
            waiting: &self.waiting,
            backing_off: &[],
            probed: &self.probed,
            host_ips: &self.host_ips,
            runtime_name: "cri-o",
            now: second(self.second),
            ended: self.ended,
            failed,
            resize: Resize::default(),
            recursive_read_only: self.recursive_read_only,
            actuated: None,
        });
        self.status = Some(status.clone());
        status
    }
}

fn second(second: i64) -> Time {
    Time::from_unix_nanos(second * 1_000_000_000)
}

fn instance(name: &str, seen: Seen, restart_count: u32) -> Option<ObservedContainer> {
    let state = match seen {
        Seen::Nothing => return None,
        Seen::Created => pods::ContainerState::Created,
        Seen::Running => pods::ContainerState::Running { started_at: 0 },
        Seen::Exited(code) => pods::ContainerState::Exited(Box::new(Exit { code, ..Exit::default() })),
        Seen::Unknown => pods::ContainerState::Unknown,
    };
    let user = (name == "known").then(|| Box::new(ObservedUser { uid: 7, gid: 8, groups: vec![8, 9] }));
    let id = format!("{name}{restart_count}");
    Some(ObservedContainer { user, restart_count, ..ObservedContainer::seen(&id, name, "s0", state) })
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a PodCondition {
    super::conditions::find(&status.conditions, kind).unwrap()
}

fn terminated(state: Option<&ContainerState>) -> &ContainerStateTerminated {
    match state {
        Some(ContainerState::Terminated(end)) => end,
        other => panic!("{other:?}"),
    }
}

#[test]
fn phase_depends_on_containers_and_restart_policy() {
    use RestartPolicy::{Always, Never, OnFailure};
    for (policy, one, other, phase) in [
        (Always, Seen::Nothing, Seen::Nothing, PodPhase::Pending),
        (Always, Seen::Running, Seen::Nothing, PodPhase::Pending),
        (Always, Seen::Running, Seen::Created, PodPhase::Pending),
        (Always, Seen::Running, Seen::Running, PodPhase::Running),
        (Always, Seen::Running, Seen::Exited(1), PodPhase::Running),
        (Always, Seen::Exited(0), Seen::Exited(0), PodPhase::Running),
        (OnFailure, Seen::Exited(0), Seen::Exited(0), PodPhase::Succeeded),
        (OnFailure, Seen::Exited(0), Seen::Exited(1), PodPhase::Running),
        (Never, Seen::Exited(0), Seen::Exited(0), PodPhase::Succeeded),
        (Never, Seen::Exited(0), Seen::Exited(1), PodPhase::Failed),
        (Never, Seen::Running, Seen::Exited(1), PodPhase::Running),
    ] {
        let status = Life::new(policy, &[], &["a", "b"]).see(&[("a", one), ("b", other)]);
        assert_eq!(status.phase, phase, "{policy} {one:?} {other:?}");
    }
}

#[test]
fn container_restart_policy_overrides_the_pods() {
    let mut life = Life::main(RestartPolicy::Always);
    life.pod.spec.containers[0].restart_policy = Some(RestartPolicy::Never);
    assert_eq!(life.see(&[("main", Seen::Exited(1))]).phase, PodPhase::Failed);
}

#[test]
fn exit_code_rule_overrides_the_restart_policy() {
    let rule = serde_json::json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
    let mut life = Life::main(RestartPolicy::Never);
    life.pod.spec.containers[0].restart_policy = Some(RestartPolicy::Never);
    life.pod.spec.containers[0].restart_policy_rules = vec![api::decode(rule).unwrap().value];
    assert_eq!(life.see(&[("main", Seen::Exited(42))]).phase, PodPhase::Running);
    assert_eq!(life.see(&[("main", Seen::Exited(1))]).phase, PodPhase::Failed);
}

#[test]
fn failed_init_container_decides_the_phase() {
    for (policy, seen, phase) in [
        (RestartPolicy::Never, Seen::Exited(1), PodPhase::Failed),
        (RestartPolicy::OnFailure, Seen::Exited(1), PodPhase::Pending),
        (RestartPolicy::Always, Seen::Running, PodPhase::Pending),
        (RestartPolicy::Always, Seen::Exited(0), PodPhase::Pending),
    ] {
        assert_eq!(Life::new(policy, &["i"], &["main"]).see(&[("i", seen)]).phase, phase, "{policy} {seen:?}");
    }
}

#[test]
fn sidecar_counts_as_running_but_not_as_completed() {
    let mut life = Life::new(RestartPolicy::Never, &["side"], &["main"]);
    life.pod.spec.init_containers[0].restart_policy = Some(RestartPolicy::Always);
    assert_eq!(life.see(&[("side", Seen::Running)]).phase, PodPhase::Pending);
    let status = life.see(&[("side", Seen::Running), ("main", Seen::Running)]);
    assert_eq!(status.phase, PodPhase::Running);
    assert_eq!(condition(&status, conditions::READY).status, ConditionStatus::True);
    let status = life.see(&[("side", Seen::Exited(1)), ("main", Seen::Running)]);
    assert_eq!(status.phase, PodPhase::Running);
    assert_eq!(condition(&status, conditions::INITIALIZED).status, ConditionStatus::True);
    assert_eq!(condition(&status, conditions::READY).message, "containers with unready status: [side]");
    assert_eq!(life.see(&[("side", Seen::Running), ("main", Seen::Exited(1))]).phase, PodPhase::Running);
    assert_eq!(life.see(&[("side", Seen::Exited(137)), ("main", Seen::Exited(0))]).phase, PodPhase::Succeeded);
}

#[test]
fn sidecar_startup_probe_blocks_initialization() {
    let mut life = Life::new(RestartPolicy::Always, &["side"], &["main"]);
    life.pod.spec.init_containers[0].restart_policy = Some(RestartPolicy::Always);
    life.probed.insert(
        "side".to_owned(),
        ContainerProbeState { started: false, ready: false, ..ContainerProbeState::default() },
    );
    let status = life.see(&[("side", Seen::Running)]);
    assert_eq!(condition(&status, conditions::INITIALIZED).message, "containers with incomplete status: [side]");
    assert_eq!(status.init_container_statuses[0].started, Some(false));
}

#[test]
fn terminating_pod_gets_a_terminal_phase_unless_static() {
    for (code, phase) in [(0, PodPhase::Succeeded), (1, PodPhase::Failed)] {
        let mut life = Life::main(RestartPolicy::Always);
        life.ended = true;
        assert_eq!(life.see(&[("main", Seen::Exited(code))]).phase, phase);
    }
    let mut life = Life::main(RestartPolicy::Always);
    life.ended = true;
    life.pod.metadata.annotations.insert(annotations::CONFIG_SOURCE, "file".to_owned());
    assert_eq!(life.see(&[("main", Seen::Exited(0))]).phase, PodPhase::Running);
}

#[test]
fn failure_reason_is_reported_with_the_phase_and_kept() {
    let mut life = Life::main(RestartPolicy::Always);
    life.see(&[("main", Seen::Running)]);
    let evicted = failure(Reason::EVICTED);
    for failed in [Some(&evicted), None] {
        let status = life.see_failed(&[("main", Seen::Running)], failed);
        assert_eq!((status.phase, status.reason.as_str()), (PodPhase::Failed, "Evicted"));
        assert_eq!(status.message, "The node was low on memory.");
        let ready = condition(&status, conditions::READY);
        assert_eq!((ready.status, &ready.reason), (ConditionStatus::False, &Reason::POD_FAILED));
        let disrupted = condition(&status, conditions::DISRUPTION_TARGET);
        assert_eq!((disrupted.status, &disrupted.reason), (ConditionStatus::True, &Reason::TERMINATION_BY_KUBELET));
        assert_eq!(disrupted.message, "For the others.");
    }
}

#[test]
fn exits_decide_the_phase_of_an_evicted_pod_but_not_after_its_deadline() {
    let evicted = failure(Reason::EVICTED);
    let late = failure(Reason::DEADLINE_EXCEEDED);
    for (failed, code, phase, reason) in [
        (&evicted, 0, PodPhase::Succeeded, ""),
        (&evicted, 137, PodPhase::Failed, "Evicted"),
        (&late, 0, PodPhase::Failed, "DeadlineExceeded"),
        (&late, 1, PodPhase::Failed, "DeadlineExceeded"),
    ] {
        let mut life = Life::main(RestartPolicy::Always);
        life.see(&[("main", Seen::Running)]);
        assert_eq!(life.see_failed(&[("main", Seen::Running)], Some(failed)).phase, PodPhase::Failed);
        life.ended = true;
        let status = life.see_failed(&[("main", Seen::Exited(code))], Some(failed));
        assert_eq!((status.phase, status.reason.as_str()), (phase, reason), "exit code {code}");
        assert_eq!(condition(&status, conditions::DISRUPTION_TARGET).status, ConditionStatus::True);
    }
}

/// The failure of a pod that makes room for others.
fn failure(reason: Reason) -> PodFailure {
    PodFailure {
        reason,
        message: Cow::Borrowed("The node was low on memory."),
        disruption: Some(Cow::Borrowed("For the others.")),
    }
}

#[test]
fn messages_of_the_pod_and_its_conditions_are_cut() {
    let mut life = Life::main(RestartPolicy::Always);
    let long = || Cow::Owned("m".repeat(1 << 20));
    let evicted = PodFailure { reason: Reason::EVICTED, message: long(), disruption: Some(long()) };
    let status = life.see_failed(&[("main", Seen::Running)], Some(&evicted));
    let disrupted = condition(&status, conditions::DISRUPTION_TARGET);
    assert_eq!((status.message.len(), disrupted.message.len()), (MAX_WAITING_MESSAGE_BYTES, MAX_WAITING_MESSAGE_BYTES));
}

#[test]
fn restart_all_condition_lasts_until_the_container_is_removed() {
    let mut life = Life::main(RestartPolicy::Never);
    let told = |status: &PodStatus| {
        let found = super::conditions::find(&status.conditions, conditions::ALL_CONTAINERS_RESTARTING);
        found.map(|condition| (condition.status, condition.reason.as_str().to_owned(), condition.message.clone()))
    };
    assert_eq!(told(&life.see(&[("main", Seen::Running)])), None);
    let codes = RestartRuleOnExitCodes { operator: ExitCodesOperator::In, values: vec![42] };
    let rule = ContainerRestartRule { action: RestartRuleAction::RestartAllContainers, exit_codes: Some(codes) };
    life.pod.spec.containers[0].restart_policy = Some(RestartPolicy::Never);
    life.pod.spec.containers[0].restart_policy_rules = vec![rule];
    let not = |reason: &str| Some((ConditionStatus::False, reason.to_owned(), String::new()));
    let goes = "container exited with restart policy rule".to_owned();
    assert_eq!(told(&life.see(&[("main", Seen::Running)])), not(""));
    let goes = Some((ConditionStatus::True, "RestartAllContainersStarted".to_owned(), goes));
    assert_eq!(told(&life.see(&[("main", Seen::Exited(42))])), goes);
    assert_eq!(told(&life.see(&[])), not(""));
    assert_eq!(told(&life.see(&[("main", Seen::Running)])), not(""));
    life.ended = true;
    assert_eq!(told(&life.see(&[("main", Seen::Exited(1))])), not("PodFailed"));
}

/// A pod whose sidecar or main container restarts all containers on exit code 42.
fn restarting_all(init: &[&str], main: &[&str], source: &str) -> Life {
    let mut life = Life::new(RestartPolicy::Never, init, main);
    let codes = RestartRuleOnExitCodes { operator: ExitCodesOperator::In, values: vec![42] };
    let rule = ContainerRestartRule { action: RestartRuleAction::RestartAllContainers, exit_codes: Some(codes) };
    let spec = &mut life.pod.spec;
    for container in spec.init_containers.iter_mut().chain(&mut spec.containers) {
        if container.name == source {
            container.restart_policy = Some(RestartPolicy::Never);
            container.restart_policy_rules = vec![rule.clone()];
        }
    }
    life
}

#[test]
fn containers_removed_for_a_restart_of_all_wait_with_its_reason() {
    let mut life = restarting_all(&["init"], &["a", "b", "source"], "source");
    life.see(&[("init", Seen::Exited(0)), ("a", Seen::Running), ("b", Seen::Exited(0)), ("source", Seen::Running)]);
    let begun =
        [("init", Seen::Exited(0)), ("a", Seen::Exited(137)), ("b", Seen::Exited(0)), ("source", Seen::Exited(42))];
    assert_eq!(life.see(&begun).phase, PodPhase::Running, "killed, not failed");
    for (seen, removed) in [(&[("source", Seen::Exited(42))][..], &["init", "a", "b"][..]), (&[], &["source"])] {
        let status = life.see(seen);
        assert_eq!(status.phase, PodPhase::Running);
        let all = status.init_container_statuses.iter().chain(&status.container_statuses);
        for container in all.filter(|container| removed.contains(&&*container.name)) {
            let Some(ContainerState::Waiting(waiting)) = &container.state else { panic!("{:?}", container.state) };
            assert_eq!(waiting.reason, Reason::RESTARTING_ALL_CONTAINERS, "{}", container.name);
            let end = terminated(container.last_state.as_ref());
            assert_eq!((end.exit_code, &end.reason), (137, &Reason::RESTARTING_ALL_CONTAINERS));
            assert_eq!(container.restart_count, 1, "{}", container.name);
        }
    }
    let status = life.see(&[("init", Seen::Running)]);
    assert_eq!((status.phase, status.init_container_statuses[0].restart_count), (PodPhase::Pending, 1));
    let again = [("init", Seen::Exited(0)), ("a", Seen::Running), ("b", Seen::Running), ("source", Seen::Running)];
    let status = life.see(&again);
    assert_eq!(status.phase, PodPhase::Running);
    for container in &status.container_statuses {
        assert_eq!(container.restart_count, 1);
        assert_eq!(terminated(container.last_state.as_ref()).reason, Reason::RESTARTING_ALL_CONTAINERS);
    }
}

#[test]
fn init_container_killed_for_a_restart_of_all_has_not_failed() {
    let mut life = restarting_all(&["source", "init"], &["main"], "source");
    life.pod.spec.init_containers[0].restart_policy = Some(RestartPolicy::Always);
    life.see(&[("source", Seen::Running), ("init", Seen::Running)]);
    for seen in [&[("source", Seen::Exited(42)), ("init", Seen::Exited(137))][..], &[("source", Seen::Exited(42))], &[]]
    {
        assert_eq!(life.see(seen).phase, PodPhase::Pending, "{seen:?}");
    }
}

#[test]
fn exit_of_a_replaced_container_is_not_final() {
    for (policy, code) in [(RestartPolicy::OnFailure, 0), (RestartPolicy::Never, 143)] {
        let mut life = Life::main(policy);
        life.see(&[("main", Seen::Running)]);
        life.replaced = vec!["main0".to_owned()];
        let status = life.see(&[("main", Seen::Exited(code))]);
        let main = &status.container_statuses[0];
        assert!(matches!(main.state, Some(ContainerState::Running(_))) && !main.ready, "{main:?}");
        assert_eq!(status.phase, PodPhase::Running);
        // The replacement could not be started.
        life.replaced.clear();
        assert!(life.see(&[("main", Seen::Exited(code))]).phase.is_terminal());
    }
}

#[test]
fn container_user_is_reported_if_known() {
    let mut life = Life::new(RestartPolicy::Always, &[], &["known", "other"]);
    let status = life.see(&[("known", Seen::Running), ("other", Seen::Running)]);
    let user = |index: usize| status.container_statuses[index].user.as_ref().and_then(|user| user.linux.clone());
    assert_eq!(user(0).map(|user| (user.uid, user.gid, user.supplemental_groups)), Some((7, 8, vec![8, 9])));
    assert_eq!(user(1), None);
}

#[test]
fn terminal_phase_at_the_api_server_is_kept() {
    let mut life = Life::main(RestartPolicy::Always);
    life.pod.status.phase = PodPhase::Failed;
    life.pod.status.reason = Reason::NODE_SHUTDOWN;
    let status = life.see(&[("main", Seen::Running)]);
    assert_eq!((status.phase, status.reason), (PodPhase::Failed, Reason::NODE_SHUTDOWN));
}

#[test]
fn vanished_running_container_has_terminated_and_counts_as_restart() {
    let mut life = Life::main(RestartPolicy::Always);
    life.see(&[("main", Seen::Running)]);
    let status = life.see(&[]);
    let main = &status.container_statuses[0];
    let end = terminated(main.last_state.as_ref());
    assert_eq!((end.exit_code, &end.reason), (137, &Reason::CONTAINER_STATUS_UNKNOWN));
    assert_eq!((main.restart_count, status.phase), (1, PodPhase::Running));
    assert_eq!((end.started_at, end.finished_at), (None, None));
}

#[test]
fn running_container_in_unknown_state_has_terminated() {
    let mut life = Life::main(RestartPolicy::Always);
    life.see(&[("main", Seen::Running)]);
    let status = life.see(&[("main", Seen::Unknown)]);
    let end = terminated(status.container_statuses[0].state.as_ref());
    assert_eq!(end.message, "The container could not be located when the pod was terminated");
    assert_eq!(status.container_statuses[0].restart_count, 1);
    // A container that was never seen running waits.
    let status = Life::main(RestartPolicy::Always).see(&[("main", Seen::Unknown)]);
    assert_eq!(status.phase, PodPhase::Pending);
}

#[test]
fn termination_is_kept_after_the_runtime_removed_the_container() {
    let mut life = Life::main(RestartPolicy::Never);
    life.see(&[("main", Seen::Exited(3))]);
    let status = life.see(&[]);
    assert_eq!(terminated(status.container_statuses[0].state.as_ref()).exit_code, 3);
    assert_eq!(status.phase, PodPhase::Failed);
}

#[test]
fn created_container_waits_with_the_reason_that_it_had_before() {
    let reason = |status: &ContainerStatus| match &status.state {
        Some(ContainerState::Waiting(waiting)) => waiting.reason.clone(),
        other => panic!("{other:?}"),
    };
    let mut life = Life::new(RestartPolicy::Never, &["init"], &["main"]);
    for seen in [Seen::Nothing, Seen::Created] {
        let status = life.see(&[("init", seen)]);
        assert_eq!(reason(&status.init_container_statuses[0]), Reason::POD_INITIALIZING);
    }
    let mut life = Life::main(RestartPolicy::Always);
    for seen in [Seen::Nothing, Seen::Created] {
        assert_eq!(reason(&life.see(&[("main", seen)]).container_statuses[0]), Reason::CONTAINER_CREATING);
    }
}

#[test]
fn restart_counts_when_the_new_instance_has_started() {
    let mut life = Life::main(RestartPolicy::Always);
    life.see(&[("main", Seen::Running)]);
    life.see(&[("main", Seen::Exited(3))]);
    life.attempt = 1;
    let created = life.see(&[("main", Seen::Created)]).container_statuses.remove(0);
    assert_eq!((created.restart_count, terminated(created.last_state.as_ref()).exit_code), (0, 3));
    let running = life.see(&[("main", Seen::Running)]).container_statuses.remove(0);
    assert_eq!((running.restart_count, terminated(running.last_state.as_ref()).exit_code), (1, 3));
    // A later agent, which knows no earlier status.
    let mut later = Life { attempt: 4, ..Life::main(RestartPolicy::Always) };
    assert_eq!(later.see(&[("main", Seen::Created)]).container_statuses[0].restart_count, 3);
}

/// The list of the runtime is older than the exit.
#[test]
fn instance_whose_exit_is_known_does_not_count_as_another() {
    let mut life = Life::main(RestartPolicy::Always);
    for seen in [Seen::Running, Seen::Exited(3), Seen::Running, Seen::Exited(3), Seen::Running] {
        assert_eq!(life.see(&[("main", seen)]).container_statuses[0].restart_count, 0);
    }
}

#[test]
fn failed_start_moves_the_termination_to_last_state() {
    let mut life = Life::main(RestartPolicy::Always);
    life.waiting.insert("main".to_owned(), Waiting::new(Reason::ERR_IMAGE_PULL, "no route"));
    let status = life.see(&[("main", Seen::Exited(3))]);
    let main = &status.container_statuses[0];
    assert_eq!(terminated(main.last_state.as_ref()).exit_code, 3);
    let Some(ContainerState::Waiting(state)) = &main.state else { panic!("{:?}", main.state) };
    assert_eq!((&state.reason, state.message.as_str()), (&Reason::ERR_IMAGE_PULL, "no route"));
    assert_eq!(status.phase, PodPhase::Running);
}

#[test]
fn container_that_is_not_restarted_does_not_wait() {
    for (policy, code, waits) in [
        (RestartPolicy::Never, 1, false),
        (RestartPolicy::OnFailure, 0, false),
        (RestartPolicy::OnFailure, 1, true),
        (RestartPolicy::Always, 0, true),
    ] {
        let mut life = Life::main(policy);
        life.waiting.insert("main".to_owned(), Waiting::new(Reason::ERR_IMAGE_PULL, "no route"));
        let status = life.see(&[("main", Seen::Exited(code))]);
        let is_waiting = matches!(status.container_statuses[0].state, Some(ContainerState::Waiting(_)));
        assert_eq!(is_waiting, waits, "{policy} {code}");
    }
    let mut life = Life::main(RestartPolicy::Always);
    life.waiting.insert("main".to_owned(), Waiting::new(Reason::ERR_IMAGE_PULL, "no route"));
    life.pod.metadata.deletion_timestamp = Some(second(1));
    let status = life.see(&[("main", Seen::Exited(1))]);
    assert_eq!(terminated(status.container_statuses[0].state.as_ref()).exit_code, 1);
}

#[test]
fn missing_init_container_has_succeeded_once_a_main_one_exists() {
    let mut life = Life::new(RestartPolicy::Always, &["i"], &["main"]);
    let status = life.see(&[("main", Seen::Running)]);
    let end = terminated(status.init_container_statuses[0].state.as_ref());
    assert_eq!((end.exit_code, &end.reason), (0, &Reason::COMPLETED));
    assert!(status.init_container_statuses[0].ready);
    assert_eq!(status.phase, PodPhase::Running);
}

#[test]
fn back_off_is_formatted_like_go_durations() {
    for (seconds, text) in [(10, "10s"), (60, "1m0s"), (160, "2m40s"), (300, "5m0s")] {
        assert_eq!(GoDuration(seconds).to_string(), text);
    }
}

#[test]
fn termination_messages_share_their_size_and_split_no_character() {
    let mut life = Life::new(RestartPolicy::Never, &[], &["a", "b", "c"]);
    let mut observed = ObservedPod::new("u".into(), "default", "web");
    let mut long = instance("a", Seen::Exited(1), 0).unwrap();
    let message = "\u{e4}".repeat(3000);
    long.state = pods::ContainerState::Exited(Box::new(Exit { code: 1, message, ..Exit::default() }));
    observed.containers.push(long);
    life.host_ips.clear();
    let nothing = SortedMap::new();
    let status = pod_status(&StatusInput {
        shows_sandbox: true,
        own_conditions: &[],
        devices: &[],
        replaced: &[],
        pod: &life.pod,
        observed: &observed,
        previous: None,
        waiting: &life.waiting,
        backing_off: &[],
        probed: &nothing,
        host_ips: &[],
        runtime_name: "x",
        now: second(0),
        ended: false,
        failed: None,
        resize: Resize::default(),
        recursive_read_only: None,
        actuated: None,
    });
    assert_eq!(terminated(status.container_statuses[0].state.as_ref()).message, "\u{e4}".repeat(2048));
}

#[test]
fn pod_ips_have_the_nodes_family_first() {
    let mut life = Life::main(RestartPolicy::Always);
    let six = IpAddr::V6(Ipv6Addr::LOCALHOST);
    life.sandbox.as_mut().unwrap().ips.extend([six, "10.0.0.10".parse().unwrap()]);
    let words = |ips: &[api::Ip]| ips.iter().map(|ip| ip.ip.clone()).collect::<Vec<_>>();
    assert_eq!(words(&life.see(&[]).pod_ips), ["10.0.0.9", "::1"]);
    life.host_ips = vec!["fd00::1".parse().unwrap(), "10.77.0.1".parse().unwrap()];
    let status = life.see(&[]);
    assert_eq!(words(&status.pod_ips), ["::1", "10.0.0.9"]);
    assert_eq!(words(&status.host_ips), ["fd00::1", "10.77.0.1"]);
    assert_eq!((status.pod_ip.as_str(), status.host_ip.as_str()), ("::1", "fd00::1"));
}

#[test]
fn host_network_pod_has_the_nodes_addresses() {
    let mut life = Life::main(RestartPolicy::Always);
    life.pod.spec.host_network = true;
    let sandbox = life.sandbox.as_mut().unwrap();
    sandbox.host_network = true;
    sandbox.ips.clear();
    life.host_ips = vec!["10.77.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
    let status = life.see(&[("main", Seen::Running)]);
    assert_eq!(status.pod_ip, "10.77.0.1");
    assert_eq!(status.pod_ips.len(), 2);
    assert_eq!(condition(&status, conditions::POD_READY_TO_START_CONTAINERS).status, ConditionStatus::True);
}

#[test]
fn pod_ip_is_kept_after_termination_but_not_in_a_new_sandbox() {
    let mut life = Life::main(RestartPolicy::Never);
    life.see(&[("main", Seen::Running)]);
    life.sandbox.as_mut().unwrap().state = SandboxState::NotReady;
    assert_eq!(life.see(&[("main", Seen::Exited(0))]).pod_ip, "10.0.0.9");
    life.sandbox = None;
    assert_eq!(life.see(&[("main", Seen::Exited(0))]).pod_ip, "10.0.0.9");
    let mut life = Life::main(RestartPolicy::Always);
    life.see(&[]);
    life.sandbox.as_mut().unwrap().ips = vec!["10.0.0.10".parse().unwrap()];
    assert_eq!(life.see(&[]).pod_ip, "10.0.0.10");
}

#[test]
fn transition_time_changes_only_with_the_status() {
    let mut life = Life::main(RestartPolicy::Always);
    let time = |status: &PodStatus| condition(status, conditions::READY).last_transition_time;
    assert_eq!(time(&life.see(&[])), Some(second(1)));
    assert_eq!(time(&life.see(&[("main", Seen::Exited(1))])), Some(second(1)));
    assert_eq!(time(&life.see(&[("main", Seen::Running)])), Some(second(3)));
    assert_eq!(time(&life.see(&[("main", Seen::Running)])), Some(second(3)));
    assert_eq!(life.status.unwrap().start_time, Some(second(1)));
}

#[test]
fn foreign_conditions_are_kept_and_open_readiness_gates() {
    let gate = |status| PodCondition { kind: "example.com/gate".into(), status, ..PodCondition::default() };
    for (state, ready, message) in [
        (ConditionStatus::True, ConditionStatus::True, ""),
        (
            ConditionStatus::False,
            ConditionStatus::False,
            "the status of pod readiness gate \"example.com/gate\" is not \"True\", but False",
        ),
    ] {
        let mut life = Life::main(RestartPolicy::Always);
        life.pod.spec.readiness_gates = vec![PodReadinessGate { condition_type: "example.com/gate".to_owned() }];
        life.pod.status.conditions = vec![gate(state)];
        let status = life.see(&[("main", Seen::Running)]);
        assert_eq!(status.conditions[0], gate(state));
        let made = condition(&status, conditions::READY);
        assert_eq!((made.status, made.message.as_str()), (ready, message));
    }
}

#[test]
fn disruption_condition_is_kept() {
    let mut life = Life::main(RestartPolicy::Always);
    let mut before = life.see(&[("main", Seen::Running)]);
    let disruption = PodCondition {
        kind: conditions::DISRUPTION_TARGET.into(),
        status: ConditionStatus::True,
        reason: Reason::TERMINATION_BY_KUBELET,
        ..PodCondition::default()
    };
    before.conditions.push(disruption.clone());
    life.status = Some(before);
    for _ in 0..2 {
        assert_eq!(condition(&life.see(&[]), conditions::DISRUPTION_TARGET), &disruption);
    }
}

#[test]
fn sandbox_to_be_replaced_is_not_ready() {
    let holds = |life: &mut Life| {
        condition(&life.see(&[]), conditions::POD_READY_TO_START_CONTAINERS).status == ConditionStatus::True
    };
    let mut life = Life::main(RestartPolicy::Always);
    assert!(holds(&mut life));
    life.sandbox.as_mut().unwrap().has_address = false;
    assert!(!holds(&mut life));
    life.pod.spec.host_network = true;
    assert!(!holds(&mut life));
    life.sandbox.as_mut().unwrap().host_network = true;
    assert!(holds(&mut life));
    life.sandbox.as_mut().unwrap().state = SandboxState::NotReady;
    assert!(!holds(&mut life));
}

#[test]
fn sandbox_condition_follows_its_gate() {
    let mut life = Life::main(RestartPolicy::Always);
    let kinds = |status: PodStatus| status.conditions.into_iter().map(|found| found.kind).collect::<Vec<_>>();
    let with = kinds(life.see(&[]));
    life.shows_sandbox = false;
    let without: Vec<_> =
        with.iter().filter(|kind| **kind != conditions::POD_READY_TO_START_CONTAINERS).cloned().collect();
    assert_eq!((kinds(life.see(&[])), with.len()), (without.clone(), without.len() + 1));
}

/// Invariants between a status and the next one.
fn check_step(before: &PodStatus, after: &PodStatus, history: &[Seen]) {
    if before.phase.is_terminal() {
        assert_eq!(before.phase, after.phase, "a terminal phase was left: {history:?}");
    }
    assert_eq!(before.start_time, after.start_time, "{history:?}");
    for (old, new) in before.container_statuses.iter().zip(&after.container_statuses) {
        assert!(new.restart_count >= old.restart_count, "a restart was taken back: {history:?}");
        check_container(new, history);
    }
    for new in &after.conditions {
        let old = condition(before, &new.kind);
        let kept = old.last_transition_time == new.last_transition_time;
        assert_eq!(kept, old.status == new.status, "{}: {history:?}", new.kind);
    }
}

fn check_container(status: &ContainerStatus, history: &[Seen]) {
    let running = matches!(status.state, Some(ContainerState::Running(_)));
    assert_eq!(status.started, Some(running), "{history:?}");
    assert!(!status.ready || running, "{history:?}");
    assert!(status.state.is_some(), "{history:?}");
    assert!(matches!(status.last_state, None | Some(ContainerState::Terminated(_))), "{history:?}");
}

fn every_life(policy: RestartPolicy, ended_from: usize, history: &mut Vec<Seen>) {
    if history.len() == 4 {
        let mut life = Life::main(policy);
        let mut before: Option<PodStatus> = None;
        for (step, seen) in history.iter().enumerate() {
            life.ended = step >= ended_from;
            let after = life.see(&[("main", *seen)]);
            if let Some(before) = &before {
                check_step(before, &after, history);
            }
            before = Some(after);
        }
        return;
    }
    for seen in EVERY {
        history.push(seen);
        every_life(policy, ended_from, history);
        history.pop();
    }
}

#[test]
fn no_sequence_of_states_reverts_a_final_state() {
    for policy in [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never] {
        for ended_from in [3, 4] {
            every_life(policy, ended_from, &mut Vec::new());
        }
    }
}

#[test]
fn read_only_mounts_show_whether_they_are_recursive() {
    let mut life = Life::main(RestartPolicy::Always);
    let mount = |path: &str, mode| VolumeMount {
        name: "v".to_owned(),
        mount_path: path.to_owned(),
        read_only: path != "/rw",
        recursive_read_only: mode,
        ..VolumeMount::default()
    };
    life.pod.spec.containers[0].volume_mounts = vec![
        mount("/rw", None),
        mount("/ro", None),
        mount("/off", Some(RecursiveReadOnlyMode::Disabled)),
        mount("/on", Some(RecursiveReadOnlyMode::Enabled)),
        mount("/if", Some(RecursiveReadOnlyMode::IfPossible)),
    ];
    let mut modes = |able, seen| {
        life.recursive_read_only = able;
        let status = life.see(&[("main", seen)]);
        let mounts = status.container_statuses[0].volume_mounts.iter();
        mounts.map(|mount| mount.recursive_read_only.as_deref().unwrap_or("-")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(modes(None, Seen::Nothing), "- Disabled Disabled Disabled Disabled");
    assert_eq!(modes(Some(true), Seen::Running), "- Disabled Disabled Enabled Enabled");
    assert_eq!(modes(None, Seen::Running), "- Disabled Disabled Enabled Enabled", "the runtime is unknown");
    assert_eq!(modes(Some(false), Seen::Running), "- Disabled Disabled Disabled Disabled");
}

#[test]
fn resize_conditions_last_until_the_resize_is_done() {
    let pod = Pod::default();
    let observed = ObservedPod::new("u".into(), "default", "web");
    let conditions_of = |resize| {
        let status = pod_status(&StatusInput {
            shows_sandbox: true,
            own_conditions: &[],
            devices: &[],
            replaced: &[],
            pod: &pod,
            observed: &observed,
            previous: None,
            waiting: &SortedMap::new(),
            backing_off: &[],
            probed: &SortedMap::new(),
            host_ips: &[],
            runtime_name: "cri-o",
            now: second(1),
            ended: false,
            failed: None,
            resize,
            recursive_read_only: None,
            actuated: None,
        });
        let told = status.conditions.into_iter().filter(|condition| condition.kind.starts_with("PodResize"));
        told.map(|one| format!("{} {} {} {}", one.kind, one.observed_generation, one.reason, one.message))
            .collect::<Vec<_>>()
    };
    assert!(conditions_of(Resize::default()).is_empty());
    let pending = Some((&Reason::DEFERRED, "not now", 4));
    let waits = Resize { pending, progress: ResizeProgress::InProgress(3) };
    assert_eq!(conditions_of(waits), ["PodResizePending 4 Deferred not now", "PodResizeInProgress 3  "]);
    let failed = Resize { pending: None, progress: ResizeProgress::Failed("no such file", 3) };
    assert_eq!(conditions_of(failed), ["PodResizeInProgress 3 Error no such file"]);
}

#[test]
fn running_container_shows_what_the_runtime_has_until_it_is_resized() {
    let list = |cpu: &str| [("cpu", cpu.parse().unwrap())].into_iter().collect::<ResourceList>();
    let resources = |cpu: &str| ResourceRequirements { requests: list(cpu), ..ResourceRequirements::default() };
    let mut pod = Pod::default();
    pod.spec.containers =
        vec![Container { name: "main".to_owned(), resources: resources("2"), ..Container::default() }];
    let mut observed = ObservedPod::new("u".into(), "default", "web");
    let state = pods::ContainerState::Running { started_at: 1 };
    observed.containers.push(ObservedContainer::seen("1", "main", "s", state));
    let mut actuated = PodResourceInfo::default();
    actuated.containers.insert("main".to_owned(), resources("1"));
    let shown = |progress, actuated| {
        let status = pod_status(&StatusInput {
            shows_sandbox: true,
            own_conditions: &[],
            devices: &[],
            replaced: &[],
            pod: &pod,
            observed: &observed,
            previous: None,
            waiting: &SortedMap::new(),
            backing_off: &[],
            probed: &SortedMap::new(),
            host_ips: &[],
            runtime_name: "cri-o",
            now: second(1),
            ended: false,
            failed: None,
            resize: Resize { pending: None, progress },
            actuated,
            recursive_read_only: None,
        });
        let container = &status.container_statuses[0];
        assert_eq!(container.allocated_resources, list("2"));
        container.resources.as_deref().map(|resources| resources.requests.clone())
    };
    assert_eq!(shown(ResizeProgress::InProgress(2), Some(&actuated)), Some(list("1")));
    assert_eq!(shown(ResizeProgress::None, Some(&actuated)), Some(list("2")));
    assert_eq!(shown(ResizeProgress::InProgress(2), None), Some(list("2")));
}
