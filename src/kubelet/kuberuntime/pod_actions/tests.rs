use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::*;
use crate::state::pods::Exit;
use crate::types::api::{ExitCodesOperator, PodUid, RestartRuleAction, RestartRuleOnExitCodes};

const HASH: u32 = 7;

fn observed() -> ObservedPod {
    ObservedPod::new(PodUid::from("u"), "default", "web")
}

fn sandbox(id: &str, attempt: u32, state: SandboxState) -> ObservedSandbox {
    ObservedSandbox {
        id: id.to_owned(),
        attempt,
        state,
        created_at: i64::from(attempt),
        host_network: false,
        ips: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))],
        has_address: true,
        pid: None,
    }
}

fn container(name: &str, sandbox_id: &str, state: ContainerState) -> ObservedContainer {
    ObservedContainer { hash: Some(HASH), ..ObservedContainer::seen(&format!("{name}-id"), name, sandbox_id, state) }
}

fn running() -> ContainerState {
    ContainerState::Running { started_at: 1 }
}

fn exited(code: i32) -> ContainerState {
    ContainerState::Exited(Box::new(Exit { code, ..Exit::default() }))
}

fn wanted(name: &str) -> WantedContainer<'_> {
    WantedContainer {
        name,
        hash: HASH,
        restart_policy: None,
        restart_rules: &[],
        not_before: None,
        held_until: None,
        health: ProbedHealth::Started,
        resize: None,
    }
}

fn sidecar(name: &str) -> WantedContainer<'_> {
    WantedContainer { restart_policy: Some(RestartPolicy::Always), ..wanted(name) }
}

/// A pod with main containers a, b, c… in these states, in one ready sandbox.
fn with_states(states: &[Option<ContainerState>]) -> (ObservedPod, Vec<WantedContainer<'static>>) {
    const NAMES: [&str; 3] = ["a", "b", "c"];
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::Ready));
    for (name, state) in NAMES.iter().zip(states) {
        pod.containers.extend(state.clone().map(|state| container(name, "s", state)));
    }
    (pod, NAMES.iter().take(states.len()).map(|name| wanted(name)).collect())
}

fn situation<'a>(
    observed: &'a ObservedPod,
    policy: RestartPolicy,
    init: Vec<WantedContainer<'a>>,
    main: Vec<WantedContainer<'a>>,
) -> ActionInputs<'a> {
    ActionInputs {
        restart_policy: policy,
        host_network: false,
        init,
        main,
        ephemeral: Vec::new(),
        observed,
        groupless: None,
        to_restart: &[],
        resizes_pod: false,
        now: Instant::now(),
    }
}

#[track_caller]
fn check(policy: RestartPolicy, states: &[Option<ContainerState>], actions: &[Action], completed: bool) {
    let (pod, main) = with_states(states);
    let plan = compute_pod_actions(&situation(&pod, policy, Vec::new(), main));
    assert_eq!(plan, Plan { actions: actions.to_vec(), completed, ..Plan::default() });
}

fn start(index: ContainerIndex, restart_count: u32) -> Action {
    Action::StartContainer { container: index, restart_count }
}

#[test]
fn new_pod_gets_a_sandbox_and_all_containers() {
    let pod = observed();
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), vec![wanted("a"), wanted("b")]));
    let sandbox = Action::CreateSandbox { attempt: 0 };
    assert_eq!(plan.actions, [sandbox, start(ContainerIndex::Main(0), 0), start(ContainerIndex::Main(1), 0)]);
}

#[test]
fn new_pod_starts_only_its_first_init_container() {
    let pod = observed();
    let init = vec![wanted("i"), wanted("j")];
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, init, vec![wanted("a")]));
    assert_eq!(plan.actions, [Action::CreateSandbox { attempt: 0 }, start(ContainerIndex::Init(0), 0)]);
}

