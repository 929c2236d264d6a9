//! The sync loop: one inbox, one timer.
//!
//! The loop waits for nothing else. Slow work runs in pod workers' tasks and comes back as events.

mod activity;
mod csi_drivers;
mod deadlines;
mod due_times;
mod handle;
mod hosts_files;
mod image_gc;
mod leftovers;
mod node_cgroups;
mod object_watch;
mod oom;
mod orphans;
mod parts;
mod pod_stops;
mod relist;
mod round;
mod sources;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

use async_channel::{Receiver, RecvError, Sender};

use crate::control::cluster::EventSender;
use crate::control::jobs::JobTable;
use crate::control::local_api::{Followers, NodeViews, RecentErrors};
use crate::control::pod_admission::NodeReads;
use crate::control::pod_sources::merge::Sources;
use crate::control::pod_table::{PodInputs, PodTable};
use crate::control::pod_workers::{self, PodWorkers};
use crate::control::server::SyncHealth;
use crate::control::versions::{HeldSince, Versions};
use crate::kubelet::container_manager::ContainerManager;
use crate::kubelet::csi::Csi;
use crate::kubelet::devices::Devices;
use crate::kubelet::dra::DraManager;
use crate::kubelet::kuberuntime::{PodRuntime, WorkViews};
use crate::kubelet::node::StatusInputs;
use crate::kubelet::offline::OfflineStore;
use crate::kubelet::resource_managers::ResourceManagers;
use crate::platform::apiserver::Client;
use crate::platform::config::Config;
use crate::platform::rt;
use crate::state::pods::{EventRing, HostNames, SyncEvent};
use crate::types::metrics::{self, Count};
use crate::types::owned::Owned;

pub(crate) use due_times::Part;
pub(crate) use pod_stops::read_stopped_pods;

use due_times::{Due, DueTimes, MAX_ROUNDS_WITHOUT_WAIT};
use parts::{PartInputs, Parts};

/// Capacity of the inbox. Senders wait when it is full: no event may be lost.
pub(crate) const INBOX_EVENTS: usize = 256;

/// Why the sync loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopEnd {
    NoSenders,
    /// The loop kept running rounds without waiting. The process restarts and finds its pods unchanged.
    Spins {
        rounds: u32,
        /// The part that was due; `None` if events kept coming.
        part: Option<Part>,
    },
}

pub(crate) struct SyncLoop {
    inbox: Receiver<SyncEvent>,
    /// For the parts that are added in a cluster.
    sender: Sender<SyncEvent>,
    health: SyncHealth,
    due_times: DueTimes,
    pods: PodTable,
    parts: Parts,
    /// Of the local API.
    errors: RecentErrors,
    followers: Followers,
}

/// What the sync loop depends on.
pub(crate) struct Dependencies {
    pub(crate) runtime: Rc<PodRuntime>,
    pub(crate) groups: Rc<ContainerManager>,
    pub(crate) managers: ResourceManagers,
    pub(crate) devices: Rc<Devices>,
    pub(crate) csi: Rc<Csi>,
    pub(crate) dra: Rc<DraManager>,
    pub(crate) sources: Sources,
    /// File of the stopped pods.
    pub(crate) stopped_pods: PathBuf,
    pub(crate) jobs: JobTable,
    pub(crate) versions: Versions,
    /// Since when pods are held, and its file.
    pub(crate) held_since: (PathBuf, HeldSince),
    pub(crate) errors: RecentErrors,
    pub(crate) followers: Followers,
    pub(crate) health: SyncHealth,
    /// Sends to the loop's own inbox.
    pub(crate) sender: Sender<SyncEvent>,
    pub(crate) inbox: Receiver<SyncEvent>,
}

impl SyncLoop {
    pub(crate) fn new(config: &Config, dependencies: Dependencies) -> Self {
        let Dependencies { runtime, groups, managers, devices, csi, dra, .. } = dependencies;
        let Dependencies { sources, stopped_pods, jobs, versions, held_since, errors, followers, .. } = dependencies;
        let Dependencies { health, sender, inbox, .. } = dependencies;
        let (objects, observed) = (Owned::default(), Owned::default());
        let host_names = Owned::new(HostNames::new(&runtime.node.cluster_domain));
        let views = WorkViews {
            objects: objects.view(),
            host_names: host_names.view(),
            observed: observed.view(),
            placements: managers.placements(),
        };
        let of_workers = pod_workers::Dependencies {
            runtime: Rc::clone(&runtime),
            groups: Rc::clone(&groups),
            devices: Rc::clone(&devices),
            csi: Rc::clone(&csi),
            dra: Rc::clone(&dra),
            views: views.clone(),
            inbox: sender.clone(),
        };
        let backoff = pod_workers::RestartBackoff::new(config.pods.max_container_restart_period);
        let workers = PodWorkers::new(of_workers, backoff.starting_at(config.pods.first_container_restart_period));
        let of_pods = PodInputs { sources, observed, objects: views.objects.clone() };
        let of_parts = PartInputs {
            managers,
            devices,
            csi,
            dra,
            stopped_pods,
            jobs,
            versions,
            held_since,
            objects,
            host_names,
            views,
        };
        let parts = Parts::new(config, &runtime, groups, of_parts, &sender);
        Self {
            pods: PodTable::new(config, runtime, workers, of_pods, sender.clone()),
            parts,
            inbox,
            sender,
            health,
            due_times: DueTimes::default(),
            errors,
            followers,
        }
    }

