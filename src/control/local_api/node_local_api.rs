//! Answers requests on the local socket from the state of the node.

use std::cell::RefCell;
use std::future::ready;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use async_channel::Sender;
use serde_json::{Value, json};

use super::agent_remote::RemoteUpgrades;
use super::log_followers::Followers;
use super::node_stats::NodeStats;
use super::own_node::own_node;
use super::recent_errors::RecentErrors;
use super::shown_pods::{ShownPod, each_pod};
use super::sync_status::sync_status;
use super::views::NodeViews;
use crate::control::cluster::SyncScheduler;
use crate::control::pod_sources::local_pods::LocalPods;
use crate::control::pod_sources::merge::SourceView;
use crate::control::pod_table::PodRecords;
use crate::control::server::{
    AgentRequest, AnswerFuture, ApiServerStatus, ArchiveStatus, ArchivesStatus, CertificateState, CertificateStatus,
    ConditionStatus, DeviceEntry, ImageEntry, JobRows, LocalApi, LogQuery, LogSource, MissingImage, NodeStatus,
    NotFound, OfflineStatus, OwnNodeSource, Page, PodEntry, PodQuery, PodVerdict, PullBudgetStatus, PullStatus,
    RuntimeStatus, SourceStatus, SyncHealth, SyncStatus, VersionStatus, Watchdog,
};
use crate::control::versions::VersionView;
use crate::kubelet::api_cache::OwnNode;
use crate::kubelet::certificates::{CertificateEntry, CertificateKind, CertificateStatuses, RenewalState};
use crate::kubelet::devices::{DeviceRecord, Devices};
use crate::kubelet::enrolment::JoinLine;
use crate::kubelet::image_archives::ArchiveView;
use crate::kubelet::image_transfer::LinkBudget;
use crate::kubelet::images::{PullUnderWay, PullsUnderWay};
use crate::kubelet::kuberuntime::KnownImage;
use crate::kubelet::node::BoardCondition;
use crate::kubelet::offline::OfflineStore;
use crate::kubelet::sealed_secrets::BoardKey;
use crate::kubelet::status::{LogUnavailable, NoLog, PodHealth, run_to_read};
use crate::platform::apiserver::Client;
use crate::platform::config::Config;
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::pods::{
    EventRing, HostIps, ObservedPod, PodAnswer, PodChange, PodDirs, PressureCondition, SourceName, SyncEvent,
};
use crate::types::api::annotations::{NEXT_VERSION, UPDATE_HELD};
use crate::types::api::{self, Event, Pod, PodUid, Time};
use crate::types::sorted::{SortedMap, SortedSet};

pub(crate) struct NodeLocalApi {
    pub(crate) views: NodeViews,
    pub(crate) events: Rc<RefCell<EventRing>>,
    pub(crate) errors: RecentErrors,
    pub(crate) followers: Followers,
    pub(crate) dirs: PodDirs,
    pub(crate) config: Rc<Config>,
    pub(crate) host_ips: HostIps,
    pub(crate) processors: u32,
    pub(crate) health: SyncHealth,
    pub(crate) watchdog: Watchdog,
    pub(crate) pulls: PullsUnderWay,
    pub(crate) pull_budget: Rc<LinkBudget>,
    /// `None` without a cluster.
    pub(crate) cluster: Option<Client>,
    pub(crate) store: Option<OfflineStore>,
    pub(crate) exchanges: Option<SyncScheduler>,
    pub(crate) certificates: Rc<CertificateStatuses>,
    pub(crate) join: Rc<JoinLine>,
    pub(crate) figures: Rc<NodeStats>,
    pub(crate) devices: Rc<Devices>,
    pub(crate) local_pods: LocalPods,
    pub(crate) board_key: Arc<Result<BoardKey, String>>,
    pub(crate) inbox: Sender<SyncEvent>,
    pub(crate) agent: Rc<RemoteUpgrades>,
    pub(crate) started: Instant,
}

impl OwnNodeSource for NodeLocalApi {
    fn own_node(&self) -> OwnNode {
        let (records, observed) = (self.views.records.read(), self.views.observed.read());
        let mut node = own_node(&self.config.node.name, &records, &observed, &self.figures.status_inputs);
        if self.config.cluster.reporting.external_cloud {
            // The cloud's controller writes them.
            node.addresses.clear();
        }
        node
    }
}