#[test]
fn pod_in_order_needs_no_action() {
    check(RestartPolicy::Always, &[Some(running()), Some(running())], &[], false);
}

#[test]
fn on_failure_restarts_only_what_failed() {
    check(
        RestartPolicy::OnFailure,
        &[Some(exited(0)), Some(exited(2)), Some(running())],
        &[start(ContainerIndex::Main(1), 1)],
        false,
    );
}

#[test]
fn always_restarts_succeeded_containers_too() {
    check(RestartPolicy::Always, &[Some(exited(0))], &[start(ContainerIndex::Main(0), 1)], false);
}

#[test]
fn never_starts_only_containers_that_have_not_run() {
    check(RestartPolicy::Never, &[Some(exited(1)), None], &[start(ContainerIndex::Main(1), 0)], false);
}

#[test]
fn pod_is_completed_when_nothing_runs_or_will_start() {
    check(RestartPolicy::Never, &[Some(exited(1)), Some(exited(0))], &[], true);
    check(RestartPolicy::OnFailure, &[Some(exited(0))], &[], true);
    check(RestartPolicy::Never, &[Some(exited(1)), Some(running())], &[], false);
}

#[test]
fn changed_container_is_replaced_whatever_the_policy() {
    let (mut pod, main) = with_states(&[Some(running())]);
    pod.containers[0].hash = Some(HASH + 1);
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), main));
    let kill = Action::KillContainer {
        id: "a-id".to_owned(),
        container: ContainerIndex::Main(0),
        why: KillReason::DefinitionChanged,
        restarts: true,
    };
    assert_eq!(plan.actions, [kill, start(ContainerIndex::Main(0), 1)]);
}

#[test]
fn created_container_is_started_not_created_again() {
    check(
        RestartPolicy::Always,
        &[Some(ContainerState::Created)],
        &[Action::StartCreated { id: "a-id".to_owned(), container: ContainerIndex::Main(0) }],
        false,
    );
}

#[test]
fn container_of_unknown_state_is_killed_before_it_is_replaced() {
    let kill = Action::KillContainer {
        id: "a-id".to_owned(),
        container: ContainerIndex::Main(0),
        why: KillReason::StateUnknown,
        restarts: true,
    };
    check(RestartPolicy::Always, &[Some(ContainerState::Unknown)], &[kill, start(ContainerIndex::Main(0), 1)], false);
}

#[test]
fn container_in_back_off_waits_and_the_pod_is_not_completed() {
    let (pod, mut main) = with_states(&[Some(exited(1))]);
    let later = Instant::now() + Duration::from_secs(10);
    main[0].not_before = Some(later);
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
    assert_eq!(plan, Plan { backing_off: vec![(ContainerIndex::Main(0), later)], ..Plan::default() });
}

#[test]
fn expired_back_off_does_not_delay_the_start() {
    let (pod, mut main) = with_states(&[Some(exited(1))]);
    main[0].not_before = Some(Instant::now());
    let mut pod = situation(&pod, RestartPolicy::Always, Vec::new(), main);
    pod.now = Instant::now();
    assert_eq!(compute_pod_actions(&pod).actions, [start(ContainerIndex::Main(0), 1)]);
}

#[test]
fn init_containers_run_in_sequence() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::Ready));
    let init = || vec![wanted("i"), wanted("j")];
    let plan = |pod: &ObservedPod| {
        compute_pod_actions(&situation(pod, RestartPolicy::Always, init(), vec![wanted("a")])).actions
    };

    *pod.containers = vec![container("i", "s", running())];
    assert_eq!(plan(&pod), []);
    *pod.containers = vec![container("i", "s", exited(0))];
    assert_eq!(plan(&pod), [start(ContainerIndex::Init(1), 0)]);
    pod.containers.insert(0, container("j", "s", exited(0)));
    assert_eq!(plan(&pod), [start(ContainerIndex::Main(0), 0)]);
}

