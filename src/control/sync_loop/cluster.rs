//! What becomes of the pods is told to the cluster.

use std::sync::Arc;
use std::time::Instant;

use crate::control::cluster::StatusManager;
use crate::control::pod_workers::State;
use crate::control::sync_loop::SyncLoop;
use crate::control::sync_loop::effect::{Effect, NodeStatusChange};
use crate::kubelet::volumes::{self, SetUp};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::objects::{Lookup, ObjectEvent, Topic};
use crate::state::pods::{MirrorDone, NodeTerms, ReportDone, SourcePod};
use crate::types::api::{Pod, PodUid, VolumeSource};
use crate::types::sorted::SortedSet;

impl SyncLoop {
    pub(super) fn on_reported(&mut self, done: &ReportDone, now: Instant) {
        if let Some(reporter) = &mut self.reporter {
            reporter.reported(done, now);
        }
    }

    pub(super) fn on_statuses_admitted(&mut self) {
        if let Some(reporter) = &mut self.reporter {
            reporter.admitted();
        }
    }

    pub(super) fn start_reports(&mut self, now: Instant) {
        if let Some(reporter) = &mut self.reporter {
            reporter.start(now);
            self.pods.node_state_mut().untold = reporter.untold();
        }
    }

    pub(super) fn is_reporting(&self) -> bool {
        self.reporter.as_ref().is_some_and(StatusManager::is_telling)
    }

    pub(super) fn on_mirrored(&mut self, done: MirrorDone, now: Instant) {
        if let Some(reporter) = &mut self.reporter {
            reporter.mirrored(done, now);
        }
    }

    pub(super) fn on_node_heard(&mut self, terms: NodeTerms) {
        if let Some(reporter) = &mut self.reporter {
            reporter.node_is(&terms.uid);
        }
        if let Some(store) = &self.store {
            store.remember_node(&terms);
        }
        let is_news = self.pods.runtime().objects.borrow_mut().set_attached(terms.attached.clone());
        self.parts.admission.on_node_terms(terms);
        if is_news {
            self.follow_objects();
            self.try_volumes_again();
        }
    }

    /// What the server shows of a pod counts before anything is told of it.
    pub(super) fn see_api_pod(&mut self, pod: &Pod) {
        if let Some(reporter) = self.reporter.as_mut().filter(|_| !pod.is_static()) {
            reporter.see(pod);
        }
    }

    /// The server has told all that it has: that counts whatever it was told before.
    pub(super) fn see_all_anew(&mut self, pods: &[SourcePod]) {
        if let Some(reporter) = &mut self.reporter {
            reporter.relisted(pods);
            pods.iter().for_each(|source| self.pods.mark_status(source.pod.metadata.uid.clone()));
        }
    }

    pub(super) fn see_mirrors(&mut self) {
        let Some(reporter) = &mut self.reporter else { return };
        let books = self.pods.node_state();
        let own = books.sources.pods().map(|source| &source.pod).filter(|pod| pod.is_static());
        let own = own.map(|pod| (books.running_uid(&pod.metadata.uid).clone(), Arc::clone(pod)));
        let own: Vec<(PodUid, Arc<Pod>)> = own.collect();
        let uids: Vec<PodUid> = own.iter().map(|(uid, _)| uid.clone()).collect();
        reporter.see_mirrors(own, books.sources.all_ready(), books.sources.mirrors().to_vec());
        drop(books);
        uids.into_iter().for_each(|uid| self.pods.mark_status(uid));
    }

    /// What the pods of the cluster need is followed, and nothing else.
    pub(super) fn follow_objects(&mut self) {
        let Some(follower) = &mut self.follower else { return };
        let books = self.pods.node_state();
        let mut objects = self.pods.runtime().objects.borrow_mut();
        let topics: SortedSet<Topic> = {
            let pods = books.sources.pods().map(|source| &*source.pod).filter(|pod| pod.is_of_cluster());
            let of_pods = pods.filter(|pod| !pod.status.phase.is_terminal()).flat_map(|pod| objects.topics(pod));
            // How often it is to be asked again goes by the driver, whether it has volumes or not.
            of_pods.chain(self.csi.registered().into_iter().map(Topic::CsiDriver)).collect()
        };
        let all_heard = topics.iter().all(|topic| objects.is_heard(topic));
        for topic in follower.follow(topics) {
            objects.forget(&topic);
        }
        // Once all pods are known, and all that they need, what was stored for others is of no use.
        if let Some(store) = self.store.as_ref().filter(|_| !self.store_is_tidy && all_heard) {
            if books.sources.all_ready() {
                self.store_is_tidy = true;
                store.forget_what_is_left();
            }
        }
    }

