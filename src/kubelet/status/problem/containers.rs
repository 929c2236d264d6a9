//! Problems of containers: failed starts, exits, failed pulls, containers that are not ready. Pure.

use super::advice::{self, EXEC_FORMAT_ERROR};
use super::warnings::{latest_post_start_hook, latest_probe};
use super::{PATIENCE_SECONDS, PodProblem, PodSituation, innermost, is_older};
use crate::state::pods::PodWarning;
use crate::types::api::{
    ConditionStatus, Container, ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, Pod,
    PortError, Probe, ProbeHandler, Reason, RestartPolicy, Time,
};
use crate::types::sorted::{SortedMap, SortedSet};

/// A container, as a sentence names it.
#[derive(Clone, Copy)]
struct Named<'a> {
    /// `container`, `init container` or `sidecar`.
    kind: &'static str,
    spec: &'a Container,
    status: &'a ContainerStatus,
    pod: &'a Pod,
}

impl Named<'_> {
    fn name(&self) -> String {
        format!("{} {}", self.kind, self.spec.name)
    }
}

/// A pod in phase Failed: rejected, ended by the node, or its containers failed.
pub(super) fn failed_pod(situation: PodSituation<'_>) -> PodProblem {
    let status = situation.status;
    if status.reason.is_empty() {
        let failed = named_containers(situation).find_map(|container| match &container.status.state {
            Some(ContainerState::Terminated(ended)) if ended.exit_code != 0 => Some(exited(container, ended)),
            _ => None,
        });
        return failed.unwrap_or_else(|| PodProblem {
            reason: "Failed".to_owned(),
            cause: "the pod failed without a reason".to_owned(),
            detail: status.message.clone(),
            ..PodProblem::default()
        });
    }
    let message = status.message.strip_prefix("Pod was rejected: ").unwrap_or(&status.message);
    PodProblem {
        reason: status.reason.as_str().to_owned(),
        cause: if message.is_empty() {
            format!("the node ended the pod ({})", status.reason)
        } else {
            innermost(message)
        },
        advice: advice::of_failed_pod(&status.reason).to_owned(),
        ..PodProblem::default()
    }
}

/// The first container whose start, image or exit is a problem.
pub(super) fn problem(situation: PodSituation<'_>) -> Option<PodProblem> {
    let PodSituation { pod, warnings, now, .. } = situation;
    named_containers(situation).find_map(|container| match &container.status.state {
        Some(ContainerState::Waiting(waiting)) if is_a_problem(&waiting.reason) => {
            Some(failing_to_run(container, waiting, pod, warnings))
        }
        Some(ContainerState::Terminated(ended)) if ended.exit_code != 0 && !restarts(pod, container.spec) => {
            Some(exited(container, ended))
        }
        Some(ContainerState::Running(running)) => {
            let ended = crashed_before(container.status, running.started_at, now)?;
            let problem = PodProblem { reason: Reason::CRASH_LOOP_BACK_OFF.as_str().to_owned(), ..Default::default() };
            let problem = crash_loop(problem, container, &ContainerStateWaiting::default(), warnings);
            Some(PodProblem { since: ended.finished_at.map(|time| time.to_string()).unwrap_or_default(), ..problem })
        }
        _ => None,
    })
}

/// The last exit of a container in a crash loop that runs at the moment: it crashed at least twice, and has not yet run
/// for as long as its back-off was.
fn crashed_before(status: &ContainerStatus, started: Option<Time>, now: Time) -> Option<&ContainerStateTerminated> {
    let Some(ContainerState::Terminated(ended)) = &status.last_state else { return None };
    let restarts = u32::try_from(status.restart_count).unwrap_or(0);
    if restarts < 2 || ended.exit_code == 0 || is_stopped(ended) {
        return None;
    }
    let back_off = FIRST_BACK_OFF_SECONDS.checked_shl(restarts.saturating_sub(1).min(10)).unwrap_or(i64::MAX);
    let ran = |from: Option<Time>, to: Time| from.map(|from| to.unix_seconds() - from.unix_seconds());
    // After a long run the back-off begins again.
    let is_short = ran(ended.started_at, ended.finished_at?).is_some_and(|ran| ran < 2 * MAX_BACK_OFF_SECONDS);
    let is_young = ran(started, now).is_some_and(|ran| ran < back_off.min(MAX_BACK_OFF_SECONDS));
    (is_short && is_young).then_some(&**ended)
}

