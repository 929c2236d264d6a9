//! The terminations of containers that a status has and the one before had not. Pure.
//!
//! Upstream compares states (pkg/kubelet/status/status_manager.go: `checkAndRecordTerminations`). Here a container that waits
//! for its restart is shown as waiting at once, so its last state counts too.

use crate::types::api::{ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};
use crate::types::sorted::SortedMap;

/// Each new termination, with the type of its container as in upstream's metrics.
pub(crate) fn new_terminations<'a>(
    old: &'a PodStatus,
    new: &'a PodStatus,
) -> impl Iterator<Item = (&'static str, &'a ContainerStateTerminated)> {
    let lists = [
        ("init_container", &old.init_container_statuses, &new.init_container_statuses),
        ("container", &old.container_statuses, &new.container_statuses),
        ("ephemeral_container", &old.ephemeral_container_statuses, &new.ephemeral_container_statuses),
    ];
    lists.into_iter().flat_map(|(kind, old, new)| {
        let old: SortedMap<&str, &ContainerStatus> = old.iter().map(|former| (former.name.as_str(), former)).collect();
        new.iter().filter_map(move |status| {
            let latest = termination(status)?;
            let former_termination = old.get(status.name.as_str()).copied().and_then(termination);
            former_termination
                .is_none_or(|former_termination| former_termination.container_id != latest.container_id)
                .then_some((kind, latest))
        })
    })
}

fn termination(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    [&status.state, &status.last_state].into_iter().find_map(|state| match state {
        Some(ContainerState::Terminated(terminated)) => Some(&**terminated),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{ContainerStateRunning, ContainerStateWaiting};

    fn exit(id: &str, exit_code: i32) -> Option<ContainerState> {
        let exit = ContainerStateTerminated { exit_code, container_id: id.to_owned(), ..Default::default() };
        Some(ContainerState::Terminated(Box::new(exit)))
    }

    fn running() -> Option<ContainerState> {
        Some(ContainerState::Running(ContainerStateRunning::default()))
    }

    fn waiting() -> Option<ContainerState> {
        Some(ContainerState::Waiting(ContainerStateWaiting::default()))
    }

    fn main(state: Option<ContainerState>, last_state: Option<ContainerState>) -> PodStatus {
        let status = ContainerStatus { name: "main".to_owned(), state, last_state, ..ContainerStatus::default() };
        PodStatus { container_statuses: vec![status], ..PodStatus::default() }
    }

    fn codes(old: &PodStatus, new: &PodStatus) -> Vec<(&'static str, i32)> {
        new_terminations(old, new).map(|(kind, exit)| (kind, exit.exit_code)).collect()
    }

    #[test]
    fn each_termination_is_new_once_whatever_state_shows_it() {
        let (none, first, second) = (PodStatus::default(), exit("a", 1), exit("b", 137));
        assert_eq!(codes(&none, &main(running(), None)), []);
        assert_eq!(codes(&none, &main(first.clone(), None)), [("container", 1)], "at the start of the agent");
        assert_eq!(codes(&main(running(), None), &main(waiting(), first.clone())), [("container", 1)]);
        assert_eq!(codes(&main(first.clone(), None), &main(waiting(), first.clone())), []);
        assert_eq!(codes(&main(waiting(), first.clone()), &main(running(), first.clone())), []);
        assert_eq!(codes(&main(running(), first.clone()), &main(second.clone(), first.clone())), [("container", 137)]);
        assert_eq!(codes(&main(second.clone(), first), &main(running(), second)), []);
    }

    #[test]
    fn each_list_has_its_type() {
        let exited = |id: &str| main(exit(id, 0), None).container_statuses;
        let all = PodStatus {
            init_container_statuses: exited("a"),
            container_statuses: exited("b"),
            ephemeral_container_statuses: exited("c"),
            ..PodStatus::default()
        };
        let kinds: Vec<_> = new_terminations(&PodStatus::default(), &all).map(|(kind, _)| kind).collect();
        assert_eq!(kinds, ["init_container", "container", "ephemeral_container"]);
    }
}