#[test]
fn failed_init_container_is_retried_unless_never() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::Ready));
    *pod.containers = vec![container("i", "s", exited(9))];
    let plan = |policy| compute_pod_actions(&situation(&pod, policy, vec![wanted("i")], vec![wanted("a")]));
    assert_eq!(plan(RestartPolicy::OnFailure).actions, [start(ContainerIndex::Init(0), 1)]);
    assert_eq!(plan(RestartPolicy::Never), Plan { completed: true, ..Plan::default() });
}

#[test]
fn running_init_container_survives_a_changed_image_and_a_sidecar_does_not() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::Ready));
    pod.containers.push(container("i", "s", running()));
    let plan = |wanted_init| {
        compute_pod_actions(&situation(&pod, RestartPolicy::Always, vec![wanted_init], vec![wanted("a")])).actions
    };
    let changed = |init| WantedContainer { hash: HASH + 1, ..init };
    assert_eq!(plan(changed(wanted("i"))), []);
    let index = ContainerIndex::Init(0);
    let killed = kill(index, "i-id", KillReason::DefinitionChanged, true);
    assert_eq!(plan(changed(sidecar("i")))[..2], [killed, start(index, 1)]);
}

#[test]
fn init_container_of_unknown_state_fails_a_pod_with_never() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::Ready));
    pod.containers.push(container("i", "s", ContainerState::Unknown));
    let index = ContainerIndex::Init(0);
    let killed = kill(index, "i-id", KillReason::StateUnknown, true);
    for (policy, own, actions, completed) in [
        (RestartPolicy::Never, None, vec![], true),
        (RestartPolicy::Never, Some(RestartPolicy::OnFailure), vec![killed.clone(), start(index, 1)], false),
        (RestartPolicy::OnFailure, None, vec![killed, start(index, 1)], false),
    ] {
        let init = WantedContainer { restart_policy: own, ..wanted("i") };
        let plan = compute_pod_actions(&situation(&pod, policy, vec![init], vec![wanted("a")]));
        assert_eq!((plan.actions, plan.completed), (actions, completed), "{policy} {own:?}");
    }
}

#[test]
fn removed_init_containers_do_not_run_again() {
    let (pod, main) = with_states(&[Some(running())]);
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, vec![wanted("i")], main));
    assert_eq!(plan.actions, []);
}

#[test]
fn sidecar_blocks_the_next_until_running_and_always_restarts() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::Ready));
    let plan = |pod: &ObservedPod| {
        compute_pod_actions(&situation(pod, RestartPolicy::Never, vec![sidecar("i")], vec![wanted("a")])).actions
    };
    assert_eq!(plan(&pod), [start(ContainerIndex::Init(0), 0)]);
    *pod.containers = vec![container("i", "s", running())];
    assert_eq!(plan(&pod), [start(ContainerIndex::Main(0), 0)]);
    *pod.containers = vec![container("i", "s", exited(0)), container("a", "s", running())];
    assert_eq!(plan(&pod), [start(ContainerIndex::Init(0), 1)]);
}

#[test]
fn sandbox_not_ready_is_replaced_with_counts_continued() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 3, SandboxState::NotReady));
    pod.containers.push(container("a", "s", exited(137)));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), vec![wanted("a")]));
    let actions = [Action::KillPod, Action::CreateSandbox { attempt: 4 }, start(ContainerIndex::Main(0), 1)];
    assert_eq!(plan.actions, actions);
}

#[test]
fn two_ready_sandboxes_are_replaced_by_one() {
    let mut pod = observed();
    pod.sandboxes = vec![sandbox("t", 1, SandboxState::Ready), sandbox("s", 0, SandboxState::Ready)];
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), vec![wanted("a")]));
    assert_eq!(plan.actions[..2], [Action::KillPod, Action::CreateSandbox { attempt: 2 }]);
}

