//! The node state that the local socket shows.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use crate::control::pod_sources::merge::Sources;
use crate::control::pod_sources::versions::Versions;
use crate::control::server::{PodEntry, PodQuery, RecentError};
use crate::control::sync_loop::leftovers::Leftovers;
use crate::control::sync_loop::log_followers::Followers;
use crate::control::sync_loop::next_version_pulls::NextVersionPulls;
use crate::kubelet::offline::OfflineStore;
use crate::kubelet::pod_resources::ListedPod;
use crate::kubelet::status::{PodHealth, PodSituation, PodStatuses, pod_health};
use crate::platform::rt;
use crate::state::pods::{EventRing, NodePressures, PodWarning, RuntimeState};
use crate::types::api::annotations::NEXT_VERSION;
use crate::types::api::{self, Pod, PodStatus, PodUid, Time};
use crate::types::sorted::SortedMap;

/// Maximum number of recent errors kept.
const ERRORS: usize = 20;

/// The node state. Only the sync loop writes it.
pub(crate) struct NodeState {
    pub(crate) sources: Sources,
    pub(crate) statuses: PodStatuses,
    pub(crate) runtime: RuntimeState,
    /// Pods that no source has any more and that have not ended yet.
    pub(crate) ending: SortedMap<PodUid, Arc<Pod>>,
    /// Running uids of pods that another kubelet started, by the uid of their manifest.
    pub(crate) takeovers: SortedMap<PodUid, PodUid>,
    /// The event sender marks the events that the API server has.
    pub(crate) events: Rc<RefCell<EventRing>>,
    pub(crate) pressures: NodePressures,
    pub(crate) versions: Versions,
    pub(super) next_versions: NextVersionPulls,
    pub(super) followers: Followers,
    /// `None` without a cluster.
    pub(crate) store: Option<OfflineStore>,
    /// Number of pods whose status has not been reported.
    pub(super) unreported: usize,
    pub(super) errors: VecDeque<RecentError>,
    pub(super) leftovers: Leftovers,
}

impl NodeState {
    pub(crate) fn new(sources: Sources) -> Self {
        Self {
            sources,
            statuses: PodStatuses::default(),
            runtime: RuntimeState::default(),
            ending: SortedMap::new(),
            takeovers: SortedMap::new(),
            events: Rc::default(),
            pressures: NodePressures::default(),
            versions: Versions::default(),
            next_versions: NextVersionPulls::default(),
            followers: Followers::default(),
            store: None,
            unreported: 0,
            errors: VecDeque::new(),
            leftovers: Leftovers::default(),
        }
    }

    /// Records an error. A repeated error is kept once, with its newest time.
    pub(crate) fn note_error(&mut self, message: &str, now: Time) {
        self.errors.retain(|error| error.message != message);
        if self.errors.len() == ERRORS {
            self.errors.pop_front();
        }
        self.errors.push_back(RecentError { time: now.to_string(), message: message.to_owned() });
    }

    /// The running uid of a manifest's pod. It differs from the manifest's uid only for adopted pods.
    pub(super) fn running_uid<'a>(&'a self, manifest_uid: &'a PodUid) -> &'a PodUid {
        self.takeovers.get(manifest_uid).unwrap_or(manifest_uid)
    }

    /// The wanted and the ending pods.
    pub(crate) fn pods(&self) -> Vec<ListedPod> {
        let pods = self.sources.pods().map(|source| &source.pod).chain(self.ending.values());
        let listed = |pod: &Arc<Pod>| {
            let uid = self.running_uid(&pod.metadata.uid).clone();
            let is_active = self.statuses.status(&uid).is_some_and(|status| !status.phase.is_terminal());
            ListedPod { uid, pod: Arc::clone(pod), is_active }
        };
        pods.map(listed).collect()
    }

    /// The running uid of the named pod, which is wanted or ending.
    pub(super) fn uid_of(&self, query: &PodQuery) -> Option<&PodUid> {
        let mut pods = self.sources.pods().map(|source| &source.pod).chain(self.ending.values());
        let pod = pods.find(|pod| {
            let metadata = &pod.metadata;
            let uid = query.uid.as_deref().is_none_or(|uid| {
                [&metadata.uid, self.running_uid(&metadata.uid)].iter().any(|known| known.as_str() == uid)
            });
            metadata.namespace == query.namespace && metadata.name == query.name && uid
        });
        pod.map(|pod| self.running_uid(&pod.metadata.uid))
    }

    pub(super) fn known_pods(&self) -> Vec<Arc<Pod>> {
        let pods = self.sources.pods().map(|source| &source.pod);
        pods.chain(self.ending.values()).chain(self.versions.kept()).cloned().collect()
    }

    /// Calls `each` with every wanted or ending pod.
    pub(super) fn each_pod(&self, now: Time, each: &mut dyn FnMut(ShownPod<'_>)) {
        let events = self.events.borrow();
        let mut warnings: SortedMap<&PodUid, Vec<PodWarning<'_>>> = SortedMap::new();
        for warning in events.pod_warnings() {
            warnings.entry(warning.pod).or_default().push(warning);
        }
        let wanted = self.sources.pods().map(|source| (&source.pod, &*source.origin));
        let none = Rc::default();
        for (pod, origin) in wanted.chain(self.ending.values().map(|pod| (pod, ""))) {
            let uid = self.running_uid(&pod.metadata.uid);
            let status = self.statuses.status(uid).unwrap_or(&none);
            let warnings = warnings.get(&uid).map(Vec::as_slice).unwrap_or_default();
            let health = pod_health(PodSituation { pod, status, warnings, now });
            each(ShownPod { pod, uid, status, origin, health });
        }
    }

    /// The pod as `/pods` has it.
    pub(super) fn entry(&self, shown: ShownPod<'_>) -> PodEntry {
        let ShownPod { pod, uid, status, origin, health } = shown;
        let mut pod = pod.clone();
        pod.metadata.uid = uid.clone();
        pod.status = status.clone();
        if let Some(next) = self.next_versions.line(uid, rt::now()) {
            pod.metadata.annotations.insert(NEXT_VERSION, next);
        }
        let problem = match health {
            PodHealth::Failing(problem) => Some(problem),
            PodHealth::Running | PodHealth::Done | PodHealth::Waiting => None,
        };
        PodEntry { source: origin.to_owned(), pod: api::encode(&pod), problem }
    }
}

/// A pod as clients see it.
pub(super) struct ShownPod<'a> {
    pub(super) pod: &'a Pod,
    /// The running uid.
    pub(super) uid: &'a PodUid,
    pub(super) status: &'a PodStatus,
    /// Empty for a pod that no source has any more.
    pub(super) origin: &'a str,
    pub(super) health: PodHealth,
}
