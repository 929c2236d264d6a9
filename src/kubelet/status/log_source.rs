//! Selects the container instance whose log is read. Pure.

use crate::types::api::{ContainerState, PodStatus, Reason};

/// The container id without the runtime's scheme (kubelet: `validateContainerLogStatus`).
pub(crate) fn run_to_read<'a>(
    pod: &str,
    status: &'a PodStatus,
    container: &str,
    previous: bool,
) -> Result<&'a str, String> {
    let all = status.init_container_statuses.iter().chain(&status.container_statuses);
    let mut all = all.chain(&status.ephemeral_container_statuses);
    let Some(found) = all.find(|status| status.name == container) else {
        return Err(format!("container {container:?} in pod {pod:?} is not available"));
    };
    let last = match &found.last_state {
        Some(ContainerState::Terminated(ended)) => id(&ended.container_id),
        _ => None,
    };
    if previous {
        return last.ok_or_else(|| format!("previous terminated container {container:?} in pod {pod:?} not found"));
    }
    let current = match &found.state {
        Some(ContainerState::Running(_)) => id(&found.container_id),
        Some(ContainerState::Terminated(ended)) => id(&ended.container_id),
        Some(ContainerState::Waiting(_)) | None => None,
    };
    current.or(last).ok_or_else(|| {
        let why = match &found.state {
            Some(ContainerState::Terminated(_)) => {
                return format!("container {container:?} in pod {pod:?} is terminated");
            }
            Some(ContainerState::Waiting(waiting)) if waiting.reason == Reason::ERR_IMAGE_PULL => {
                "image can't be pulled"
            }
            Some(ContainerState::Waiting(waiting)) if waiting.reason == Reason::IMAGE_PULL_BACK_OFF => {
                "trying and failing to pull image"
            }
            Some(ContainerState::Waiting(waiting)) => waiting.reason.as_str(),
            Some(ContainerState::Running(_)) | None => {
                return format!("container {container:?} in pod {pod:?} is waiting to start - no logs yet");
            }
        };
        format!("container {container:?} in pod {pod:?} is waiting to start: {why}")
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
        run_to_read("p", &status, "c", previous).map(str::to_owned)
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
            run_to_read("p", &nothing, "c", false),
            Err("container \"c\" in pod \"p\" is not available".to_owned())
        );
    }
}
