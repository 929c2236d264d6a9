//! Watches the API objects that the node's pods refer to, and no others.

use std::rc::Rc;

use crate::control::cluster::ObjectWatcher;
use crate::control::sync_loop::csi_drivers::CsiDrivers;
use crate::control::sync_loop::effect::Effect;
use crate::control::sync_loop::pod_table::PodTable;
use crate::kubelet::csi::Csi;
use crate::kubelet::offline::OfflineStore;
use crate::state::objects::{ObjectEvent, Topic};
use crate::state::pods::NodeFields;
use crate::types::sorted::SortedSet;

pub(super) struct ObjectWatch {
    csi: Rc<Csi>,
    /// `None` without a cluster.
    watched: Option<WatchState>,
    /// The store has been cleared of objects of former pods.
    store_is_tidy: bool,
}

struct WatchState {
    follower: ObjectWatcher,
    store: OfflineStore,
}

impl ObjectWatch {
    pub(super) fn new(csi: Rc<Csi>) -> Self {
        Self { csi, watched: None, store_is_tidy: false }
    }

    pub(super) fn set_cluster(&mut self, follower: ObjectWatcher, store: OfflineStore) {
        self.watched = Some(WatchState { follower, store });
    }

    /// The API server sent the Node object's terms. True if the attached volumes changed.
    pub(super) fn on_node_terms(&self, terms: &NodeFields, pods: &PodTable) -> bool {
        if let Some(watched) = &self.watched {
            watched.store.remember_node(terms);
        }
        pods.runtime().objects.borrow_mut().set_attached(terms.attached.clone())
    }

    pub(super) fn on_object(&mut self, event: ObjectEvent, pods: &PodTable, drivers: &CsiDrivers) -> Vec<Effect> {
        let (ObjectEvent::Received(topic, _) | ObjectEvent::Failed(topic, _)) = &event;
        let topic = topic.clone();
        let has_changed = pods.runtime().objects.borrow_mut().on_event(event);
        // A claim or a driver may refer to further objects.
        if has_changed && matches!(topic, Topic::Claim { .. } | Topic::CsiDriver(_)) || !self.store_is_tidy {
            self.follow(pods);
        }
        if !has_changed {
            return Vec::new();
        }
        if matches!(topic, Topic::CsiDriver(_)) {
            drivers.schedule_allocatable(pods);
        }
        let objects = pods.runtime().objects.borrow();
        let refers = pods.uids_where(|pod| pod.is_of_cluster() && objects.topics(pod).contains(&topic));
        vec![Effect::ReferencesChanged(refers)]
    }

    /// Updates the watches to what the pods refer to now.
    pub(super) fn follow(&mut self, pods: &PodTable) {
        let Some(WatchState { follower, store }) = &mut self.watched else { return };
        let node_state = pods.node_state();
        let mut objects = pods.runtime().objects.borrow_mut();
        let topics: SortedSet<Topic> = {
            let pods = node_state.sources.pods().map(|source| &*source.pod).filter(|pod| pod.is_of_cluster());
            let of_pods = pods.filter(|pod| !pod.status.phase.is_terminal()).flat_map(|pod| objects.topics(pod));
            // The CSIDriver object sets how often the driver is queried, so it is needed even without volumes.
            of_pods.chain(self.csi.registered().into_iter().map(Topic::CsiDriver)).collect()
        };
        let all_heard = topics.iter().all(|topic| objects.is_heard(topic));
        for topic in follower.follow(topics) {
            objects.forget(&topic);
        }
        // Once all pods and the objects they refer to are known, the rest of the store is garbage.
        if !self.store_is_tidy && all_heard && node_state.sources.all_ready() {
            self.store_is_tidy = true;
            store.forget_what_is_left();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::sync_loop::testing::{Node, pod, with_node};
    use crate::platform::rt;
    use crate::state::objects::{ObjectEvent, Topic};
    use crate::types::api::Pod;

    #[test]
    fn unreferenced_object_wakes_no_pod() {
        with_node(|mut node: Node| {
            let mut of_cluster = Pod::clone(&pod("a"));
            of_cluster.spec.node_name = "node".to_owned();
            node.pods.apply([Effect::Update(of_cluster.into())], rt::now());
            let mut watch = ObjectWatch::new(Rc::clone(&node.csi));
            let drivers = CsiDrivers::new(node.csi, std::time::Duration::from_secs(60));
            let event = ObjectEvent::Failed(Topic::CsiDriver("driver".to_owned()), String::new());
            let effects = watch.on_object(event, &node.pods, &drivers);
            assert!(effects.iter().all(|effect| *effect == Effect::ReferencesChanged(Vec::new())), "{effects:?}");
        });
    }
}