#[test]
fn sandbox_with_wrong_network_mode_or_no_address_is_replaced() {
    for change in [|s: &mut ObservedSandbox| s.host_network = true, |s: &mut ObservedSandbox| s.has_address = false] {
        let (mut pod, main) = with_states(&[Some(running())]);
        change(&mut pod.sandboxes[0]);
        let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
        assert_eq!(plan.actions[..2], [Action::KillPod, Action::CreateSandbox { attempt: 1 }]);
    }
}

#[test]
fn only_a_sandbox_outside_the_pods_cgroup_is_replaced() {
    let (pod, main) = with_states(&[Some(running())]);
    for (groupless, expected) in [("s", true), ("another", false)] {
        let situation = situation(&pod, RestartPolicy::Always, Vec::new(), main.clone());
        let plan = compute_pod_actions(&ActionInputs { groupless: Some(groupless), ..situation });
        let anew = [Action::KillPod, Action::CreateSandbox { attempt: 1 }, start(ContainerIndex::Main(0), 1)];
        assert_eq!(plan.actions, if expected { anew.to_vec() } else { Vec::new() });
    }
    let never = situation(&pod, RestartPolicy::Never, Vec::new(), main.clone());
    assert!(compute_pod_actions(&ActionInputs { groupless: Some("s"), ..never }).completed, "the pod has run");
}

#[test]
fn pod_with_never_gets_no_second_sandbox() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    pod.containers.push(container("a", "s", exited(0)));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), vec![wanted("a")]));
    assert_eq!(plan, Plan { completed: true, ..Plan::default() });
}

#[test]
fn pod_with_never_gets_a_new_sandbox_for_an_unstarted_container() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    pod.containers.push(container("a", "s", ContainerState::Created));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), vec![wanted("a")]));
    assert!(plan.actions.contains(&Action::CreateSandbox { attempt: 1 }), "{plan:?}");
}

#[test]
fn pod_with_never_starts_after_a_failed_first_sandbox() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), vec![wanted("a")]));
    let actions = [Action::KillPod, Action::CreateSandbox { attempt: 1 }, start(ContainerIndex::Main(0), 0)];
    assert_eq!(plan.actions, actions);
}

#[test]
fn succeeded_container_with_on_failure_does_not_run_in_a_new_sandbox() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    *pod.containers = vec![container("a", "s", exited(0)), container("b", "s", exited(1))];
    let main = || vec![wanted("a"), wanted("b")];
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::OnFailure, Vec::new(), main()));
    let actions = [Action::KillPod, Action::CreateSandbox { attempt: 1 }, start(ContainerIndex::Main(1), 1)];
    assert_eq!(plan.actions, actions);
    pod.containers[1].state = exited(0);
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::OnFailure, Vec::new(), main()));
    assert_eq!(plan, Plan { completed: true, ..Plan::default() });
}

#[test]
fn failed_start_is_held_back_without_affecting_others() {
    let (pod, mut main) = with_states(&[Some(ContainerState::Created), None, Some(exited(1))]);
    let later = Instant::now() + Duration::from_secs(10);
    main[0].held_until = Some(later);
    main[1].held_until = Some(later + Duration::from_secs(1));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
    assert_eq!(
        plan,
        Plan { actions: vec![start(ContainerIndex::Main(2), 1)], held_until: Some(later), ..Plan::default() }
    );
}

fn kill(index: ContainerIndex, id: &str, why: KillReason, restarts: bool) -> Action {
    Action::KillContainer { id: id.to_owned(), container: index, why, restarts }
}

#[test]
fn container_failing_a_probe_is_killed_and_restarted_unless_never() {
    for (policy, restarts) in
        [(RestartPolicy::Always, true), (RestartPolicy::OnFailure, true), (RestartPolicy::Never, false)]
    {
        let (pod, mut main) = with_states(&[Some(running()), Some(running())]);
        main[0].health = ProbedHealth::Failed(ProbeKind::Liveness);
        main[1].health = ProbedHealth::Starting;
        let plan = compute_pod_actions(&situation(&pod, policy, Vec::new(), main));
        let mut actions =
            vec![kill(ContainerIndex::Main(0), "a-id", KillReason::FailedProbe(ProbeKind::Liveness), restarts)];
        actions.extend(restarts.then(|| start(ContainerIndex::Main(0), 1)));
        assert_eq!(plan.actions, actions, "{policy:?}");
        assert!(!plan.completed);
    }
}

