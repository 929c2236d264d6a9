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

fn wanted(name: &str) -> Wanted<'_> {
    Wanted {
        name,
        hash: HASH,
        restart_policy: None,
        restart_rules: &[],
        not_before: None,
        held_until: None,
        health: Health::Started,
        resize: None,
    }
}

fn sidecar(name: &str) -> Wanted<'_> {
    Wanted { restart_policy: Some(RestartPolicy::Always), ..wanted(name) }
}

/// A pod with the main containers a, b, c… in the given states, in one ready sandbox.
fn with_states(states: &[Option<ContainerState>]) -> (ObservedPod, Vec<Wanted<'static>>) {
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
    init: Vec<Wanted<'a>>,
    main: Vec<Wanted<'a>>,
) -> Situation<'a> {
    let ephemeral = Vec::new();
    let (host_network, groupless, asked, now) = (false, None, &[][..], Instant::now());
    Situation { restart_policy: policy, host_network, init, main, ephemeral, observed, groupless, asked, now }
}

#[track_caller]
fn check(policy: RestartPolicy, states: &[Option<ContainerState>], actions: &[Action], completed: bool) {
    let (pod, main) = with_states(states);
    let plan = compute_pod_actions(&situation(&pod, policy, Vec::new(), main));
    assert_eq!(plan, Plan { actions: actions.to_vec(), completed, ..Plan::default() });
}

fn start(place: Place, restart_count: u32) -> Action {
    Action::StartContainer { place, restart_count }
}

#[test]
fn a_new_pod_gets_a_sandbox_and_all_its_containers() {
    let pod = observed();
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), vec![wanted("a"), wanted("b")]));
    let sandbox = Action::CreateSandbox { attempt: 0 };
    assert_eq!(plan.actions, [sandbox, start(Place::Main(0), 0), start(Place::Main(1), 0)]);
}

#[test]
fn a_new_pod_with_init_containers_starts_only_the_first_of_them() {
    let pod = observed();
    let init = vec![wanted("i"), wanted("j")];
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, init, vec![wanted("a")]));
    assert_eq!(plan.actions, [Action::CreateSandbox { attempt: 0 }, start(Place::Init(0), 0)]);
}

#[test]
fn a_pod_that_runs_as_it_should_needs_nothing() {
    check(RestartPolicy::Always, &[Some(running()), Some(running())], &[], false);
}

#[test]
fn on_failure_restarts_only_what_failed() {
    check(
        RestartPolicy::OnFailure,
        &[Some(exited(0)), Some(exited(2)), Some(running())],
        &[start(Place::Main(1), 1)],
        false,
    );
}

#[test]
fn always_restarts_what_succeeded_too() {
    check(RestartPolicy::Always, &[Some(exited(0))], &[start(Place::Main(0), 1)], false);
}

#[test]
fn never_restarts_nothing_but_starts_what_never_ran() {
    check(RestartPolicy::Never, &[Some(exited(1)), None], &[start(Place::Main(1), 0)], false);
}

#[test]
fn a_pod_is_completed_when_nothing_runs_and_nothing_will_start() {
    check(RestartPolicy::Never, &[Some(exited(1)), Some(exited(0))], &[], true);
    check(RestartPolicy::OnFailure, &[Some(exited(0))], &[], true);
    check(RestartPolicy::Never, &[Some(exited(1)), Some(running())], &[], false);
}

#[test]
fn a_container_whose_definition_changed_is_replaced_whatever_the_policy() {
    let (mut pod, main) = with_states(&[Some(running())]);
    pod.containers[0].hash = Some(HASH + 1);
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), main));
    let kill = Action::KillContainer {
        id: "a-id".to_owned(),
        place: Place::Main(0),
        why: KillReason::DefinitionChanged,
        restarts: true,
    };
    assert_eq!(plan.actions, [kill, start(Place::Main(0), 1)]);
}

#[test]
fn a_container_that_was_only_created_is_started_not_created_again() {
    check(
        RestartPolicy::Always,
        &[Some(ContainerState::Created)],
        &[Action::StartCreated { id: "a-id".to_owned(), place: Place::Main(0) }],
        false,
    );
}

#[test]
fn a_container_of_unknown_state_is_killed_before_it_is_replaced() {
    let kill = Action::KillContainer {
        id: "a-id".to_owned(),
        place: Place::Main(0),
        why: KillReason::StateUnknown,
        restarts: true,
    };
    check(RestartPolicy::Always, &[Some(ContainerState::Unknown)], &[kill, start(Place::Main(0), 1)], false);
}