/// The container was stopped, as `coracle restart` does, and did not crash.
fn is_stopped(ended: &ContainerStateTerminated) -> bool {
    [SIGKILL_STATUS, SIGTERM_STATUS].contains(&ended.exit_code) && ended.reason != Reason::OOM_KILLED
}

const SIGKILL_STATUS: i32 = 137;
const SIGTERM_STATUS: i32 = 143;
const FIRST_BACK_OFF_SECONDS: i64 = 10;
const MAX_BACK_OFF_SECONDS: i64 = 300;

/// A probe of a running container that cannot run, because no port has the name that it asks. Without this a pod whose
/// liveness probe never runs would look healthy.
pub(super) fn probe_without_port(situation: PodSituation<'_>) -> Option<PodProblem> {
    named_containers(situation).find_map(|container| {
        let ContainerState::Running(_) = container.status.state.as_ref()? else { return None };
        let Container { liveness_probe, readiness_probe, startup_probe, .. } = container.spec;
        let probes = [("liveness", liveness_probe), ("readiness", readiness_probe), ("startup", startup_probe)];
        let missing = |probe: &Probe| match &probe.handler {
            ProbeHandler::HttpGet(action) => container.spec.port(&action.port).err(),
            ProbeHandler::TcpSocket(action) => container.spec.port(&action.port).err(),
            ProbeHandler::Exec(_) | ProbeHandler::Grpc(_) => None,
        };
        let mut faults = probes.iter().filter_map(|(kind, probe)| Some((*kind, missing(probe.as_ref()?)?)));
        let (kind, PortError::NoSuchPort(port)) = faults.next()? else { return None };
        Some(PodProblem {
            reason: Reason::UNHEALTHY.as_str().to_owned(),
            cause: format!(
                "{}: its {kind} probe does not run: no port of the container is named {port:?}",
                container.name()
            ),
            advice: "give a port in the container's ports this name, or write the number into the probe".to_owned(),
            ..PodProblem::default()
        })
    })
}

/// A running container that is not ready, once it runs for longer than the patience.
pub(super) fn unready(situation: PodSituation<'_>) -> Option<PodProblem> {
    let PodSituation { warnings, now, .. } = situation;
    let unready = named_containers(situation).find(|container| match &container.status.state {
        Some(ContainerState::Running(running)) if !container.status.ready && container.kind != "init container" => {
            is_older(PATIENCE_SECONDS, running.started_at, now)
        }
        _ => false,
    });
    if let Some(container) = unready {
        let is_starting = container.status.started == Some(false) && container.spec.startup_probe.is_some();
        let probe = if is_starting { "startup" } else { "readiness" };
        let failed = latest_probe(warnings, &container.spec.name, if is_starting { "Startup" } else { "Readiness" });
        return Some(PodProblem {
            reason: "NotReady".to_owned(),
            cause: format!("{} is not ready: its {probe} probe does not succeed", container.name()),
            advice: format!("check the {probe} probe and the container's log"),
            detail: failed.map(|warning| warning.text().to_owned()).unwrap_or_default(),
            ..PodProblem::default()
        });
    }
    long_initialization(situation).or_else(|| missing_gate(situation))
}

/// An init container that the others wait for, once it runs for longer than such a step takes.
fn long_initialization(situation: PodSituation<'_>) -> Option<PodProblem> {
    named_containers(situation).filter(|container| container.kind == "init container").find_map(|container| {
        let Some(ContainerState::Running(running)) = &container.status.state else { return None };
        is_older(INIT_PATIENCE_SECONDS, running.started_at, situation.now).then(|| PodProblem {
            reason: "NotInitialized".to_owned(),
            cause: format!(
                "{} has not ended for more than 10 minutes, and the other containers wait for it",
                container.name()
            ),
            advice: format!("see what it waits for: coracle logs POD -c {}", container.spec.name),
            since: running.started_at.map(|time| time.to_string()).unwrap_or_default(),
            ..PodProblem::default()
        })
    })
}

/// A running init container is a problem from then on.
const INIT_PATIENCE_SECONDS: i64 = 600;

