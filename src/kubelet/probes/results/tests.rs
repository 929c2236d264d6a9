use super::*;
use crate::state::pods::ContainerState;
use crate::types::api::{ExecAction, PodUid, ProbeHandler, RestartPolicy};

const FRESH: ProbeOutcome = ProbeOutcome { age: Duration::ZERO, adopted: false, was_started: false, was_ready: false };
const LATER: Duration = Duration::from_secs(3600);

fn probe() -> Option<Box<Probe>> {
    Some(Box::new(Probe {
        handler: ProbeHandler::Exec(ExecAction::default()),
        initial_delay_seconds: 5,
        timeout_seconds: 1,
        period_seconds: 10,
        success_threshold: 1,
        failure_threshold: 3,
        termination_grace_period_seconds: None,
    }))
}

/// A container called `main` with probes given by their initials: S, R, L.
fn container(probes: &str) -> Container {
    let probe = |initial: char| if probes.contains(initial) { probe() } else { None };
    Container {
        name: "main".to_owned(),
        startup_probe: probe('S'),
        readiness_probe: probe('R'),
        liveness_probe: probe('L'),
        ..Container::default()
    }
}

fn spec(probes: &str) -> PodSpec {
    PodSpec { containers: vec![container(probes)], ..PodSpec::default() }
}

fn running(id: &str) -> ObservedPod {
    let mut pod = ObservedPod::new(PodUid::from("u"), "default", "web");
    pod.containers.push(ObservedContainer::seen(id, "main", "s", ContainerState::Running { started_at: 1 }));
    pod
}

fn result(id: &str, kind: ProbeKind, passed: bool) -> ProbeResult {
    let container = "main".to_owned();
    ProbeResult { pod: PodUid::from("u"), container, container_id: id.to_owned(), kind, passed }
}

/// The initials of the probes that are due.
fn due(probe_results: &ProbeResults, spec: &PodSpec, ending: bool) -> String {
    let initials = [('S', ProbeKind::Startup), ('R', ProbeKind::Readiness), ('L', ProbeKind::Liveness)];
    let due = initials.iter().filter(|(_, kind)| probe_results.is_due(&spec.containers[0], *kind, ending));
    due.map(|(initial, _)| *initial).collect()
}

fn seen(spec: &PodSpec, found: ProbeOutcome) -> ProbeResults {
    let mut probe_results = ProbeResults::default();
    probe_results.on_observation(spec, &running("c1"), |_| found);
    probe_results
}

fn state(probe_results: &ProbeResults) -> (bool, bool, Option<ProbeKind>) {
    let probed = &probe_results.probed()["main"];
    (probed.started, probed.ready, probed.failed)
}

#[test]
fn container_without_results_is_alive_but_not_started_or_ready() {
    assert_eq!(state(&seen(&spec("SRL"), FRESH)), (false, false, None));
    assert_eq!(state(&seen(&spec("RL"), FRESH)), (true, false, None));
    assert_eq!(state(&seen(&spec("L"), FRESH)), (true, true, None));
    assert!(seen(&spec(""), FRESH).probed().is_empty(), "a container without probes has no entry");
}

#[test]
fn readiness_and_liveness_wait_for_the_startup_probe() {
    let spec = spec("SRL");
    let mut probe_results = seen(&spec, FRESH);
    assert_eq!(due(&probe_results, &spec, false), "S");
    assert!(probe_results.set(&result("c1", ProbeKind::Startup, true)));
    assert_eq!((due(&probe_results, &spec, false).as_str(), state(&probe_results)), ("RL", (true, false, None)));
    assert!(probe_results.set(&result("c1", ProbeKind::Readiness, true)));
    assert_eq!(state(&probe_results), (true, true, None));
    assert!(!probe_results.set(&result("c1", ProbeKind::Readiness, true)), "no news");
    assert!(probe_results.set(&result("c1", ProbeKind::Readiness, false)));
    assert_eq!(state(&probe_results), (true, false, None));
}