#[test]
fn container_failing_a_probe_again_is_killed_at_once_and_backs_off() {
    let (pod, mut main) = with_states(&[Some(running())]);
    let until = Instant::now() + Duration::from_secs(10);
    main[0] = WantedContainer {
        health: ProbedHealth::Failed(ProbeKind::Startup),
        not_before: Some(until),
        ..main[0].clone()
    };
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
    assert_eq!(
        plan.actions,
        [kill(ContainerIndex::Main(0), "a-id", KillReason::FailedProbe(ProbeKind::Startup), true)]
    );
    assert_eq!(plan.backing_off, [(ContainerIndex::Main(0), until)]);
}

/// The plan of a pod with sidecars `x` and `y` and a main container `a` that never started.
#[track_caller]
fn check_sidecars(x: (ContainerState, ProbedHealth), y: Option<ContainerState>, actions: &[Action]) {
    let (mut pod, main) = with_states(&[None]);
    pod.containers.push(container("x", "s", x.0));
    pod.containers.extend(y.map(|state| container("y", "s", state)));
    let init = vec![WantedContainer { health: x.1, ..sidecar("x") }, sidecar("y")];
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, init, main));
    assert_eq!(plan.actions, actions);
}

#[test]
fn startup_probe_of_a_sidecar_blocks_the_following_containers() {
    check_sidecars((running(), ProbedHealth::Starting), None, &[]);
    check_sidecars((running(), ProbedHealth::Started), None, &[start(ContainerIndex::Init(1), 0)]);
    let failed = KillReason::FailedProbe(ProbeKind::Startup);
    let again = [kill(ContainerIndex::Init(0), "x-id", failed, true), start(ContainerIndex::Init(0), 1)];
    check_sidecars((running(), ProbedHealth::Failed(ProbeKind::Startup)), None, &again);
}

#[test]
fn restarting_sidecar_does_not_block_running_containers() {
    let failed = KillReason::FailedProbe(ProbeKind::Liveness);
    let again = [
        kill(ContainerIndex::Init(0), "x-id", failed, true),
        start(ContainerIndex::Init(0), 1),
        start(ContainerIndex::Main(0), 0),
    ];
    check_sidecars((running(), ProbedHealth::Failed(ProbeKind::Liveness)), Some(running()), &again);
    check_sidecars((running(), ProbedHealth::Starting), Some(running()), &[start(ContainerIndex::Main(0), 0)]);
    let ended = [start(ContainerIndex::Init(0), 1), start(ContainerIndex::Main(0), 0)];
    check_sidecars((exited(1), ProbedHealth::Started), Some(running()), &ended);
}

fn on_code(code: i32, action: RestartRuleAction) -> Vec<ContainerRestartRule> {
    let codes = RestartRuleOnExitCodes { operator: ExitCodesOperator::In, values: vec![code] };
    vec![ContainerRestartRule { action, exit_codes: Some(codes) }]
}

#[test]
fn exit_code_rule_overrides_container_and_pod_policy() {
    let rules = on_code(42, RestartRuleAction::Restart);
    let own = |policy| WantedContainer { restart_policy: Some(policy), restart_rules: &rules, ..wanted("a") };
    for (policy, code, expected) in [
        (RestartPolicy::Never, 42, true),
        (RestartPolicy::Never, 1, false),
        (RestartPolicy::OnFailure, 42, true),
        (RestartPolicy::OnFailure, 0, false),
        (RestartPolicy::Always, 0, true),
    ] {
        let (pod, _) = with_states(&[Some(exited(code))]);
        for of_pod in [RestartPolicy::Never, RestartPolicy::Always] {
            let plan = compute_pod_actions(&situation(&pod, of_pod, Vec::new(), vec![own(policy)]));
            let actions = if expected { vec![start(ContainerIndex::Main(0), 1)] } else { Vec::new() };
            assert_eq!((plan.actions, plan.completed), (actions, !expected), "{policy} {code}");
        }
    }
}