#[test]
fn a_container_in_back_off_waits_and_the_pod_is_not_completed() {
    let (pod, mut main) = with_states(&[Some(exited(1))]);
    let later = Instant::now() + Duration::from_secs(10);
    main[0].not_before = Some(later);
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
    assert_eq!(plan, Plan { backing_off: vec![(Place::Main(0), later)], ..Plan::default() });
}

#[test]
fn a_back_off_that_is_over_holds_nothing_back() {
    let (pod, mut main) = with_states(&[Some(exited(1))]);
    main[0].not_before = Some(Instant::now());
    let mut pod = situation(&pod, RestartPolicy::Always, Vec::new(), main);
    pod.now = Instant::now();
    assert_eq!(compute_pod_actions(&pod).actions, [start(Place::Main(0), 1)]);
}

#[test]
fn init_containers_run_one_after_the_other() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::Ready));
    let init = || vec![wanted("i"), wanted("j")];
    let plan = |pod: &ObservedPod| {
        compute_pod_actions(&situation(pod, RestartPolicy::Always, init(), vec![wanted("a")])).actions
    };

    pod.containers = vec![container("i", "s", running())];
    assert_eq!(plan(&pod), []);
    pod.containers = vec![container("i", "s", exited(0))];
    assert_eq!(plan(&pod), [start(Place::Init(1), 0)]);
    pod.containers.insert(0, container("j", "s", exited(0)));
    assert_eq!(plan(&pod), [start(Place::Main(0), 0)]);
}

#[test]
fn a_failed_init_container_is_tried_again_unless_the_policy_is_never() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::Ready));
    pod.containers = vec![container("i", "s", exited(9))];
    let plan = |policy| compute_pod_actions(&situation(&pod, policy, vec![wanted("i")], vec![wanted("a")]));
    assert_eq!(plan(RestartPolicy::OnFailure).actions, [start(Place::Init(0), 1)]);
    assert_eq!(plan(RestartPolicy::Never), Plan { completed: true, ..Plan::default() });
}

#[test]
fn init_containers_that_were_cleaned_away_do_not_run_again_beside_a_main_container() {
    let (pod, main) = with_states(&[Some(running())]);
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, vec![wanted("i")], main));
    assert_eq!(plan.actions, []);
}

#[test]
fn a_sidecar_holds_back_the_next_until_it_runs_and_is_always_restarted() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::Ready));
    let plan = |pod: &ObservedPod| {
        compute_pod_actions(&situation(pod, RestartPolicy::Never, vec![sidecar("i")], vec![wanted("a")])).actions
    };
    assert_eq!(plan(&pod), [start(Place::Init(0), 0)]);
    pod.containers = vec![container("i", "s", running())];
    assert_eq!(plan(&pod), [start(Place::Main(0), 0)]);
    pod.containers = vec![container("i", "s", exited(0)), container("a", "s", running())];
    assert_eq!(plan(&pod), [start(Place::Init(0), 1)]);
}

#[test]
fn a_sandbox_that_is_not_ready_is_replaced_and_the_containers_counted_on() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 3, SandboxState::NotReady));
    pod.containers.push(container("a", "s", exited(137)));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), vec![wanted("a")]));
    let actions = [Action::KillPod, Action::CreateSandbox { attempt: 4 }, start(Place::Main(0), 1)];
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
fn a_sandbox_of_the_other_network_mode_or_without_an_address_is_replaced() {
    for change in [|s: &mut ObservedSandbox| s.host_network = true, |s: &mut ObservedSandbox| s.ips.clear()] {
        let (mut pod, main) = with_states(&[Some(running())]);
        change(&mut pod.sandboxes[0]);
        let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
        assert_eq!(plan.actions[..2], [Action::KillPod, Action::CreateSandbox { attempt: 1 }]);
    }
}

#[test]
fn a_sandbox_outside_of_its_pods_control_group_is_replaced_and_no_other() {
    let (pod, main) = with_states(&[Some(running())]);
    for (groupless, expected) in [("s", true), ("another", false)] {
        let situation = situation(&pod, RestartPolicy::Always, Vec::new(), main.clone());
        let plan = compute_pod_actions(&Situation { groupless: Some(groupless), ..situation });
        let anew = [Action::KillPod, Action::CreateSandbox { attempt: 1 }, start(Place::Main(0), 1)];
        assert_eq!(plan.actions, if expected { anew.to_vec() } else { Vec::new() });
    }
    let never = situation(&pod, RestartPolicy::Never, Vec::new(), main.clone());
    assert!(compute_pod_actions(&Situation { groupless: Some("s"), ..never }).completed, "its run is over");
}