impl LocalApi for NodeLocalApi {
    fn status(&self) -> NodeStatus {
        let records = self.views.records.read();
        let runtime = &records.runtime;
        let mut status = NodeStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.config.node.name.clone(),
            addresses: self.host_ips.current().iter().map(ToString::to_string).collect(),
            processors: self.processors,
            uptime_seconds: rt::elapsed(self.started).as_secs(),
            healthy: self.health.stalled(rt::now()).is_none(),
            upgrade: self.agent.control.line.borrow().clone(),
            join: self.join.borrow().clone(),
            seal_key: self.board_key.as_ref().as_ref().ok().map(|key| key.public().to_string()),
            watchdog: self.watchdog.status(),
            last_stall: self.watchdog.last_stall(),
            last_panic: self.watchdog.last_panic(),
            runtime: RuntimeStatus {
                endpoint: self.config.runtime.endpoint.display().to_string(),
                name: runtime.name.clone(),
                version: runtime.version.clone(),
                ready: runtime.ready,
                network_ready: runtime.network_ready,
                message: runtime.message.clone(),
            },
            conditions: self.conditions(),
            sources: records.sources.views().map(|view| self.source_status(view)).collect(),
            pods: u64::try_from(records.sources.pods().count()).unwrap_or(u64::MAX),
            versions: self.views.versions.read().views().map(version_status).collect(),
            held_pods: self.views.held.read().lines().collect(),
            pulls: self.pulls.list().iter().map(pull_status).collect(),
            pull_budget: pull_budget(&self.pull_budget),
            image_archives: self.archives_status(),
            missing_images: None,
            api_server: self.cluster.as_ref().map(api_server_status),
            sync: self.exchanges.as_ref().map(|exchanges| {
                sync_status(exchanges, &self.config, *self.views.unreported.read(), &self.events.borrow())
            }),
            offline: self.store.as_ref().map(offline_status),
            certificates: self.certificates.entries().map(certificate_status).collect(),
            leftovers: self.views.leftovers.read().clone(),
            ..NodeStatus::default()
        };
        let mut verdicts = Vec::new();
        each_pod(&records, &self.events.borrow(), clock::now(), &mut |ShownPod { pod, uid, health, .. }| {
            let name = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
            verdicts.push(PodVerdict { pod: name, uid: uid.to_string(), health });
        });
        let with_a_problem = |verdict: &&PodVerdict| {
            !matches!(verdict.health, PodHealth::Running | PodHealth::Done | PodHealth::Stopped)
        };
        let ill: SortedSet<String> =
            verdicts.iter().filter(with_a_problem).map(|verdict| verdict.pod.clone()).collect();
        self.errors.keep_pods(|name| ill.contains(name));
        status.errors = self.errors.list();
        status.judge(verdicts);
        status
    }

    fn pods(&self, each: &mut dyn FnMut(PodEntry)) {
        let (records, events) = (self.views.records.read(), self.events.borrow());
        each_pod(&records, &events, clock::now(), &mut |shown| each(self.entry(shown)));
    }

    fn running_pods(&self, each: &mut dyn FnMut(Value)) {
        self.views.observed.read().iter().filter_map(|pod| running_pod(pod)).for_each(each);
    }

    fn page(&self, page: Page) -> Pin<Box<dyn Future<Output = Vec<u8>>>> {
        if page == Page::Configuration {
            let driver = self.figures.runtime.cgroup_driver().unwrap_or(self.config.cgroups.driver);
            return Box::pin(ready(self.config.configured.page(driver)));
        }
        Box::pin(Rc::clone(&self.figures).page(page))
    }

    fn devices(&self) -> Vec<DeviceEntry> {
        let names: SortedMap<PodUid, String> = {
            let pods = self.views.records.read().listed();
            let name = |pod: &Pod| format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
            pods.into_iter().map(|listed| (listed.uid, name(&listed.pod))).collect()
        };
        let entry = |record: DeviceRecord| DeviceEntry {
            resource: record.resource,
            device: record.id,
            healthy: record.is_healthy,
            attributes: record.attributes.iter().map(|(name, one)| (name.clone(), one.text().into())).collect(),
            used_by: match (record.claim, record.holder) {
                (Some(claim), _) => format!("claim {claim}"),
                (None, Some((pod, container))) => {
                    format!("{}/{container}", names.get(&pod).map_or(pod.as_str(), String::as_str))
                }
                (None, None) => String::new(),
            },
        };
        self.devices.listed().into_iter().map(entry).collect()
    }

    fn jobs(&self) -> JobRows {
        let jobs = self.views.jobs.read();
        JobRows { jobs: jobs.rows(), cron_jobs: jobs.cron_rows() }
    }

    fn images(&self) -> AnswerFuture<Vec<ImageEntry>> {
        let (runtime, pods) = (Rc::clone(&self.figures.runtime), self.known_pods());
        Box::pin(async move {
            let images = runtime.images.list(&pods).await.map_err(|error| error.to_string())?;
            Ok(images.into_iter().map(image_entry).collect())
        })
    }

    fn missing_images(&self) -> AnswerFuture<Vec<MissingImage>> {
        let (runtime, records) = (Rc::clone(&self.figures.runtime), self.views.records.read());
        // Pods in a terminal phase no longer need their images.
        let is_over = |uid: &PodUid| records.statuses.status(uid).is_some_and(|status| status.phase.is_terminal());
        let pods = records.sources.pods().filter(|source| !is_over(records.running_uid(&source.pod.metadata.uid)));
        let pods: Vec<Arc<Pod>> = pods.map(|source| Arc::clone(&source.pod)).collect();
        Box::pin(async move {
            let missing = runtime.images.missing(&pods).await.map_err(|error| error.to_string())?;
            Ok(missing.into_iter().map(|(image, pods)| MissingImage { image, pods }).collect())
        })
    }

    fn pull_image(&self, name: String) -> AnswerFuture<String> {
        let (runtime, objects) = (Rc::clone(&self.figures.runtime), self.views.objects.clone());
        Box::pin(async move {
            let pulled = runtime.images.pull_for_user(&name, &objects).await;
            pulled.map_err(|waiting| format!("{}: {}", waiting.reason, waiting.message))
        })
    }

    fn remove_image(&self, name: String) -> AnswerFuture<String> {
        let (runtime, records) = (Rc::clone(&self.figures.runtime), self.views.records.read());
        let (pods, is_known) = (self.known_pods(), records.sources.all_ready());
        Box::pin(async move {
            // A source that is not ready may have a pod for any image.
            if !is_known {
                return Err("pod sources are not ready yet, try again in a moment".to_owned());
            }
            runtime.images.remove(&name, &pods).await.map_err(|error| error.to_string())
        })
    }

    fn sync(&self, wait: bool) -> AnswerFuture<SyncStatus> {
        let Some(exchanges) = self.exchanges.clone() else {
            return Box::pin(ready(Err("this node has no cluster".to_owned())));
        };
        let (config, unreported, events) =
            (Rc::clone(&self.config), self.views.unreported.clone(), Rc::clone(&self.events));
        Box::pin(async move {
            exchanges.request_exchange(wait).await;
            Ok(sync_status(&exchanges, &config, *unreported.read(), &events.borrow()))
        })
    }

    fn log(&self, query: &LogQuery) -> Result<LogSource, LogUnavailable> {
        let LogQuery { namespace, pod: name, container, previous, .. } = query;
        let unavailable = |why| LogUnavailable { pod: name.clone(), container: container.clone(), why };
        let records = self.views.records.read();
        let pod = PodQuery::new(namespace, name, None);
        let Some(uid) = uid_of(&records, &pod) else { return Err(unavailable(NoLog::NoPod)) };
        let nothing = Arc::default();
        let status = records.statuses.status(uid).unwrap_or(&nothing);
        let id = run_to_read(status, container, *previous).map_err(unavailable)?;
        let seen = self.views.observed.read();
        let run = seen.pod(uid).and_then(|pod| Some((pod, pod.containers.iter().find(|run| run.id == id)?)));
        let Some((pod, run)) = run else { return Err(unavailable(NoLog::Removed)) };
        let log = self.dirs.log(namespace, name, uid, container, run.restart_count);
        Ok(LogSource { log, ended: self.followers.add(pod, &run.id) })
    }

    fn running_container(&self, pod: &PodQuery, name: &str) -> Result<String, NotFound> {
        let (records, seen) = (self.views.records.read(), self.views.observed.read());
        let uid = uid_of(&records, pod).ok_or(NotFound::Pod)?;
        let container = seen.pod(uid).and_then(|pod| pod.container(name)).filter(|container| container.is_running());
        container.map(|container| container.id.clone()).ok_or_else(|| NotFound::Container(name.to_owned()))
    }

    fn sandbox(&self, pod: &PodQuery) -> Result<String, NotFound> {
        let (records, seen) = (self.views.records.read(), self.views.observed.read());
        let sandbox = uid_of(&records, pod).and_then(|uid| seen.pod(uid)?.ready_sandbox());
        sandbox.map(|sandbox| sandbox.id.clone()).ok_or(NotFound::Pod)
    }

    fn change(&self, change: PodChange) -> Pin<Box<dyn Future<Output = PodAnswer>>> {
        self.change_pod(change)
    }

    fn update_agent(&self, request: AgentRequest) -> AnswerFuture<String> {
        self.agent.request(request)
    }

    fn events(&self, each: &mut dyn FnMut(Event)) {
        self.events.borrow().events(&self.config.node.name).for_each(each);
    }
}