#[test]
fn init_container_with_never_fails_the_pod_except_for_its_rules() {
    let rules = on_code(7, RestartRuleAction::Restart);
    let init = || WantedContainer { restart_policy: Some(RestartPolicy::Never), restart_rules: &rules, ..wanted("i") };
    for (code, expected) in [(7, vec![start(ContainerIndex::Init(0), 1)]), (8, Vec::new())] {
        let (mut pod, _) = with_states(&[]);
        pod.containers.push(container("i", "s", exited(code)));
        let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, vec![init()], vec![wanted("a")]));
        assert_eq!((plan.completed, plan.actions), (expected.is_empty(), expected));
    }
}

#[test]
fn restart_of_all_kills_running_and_removes_the_cause_last() {
    let rules = on_code(42, RestartRuleAction::RestartAllContainers);
    let main = || {
        vec![
            WantedContainer { restart_policy: Some(RestartPolicy::Never), restart_rules: &rules, ..wanted("a") },
            wanted("b"),
        ]
    };
    let (mut pod, _) = with_states(&[Some(exited(42)), Some(running())]);
    pod.containers.push(container("i", "s", exited(0)));
    let plan =
        |pod: &ObservedPod| compute_pod_actions(&situation(pod, RestartPolicy::Always, vec![wanted("i")], main()));
    let remove = |name: &str| Action::RemoveContainer { id: format!("{name}-id") };
    let kill = Action::KillContainers { ids: vec!["b-id".to_owned()], why: KillReason::RestartsAll };
    assert_eq!(plan(&pod).actions, [kill, remove("b"), remove("i"), remove("a")]);
    assert!(plan(&pod).recreates());
    // After a crash in the middle, the rest is done.
    pod.containers.retain(|container| container.name == "a");
    assert_eq!(plan(&pod).actions, [remove("a")]);
    pod.containers.clear();
    assert_eq!(plan(&pod).actions, [start(ContainerIndex::Init(0), 0)]);
}

#[test]
fn new_sandbox_runs_only_containers_that_would_restart() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    *pod.containers = vec![container("a", "s", exited(137)), container("b", "s", exited(137))];
    let b = WantedContainer { restart_policy: Some(RestartPolicy::Always), ..wanted("b") };
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), vec![wanted("a"), b]));
    let actions = [Action::KillPod, Action::CreateSandbox { attempt: 1 }, start(ContainerIndex::Main(1), 1)];
    assert_eq!(plan.actions, actions);
}

#[test]
fn container_with_its_own_never_does_not_run_again_in_a_new_sandbox() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    let never = |name| WantedContainer { restart_policy: Some(RestartPolicy::Never), ..wanted(name) };
    for (state, runs) in
        [(running(), false), (ContainerState::Unknown, false), (exited(137), false), (ContainerState::Created, true)]
    {
        *pod.containers = vec![container("a", "s", exited(137)), container("b", "s", state.clone())];
        let main = vec![wanted("a"), never("b")];
        let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
        let starts = plan.actions.iter().filter(|action| matches!(action, Action::StartContainer { .. }));
        assert_eq!(starts.count(), if runs { 2 } else { 1 }, "{state:?}");
    }
}

fn with_debugger<'a>(pod: &'a ObservedPod, init: Vec<WantedContainer<'a>>, main: Vec<WantedContainer<'a>>) -> Plan {
    let ephemeral = vec![wanted("debug")];
    compute_pod_actions(&ActionInputs { ephemeral, ..situation(pod, RestartPolicy::Never, init, main) })
}