#[test]
fn a_pod_that_never_restarts_is_not_given_a_second_sandbox() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    pod.containers.push(container("a", "s", exited(0)));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), vec![wanted("a")]));
    assert_eq!(plan, Plan { completed: true, ..Plan::default() });
}

#[test]
fn a_pod_that_never_restarts_gets_a_new_sandbox_for_a_container_that_was_created_and_never_started() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    pod.containers.push(container("a", "s", ContainerState::Created));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), vec![wanted("a")]));
    assert!(plan.actions.contains(&Action::CreateSandbox { attempt: 1 }), "{plan:?}");
}

#[test]
fn a_pod_that_never_restarts_gets_its_first_containers_after_a_failed_first_sandbox() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), vec![wanted("a")]));
    let actions = [Action::KillPod, Action::CreateSandbox { attempt: 1 }, start(Place::Main(0), 0)];
    assert_eq!(plan.actions, actions);
}

#[test]
fn what_succeeded_under_on_failure_is_not_run_again_in_a_new_sandbox() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    pod.containers = vec![container("a", "s", exited(0)), container("b", "s", exited(1))];
    let main = || vec![wanted("a"), wanted("b")];
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::OnFailure, Vec::new(), main()));
    let actions = [Action::KillPod, Action::CreateSandbox { attempt: 1 }, start(Place::Main(1), 1)];
    assert_eq!(plan.actions, actions);
    pod.containers[1].state = exited(0);
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::OnFailure, Vec::new(), main()));
    assert_eq!(plan, Plan { completed: true, ..Plan::default() });
}

#[test]
fn a_container_that_could_not_be_started_is_left_alone_for_a_while_and_its_neighbours_are_not() {
    let (pod, mut main) = with_states(&[Some(ContainerState::Created), None, Some(exited(1))]);
    let later = Instant::now() + Duration::from_secs(10);
    main[0].held_until = Some(later);
    main[1].held_until = Some(later + Duration::from_secs(1));
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
    assert_eq!(plan, Plan { actions: vec![start(Place::Main(2), 1)], held_until: Some(later), ..Plan::default() });
}

fn kill(place: Place, id: &str, why: KillReason, restarts: bool) -> Action {
    Action::KillContainer { id: id.to_owned(), place, why, restarts }
}

#[test]
fn a_container_that_fails_a_probe_is_ended_and_started_again_unless_its_policy_is_never_to() {
    for (policy, restarts) in
        [(RestartPolicy::Always, true), (RestartPolicy::OnFailure, true), (RestartPolicy::Never, false)]
    {
        let (pod, mut main) = with_states(&[Some(running()), Some(running())]);
        main[0].health = Health::Failed(ProbeKind::Liveness);
        main[1].health = Health::Starting;
        let plan = compute_pod_actions(&situation(&pod, policy, Vec::new(), main));
        let mut actions = vec![kill(Place::Main(0), "a-id", KillReason::FailedProbe(ProbeKind::Liveness), restarts)];
        actions.extend(restarts.then(|| start(Place::Main(0), 1)));
        assert_eq!(plan.actions, actions, "{policy:?}");
        assert!(!plan.completed);
    }
}

#[test]
fn a_container_that_fails_a_probe_again_soon_after_its_start_is_ended_at_once_and_waits_then() {
    let (pod, mut main) = with_states(&[Some(running())]);
    let until = Instant::now() + Duration::from_secs(10);
    main[0] = Wanted { health: Health::Failed(ProbeKind::Startup), not_before: Some(until), ..main[0].clone() };
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
    assert_eq!(plan.actions, [kill(Place::Main(0), "a-id", KillReason::FailedProbe(ProbeKind::Startup), true)]);
    assert_eq!(plan.backing_off, [(Place::Main(0), until)]);
}

/// The plan of a pod with two sidecars, `x` and `y`, and a main container `a` that was never begun.
#[track_caller]
fn check_sidecars(x: (ContainerState, Health), y: Option<ContainerState>, actions: &[Action]) {
    let (mut pod, main) = with_states(&[None]);
    pod.containers.push(container("x", "s", x.0));
    pod.containers.extend(y.map(|state| container("y", "s", state)));
    let init = vec![Wanted { health: x.1, ..sidecar("x") }, sidecar("y")];
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, init, main));
    assert_eq!(plan.actions, actions);
}

