//! Converts the runtime's responses to observed pods. Pure.

use std::net::IpAddr;
use std::time::Duration;

use crate::kubelet::kuberuntime::labels::{AnnotatedContainerInfo, LabeledPodInfo, spec_hash};
use crate::kubelet::kuberuntime::shim_group::SHIM_GROUP;
use crate::platform::cri::v1;
use crate::state::pods::{
    ContainerState, Exit, ObservedContainer, ObservedPod, ObservedResources, ObservedSandbox, ObservedUser,
    SandboxState,
};
use crate::types::api::annotations::{CONFIG_SOURCE, DEVICES};
use crate::types::api::{PodUid, grace_of_seconds};
use crate::types::sorted::{SortOnce, SortedMap};

/// Sandboxes and containers by pod. Those without a pod uid were not created by a kubelet and are left alone.
pub(super) fn by_pod(
    sandboxes: Vec<v1::PodSandbox>,
    containers: Vec<v1::Container>,
) -> SortedMap<PodUid, (Vec<v1::PodSandbox>, Vec<v1::Container>)> {
    let mut pods: SortedMap<PodUid, (Vec<v1::PodSandbox>, Vec<v1::Container>)> = SortedMap::new();
    for sandbox in sandboxes {
        if let Some(uid) = LabeledPodInfo::read(&sandbox.labels).map(|mark| mark.uid()) {
            pods.entry(uid).or_default().0.push(sandbox);
        }
    }
    for container in containers {
        if let Some(uid) = LabeledPodInfo::read(&container.labels).map(|mark| mark.uid()) {
            pods.entry(uid).or_default().1.push(container);
        }
    }
    pods
}

/// The pod's name and namespace, from any sandbox or container that has them.
pub(super) fn named(uid: &PodUid, sandboxes: &[v1::PodSandbox], containers: &[v1::Container]) -> ObservedPod {
    let mut all_labels = sandboxes.iter().map(|sandbox| &sandbox.labels).chain(containers.iter().map(|c| &c.labels));
    let mark = all_labels.find_map(LabeledPodInfo::read);
    let mut pod = mark.map_or_else(
        || ObservedPod::new(uid.clone(), "", ""),
        |mark| ObservedPod::new(uid.clone(), mark.namespace, mark.name),
    );
    let attempt = |sandbox: &v1::PodSandbox| sandbox.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
    let newest = sandboxes.iter().max_by_key(|sandbox| (attempt(sandbox), sandbox.created_at));
    let annotation = |key: &str| newest.and_then(|sandbox| sandbox.annotations.get(key));
    pod.source = annotation(CONFIG_SOURCE).cloned();
    pod.spec_hash = newest.and_then(|sandbox| spec_hash(&sandbox.annotations));
    pod.shim_group = annotation(SHIM_GROUP).map(|group| group.as_str().into());
    pod
}

/// The pod from the lists only: what exists and whether it runs. Enough to stop the pod, not enough to sync it.
pub(super) fn listed(uid: &PodUid, sandboxes: &[v1::PodSandbox], containers: &[v1::Container]) -> ObservedPod {
    let mut pod = named(uid, sandboxes, containers);
    pod.sandboxes = sandboxes.iter().map(listed_sandbox).collect();
    pod.containers = containers.iter().map(listed_container).collect();
    sort(&mut pod);
    pod
}

/// Replaces listed entries by previously observed ones in the same state.
pub(super) fn add_unlisted_details(listed: &mut ObservedPod, former: &ObservedPod) {
    for sandbox in &mut listed.sandboxes {
        let same =
            |former_entry: &&ObservedSandbox| former_entry.id == sandbox.id && former_entry.state == sandbox.state;
        if let Some(former_entry) = former.sandboxes.iter().find(same) {
            sandbox.clone_from(former_entry);
        }
    }
    let old: SortedMap<&str, &ObservedContainer> =
        former.containers.iter().map(|former_entry| (former_entry.id.as_str(), former_entry)).collect();
    for container in &mut listed.containers {
        let state = std::mem::discriminant(&container.state);
        let same =
            old.get(container.id.as_str()).filter(|former_entry| std::mem::discriminant(&former_entry.state) == state);
        if let Some(former_entry) = same {
            container.clone_from(former_entry);
        }
    }
}