impl NodeLocalApi {
    /// As in the node status.
    fn conditions(&self) -> Vec<ConditionStatus> {
        let (pressures, board) = (self.views.pressures.read(), self.figures.status_inputs.board.borrow());
        let of_board = board.conditions().iter().map(board_status);
        pressures.conditions().map(condition_status).chain(of_board).collect()
    }

    fn source_status(&self, view: SourceView) -> SourceStatus {
        let path = self.config.static_pods.path.as_deref().filter(|_| view.name == SourceName::File);
        let agent = (view.name == SourceName::Http).then(|| self.agent.followed.borrow().clone());
        SourceStatus {
            name: view.name.as_str().to_owned(),
            path: path.map(|path| path.display().to_string()).unwrap_or_default(),
            pods: u64::try_from(view.pods).unwrap_or(u64::MAX),
            ready: view.ready,
            agent: agent.unwrap_or_default(),
            errors: view.problems.iter().map(ToString::to_string).collect(),
        }
    }

    fn archives_status(&self) -> ArchivesStatus {
        let archives = self.figures.runtime.images.archives();
        let file = |ArchiveView { file, stamp, state, images, message }| ArchiveStatus {
            file,
            size_bytes: stamp.size,
            modified_nanos: stamp.modified,
            state: state.to_owned(),
            images,
            message,
        };
        ArchivesStatus {
            directory: self.config.images.archives.display().to_string(),
            files: archives.views().into_iter().map(file).collect(),
            message: archives.problem(),
        }
    }