    /// What may grow of the volumes of pods that run.
    pub(super) fn follow_growth(&self) {
        if self.follower.is_none() {
            return;
        }
        let (objects, runtime) = (self.pods.runtime().objects.borrow(), self.pods.runtime());
        let with = SetUp { dirs: &runtime.dirs, node: &runtime.node, objects: &objects };
        let pods = self.pods.workers().iter().filter(|worker| worker.state == State::Sync);
        let pods = pods.filter_map(|worker| worker.pod.as_ref());
        let volumes = pods.flat_map(|pod| volumes::of_drivers(pod, with, &|driver| self.csi.grows(driver))).collect();
        self.csi.follow_growth(volumes, self.sync_frequency);
    }

    /// As often as the cluster wants it of each.
    pub(super) fn ask_drivers_again(&self) {
        let objects = self.pods.runtime().objects.borrow();
        self.csi.ask_again_by(|driver| match objects.csi_driver(driver) {
            Lookup::Found(driver) => driver.allocatable_period,
            Lookup::Missing | Lookup::Unknown(_) => None,
        });
    }

    /// Which volumes must not be taken away from the node: those of its pods, until they have given them back.
    pub(super) fn tell_volumes_in_use(&mut self) {
        if self.reporter.is_none() {
            return;
        }
        let objects = self.pods.runtime().objects.borrow();
        let pods = self
            .pods
            .workers()
            .iter()
            .filter(|worker| worker.state != State::Finished)
            .filter_map(|worker| worker.pod.as_ref());
        let mut names: SortedSet<String> = pods.flat_map(|pod| objects.attachable(pod)).collect();
        names.extend(self.csi.present());
        let in_use = names.iter().cloned().collect();
        drop(objects);
        self.pods.apply([Effect::NodeStatus(NodeStatusChange::VolumesInUse(in_use))], rt::now());
    }

    pub(super) fn on_object(&mut self, news: ObjectEvent) {
        let (ObjectEvent::Heard(topic, _) | ObjectEvent::Failed(topic, _)) = &news;
        let topic = topic.clone();
        let is_news = self.pods.runtime().objects.borrow_mut().hear(news);
        // One thing may need another.
        if is_news && matches!(topic, Topic::Claim { .. } | Topic::CsiDriver(_)) || !self.store_is_tidy {
            self.follow_objects();
        }
        if is_news && matches!(topic, Topic::CsiDriver(_)) {
            self.ask_drivers_again();
        }
        if is_news {
            let objects = self.pods.runtime().objects.borrow();
            let pods = self.pods.uids_where(|pod| pod.is_of_cluster() && objects.topics(pod).contains(&topic));
            drop(objects);
            self.pods.apply([Effect::ReferencesChanged(pods)], rt::now());
        }
    }

    pub(super) fn tell_status(&mut self, uid: &PodUid) {
        let Some(reporter) = &mut self.reporter else { return };
        let Some(worker) = self.pods.worker(uid) else { return };
        let books = self.pods.node_state();
        let Some(status) = books.statuses.status(uid) else { return };
        let may_run = matches!(worker.state, State::Sync | State::Terminating { .. });
        reporter.tell(uid, status, may_run, clock::now());
        let deleted = worker.pod.as_ref().filter(|pod| !pod.is_static());
        let deleted = deleted.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
        if deleted && worker.state == State::Finished {
            reporter.gone(uid);
        }
    }

    /// A driver has come.
    pub(super) fn on_csi_drivers_changed(&mut self) {
        self.follow_objects();
        self.ask_drivers_again();
        self.try_volumes_again();
    }

    /// Pods that wait for a driver, to begin or to end, try again at once.
    pub(super) fn try_volumes_again(&mut self) {
        let pods = self.pods.uids_where(|pod| {
            let mut volumes = pod.spec.volumes.iter();
            volumes.any(|volume| matches!(volume.source, VolumeSource::Csi(_)) || Topic::claim(pod, volume).is_some())
        });
        self.pods.apply([Effect::ReferencesChanged(pods)], rt::now());
    }
}