fn listed_sandbox(listed: &v1::PodSandbox) -> ObservedSandbox {
    ObservedSandbox {
        id: listed.id.clone(),
        attempt: listed.metadata.as_ref().map_or(0, |metadata| metadata.attempt),
        state: sandbox_state(listed.state),
        created_at: listed.created_at,
        host_network: false,
        ips: Vec::new(),
        has_address: false,
        pid: None,
    }
}

fn listed_container(listed: &v1::Container) -> ObservedContainer {
    let response = v1::ContainerStatus {
        id: listed.id.clone(),
        metadata: listed.metadata.clone(),
        state: listed.state,
        created_at: listed.created_at,
        image: listed.image.clone(),
        image_ref: listed.image_ref.clone(),
        labels: listed.labels.clone(),
        annotations: listed.annotations.clone(),
        ..v1::ContainerStatus::default()
    };
    container(response, &listed.pod_sandbox_id, None, "")
}

/// Sorts newest first, as users of [`ObservedPod`] expect; containers within each name.
///
/// The newest is the one with the highest count, because the runtime's clock may have been set back. Other kubelets
/// count by that clock, so counts may be equal: then running ones come first.
pub(super) fn sort(pod: &mut ObservedPod) {
    pod.sandboxes.sort_once_by(|a, b| {
        let newness =
            |sandbox: &ObservedSandbox| (sandbox.attempt, sandbox.state == SandboxState::Ready, sandbox.created_at);
        newness(b).cmp(&newness(a)).then_with(|| b.id.cmp(&a.id))
    });
    pod.containers.sort_once_by(|a, b| {
        let newness =
            |container: &ObservedContainer| (container.restart_count, container.is_running(), container.created_at);
        newness(b).cmp(&newness(a)).then_with(|| b.id.cmp(&a.id))
    });
}

/// Whether the previous observation of the sandbox is still valid.
pub(super) fn sandbox_unchanged(former: &ObservedSandbox, listed: &v1::PodSandbox) -> bool {
    former.id == listed.id && former.state == sandbox_state(listed.state)
}

/// Whether the previous observation of the container is still valid. An exit is final; a running container keeps its
/// pid. Without a pid it may be queried again.
pub(super) fn container_unchanged(
    former: &ObservedContainer,
    listed: &v1::Container,
    is_queried_again: impl FnOnce() -> bool,
) -> bool {
    if former.id != listed.id {
        return false;
    }
    match (&former.state, listed.state) {
        (ContainerState::Created, v1::ContainerState::Created)
        | (ContainerState::Exited(_), v1::ContainerState::Exited) => true,
        (ContainerState::Running { .. }, v1::ContainerState::Running) => former.pid.is_some() || !is_queried_again(),
        _ => false,
    }
}

pub(super) fn sandbox(response: v1::PodSandboxStatus, pid: Option<u32>) -> ObservedSandbox {
    let options = response.linux.and_then(|linux| linux.namespaces).and_then(|namespaces| namespaces.options);
    let has_address = response.network.as_ref().is_none_or(|network| !network.ip.is_empty());
    let network = response.network.unwrap_or_default();
    let more = network.additional_ips.into_iter().map(|ip| ip.ip);
    ObservedSandbox {
        id: response.id,
        attempt: response.metadata.map_or(0, |metadata| metadata.attempt),
        state: sandbox_state(response.state),
        created_at: response.created_at,
        host_network: options.is_some_and(|options| options.network == v1::NamespaceMode::Node),
        ips: std::iter::once(network.ip).chain(more).filter_map(|ip| ip.parse::<IpAddr>().ok()).collect(),
        has_address,
        pid,
    }
}