    /// The pods whose images are in use: those of the sources, ending pods, and the versions that may run again.
    fn known_pods(&self) -> Vec<Arc<Pod>> {
        let (records, versions) = (self.views.records.read(), self.views.versions.read());
        let stopped = records.sources.stopped().map(|(source, _)| &source.pod);
        records.pods().chain(versions.kept()).chain(stopped).cloned().collect()
    }

    /// The pod as `/pods` has it.
    fn entry(&self, pod: ShownPod<'_>) -> PodEntry {
        let ShownPod { pod, uid, status, origin, health } = pod;
        let is_stopped = health == PodHealth::Stopped;
        let mut pod = pod.clone();
        pod.metadata.uid = uid.clone();
        pod.status = status.clone();
        if let Some(next) = self.views.next_versions.read().line(uid, rt::now()) {
            pod.metadata.annotations.insert(NEXT_VERSION, next);
        }
        if let Some(held) = self.views.held.read().line(uid) {
            pod.metadata.annotations.insert(UPDATE_HELD, held);
        }
        let problem = match health {
            PodHealth::Failing(problem) => Some(problem),
            PodHealth::Running | PodHealth::Done | PodHealth::Waiting | PodHealth::Stopped => None,
        };
        PodEntry { source: origin.to_owned(), pod: api::encode(&pod), problem, is_stopped }
    }
}

/// The running uid of the named pod, which is wanted or ending.
fn uid_of<'a>(records: &'a PodRecords, query: &PodQuery) -> Option<&'a PodUid> {
    let pod = records.pods().find(|pod| {
        let metadata = &pod.metadata;
        let uid = query.uid.as_deref().is_none_or(|uid| {
            [&metadata.uid, records.running_uid(&metadata.uid)].iter().any(|known| known.as_str() == uid)
        });
        metadata.namespace == query.namespace && metadata.name == query.name && uid
    });
    pod.map(|pod| records.running_uid(&pod.metadata.uid))
}

fn version_status(VersionView { pod, state, earlier }: VersionView) -> VersionStatus {
    let (state, message) = state.unwrap_or_default();
    VersionStatus { pod, state: state.to_owned(), message, earlier: u64::try_from(earlier).unwrap_or(u64::MAX) }
}

fn image_entry(KnownImage { image, users }: KnownImage) -> ImageEntry {
    ImageEntry {
        id: image.id,
        tags: image.repo_tags,
        digests: image.repo_digests,
        size_bytes: image.size,
        pinned: image.pinned,
        pods: users.into_iter().collect(),
    }
}

/// The kubelet's `/runningpods` format (`ToAPIPod`): only running containers, and no list if there are none. `None` if the
/// pod has neither a ready sandbox nor a running container (`GetPods`).
fn running_pod(pod: &ObservedPod) -> Option<Value> {
    let running = pod.containers.iter().filter(|container| container.is_running());
    let containers: Vec<Value> =
        running.map(|container| json!({"name": container.name, "image": container.image, "resources": {}})).collect();
    let containers = match containers.is_empty() {
        true => pod.ready_sandbox().map(|_| Value::Null)?,
        false => Value::Array(containers),
    };
    Some(json!({
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid.as_str()},
        "spec": {"containers": containers},
        "status": {},
    }))
}