#[test]
fn ephemeral_container_starts_once_before_init_is_done() {
    let (mut pod, main) = with_states(&[None]);
    pod.containers.push(container("i", "s", running()));
    let plan = |pod: &ObservedPod| with_debugger(pod, vec![wanted("i")], main.clone()).actions;
    assert_eq!(plan(&pod), [start(ContainerIndex::Ephemeral(0), 0)]);
    for state in [running(), exited(0), exited(1)] {
        pod.containers.truncate(1);
        pod.containers.push(container("debug", "s", state));
        assert_eq!(plan(&pod), []);
    }
}

#[test]
fn ephemeral_containers_do_not_delay_completion() {
    let (mut pod, main) = with_states(&[Some(exited(0))]);
    assert!(with_debugger(&pod, Vec::new(), main.clone()).completed);
    pod.containers.push(container("debug", "s", running()));
    assert!(with_debugger(&pod, Vec::new(), main).completed);
}

#[test]
fn decreases_are_planned_before_increases() {
    let (pod, mut main) = with_states(&[Some(running()), Some(running())]);
    main[0].resize = Some(Resize::InPlace { shrinks: false });
    main[1].resize = Some(Resize::InPlace { shrinks: true });
    let resize = |id: &str, index, shrinks| Action::ResizeContainer {
        id: id.to_owned(),
        container: ContainerIndex::Main(index),
        shrinks,
    };
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
    assert_eq!(plan.actions, [resize("b-id", 1, true), resize("a-id", 0, false)]);
    assert!(!plan.completed && plan.resizes() && !plan.recreates());
}

#[test]
fn running_init_container_is_resized_and_still_waited_for() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::Ready));
    pod.containers.push(container("i", "s", running()));
    let init = vec![WantedContainer { resize: Some(Resize::InPlace { shrinks: false }), ..wanted("i") }];
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, init, vec![wanted("a")]));
    let resize = Action::ResizeContainer { id: "i-id".to_owned(), container: ContainerIndex::Init(0), shrinks: false };
    assert_eq!(plan, Plan { actions: vec![resize], ..Plan::default() });
}

#[test]
fn resources_of_the_pod_itself_are_resized() {
    let (pod, main) = with_states(&[Some(running())]);
    let situation = situation(&pod, RestartPolicy::Always, Vec::new(), main);
    let plan = compute_pod_actions(&ActionInputs { resizes_pod: true, ..situation });
    assert_eq!(plan.actions, [Action::ResizePod]);
    assert!(plan.resizes() && !plan.completed);
    let without = plan.without_resizes();
    assert!(without.actions.is_empty() && without.resize_waits && !without.resizes());
}

#[test]
fn container_with_restart_resize_policy_is_replaced() {
    let (pod, mut main) = with_states(&[Some(running()), Some(running())]);
    main[1].resize = Some(Resize::Restart);
    let index = ContainerIndex::Main(1);
    let kill =
        Action::KillContainer { id: "b-id".to_owned(), container: index, why: KillReason::Resized, restarts: true };
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
    assert_eq!(plan.actions, [kill, start(index, 1)]);
    assert!(plan.resizes());
}

#[test]
fn requested_restarts_kill_together_and_start_in_order() {
    let (mut pod, main) = with_states(&[Some(running()), Some(running())]);
    pod.containers.push(ObservedContainer { restart_count: 4, ..container("side", "s", running()) });
    let to_restart = ["a-id", "side-id"].map(str::to_owned);
    for policy in [RestartPolicy::Always, RestartPolicy::OnFailure] {
        let plan = compute_pod_actions(&ActionInputs {
            to_restart: &to_restart,
            ..situation(&pod, policy, vec![sidecar("side")], main.clone())
        });
        let ids = ["side-id", "a-id"].map(str::to_owned).to_vec();
        let expected = [
            Action::KillContainers { ids, why: KillReason::Requested },
            start(ContainerIndex::Init(0), 5),
            start(ContainerIndex::Main(0), 1),
        ];
        assert_eq!(plan.actions, expected);
        assert!(!plan.completed && !plan.recreates());
    }
}