/// `termination_message` is the termination message from the container's log or output.
pub(super) fn container(
    response: v1::ContainerStatus,
    sandbox_id: &str,
    pid: Option<u32>,
    termination_message: &str,
) -> ObservedContainer {
    let is_running = response.state == v1::ContainerState::Running;
    let state = match response.state {
        v1::ContainerState::Created => ContainerState::Created,
        v1::ContainerState::Running => ContainerState::Running { started_at: response.started_at },
        v1::ContainerState::Exited => ContainerState::Exited(Box::new(Exit {
            code: response.exit_code,
            reason: response.reason,
            message: exit_message(response.message, termination_message),
            started_at: response.started_at,
            finished_at: response.finished_at,
        })),
        v1::ContainerState::Unknown | v1::ContainerState::Unrecognized(_) => ContainerState::Unknown,
    };
    let mark = AnnotatedContainerInfo::read(&response.labels, &response.annotations);
    let metadata = response.metadata.as_ref();
    // Without a kubelet's count, the attempt of a foreign client is used.
    let attempt = metadata.map_or(0, |metadata| metadata.attempt);
    let name = if mark.name.is_empty() { metadata.map_or("", |metadata| &metadata.name) } else { mark.name };
    ObservedContainer {
        name: name.to_owned(),
        sandbox_id: sandbox_id.to_owned(),
        state,
        created_at: response.created_at,
        hash: mark.hash,
        spec_hash: spec_hash(&response.annotations),
        restart_count: if mark.hash.is_some() { mark.restart_count } else { attempt },
        grace: grace(&mark),
        pid,
        user: response.user.and_then(|user| user.linux).map(|user| Box::new(linux_user(user))),
        devices: response.annotations.get(DEVICES).map(|text| text.as_str().into()),
        resources: response
            .resources
            .filter(|_| is_running)
            .and_then(|resources| resources.linux)
            .and_then(linux_resources),
        image: response.image.map_or_else(String::new, |image| image.image),
        // As upstream: `image_id` has other content in newer runtimes.
        image_id: response.image_ref,
        id: response.id,
    }
}

/// A container has at least 2 shares, so that 0 is what a runtime does not report.
fn linux_resources(resources: v1::LinuxContainerResources) -> Option<Box<ObservedResources>> {
    (resources.cpu_shares > 0).then(|| {
        Box::new(ObservedResources {
            cpu_shares: resources.cpu_shares,
            cpu_quota: resources.cpu_quota,
            cpu_period: resources.cpu_period,
            memory_limit: resources.memory_limit_in_bytes,
        })
    })
}

fn linux_user(user: v1::LinuxContainerUser) -> ObservedUser {
    ObservedUser { uid: user.uid, gid: user.gid, groups: user.supplemental_groups }
}

/// The runtime's message, then the container's own.
fn exit_message(of_runtime: String, termination_message: &str) -> String {
    match (of_runtime.as_str(), termination_message) {
        (_, "") => of_runtime,
        ("", words) => words.to_owned(),
        (before, words) => [before, ": ", words].concat(),
    }
}

fn grace(mark: &AnnotatedContainerInfo<'_>) -> Option<Duration> {
    mark.deletion_grace.or(mark.termination_grace).map(grace_of_seconds)
}