fn pull_budget(budget: &LinkBudget) -> Option<PullBudgetStatus> {
    let used = budget.used();
    let held = budget.held().unwrap_or_default();
    (used.is_some() || !held.is_empty()).then(|| PullBudgetStatus {
        bytes_today: used.map_or(0, |(used, _)| used),
        bytes_per_day: used.map(|(_, most)| most),
        held,
    })
}

fn pull_status(pull: &PullUnderWay) -> PullStatus {
    PullStatus {
        image: pull.image.clone(),
        pod: pull.pod.clone(),
        begun: pull.begun.is_some(),
        seconds: rt::elapsed(pull.begun.unwrap_or(pull.requested)).as_secs(),
        bytes: pull.progress.as_ref().and_then(|progress| progress.bytes()),
    }
}

fn api_server_status(client: &Client) -> ApiServerStatus {
    let traffic = client.traffic();
    ApiServerStatus {
        server: client.server(),
        connected: client.is_connected(),
        message: client.failure().map(|error| error.to_string()).unwrap_or_default(),
        connections: traffic.connections(),
        sent_bytes: traffic.bytes_sent(),
        received_bytes: traffic.bytes_received(),
    }
}

fn offline_status(store: &OfflineStore) -> OfflineStatus {
    let stored = store.stored();
    OfflineStatus {
        records: u64::try_from(stored.records).unwrap_or(u64::MAX),
        bytes: stored.bytes,
        written_bytes: stored.written,
        changed: stored.changed.map(|time| time.to_string()).unwrap_or_default(),
        in_use: store.counts(),
        set_aside: stored.damaged + stored.other_format,
        unopened: stored.unopened,
        left_out: stored.left_out,
        secrets: stored.secrets,
        message: stored.fault.unwrap_or_default(),
    }
}

fn certificate_status((which, entry): (CertificateKind, CertificateEntry)) -> CertificateStatus {
    let state = match entry.standing {
        None => CertificateState::Missing,
        Some(RenewalState::Good { .. }) => CertificateState::Good,
        Some(RenewalState::Due) => CertificateState::Due,
        Some(RenewalState::Expired) => CertificateState::Expired,
    };
    let date = |second: i64| Time::from_unix_nanos(second.saturating_mul(1_000_000_000)).to_string();
    CertificateStatus {
        name: which.name().to_owned(),
        state,
        not_after: entry.not_after.map(date).unwrap_or_default(),
        message: entry.fault.unwrap_or_default(),
    }
}

fn condition_status(condition: PressureCondition) -> ConditionStatus {
    ConditionStatus {
        kind: condition.pressure.as_str().to_owned(),
        status: if condition.holds { "True" } else { "False" }.to_owned(),
        last_transition_time: condition.since.to_string(),
        reason: condition.reason.as_str().to_owned(),
        message: condition.message.to_owned(),
    }
}

fn board_status(condition: &BoardCondition) -> ConditionStatus {
    ConditionStatus {
        kind: condition.problem.as_str().to_owned(),
        status: if condition.holds { "True" } else { "False" }.to_owned(),
        last_transition_time: condition.since.to_string(),
        reason: condition.problem.reason(condition.holds).as_str().to_owned(),
        message: condition.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pods::{ContainerState, ObservedContainer, ObservedSandbox, SandboxState};

    #[test]
    fn running_pods_have_a_ready_sandbox_or_a_running_container() {
        let pod = |state, container| {
            let mut pod = ObservedPod::new("u".into(), "ns", "p");
            pod.sandboxes.push(ObservedSandbox {
                id: "s".to_owned(),
                attempt: 0,
                state,
                created_at: 1,
                host_network: false,
                ips: Vec::new(),
                has_address: false,
                pid: None,
            });
            pod.containers.extend([ObservedContainer::seen("c", "main", "s", container)]);
            running_pod(&pod).map(|pod| pod["spec"]["containers"].as_array().map_or(0, Vec::len))
        };
        let running = || ContainerState::Running { started_at: 1 };
        assert_eq!(pod(SandboxState::Ready, running()), Some(1));
        assert_eq!(pod(SandboxState::Ready, ContainerState::Created), Some(0));
        assert_eq!(pod(SandboxState::NotReady, running()), Some(1));
        assert_eq!(pod(SandboxState::NotReady, ContainerState::Created), None);
    }
}