    /// Sets the ring of events, and their sender to the API server; `None` without a cluster.
    pub(crate) fn with_events(mut self, ring: Rc<RefCell<EventRing>>, event_sender: Option<EventSender>) -> Self {
        self.pods.set_events(ring, event_sender);
        self
    }

    /// Connects the parts to a cluster, for pod statuses and the objects that pods refer to.
    pub(crate) fn in_cluster(mut self, client: &Client, store: &OfflineStore, node: &str) -> Self {
        self.parts.join(client, store, node, &self.sender);
        let reads = NodeReads::new(self.pods.status_view(), self.sender.clone());
        self.parts.admission.set_node_reads(reads);
        self
    }

    /// Sets the inputs of the node status.
    pub(crate) fn with_status_inputs(mut self, inputs: Rc<StatusInputs>) -> Self {
        self.pods.set_status_inputs(inputs);
        self
    }

    pub(crate) fn views(&self) -> NodeViews {
        NodeViews {
            records: self.pods.view(),
            observed: self.pods.observed_view(),
            objects: self.parts.objects.view(),
            jobs: self.parts.jobs.view(),
            versions: self.parts.versions.view(),
            next_versions: self.parts.next_versions.view(),
            held: self.parts.locks.view(),
            pressures: self.parts.eviction.pressures(),
            leftovers: self.parts.orphans.leftovers(),
            unreported: self.parts.status_manager.unreported(),
        }
    }

    /// Runs until all event senders are gone, or until the loop spins:
    /// [`MAX_ROUNDS_WITHOUT_WAIT`](due_times::MAX_ROUNDS_WITHOUT_WAIT) rounds without a wait.
    pub(crate) async fn run(mut self) -> LoopEnd {
        loop {
            let due = self.due();
            let (event, waited) = match self.next_event(&due).await {
                Ok(next) => next,
                Err(_) => return LoopEnd::NoSenders,
            };
            let now = rt::now();
            self.health.stamp(now);
            if let Some(event) = event {
                self.handle(event, now);
            }
            // Handle everything queued before starting work: a removal then overtakes a start.
            while let Ok(event) = self.inbox.try_recv() {
                self.handle(event, now);
            }
            self.round(now).await;
            self.hold_off_stalled(&due, now);
            self.health.end_round();
            if self.due_times.spins(waited) {
                return LoopEnd::Spins {
                    rounds: MAX_ROUNDS_WITHOUT_WAIT,
                    part: self.due_times.due_part(&self.due(), now),
                };
            }
            // Let the other tasks of this thread run even if a part is due.
            rt::yield_now().await;
        }
    }

    /// Holds off the parts that were due before this round and still are.
    fn hold_off_stalled(&mut self, before: &Due, now: Instant) {
        let after = self.due();
        for part in self.due_times.after_round(before, &after, now) {
            metrics::count(Count::LoopStalls, &[part.name()]);
            if self.due_times.is_first_stall(part) {
                log!(warn, "sync loop part due but idle, holding it off", part = part);
            }
        }
    }

    /// When each part needs a round without an event.
    fn due(&self) -> Due {
        // Work needs the runtime.
        let works = self.pods.can_work();
        [
            (Part::ActiveDeadlines, self.parts.deadlines.next_due()),
            (Part::HostsFiles, self.parts.hosts_files.next_due()),
            (Part::Jobs, self.parts.jobs.next_due()),
            (Part::NodePressure, self.parts.eviction.next_due().filter(|_| works)),
            (Part::ObjectWatch, self.parts.objects.next_due()),
            (Part::PodWorkers, self.pods.workers().due().filter(|_| works)),
            (Part::Readmissions, self.parts.readmissions.next_due().filter(|_| works)),
            (Part::Shutdown, self.parts.shutdown.next_due()),
            (Part::StatusManager, self.parts.status_manager.next_due()),
            (Part::Versions, self.versions_due(works)),
        ]
    }

    fn versions_due(&self, works: bool) -> Option<Instant> {
        let pull = self.parts.next_versions.next_due().filter(|_| works);
        let lookup = self.parts.tag_lookups.next_due().filter(|_| works);
        self.parts
            .versions
            .next_due()
            .into_iter()
            .chain(pull)
            .chain(lookup)
            .chain(self.parts.locks.next_due(&self.pods))
            .min()
    }

    /// The next event, or `None` if a part is due, and whether the loop had to wait. Fails when all senders are gone.
    async fn next_event(&self, due: &Due) -> Result<(Option<SyncEvent>, bool), RecvError> {
        let time = self.due_times.next(due);
        let waits = self.inbox.is_empty() && time.is_none_or(|time| time > rt::now());
        let event = async { self.inbox.recv().await.map(Some) };
        let next = match time {
            Some(time) => {
                let timer = async {
                    rt::sleep_until(time).await;
                    Ok(None)
                };
                rt::either(event, timer).await
            }
            None => event.await,
        };
        next.map(|event| (event, waits))
    }
}