fn sandbox_state(state: v1::PodSandboxState) -> SandboxState {
    match state {
        v1::PodSandboxState::Ready => SandboxState::Ready,
        v1::PodSandboxState::NotReady | v1::PodSandboxState::Unrecognized(_) => SandboxState::NotReady,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pairs: &[(&str, &str)]) -> SortedMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn of_pod(uid: &str) -> SortedMap<String, String> {
        written(&[
            ("io.kubernetes.pod.uid", uid),
            ("io.kubernetes.pod.name", "web"),
            ("io.kubernetes.pod.namespace", "default"),
        ])
    }

    #[test]
    fn unlabelled_container_belongs_to_no_pod() {
        let foreign = v1::PodSandbox { id: "docker".to_owned(), ..v1::PodSandbox::default() };
        let ours = v1::PodSandbox { labels: of_pod("u"), ..v1::PodSandbox::default() };
        let pods = by_pod(vec![foreign, ours], Vec::new());
        assert_eq!(pods.keys().map(PodUid::as_str).collect::<Vec<_>>(), ["u"]);
    }

    #[test]
    fn exit_message_is_the_runtimes_and_then_the_containers() {
        let message = |of_runtime: &str, words: &str| {
            let response = v1::ContainerStatus {
                state: v1::ContainerState::Exited,
                message: of_runtime.to_owned(),
                ..v1::ContainerStatus::default()
            };
            container(response, "s", None, words).exit().unwrap().message.clone()
        };
        assert_eq!(message("", "bye"), "bye");
        assert_eq!(message("cannot run", ""), "cannot run");
        assert_eq!(message("cannot run", "bye"), "cannot run: bye");
    }

    #[test]
    fn user_is_reported_if_the_runtime_knows_it() {
        let user = |user| container(v1::ContainerStatus { user, ..Default::default() }, "s", None, "").user;
        assert_eq!(user(None), None);
        assert_eq!(user(Some(v1::ContainerUser::default())), None);
        let linux = v1::LinuxContainerUser { uid: 1000, gid: 7, supplemental_groups: vec![7, 8] };
        let expected = ObservedUser { uid: 1000, gid: 7, groups: vec![7, 8] };
        assert_eq!(user(Some(v1::ContainerUser { linux: Some(linux) })), Some(Box::new(expected)));
    }

    #[test]
    fn resources_of_a_running_container_are_reported_if_the_runtime_knows_them() {
        let resources = |state, cpu_shares| {
            let linux = Some(v1::LinuxContainerResources { cpu_shares, cpu_quota: 7, ..Default::default() });
            let resources = Some(v1::ContainerResources { linux });
            container(v1::ContainerStatus { state, resources, ..Default::default() }, "s", None, "").resources
        };
        let expected = ObservedResources { cpu_shares: 2, cpu_quota: 7, cpu_period: 0, memory_limit: 0 };
        assert_eq!(resources(v1::ContainerState::Running, 2), Some(Box::new(expected)));
        assert_eq!(resources(v1::ContainerState::Running, 0), None);
        assert_eq!(resources(v1::ContainerState::Exited, 2), None);
    }

    #[test]
    fn attempt_is_the_restart_count_without_annotations() {
        let response = v1::ContainerStatus {
            metadata: Some(v1::ContainerMetadata { name: "main".to_owned(), attempt: 3 }),
            ..v1::ContainerStatus::default()
        };
        let seen = container(response, "s", None, "");
        assert_eq!((seen.restart_count, seen.hash, seen.name.as_str()), (3, None, "main"));
    }

    #[test]
    fn deletion_grace_takes_precedence() {
        let seen = |annotations: &[(&str, &str)]| {
            let annotations = written(annotations);
            container(v1::ContainerStatus { annotations, ..Default::default() }, "s", None, "").grace
        };
        let own = ("io.kubernetes.pod.terminationGracePeriod", "30");
        assert_eq!(seen(&[own, ("io.kubernetes.pod.deletionGracePeriod", "5")]), Some(Duration::from_secs(5)));
        assert_eq!(seen(&[own]), Some(Duration::from_secs(30)));
        assert_eq!(seen(&[("io.kubernetes.pod.terminationGracePeriod", "-1")]), Some(Duration::from_secs(1)));
    }

    #[test]
    fn running_container_without_pid_may_be_queried_again() {
        let response = v1::ContainerStatus {
            id: "c".to_owned(),
            state: v1::ContainerState::Running,
            ..v1::ContainerStatus::default()
        };
        let listed =
            v1::Container { id: "c".to_owned(), state: v1::ContainerState::Running, ..v1::Container::default() };
        assert!(!container_unchanged(&container(response.clone(), "s", None, ""), &listed, || true));
        assert!(container_unchanged(&container(response.clone(), "s", None, ""), &listed, || false));
        assert!(container_unchanged(&container(response, "s", Some(1), ""), &listed, || unreachable!()));
    }

    /// Possible clocks in nanoseconds: before 1970, at boot, now, and the maximum.
    const CLOCKS: [i64; 6] = [i64::MIN, -1, 0, 1, 1_800_000_000_000_000_000, i64::MAX];

    #[test]
    fn newest_has_the_highest_count_whatever_the_clock() {
        let container = |attempt, created_at| {
            let metadata = Some(v1::ContainerMetadata { name: "main".to_owned(), attempt });
            container(v1::ContainerStatus { metadata, created_at, ..Default::default() }, "s", None, "")
        };
        let sandbox = |attempt, created_at| {
            let metadata = Some(v1::PodSandboxMetadata { attempt, ..Default::default() });
            sandbox(v1::PodSandboxStatus { metadata, created_at, ..Default::default() }, None)
        };
        for first in CLOCKS {
            for second in CLOCKS {
                let mut pod = ObservedPod::new(PodUid::from("u"), "default", "web");
                *pod.containers = vec![container(1, first), container(2, second)];
                pod.sandboxes = vec![sandbox(1, first), sandbox(2, second)];
                sort(&mut pod);
                assert_eq!((pod.containers[0].restart_count, pod.sandboxes[0].attempt), (2, 2), "{first} {second}");
            }
        }
    }

    #[test]
    fn of_equal_counts_the_running_or_later_one_is_newest() {
        let made = |id: &str, created_at, state| {
            let response = v1::ContainerStatus { id: id.to_owned(), created_at, state, ..Default::default() };
            container(response, "s", None, "")
        };
        for (states, newest) in [
            ([v1::ContainerState::Exited, v1::ContainerState::Exited], "later"),
            ([v1::ContainerState::Running, v1::ContainerState::Exited], "earlier"),
            ([v1::ContainerState::Exited, v1::ContainerState::Running], "later"),
        ] {
            let mut pod = ObservedPod::new(PodUid::from("u"), "default", "web");
            *pod.containers = vec![made("earlier", 1, states[0]), made("later", 9, states[1])];
            sort(&mut pod);
            assert_eq!(pod.containers[0].id, newest, "{states:?}");
        }
    }

    #[test]
    fn lists_alone_are_enough_to_stop_a_pod() {
        let listed_container = |state, grace: &str| v1::Container {
            id: "c".to_owned(),
            pod_sandbox_id: "s".to_owned(),
            state,
            labels: of_pod("u"),
            annotations: written(&[
                ("io.kubernetes.pod.terminationGracePeriod", grace),
                ("io.kubernetes.container.hash", "abc"),
            ]),
            ..v1::Container::default()
        };
        let sandbox = |state| v1::PodSandbox { id: "s".to_owned(), state, labels: of_pod("u"), ..Default::default() };
        let pod = |of_sandbox, of_container| {
            listed(&PodUid::from("u"), &[sandbox(of_sandbox)], &[listed_container(of_container, "7")])
        };
        let runs = pod(v1::PodSandboxState::Ready, v1::ContainerState::Running);
        assert_eq!((runs.name.as_str(), runs.grace(), runs.is_stopped()), ("web", Some(Duration::from_secs(7)), false));
        assert_eq!(runs.containers[0].hash, Some(0xabc));
        assert!(!pod(v1::PodSandboxState::NotReady, v1::ContainerState::Running).is_stopped());
        let mut known = runs.clone();
        known.sandboxes[0].ips = vec!["10.0.0.7".parse().unwrap()];
        known.containers[0].pid = Some(7);
        let mut again = runs.clone();
        add_unlisted_details(&mut again, &known);
        assert_eq!(again, known);
        let mut ended = pod(v1::PodSandboxState::NotReady, v1::ContainerState::Exited);
        add_unlisted_details(&mut ended, &known);
        assert_eq!(ended, pod(v1::PodSandboxState::NotReady, v1::ContainerState::Exited));
        assert!(!pod(v1::PodSandboxState::Ready, v1::ContainerState::Exited).is_stopped());
        assert!(pod(v1::PodSandboxState::NotReady, v1::ContainerState::Exited).is_stopped());
    }

    #[test]
    fn sandbox_with_an_unreadable_address_has_one() {
        let seen = |network| sandbox(v1::PodSandboxStatus { network, ..Default::default() }, None);
        let of = |ip: &str| Some(v1::PodSandboxNetworkStatus { ip: ip.to_owned(), additional_ips: Vec::new() });
        for (network, has_address) in
            [(of("fe80::1%eth0"), true), (of("10.0.0.7"), true), (None, true), (of(""), false)]
        {
            assert_eq!(seen(network.clone()).has_address, has_address, "{network:?}");
        }
        assert!(seen(of("fe80::1%eth0")).ips.is_empty());
    }

    #[test]
    fn source_and_group_are_from_the_newest_sandbox() {
        let sandbox = |attempt, created_at, source: &str| v1::PodSandbox {
            metadata: Some(v1::PodSandboxMetadata { attempt, ..Default::default() }),
            created_at,
            annotations: written(&[("kubernetes.io/config.source", source), (SHIM_GROUP, source)]),
            ..v1::PodSandbox::default()
        };
        let pod = named(&PodUid::from("u"), &[sandbox(0, 9, "api"), sandbox(1, -9, "file")], &[]);
        assert_eq!((pod.source.as_deref(), pod.shim_group.as_deref()), (Some("file"), Some("file")));
    }
}
