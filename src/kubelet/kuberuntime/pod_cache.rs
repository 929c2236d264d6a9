//! Queries pods in the runtime.
//!
//! A query lists everything and requests the status only of entries that have changed: the status of an exited
//! container is final.

use std::rc::Rc;
use std::time::Duration;

use crate::kubelet::kuberuntime::labels::{LabeledPodInfo, POD_UID};
use crate::kubelet::kuberuntime::termination_message::termination_message;
use crate::kubelet::kuberuntime::{PodRuntime, observe};
use crate::platform::config::CgroupDriver;
use crate::platform::cri::{self, RuntimeService, v1};
use crate::platform::rt;
use crate::state::pods::{
    Observation, ObservedCache, ObservedContainer, ObservedPod, ObservedSandbox, PodDirs, Relist, RuntimeState,
};
use crate::types::api::{NodeFeatures, NodeRuntimeHandler, NodeRuntimeHandlerFeatures, PodUid};
use crate::types::error::ErrorChain;
use crate::types::owned::View;
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

/// Timeout for the statuses of all pods in a relist.
const RELIST_TIMEOUT: Duration = Duration::from_secs(5);

impl PodRuntime {
    /// The runtime's status.
    pub(crate) async fn state(&self) -> Result<RuntimeState, cri::Error> {
        let version = self.cri.version().await?;
        let response = self.cri.status(false).await?;
        let strict_groups = response.features.as_ref().map(|features| features.supplemental_groups_policy);
        self.strict_groups.set(strict_groups == Some(true));
        let able = |can: fn(&v1::RuntimeHandlerFeatures) -> bool| {
            let handlers = response.runtime_handlers.iter();
            let able = handlers.filter(|handler| handler.features.as_ref().is_some_and(can));
            able.map(|handler| handler.name.clone()).collect()
        };
        *self.recursive_read_only.borrow_mut() = Some(able(|features| features.recursive_read_only_mounts));
        self.user_namespaces.set_handlers(able(|features| features.user_namespaces));
        let mut handlers: Vec<NodeRuntimeHandler> = response.runtime_handlers.iter().map(handler).collect();
        handlers.sort_once_by(|one, other| one.name.cmp(&other.name));
        let status = response.status.unwrap_or_default();
        let condition = |name: &str| status.conditions.iter().find(|condition| condition.r#type == name);
        let bad = status.conditions.iter().find(|condition| !condition.status);
        Ok(RuntimeState {
            name: version.runtime_name,
            version: version.runtime_version,
            ready: condition("RuntimeReady").is_some_and(|condition| condition.status),
            network_ready: condition("NetworkReady").is_some_and(|condition| condition.status),
            message: bad.map_or_else(String::new, |bad| format!("{}: {}", bad.r#type, bad.message)),
            ready_fault: fault(condition("RuntimeReady")),
            network_fault: fault(condition("NetworkReady")),
            handlers,
            features: strict_groups.map(|policy| NodeFeatures { supplemental_groups_policy: Some(policy) }),
        })
    }

    /// Asks the runtime for its cgroup driver; false if it must be asked again. Runtimes older than CRI API 0.28
    /// cannot tell; then the configuration applies.
    pub(crate) async fn query_cgroup_driver(&self) -> bool {
        let driver = match self.cri.cgroup_driver().await {
            Ok(driver) => driver,
            Err(error) if error.is_unimplemented() => None,
            Err(error) => {
                log!(warn, "failed to get cgroup driver from runtime", error = ErrorChain(&error));
                return false;
            }
        };
        self.cgroup_driver.set(driver.and_then(|driver| match driver {
            v1::CgroupDriver::Systemd => Some(CgroupDriver::Systemd),
            v1::CgroupDriver::Cgroupfs => Some(CgroupDriver::Cgroupfs),
            v1::CgroupDriver::Unrecognized(_) => None,
        }));
        self.cgroup_driver_reported.set(true);
        true
    }

    /// Whether the runtime has answered, either with its driver or that it does not report one.
    pub(crate) fn has_reported_cgroup_driver(&self) -> bool {
        self.cgroup_driver_reported.get()
    }

    /// The driver reported by the runtime; `None` if it cannot tell or was not asked yet.
    pub(crate) fn cgroup_driver(&self) -> Option<CgroupDriver> {
        self.cgroup_driver.get()
    }

    /// Queries all pods.
    ///
    /// A pod whose status cannot be read does not block others: it is reported as unseen, with the data from the
    /// lists.
    pub(crate) async fn relist(self: &Rc<Self>, observed: &View<ObservedCache>) -> Result<Relist, cri::Error> {
        let ticket = observed.read().begin();
        let sandboxes = self.cri.list_pod_sandbox(None).await?;
        let containers = self.cri.list_containers(None).await?;
        let ids: SortedSet<&str> = containers.iter().map(|container| container.id.as_str()).collect();
        self.forget_containers(|id| ids.contains(id));
        let observations = observe::by_pod(sandboxes, containers).into_iter().map(|(uid, (sandboxes, containers))| {
            let listed = observe::listed(&uid, &sandboxes, &containers);
            let (runtime, observed) = (Rc::clone(self), observed.clone());
            let complete =
                async move { runtime.complete(&uid, &observed, PidQuery::Again, sandboxes, containers).await };
            (listed, rt::spawn(complete))
        });
        let observations: Vec<_> = observations.collect();
        let until = rt::now() + RELIST_TIMEOUT;
        let (mut pods, mut unseen) = (Vec::new(), Vec::new());
        for (listed, look) in observations {
            match rt::deadline(until.saturating_duration_since(rt::now()), look).await {
                Ok(Ok(pod)) => pods.push(pod),
                Ok(Err(error)) => {
                    log!(
                        warn,
                        "failed to get pod status",
                        pod = listed.name,
                        uid = listed.uid,
                        error = ErrorChain(&error)
                    );
                    unseen.push(listed);
                }
                Err(elapsed) => {
                    log!(warn, "failed to get pod status", pod = listed.name, uid = listed.uid, error = elapsed);
                    unseen.push(listed);
                }
            }
        }
        Ok(Relist { pods, unseen, ticket })
    }

    pub(crate) async fn observe_pod(
        &self,
        uid: &PodUid,
        observed: &View<ObservedCache>,
    ) -> Result<Observation, cri::Error> {
        let ticket = observed.read().begin();
        let (sandboxes, containers) = self.list_pod(uid).await?;
        Ok(Observation { pod: self.complete(uid, observed, PidQuery::OnceMore, sandboxes, containers).await?, ticket })
    }

    /// Queries one pod from the lists and the cache only, if the runtime does not return its status.
    pub(crate) async fn listed_pod(
        &self,
        uid: &PodUid,
        observed: &View<ObservedCache>,
    ) -> Result<Observation, cri::Error> {
        let ticket = observed.read().begin();
        let (sandboxes, containers) = self.list_pod(uid).await?;
        let mut pod = observe::listed(uid, &sandboxes, &containers);
        if let Some(former_pod) = observed.read().pod(uid) {
            observe::add_unlisted_details(&mut pod, former_pod);
        }
        Ok(Observation { pod, ticket })
    }

    /// Forgets containers that no longer exist.
    fn forget_containers(&self, exists: impl Fn(&str) -> bool) {
        self.resources.forget_unless(&exists);
        self.cpus.forget_unless(&exists);
        self.without_pid.borrow_mut().retain(|id| exists(id));
    }

    async fn list_pod(&self, uid: &PodUid) -> Result<(Vec<v1::PodSandbox>, Vec<v1::Container>), cri::Error> {
        let selector = [(POD_UID.to_owned(), uid.as_str().to_owned())];
        let sandboxes = v1::PodSandboxFilter { label_selector: selector.clone().into(), ..Default::default() };
        let containers = v1::ContainerFilter { label_selector: selector.into(), ..Default::default() };
        let cri = self.cri_for(uid);
        let sandboxes = cri.list_pod_sandbox(Some(&sandboxes)).await?;
        Ok((sandboxes, cri.list_containers(Some(&containers)).await?))
    }

    /// The runtime's event stream, as uids of pods.
    pub(crate) async fn events(&self) -> Result<PodEvents, cri::Error> {
        Ok(PodEvents(self.cri.container_events().await?))
    }

    /// Whether the runtime still reports it as running; false if it is missing.
    pub(crate) async fn is_running(&self, pod: &PodUid, process: &Process) -> Result<bool, cri::Error> {
        let running = match process {
            Process::Container(id) => {
                let response = self.cri_for(pod).container_status(id, false).await;
                response.map(|response| response.status.is_some_and(|s| s.state == v1::ContainerState::Running))
            }
            Process::Sandbox(id) => {
                let response = self.cri_for(pod).pod_sandbox_status(id, false).await;
                response.map(|response| response.status.is_some_and(|s| s.state == v1::PodSandboxState::Ready))
            }
        };
        match running {
            Err(error) if error.is_not_found() => Ok(false),
            other => other,
        }
    }

    async fn complete(
        &self,
        uid: &PodUid,
        observed: &View<ObservedCache>,
        pids: PidQuery,
        sandboxes: Vec<v1::PodSandbox>,
        containers: Vec<v1::Container>,
    ) -> Result<ObservedPod, cri::Error> {
        let cri = self.cri_for(uid);
        let former_pod = observed.read().pod(uid).cloned();
        let former_pod = former_pod.as_deref();
        let mut pod = observe::named(uid, &sandboxes, &containers);
        for listed in sandboxes {
            let before = former_pod.and_then(|pod| pod.sandboxes.iter().find(|old| old.id == listed.id));
            match before.filter(|before| observe::sandbox_unchanged(before, &listed)) {
                Some(before) => pod.sandboxes.push(before.clone()),
                None => pod.sandboxes.extend(sandbox(&cri, &listed).await?),
            }
        }
        let old = former_pod.iter().flat_map(|pod| &pod.containers).map(|old| (old.id.as_str(), old));
        let old: SortedMap<&str, &ObservedContainer> = old.collect();
        for listed in containers {
            let before = old.get(listed.id.as_str()).copied();
            let again = || pids == PidQuery::Again || self.without_pid.borrow_mut().insert(listed.id.clone());
            match before.filter(|before| observe::container_unchanged(before, &listed, again)) {
                Some(before) => pod.containers.push(before.clone()),
                None => pod.containers.extend(container(&cri, &self.dirs, &listed).await?),
            }
        }
        observe::sort(&mut pod);
        Ok(pod)
    }
}

/// Whether to query a running container again of which the runtime has told no pid.
///
/// It may have been too early to know it. Some runtimes never tell pids: with a query in each observation, a pod whose
/// containers start one after another would take calls with the square of their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PidQuery {
    /// Relists are rare.
    Again,
    OnceMore,
}

/// `None` if it was removed meanwhile.
async fn sandbox(cri: &RuntimeService, listed: &v1::PodSandbox) -> Result<Option<ObservedSandbox>, cri::Error> {
    let ready = listed.state == v1::PodSandboxState::Ready;
    match cri.pod_sandbox_status(&listed.id, ready).await {
        Ok(response) => {
            let pid = response.init_pid();
            Ok(response.status.map(|status| observe::sandbox(status, pid)))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// `None` if it was removed meanwhile.
async fn container(
    cri: &RuntimeService,
    dirs: &PodDirs,
    listed: &v1::Container,
) -> Result<Option<ObservedContainer>, cri::Error> {
    let running = listed.state == v1::ContainerState::Running;
    let response = match cri.container_status(&listed.id, running).await {
        Ok(response) => response,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let pid = response.init_pid();
    let Some(status) = response.status else { return Ok(None) };
    let message = match status.state {
        v1::ContainerState::Exited => termination_message(&status, dirs).await,
        _ => String::new(),
    };
    Ok(Some(observe::container(status, &listed.pod_sandbox_id, pid, &message)))
}

/// A false or missing runtime condition in upstream's format; empty if it holds.
fn fault(condition: Option<&v1::RuntimeCondition>) -> String {
    match condition {
        Some(v1::RuntimeCondition { status: true, .. }) => String::new(),
        Some(v1::RuntimeCondition { r#type, reason, message, .. }) => {
            format!("{}=false reason:{reason} message:{message}", r#type)
        }
        None => "<nil>".to_owned(),
    }
}

fn handler(handler: &v1::RuntimeHandler) -> NodeRuntimeHandler {
    let has = |can: fn(&v1::RuntimeHandlerFeatures) -> bool| Some(handler.features.as_ref().is_some_and(can));
    NodeRuntimeHandler {
        name: handler.name.clone(),
        features: Some(NodeRuntimeHandlerFeatures {
            recursive_read_only_mounts: has(|features| features.recursive_read_only_mounts),
            user_namespaces: has(|features| features.user_namespaces),
        }),
    }
}

/// A sandbox or container, each with one main process whose exit is its exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Container(String),
    Sandbox(String),
}

impl Process {
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Container(id) | Self::Sandbox(id) => id,
        }
    }
}

/// The runtime's event stream.
pub(crate) struct PodEvents(cri::ContainerEvents);

impl PodEvents {
    /// The pod of the next event; `None` if the runtime has closed the stream.
    pub(crate) async fn next_pod(&mut self) -> Result<Option<PodUid>, cri::Error> {
        loop {
            let Some(event) = self.0.next().await? else { return Ok(None) };
            let sandbox = event.pod_sandbox_status.as_ref().map(|sandbox| &sandbox.labels);
            let containers = event.containers_statuses.iter().map(|container| &container.labels);
            if let Some(mark) = sandbox.into_iter().chain(containers).find_map(LabeledPodInfo::read) {
                return Ok(Some(mark.uid()));
            }
        }
    }
}