#[test]
fn what_comes_after_a_sidecar_waits_until_its_startup_probe_has_passed() {
    check_sidecars((running(), Health::Starting), None, &[]);
    check_sidecars((running(), Health::Started), None, &[start(Place::Init(1), 0)]);
    let failed = KillReason::FailedProbe(ProbeKind::Startup);
    let again = [kill(Place::Init(0), "x-id", failed, true), start(Place::Init(0), 1)];
    check_sidecars((running(), Health::Failed(ProbeKind::Startup)), None, &again);
}

#[test]
fn a_sidecar_that_is_started_again_does_not_hold_back_what_has_come_after_it() {
    let failed = KillReason::FailedProbe(ProbeKind::Liveness);
    let again = [kill(Place::Init(0), "x-id", failed, true), start(Place::Init(0), 1), start(Place::Main(0), 0)];
    check_sidecars((running(), Health::Failed(ProbeKind::Liveness)), Some(running()), &again);
    check_sidecars((running(), Health::Starting), Some(running()), &[start(Place::Main(0), 0)]);
    let ended = [start(Place::Init(0), 1), start(Place::Main(0), 0)];
    check_sidecars((exited(1), Health::Started), Some(running()), &ended);
}

fn on_code(code: i32, action: RestartRuleAction) -> Vec<ContainerRestartRule> {
    let codes = RestartRuleOnExitCodes { operator: ExitCodesOperator::In, values: vec![code] };
    vec![ContainerRestartRule { action, exit_codes: Some(codes) }]
}

#[test]
fn a_rule_for_an_exit_code_goes_before_the_containers_own_policy_and_that_before_the_pods() {
    let rules = on_code(42, RestartRuleAction::Restart);
    let own = |policy| Wanted { restart_policy: Some(policy), restart_rules: &rules, ..wanted("a") };
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
            let actions = if expected { vec![start(Place::Main(0), 1)] } else { Vec::new() };
            assert_eq!((plan.actions, plan.completed), (actions, !expected), "{policy} {code}");
        }
    }
}

#[test]
fn an_init_container_that_is_never_to_fail_ends_its_pod_but_for_the_codes_of_its_rules() {
    let rules = on_code(7, RestartRuleAction::Restart);
    let init = || Wanted { restart_policy: Some(RestartPolicy::Never), restart_rules: &rules, ..wanted("i") };
    for (code, expected) in [(7, vec![start(Place::Init(0), 1)]), (8, Vec::new())] {
        let (mut pod, _) = with_states(&[]);
        pod.containers.push(container("i", "s", exited(code)));
        let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, vec![init()], vec![wanted("a")]));
        assert_eq!((plan.completed, plan.actions), (expected.is_empty(), expected));
    }
}

#[test]
fn when_one_has_all_begin_anew_what_runs_is_ended_and_the_one_that_asked_is_forgotten_last() {
    let rules = on_code(42, RestartRuleAction::RestartAllContainers);
    let main = || {
        vec![Wanted { restart_policy: Some(RestartPolicy::Never), restart_rules: &rules, ..wanted("a") }, wanted("b")]
    };
    let (mut pod, _) = with_states(&[Some(exited(42)), Some(running())]);
    pod.containers.push(container("i", "s", exited(0)));
    let plan =
        |pod: &ObservedPod| compute_pod_actions(&situation(pod, RestartPolicy::Always, vec![wanted("i")], main()));
    let remove = |name: &str| Action::RemoveContainer { id: format!("{name}-id") };
    let kill = Action::KillContainer {
        id: "b-id".to_owned(),
        place: Place::Main(1),
        why: KillReason::RestartsAll,
        restarts: true,
    };
    assert_eq!(plan(&pod).actions, [kill, remove("b"), remove("i"), remove("a")]);
    assert!(plan(&pod).remakes());
    // After a crash in the middle of it, the rest is done.
    pod.containers.retain(|container| container.name == "a");
    assert_eq!(plan(&pod).actions, [remove("a")]);
    pod.containers.clear();
    assert_eq!(plan(&pod).actions, [start(Place::Init(0), 0)]);
}

