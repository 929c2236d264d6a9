//! Watches the API objects that the node's pods refer to, and no others.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::control::cluster::ObjectWatcher;
use crate::control::pod_table::{Effect, PodTable};
use crate::control::sync_loop::csi_drivers::CsiDrivers;
use crate::kubelet::csi::Csi;
use crate::kubelet::offline::OfflineStore;
use crate::state::objects::{AnswerEffect, ObjectChanges, ObjectEvent, Objects, PodsChange, SourceObject, Topic};
use crate::state::pods::NodeFields;
use crate::types::api::{Pod, PodUid};
use crate::types::owned::{Owned, View};
use crate::types::sorted::SortedSet;

pub(super) struct ObjectWatch {
    /// The objects that pods refer to.
    objects: Owned<Objects>,
    csi: Rc<Csi>,
    /// `None` without a cluster.
    watched: Option<WatchState>,
    /// The store has been cleared of objects of former pods.
    store_is_tidy: bool,
    /// The CSI drivers of the node that are followed.
    drivers: Vec<String>,
    /// The RuntimeClasses of static pods that are followed.
    classes: SortedSet<String>,
    /// When what large pods refer to is determined again.
    due: Option<Instant>,
}

struct WatchState {
    follower: ObjectWatcher,
    store: OfflineStore,
}

impl ObjectWatch {
    pub(super) fn new(objects: Owned<Objects>, csi: Rc<Csi>) -> Self {
        Self {
            objects,
            csi,
            watched: None,
            store_is_tidy: false,
            drivers: Vec::new(),
            classes: SortedSet::new(),
            due: None,
        }
    }

    pub(super) fn view(&self) -> View<Objects> {
        self.objects.view()
    }

    /// Replaces the objects of manifests. Returns those that changed or were refused.
    pub(super) fn replace(&mut self, objects: &[SourceObject]) -> ObjectChanges {
        self.objects.write().replace(objects)
    }

    pub(super) fn set_cluster(&mut self, follower: ObjectWatcher, store: OfflineStore) {
        self.watched = Some(WatchState { follower, store });
    }

    /// The API server sent the Node object's terms. True if the attached volumes changed.
    pub(super) fn on_node_fields(&mut self, fields: &NodeFields) -> bool {
        if let Some(watched) = &self.watched {
            watched.store.remember_node(fields);
        }
        let mut objects = self.objects.write();
        objects.set_node_labels(fields.labels.clone());
        objects.set_attached(fields.attached.clone())
    }

    pub(super) fn on_object(
        &mut self,
        event: ObjectEvent,
        pods: &PodTable,
        drivers: &CsiDrivers,
        now: Instant,
    ) -> Vec<Effect> {
        let effect = self.objects.write().on_event(event);
        let Some(AnswerEffect { topic, stale_topics }) = effect else {
            self.tidy_store(pods);
            return Vec::new();
        };
        match stale_topics {
            0 => self.tidy_store(pods),
            1..=FEW_TOPICS => self.follow(pods),
            _ => drop(self.due.get_or_insert(now + LARGE_POD_ANSWERS_DELAY)),
        }
        if matches!(*topic, Topic::CsiDriver(_)) {
            drivers.schedule_allocatable();
        }
        vec![Effect::ReferencesChanged(self.objects.read().complete_users(&topic))]
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due
    }

    pub(super) fn round(&mut self, pods: &PodTable, now: Instant) -> Vec<Effect> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.follow(pods);
        // The answers for all objects of a pod may have arrived meanwhile.
        vec![Effect::ReferencesChanged(pods.uids_where(Pod::is_of_cluster))]
    }

    /// Updates the watches to what the pods refer to now.
    pub(super) fn follow(&mut self, pods: &PodTable) {
        self.due = None;
        let Some(WatchState { follower, .. }) = &mut self.watched else { return };
        let of_cluster: Vec<Arc<Pod>> = {
            let records = pods.records();
            let pods = records.sources.pods().map(|source| &source.pod).filter(|pod| pod.is_of_cluster());
            pods.filter(|pod| !pod.status.phase.is_terminal()).cloned().collect()
        };
        // The CSIDriver object sets how often the driver is queried, so it is needed even without volumes.
        let drivers = self.csi.registered();
        let classes = classes_of_static_pods(pods);
        let mut objects = self.objects.write();
        let PodsChange { has_changed, outdated } = objects.set_pods(&of_cluster);
        for topic in &outdated {
            follower.release(topic);
        }
        if has_changed || drivers != self.drivers || classes != self.classes {
            let drivers_of_node = drivers.iter().cloned().map(Topic::CsiDriver);
            let of_node = drivers_of_node.chain(classes.iter().cloned().map(Topic::RuntimeClass));
            let of_node = of_node.map(|topic| (Arc::new(topic), PodUid::default()));
            let of_pods = objects.pod_topics().iter().map(|(topic, pod)| (Arc::clone(topic), pod));
            for topic in follower.follow(of_pods.chain(of_node).collect()) {
                objects.forget(&topic);
            }
            self.drivers = drivers;
            self.classes = classes;
        }
        drop(objects);
        self.tidy_store(pods);
    }

    /// Once all pods and the objects that they refer to are known, the rest of the store is garbage. The last readable
    /// state of an unread pod, and its objects, are not.
    fn tidy_store(&mut self, pods: &PodTable) {
        let Some(WatchState { store, .. }) = &self.watched else { return };
        let all_are_read = pods.all_sources_ready() && pods.records().sources.unread().next().is_none();
        if !self.store_is_tidy && self.objects.read().all_are_known() && all_are_read {
            self.store_is_tidy = true;
            store.remove_unclaimed();
        }
    }
}

/// They do not keep a static pod from starting, so they are no topics of it.
fn classes_of_static_pods(pods: &PodTable) -> SortedSet<String> {
    let records = pods.records();
    let pods = records.sources.pods().map(|source| &source.pod).filter(|pod| pod.is_static());
    pods.filter_map(|pod| pod.spec.runtime_class_name.clone()).collect()
}

/// Pods with at most this many topics are looked at again with each answer that may add topics to them.
const FEW_TOPICS: usize = 256;
/// How long the answers for larger pods are collected before they are looked at.
const LARGE_POD_ANSWERS_DELAY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::pod_table::testing::{Node, pod, with_node};
    use crate::platform::rt;

    #[test]
    fn unreferenced_object_wakes_no_pod() {
        with_node(|mut node: Node| {
            let mut of_cluster = Pod::clone(&pod("a"));
            of_cluster.spec.node_name = "node".to_owned();
            node.pods.apply([Effect::Update(of_cluster.into())], rt::now());
            let mut watch = ObjectWatch::new(Owned::default(), Rc::clone(&node.csi));
            let drivers = CsiDrivers::new(node.csi, watch.view(), Duration::from_secs(60));
            let event = ObjectEvent::Failed(Topic::CsiDriver("driver".to_owned()), String::new());
            let effects = watch.on_object(event, &node.pods, &drivers, rt::now());
            assert!(effects.iter().all(|effect| *effect == Effect::ReferencesChanged(Vec::new())), "{effects:?}");
        });
    }
}
