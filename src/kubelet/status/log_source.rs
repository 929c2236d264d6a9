//! Selects the container instance whose log is read. Pure.

use std::fmt;

use crate::types::api::{ContainerState, PodStatus, Reason};

/// A container without a log that can be read. The messages are upstream's where upstream has one.
#[derive(Debug)]
pub(crate) struct LogUnavailable {
    pub(crate) pod: String,
    pub(crate) container: String,
    pub(crate) why: NoLog,
}

#[derive(Debug)]
pub(crate) enum NoLog {
    NoPod,
    NoPrevious,
    NoStatus,
    NotStarted,
    /// The runtime no longer has the container.
    Removed,
    Terminated,
    Waiting(Reason),
}

impl fmt::Display for LogUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, container, why } = self;
        match why {
            NoLog::NoPod => write!(f, "pod {pod:?} does not exist"),
            NoLog::NoPrevious => {
                write!(f, "previous terminated container {container:?} in pod {pod:?} not found")
            }
            NoLog::NoStatus => write!(f, "container {container:?} in pod {pod:?} is not available"),
            NoLog::NotStarted => {
                write!(f, "container {container:?} in pod {pod:?} is waiting to start - no logs yet")
            }
            NoLog::Removed => write!(f, "the runtime no longer has container {container:?} of pod {pod:?}"),
            NoLog::Terminated => write!(f, "container {container:?} in pod {pod:?} is terminated"),
            NoLog::Waiting(reason) => {
                let why = match reason {
                    reason if *reason == Reason::ERR_IMAGE_PULL => "image can't be pulled",
                    reason if *reason == Reason::IMAGE_PULL_BACK_OFF => "trying and failing to pull image",
                    reason => reason.as_str(),
                };
                write!(f, "container {container:?} in pod {pod:?} is waiting to start: {why}")
            }
        }
    }
}

impl std::error::Error for LogUnavailable {}

impl LogUnavailable {
    /// Whether the pod itself is unknown. Upstream answers every other refusal with 400, and the API server shows
    /// clients the text of a 400 only.
    pub(crate) fn is_missing_pod(&self) -> bool {
        matches!(self.why, NoLog::NoPod)
    }
}

/// The container id without the runtime's scheme (kubelet: `validateContainerLogStatus`).
pub(crate) fn run_to_read<'a>(status: &'a PodStatus, container: &str, previous: bool) -> Result<&'a str, NoLog> {
    let statuses = status.init_container_statuses.iter().chain(&status.container_statuses);
    let mut statuses = statuses.chain(&status.ephemeral_container_statuses);
    let status = statuses.find(|status| status.name == container).ok_or(NoLog::NoStatus)?;
    let last = match &status.last_state {
        Some(ContainerState::Terminated(ended)) => id(&ended.container_id),
        _ => None,
    };
    if previous {
        return last.ok_or(NoLog::NoPrevious);
    }
    let current = match &status.state {
        Some(ContainerState::Running(_)) => id(&status.container_id),
        Some(ContainerState::Terminated(ended)) => id(&ended.container_id),
        Some(ContainerState::Waiting(_)) | None => None,
    };
    current.or(last).ok_or_else(|| match &status.state {
        Some(ContainerState::Terminated(_)) => NoLog::Terminated,
        Some(ContainerState::Waiting(waiting)) => NoLog::Waiting(waiting.reason.clone()),
        Some(ContainerState::Running(_)) | None => NoLog::NotStarted,
    })
}

fn id(container_id: &str) -> Option<&str> {
    let id = container_id.split_once("://").map_or(container_id, |(_, id)| id);
    Some(id).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::decode;

    fn read(state: serde_json::Value, last: serde_json::Value, previous: bool) -> Result<String, String> {
        let status = serde_json::json!({ "containerStatuses": [{
            "name": "c", "state": state, "lastState": last, "containerID": "containerd://now",
        }]});
        let status = decode::<PodStatus>(status).unwrap().value;
        run_to_read(&status, "c", previous).map(str::to_owned).map_err(message)
    }

    fn message(why: NoLog) -> String {
        LogUnavailable { pod: "p".to_owned(), container: "c".to_owned(), why }.to_string()
    }

    fn ended(id: &str) -> serde_json::Value {
        serde_json::json!({ "terminated": { "exitCode": 1, "containerID": format!("containerd://{id}") } })
    }

    #[test]
    fn newest_or_previous_instance_is_selected() {
        let none = serde_json::json!({});
        let running = serde_json::json!({ "running": {} });
        let waiting = serde_json::json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        assert_eq!(read(running.clone(), ended("old"), false).as_deref(), Ok("now"));
        assert_eq!(read(running.clone(), ended("old"), true).as_deref(), Ok("old"));
        assert_eq!(read(ended("now"), none.clone(), false).as_deref(), Ok("now"));
        assert_eq!(read(waiting, ended("old"), false).as_deref(), Ok("old"));
        let error = "previous terminated container \"c\" in pod \"p\" not found";
        assert_eq!(read(running, none, true), Err(error.to_owned()));
    }

    #[test]
    fn container_without_an_instance_is_an_error() {
        let waiting = |reason: &str| serde_json::json!({ "waiting": { "reason": reason } });
        for (reason, why) in [
            ("ErrImagePull", "image can't be pulled"),
            ("ImagePullBackOff", "trying and failing to pull image"),
            ("ContainerCreating", "ContainerCreating"),
        ] {
            let error = format!("container \"c\" in pod \"p\" is waiting to start: {why}");
            assert_eq!(read(waiting(reason), serde_json::json!({}), false), Err(error));
        }
        let nothing = PodStatus::default();
        assert_eq!(
            run_to_read(&nothing, "c", false).map_err(message),
            Err("container \"c\" in pod \"p\" is not available".to_owned())
        );
    }
}