/// A readiness gate that no controller has set.
fn missing_gate(situation: PodSituation<'_>) -> Option<PodProblem> {
    let PodSituation { pod, status, now, .. } = situation;
    let are_ready = status.container_statuses.iter().all(|status| status.ready);
    if !are_ready || !is_older(PATIENCE_SECONDS, status.start_time, now) {
        return None;
    }
    let held = status.conditions.iter().filter(|condition| condition.status == ConditionStatus::True);
    let held: SortedSet<&str> = held.map(|condition| &*condition.kind).collect();
    let gate = pod.spec.readiness_gates.iter().find(|gate| !held.contains(&gate.condition_type.as_str()))?;
    Some(PodProblem {
        reason: "ReadinessGatesNotReady".to_owned(),
        cause: format!("readiness gate {} is not True", gate.condition_type),
        advice: "the controller that owns the condition has to set it".to_owned(),
        ..PodProblem::default()
    })
}

/// Reasons that a container has while nothing is wrong.
fn is_a_problem(reason: &Reason) -> bool {
    let on_its_way = [
        Reason::CONTAINER_CREATING,
        Reason::IMAGE_PULL_WAITING,
        Reason::POD_INITIALIZING,
        Reason::RESTARTING_ALL_CONTAINERS,
    ];
    !reason.is_empty() && !on_its_way.contains(reason)
}

