//! A pod's row: ready, status, restarts, as in `kubectl get pods` (printPod). Pure.

use crate::types::api::{
    ConditionStatus, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus, RestartPolicy, Time,
    conditions,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodRow {
    pub(super) ready: String,
    pub(super) status: String,
    pub(super) restarts: String,
    pub(super) age: String,
}

impl PodRow {
    /// The row at the time `now`, in Unix seconds.
    pub(super) fn of(pod: &Pod, now: i64) -> Self {
        let mut tally = ContainerCounts::new(pod);
        let initializing = tally.count_init_containers(pod);
        if !initializing || has_condition(&pod.status, conditions::INITIALIZED) {
            tally.count_containers(pod);
        }
        if pod.metadata.deletion_timestamp.is_some() && !pod.status.phase.is_terminal() {
            tally.status = "Terminating".to_owned();
        }
        // A static pod may have no mirror pod with a creation time.
        let since = pod.metadata.creation_timestamp.or(pod.status.start_time);
        Self {
            ready: format!("{}/{}", tally.ready, tally.total),
            status: tally.status,
            restarts: tally.restarts.shown(now),
            age: since.map_or_else(|| "<unknown>".to_owned(), |since| age(now - since.unix_seconds())),
        }
    }
}

/// Count and time of the last restart.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Time>,
}

impl Restarts {
    fn add(&mut self, container: &ContainerStatus) {
        self.count += i64::from(container.restart_count);
        if let Some(ContainerState::Terminated(ended)) = &container.last_state {
            self.last = self.last.max(ended.finished_at);
        }
    }

    fn shown(self, now: i64) -> String {
        match self.last {
            Some(last) if self.count > 0 => format!("{} ({} ago)", self.count, age(now - last.unix_seconds())),
            _ => self.count.to_string(),
        }
    }
}

struct ContainerCounts {
    ready: usize,
    total: usize,
    status: String,
    restarts: Restarts,
    /// The part of `restarts` that still counts after initialization.
    sidecar_restarts: Restarts,
}

impl ContainerCounts {
    fn new(pod: &Pod) -> Self {
        let sidecars = pod.spec.init_containers.iter().filter(|container| is_sidecar(container.restart_policy)).count();
        let status = if pod.status.reason.is_empty() { pod.status.phase.as_str() } else { pod.status.reason.as_str() };
        Self {
            ready: 0,
            total: pod.spec.containers.len() + sidecars,
            status: status.to_owned(),
            restarts: Restarts::default(),
            sidecar_restarts: Restarts::default(),
        }
    }

    /// Counts init containers. Returns true, with the status set, if one is still pending.
    fn count_init_containers(&mut self, pod: &Pod) -> bool {
        for (index, container) in pod.status.init_container_statuses.iter().enumerate() {
            let spec = pod.spec.init_containers.iter().find(|spec| spec.name == container.name);
            let sidecar = spec.is_some_and(|spec| is_sidecar(spec.restart_policy));
            self.restarts.add(container);
            if sidecar {
                self.sidecar_restarts.add(container);
            }
            let status = match &container.state {
                Some(ContainerState::Terminated(ended)) if ended.exit_code == 0 => continue,
                _ if sidecar && container.started == Some(true) => {
                    self.ready += usize::from(container.ready);
                    continue;
                }
                Some(ContainerState::Terminated(ended)) => how_it_ended(ended),
                Some(ContainerState::Waiting(waiting))
                    if !waiting.reason.is_empty() && waiting.reason.as_str() != "PodInitializing" =>
                {
                    waiting.reason.as_str().to_owned()
                }
                _ => format!("{index}/{}", pod.spec.init_containers.len()),
            };
            self.status = format!("Init:{status}");
            return true;
        }
        false
    }

    /// The first container with a reason sets the status, so they are visited in reverse.
    fn count_containers(&mut self, pod: &Pod) {
        self.restarts = self.sidecar_restarts;
        let mut running = false;
        for container in pod.status.container_statuses.iter().rev() {
            self.restarts.add(container);
            match &container.state {
                Some(ContainerState::Waiting(waiting)) if !waiting.reason.is_empty() => {
                    self.status = waiting.reason.as_str().to_owned();
                }
                Some(ContainerState::Terminated(ended)) => self.status = how_it_ended(ended),
                Some(ContainerState::Running(_)) if container.ready => {
                    running = true;
                    self.ready += 1;
                }
                Some(ContainerState::Waiting(_) | ContainerState::Running(_)) | None => {}
            }
        }
        // One container has completed but another is running, so the pod is not complete.
        if self.status == "Completed" && running {
            let ready = has_condition(&pod.status, conditions::READY);
            self.status = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
}

fn is_sidecar(policy: Option<RestartPolicy>) -> bool {
    policy == Some(RestartPolicy::Always)
}

fn how_it_ended(ended: &ContainerStateTerminated) -> String {
    if !ended.reason.is_empty() {
        ended.reason.as_str().to_owned()
    } else if ended.signal != 0 {
        format!("Signal:{}", ended.signal)
    } else {
        format!("ExitCode:{}", ended.exit_code)
    }
}

fn has_condition(status: &PodStatus, kind: &str) -> bool {
    status.conditions.iter().any(|condition| condition.kind == kind && condition.status == ConditionStatus::True)
}

/// Seconds in at most two units (`duration.HumanDuration`).
pub(super) fn age(seconds: i64) -> String {
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        _ => format!("{big}{big_unit}{small}{small_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        // Slightly negative means that clocks differ; anything less is invalid.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests;
