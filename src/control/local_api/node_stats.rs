//! The metrics and stats pages of the node.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::views::NodeViews;
use crate::control::server::Page;
use crate::kubelet::certificates::CertificateStatuses;
use crate::kubelet::dra::DraManager;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::node::StatusInputs;
use crate::kubelet::offline::OfflineStore;
use crate::kubelet::stats::{PodInputs, Stats, StatsEndpoint, foreign_volumes};
use crate::platform::apiserver::Client;
use crate::state::pods::EventRing;
use crate::types::sorted::SortedSet;

pub(crate) struct NodeStats {
    pub(crate) views: NodeViews,
    pub(crate) events: Rc<RefCell<EventRing>>,
    pub(crate) runtime: Rc<PodRuntime>,
    pub(crate) stats: Stats,
    pub(crate) dra: Rc<DraManager>,
    /// `None` without a cluster.
    pub(crate) cluster: Option<Client>,
    pub(crate) store: Option<OfflineStore>,
    pub(crate) certificates: Rc<CertificateStatuses>,
    pub(crate) status_inputs: Rc<StatusInputs>,
}

impl NodeStats {
    pub(super) async fn page(self: Rc<Self>, page: Page) -> Vec<u8> {
        let question = match page {
            // Not a metrics page.
            Page::Configuration => return Vec::new(),
            Page::Metrics => return self.agent_page(self.stats.claims(&self.subjects()).await),
            Page::Probes => return self.probes_page(),
            Page::Cadvisor => StatsEndpoint::Cadvisor,
            Page::Resource => StatsEndpoint::Resource,
            Page::Summary { only_cpu_and_memory } => StatsEndpoint::Summary { only_cpu_and_memory },
        };
        let subjects = self.subjects();
        self.stats.render(question, subjects, self.runtime.cgroup_driver()).await
    }

    /// The pods that the runtime has. Of several pods with the same name, an ending pod is left out if another pod
    /// already has the name.
    fn subjects(&self) -> Vec<PodInputs> {
        let (records, seen) = (self.views.records.read(), self.views.observed.read());
        let objects = self.views.objects.read();
        let mut shown = SortedSet::new();
        let subject = |pod: &Arc<crate::types::api::Pod>| {
            let uid = records.running_uid(&pod.metadata.uid);
            let observed = Rc::clone(seen.pod(uid)?);
            let is_new = shown.insert((pod.metadata.namespace.clone(), pod.metadata.name.clone()));
            let started_at = records.statuses.status(uid).and_then(|status| status.start_time);
            let foreign = || foreign_volumes(pod, uid, (&self.runtime.dirs, &self.runtime.node.claims_dir), &objects);
            is_new.then(|| PodInputs { pod: Arc::clone(pod), observed, started_at, foreign: foreign() })
        };
        records.pods().filter_map(subject).collect()
    }
}