#[test]
fn in_a_new_sandbox_only_those_run_again_that_would_have_been_restarted() {
    let mut pod = observed();
    pod.sandboxes.push(sandbox("s", 0, SandboxState::NotReady));
    pod.containers = vec![container("a", "s", exited(137)), container("b", "s", exited(137))];
    let b = Wanted { restart_policy: Some(RestartPolicy::Always), ..wanted("b") };
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Never, Vec::new(), vec![wanted("a"), b]));
    let actions = [Action::KillPod, Action::CreateSandbox { attempt: 1 }, start(Place::Main(1), 1)];
    assert_eq!(plan.actions, actions);
}

fn with_debugger<'a>(pod: &'a ObservedPod, init: Vec<Wanted<'a>>, main: Vec<Wanted<'a>>) -> Plan {
    let ephemeral = vec![wanted("debug")];
    compute_pod_actions(&Situation { ephemeral, ..situation(pod, RestartPolicy::Never, init, main) })
}

#[test]
fn an_ephemeral_container_starts_once_and_before_the_init_containers_are_through() {
    let (mut pod, main) = with_states(&[None]);
    pod.containers.push(container("i", "s", running()));
    let plan = |pod: &ObservedPod| with_debugger(pod, vec![wanted("i")], main.clone()).actions;
    assert_eq!(plan(&pod), [start(Place::Ephemeral(0), 0)]);
    for state in [running(), exited(0), exited(1)] {
        pod.containers.truncate(1);
        pod.containers.push(container("debug", "s", state));
        assert_eq!(plan(&pod), []);
    }
}

#[test]
fn a_pod_waits_for_no_ephemeral_container_when_it_is_through() {
    let (mut pod, main) = with_states(&[Some(exited(0))]);
    assert!(with_debugger(&pod, Vec::new(), main.clone()).completed);
    pod.containers.push(container("debug", "s", running()));
    assert!(with_debugger(&pod, Vec::new(), main).completed);
}

#[test]
fn containers_that_give_something_back_are_resized_before_those_that_get_more() {
    let (pod, mut main) = with_states(&[Some(running()), Some(running())]);
    main[0].resize = Some(Resize::InPlace { shrinks: false });
    main[1].resize = Some(Resize::InPlace { shrinks: true });
    let resize =
        |id: &str, index, shrinks| Action::ResizeContainer { id: id.to_owned(), place: Place::Main(index), shrinks };
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
    assert_eq!(plan.actions, [resize("b-id", 1, true), resize("a-id", 0, false)]);
    assert!(!plan.completed && plan.resizes() && !plan.remakes());
}

#[test]
fn a_container_that_takes_other_resources_at_its_start_only_is_replaced() {
    let (pod, mut main) = with_states(&[Some(running()), Some(running())]);
    main[1].resize = Some(Resize::Restart);
    let place = Place::Main(1);
    let kill = Action::KillContainer { id: "b-id".to_owned(), place, why: KillReason::Resized, restarts: true };
    let plan = compute_pod_actions(&situation(&pod, RestartPolicy::Always, Vec::new(), main));
    assert_eq!(plan.actions, [kill, start(place, 1)]);
    assert!(plan.resizes());
}

#[test]
fn what_somebody_wants_to_begin_anew_is_ended_together_and_starts_in_order() {
    let (mut pod, main) = with_states(&[Some(running()), Some(running())]);
    pod.containers.push(ObservedContainer { restart_count: 4, ..container("side", "s", running()) });
    let asked = ["a-id", "side-id"].map(str::to_owned);
    for policy in [RestartPolicy::Always, RestartPolicy::OnFailure] {
        let plan = compute_pod_actions(&Situation {
            asked: &asked,
            ..situation(&pod, policy, vec![sidecar("side")], main.clone())
        });
        let ids = ["side-id", "a-id"].map(str::to_owned).to_vec();
        let expected = [Action::KillContainers { ids }, start(Place::Init(0), 5), start(Place::Main(0), 1)];
        assert_eq!(plan.actions, expected);
        assert!(!plan.completed && !plan.remakes());
        assert!(plan.kills_on_request("a-id") && !plan.kills_on_request("b-id"));
    }
}

#[test]
fn what_was_wanted_of_another_instance_is_over() {
    let (pod, main) = with_states(&[Some(running())]);
    let asked = ["earlier-id".to_owned()];
    let plan =
        compute_pod_actions(&Situation { asked: &asked, ..situation(&pod, RestartPolicy::Always, Vec::new(), main) });
    assert_eq!(plan, Plan::default());
}