#[test]
fn sidecar_does_not_keep_a_finished_pod() {
    let finished = |side: WantedContainer<'static>, state| {
        let (mut pod, main) = with_states(&[Some(exited(0)), Some(exited(1))]);
        pod.containers.push(container("side", "s", state));
        let later = Instant::now() + Duration::from_secs(300);
        let side = WantedContainer {
            not_before: side.not_before.map(|_| later),
            held_until: side.held_until.map(|_| later),
            ..side
        };
        compute_pod_actions(&situation(&pod, RestartPolicy::Never, vec![side], main))
    };
    let some = Some(Instant::now());
    let done = Plan { completed: true, ..Plan::default() };
    assert_eq!(finished(sidecar("side"), exited(1)), done, "it would restart");
    assert_eq!(finished(WantedContainer { not_before: some, ..sidecar("side") }, exited(1)), done, "it backs off");
    assert_eq!(finished(WantedContainer { held_until: some, ..sidecar("side") }, exited(1)), done, "its start failed");
    assert_eq!(
        finished(WantedContainer { hash: HASH + 1, ..sidecar("side") }, running()),
        done,
        "its definition changed"
    );
    let failed = ProbedHealth::Failed(ProbeKind::Liveness);
    assert_eq!(finished(WantedContainer { health: failed, ..sidecar("side") }, running()), done, "its probe failed");
}

#[test]
fn sidecar_does_not_keep_a_pod_whose_init_container_failed() {
    let (mut pod, _) = with_states(&[]);
    *pod.containers = vec![container("i", "s", exited(3)), container("side", "s", exited(1))];
    let init = vec![sidecar("side"), wanted("i")];
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, init, vec![wanted("a")]));
    assert_eq!(plan, Plan { completed: true, ..Plan::default() });
}

#[test]
fn crash_looping_sidecar_restarts_while_a_container_waits() {
    let (mut pod, mut main) = with_states(&[Some(exited(1))]);
    let later = Instant::now() + Duration::from_secs(10);
    main[0].not_before = Some(later);
    pod.containers.push(container("side", "s", exited(1)));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::OnFailure, vec![sidecar("side")], main));
    assert_eq!(plan.actions, [start(ContainerIndex::Init(0), 1)]);
    assert_eq!(plan.backing_off, [(ContainerIndex::Main(0), later)]);
    assert!(!plan.completed);
}

#[test]
fn replaced_instances_are_those_that_start_again() {
    let (mut pod, main) = with_states(&[Some(running()), Some(running())]);
    pod.containers[0].hash = Some(HASH + 1);
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), main.clone()));
    assert_eq!(plan.replaced(), ["a-id"]);
    let failed = |wanted| WantedContainer { health: ProbedHealth::Failed(ProbeKind::Liveness), ..wanted };
    pod.containers[0].hash = Some(HASH);
    for (policy, expected) in [(RestartPolicy::OnFailure, &["a-id", "b-id"][..]), (RestartPolicy::Never, &[])] {
        let main = main.iter().cloned().map(failed).collect();
        assert_eq!(compute_pod_actions(&situation(&pod, policy, Vec::new(), main)).replaced(), expected);
    }
}

#[test]
fn restart_request_for_another_instance_is_ignored() {
    let (pod, main) = with_states(&[Some(running())]);
    let to_restart = ["earlier-id".to_owned()];
    let plan = compute_pod_actions(&ActionInputs {
        to_restart: &to_restart,
        ..situation(&pod, RestartPolicy::Always, Vec::new(), main)
    });
    assert_eq!(plan, Plan::default());
}