#[test]
fn failed_container_is_not_probed_until_another_instance_runs() {
    for (probes, kind, left) in [("SRL", ProbeKind::Startup, ""), ("RL", ProbeKind::Liveness, "R")] {
        let spec = spec(probes);
        let mut probe_results = seen(&spec, FRESH);
        assert!(probe_results.set(&result("c1", kind, false)));
        assert_eq!((state(&probe_results).2, due(&probe_results, &spec, false).as_str()), (Some(kind), left));
        probe_results.on_observation(&spec, &running("c1"), |_| panic!("the instance is known already"));
        assert_eq!(state(&probe_results).2, Some(kind));
        probe_results.on_observation(&spec, &running("c2"), |_| FRESH);
        assert_eq!(state(&probe_results).2, None);
        assert!(!due(&probe_results, &spec, false).is_empty());
    }
}

#[test]
fn result_of_an_earlier_instance_is_ignored() {
    let spec = spec("L");
    let mut probe_results = seen(&spec, FRESH);
    probe_results.on_observation(&spec, &running("c2"), |_| FRESH);
    assert!(!probe_results.set(&result("c1", ProbeKind::Liveness, false)));
    assert_eq!(state(&probe_results), (true, true, None));
}

#[test]
fn stopped_container_is_not_probed_and_its_results_are_dropped() {
    let spec = spec("RL");
    let mut probe_results = seen(&spec, FRESH);
    let mut ended = running("c1");
    ended.containers[0].state = ContainerState::Exited(Box::default());
    probe_results.on_observation(&spec, &ended, |_| FRESH);
    assert_eq!(due(&probe_results, &spec, false), "");
    assert!(probe_results.probed().is_empty());
}

#[test]
fn terminating_pod_runs_only_readiness_probes() {
    let spec = spec("RL");
    assert_eq!(due(&seen(&spec, FRESH), &spec, true), "R");
    let spec = self::spec("SRL");
    assert_eq!(due(&seen(&spec, FRESH), &spec, true), "");
}

#[test]
fn adopted_container_keeps_the_state_of_its_status() {
    let found = ProbeOutcome { age: LATER, adopted: true, was_started: true, was_ready: true };
    assert_eq!(state(&seen(&spec("SRL"), found)), (true, true, None));
    let found = ProbeOutcome { was_ready: false, ..found };
    assert_eq!(state(&seen(&spec("SRL"), found)), (true, false, None));
    let found = ProbeOutcome { adopted: false, was_ready: true, ..found };
    assert_eq!(state(&seen(&spec("SRL"), found)), (false, false, None), "the status is of another instance");
}

#[test]
fn adopted_container_older_than_its_startup_probe_has_passed_it() {
    let spec = spec("SL");
    // 5 s initial delay, 3 attempts, and up to one period before the first tick.
    for (seconds, asked) in [(45, "S"), (46, "L")] {
        let found = ProbeOutcome { age: Duration::from_secs(seconds), adopted: true, ..FRESH };
        assert_eq!(due(&seen(&spec, found), &spec, false), asked, "{seconds} s");
    }
    let not_adopted = ProbeOutcome { age: LATER, ..FRESH };
    assert_eq!(due(&seen(&spec, not_adopted), &spec, false), "S");
}

#[test]
fn only_main_containers_and_sidecars_are_probed() {
    let named = |name: &str, policy| Container { name: name.to_owned(), restart_policy: policy, ..container("SRL") };
    let spec = PodSpec {
        init_containers: vec![named("first", None), named("side", Some(RestartPolicy::Always))],
        containers: vec![named("main", None), Container::default()],
        ..PodSpec::default()
    };
    let counted: Vec<_> = with_probes(&spec).map(|(place, container)| (place, &*container.name)).collect();
    assert_eq!(counted, [(1, "side"), (2, "main")]);
}