fn failing_to_run(
    container: Named<'_>,
    waiting: &ContainerStateWaiting,
    pod: &Pod,
    warnings: &[PodWarning<'_>],
) -> PodProblem {
    let (reason, image) = (&waiting.reason, &container.spec.image);
    let text = innermost(&waiting.message);
    let mut problem = PodProblem { reason: reason.as_str().to_owned(), ..PodProblem::default() };
    if *reason == Reason::CRASH_LOOP_BACK_OFF {
        return crash_loop(problem, container, waiting, warnings);
    }
    let name = container.name();
    match reason.as_str() {
        "ErrImagePull" | "ImagePullBackOff" | "RegistryUnavailable" | "SignatureValidationFailed" => {
            let why = advice::pull_error(&text).map_or_else(|| after_image(&text, image), str::to_owned);
            problem.cause = format!("{name}: image {image} cannot be pulled: {why}");
            problem.advice = advice::of_pull(&text, reason).to_owned();
        }
        "ErrImageNeverPull" => {
            problem.cause = format!("{name}: image {image} is not on the node, and imagePullPolicy is Never");
            problem.advice = advice::IMPORT_IMAGE.to_owned();
        }
        "InvalidImageName" => {
            problem.cause = format!("{name}: image name {image:?} is malformed");
            problem.advice = "write it as REGISTRY/NAME:TAG, in lower case".to_owned();
        }
        "CreateContainerConfigError" => {
            problem.cause = format!("{name}: {text}");
            problem.advice = advice::of_configuration(&text, pod).to_owned();
        }
        "PostStartHookError" => {
            problem.cause = format!("{name}: its postStart hook fails");
            problem.advice = ADVICE_FOR_HOOK.to_owned();
            problem.detail = waiting.message.clone();
        }
        _ => start_error(&mut problem, container, &waiting.message),
    }
    problem
}

/// The runtime could not create or start the container. Its message may quote the command, which may have secrets.
fn start_error(problem: &mut PodProblem, container: Named<'_>, message: &str) {
    let (why, advice) = advice::start_error(message);
    problem.cause = format!("{}: {why}", container.name());
    problem.advice = advice.to_owned();
    problem.detail = innermost(message);
}

fn crash_loop(
    mut problem: PodProblem,
    container: Named<'_>,
    waiting: &ContainerStateWaiting,
    warnings: &[PodWarning<'_>],
) -> PodProblem {
    let restarts = match container.status.restart_count {
        1 => "1 restart".to_owned(),
        count => format!("{count} restarts"),
    };
    let Some(ContainerState::Terminated(ended)) = &container.status.last_state else {
        problem.cause = format!("{} does not start ({restarts})", container.name());
        return problem;
    };
    let ended = &**ended;
    let ended_it = |warning: &&PodWarning<'_>| may_have_ended(warning, ended);
    if let Some(failed) = latest_probe(warnings, &container.spec.name, "Liveness").filter(ended_it) {
        problem.cause = format!("{} is restarted because its liveness probe fails ({restarts})", container.name());
        problem.advice = "check the liveness probe, its timeoutSeconds and the container's log".to_owned();
        problem.detail = failed.text().to_owned();
    } else if let Some(failed) = latest_post_start_hook(warnings, &container.spec.name).filter(ended_it) {
        problem.cause = format!("{} is restarted because its postStart hook fails ({restarts})", container.name());
        problem.advice = ADVICE_FOR_HOOK.to_owned();
        problem.detail = failed.text().to_owned();
    } else if ended.exit_code == 0 {
        problem.cause = format!("{} ends with success and is started again ({restarts})", container.name());
        problem.advice = "use restartPolicy: OnFailure, or a command that keeps running".to_owned();
    } else if EXEC_FORMAT_ERROR.iter().any(|text| ended.message.contains(text)) {
        start_error(&mut problem, container, &ended.message);
    } else {
        let exit = exited(container, ended);
        problem.cause = format!("{} ({restarts})", exit.cause);
        (problem.advice, problem.detail) = (exit.advice, exit.detail);
    }
    problem.next_retry = next_retry(ended, waiting);
    problem
}

/// `back-off 40s restarting failed container=...` counts from the exit.
fn next_retry(ended: &ContainerStateTerminated, waiting: &ContainerStateWaiting) -> String {
    let delay = waiting.message.strip_prefix("back-off ").and_then(|rest| seconds(rest.split(' ').next()?));
    let at = delay.and_then(|delay| Some(ended.finished_at?.unix_seconds().saturating_add(delay)));
    at.map(|at| Time::from_unix_nanos(at.saturating_mul(1_000_000_000)).to_string()).unwrap_or_default()
}

/// Seconds of a Go duration of minutes and seconds, such as `2m40s`.
fn seconds(text: &str) -> Option<i64> {
    let rest = text.strip_suffix('s')?;
    match rest.split_once('m') {
        Some((minutes, seconds)) => minutes.parse::<i64>().ok()?.checked_mul(60)?.checked_add(seconds.parse().ok()?),
        None => rest.parse().ok(),
    }
}

fn exited(container: Named<'_>, ended: &ContainerStateTerminated) -> PodProblem {
    let is_out_of_memory = ended.reason == Reason::OOM_KILLED;
    let how = match (is_out_of_memory, ended.exit_code, ended.reason.as_str()) {
        (true, ..) => "is killed because it uses more memory than it may (OOMKilled)".to_owned(),
        (_, code, "" | "Error") => format!("exits with code {code}"),
        (_, code, reason) => format!("exits with code {code} ({reason})"),
    };
    let reason = if ended.reason.is_empty() { "Error" } else { ended.reason.as_str() };
    PodProblem {
        reason: reason.to_owned(),
        cause: format!("{} {how}", container.name()),
        advice: advice::of_exit(ended, &container.spec.name, container.pod, has_memory_limit(container.spec)),
        detail: ended.message.clone(),
        since: ended.finished_at.map(|time| time.to_string()).unwrap_or_default(),
        ..PodProblem::default()
    }
}

fn has_memory_limit(container: &Container) -> bool {
    container.resources.limits.iter().any(|(name, _)| name == "memory")
}

/// Whether a failed probe or hook may be why this run ended: it failed during the run. The exit code says nothing,
/// because a program that handles SIGTERM ends with one of its own.
fn may_have_ended(warning: &PodWarning<'_>, run: &ContainerStateTerminated) -> bool {
    let is_of_run = run.started_at.is_none_or(|started| warning.last.unix_seconds() >= started.unix_seconds());
    is_of_run && run.reason != Reason::OOM_KILLED
}

const ADVICE_FOR_HOOK: &str = "check lifecycle.postStart";

/// The pull error without the image's name, which the sentence has already.
fn after_image(text: &str, image: &str) -> String {
    text.strip_prefix(image).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text).to_owned()
}

fn restarts(pod: &Pod, container: &Container) -> bool {
    container.restart_policy.unwrap_or(pod.spec.restart_policy) != RestartPolicy::Never
}

/// The containers of the pod that have a status, init containers first.
fn named_containers<'a>(situation: PodSituation<'a>) -> impl Iterator<Item = Named<'a>> {
    let PodSituation { pod, status, .. } = situation;
    // A tenant decides how many there are: each is looked up by its name.
    let [of_init, of_main] = [&status.init_container_statuses, &status.container_statuses].map(|statuses| {
        statuses.iter().map(|status| (status.name.as_str(), status)).collect::<SortedMap<&str, &ContainerStatus>>()
    });
    let init = pod.spec.init_containers.iter().filter_map(move |spec| {
        let kind = if spec.is_sidecar() { "sidecar" } else { "init container" };
        Some(Named { kind, spec, status: of_init.get(&spec.name.as_str()).copied()?, pod })
    });
    let main = pod.spec.containers.iter().filter_map(move |spec| {
        Some(Named { kind: "container", spec, status: of_main.get(&spec.name.as_str()).copied()?, pod })
    });
    init.chain(main)
}
