//! The one place where events meet.
//!
//! One inbox, one timer. The loop never waits for anything else: what takes time runs in a pod worker's task and comes
//! back as an event.

mod activity;
mod admit;
mod adoption;
mod agent_metrics;
mod cluster;
mod cpu_assignment;
mod devices;
mod due_times;
mod event_dedup;
mod eviction;
mod handlers;
mod image_gc;
mod log_followers;
mod node_cgroups;
mod node_local_api;
mod node_state;
mod node_stats;
mod oom;
mod orphans;
mod pending_resizes;
mod pod_requests;
mod shutdown;
mod storage_limits;
mod sync_status;
mod versions;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::{Receiver, RecvError, Sender};

use crate::control::cluster::{EventSender, Follower, StatusManager};
use crate::control::pleg::Pleg;
use crate::control::pod_workers::{self, PodWorkers};
use crate::control::server::SyncHealth;
use crate::kubelet::admission::Admission;
use crate::kubelet::container_manager::ContainerManager;
use crate::kubelet::csi::Csi;
use crate::kubelet::devices::Devices;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::logs::{LogLimits, LogManager};
use crate::kubelet::node::StatusInputs;
use crate::kubelet::offline::OfflineStore;
use crate::kubelet::probes::Probes;
use crate::kubelet::resource_managers::ResourceManagers;
use crate::kubelet::status::{ActiveDeadlines, Failed};
use crate::platform::apiserver::Client;
use crate::platform::config::Config;
use crate::platform::host::kernel_log::KernelLog;
use crate::platform::rt;
use crate::state::pods::{ObservedCache, PodAnswer, SyncEvent};
use crate::types::api::PodUid;
use crate::types::metrics::{self, Count};
use crate::types::sorted::{SortedMap, SortedSet};

pub(crate) use due_times::Part;
pub(crate) use node_local_api::NodeLocalApi;
pub(crate) use node_state::NodeState;
pub(crate) use node_stats::NodeStats;

use cpu_assignment::CpuAssignment;
use due_times::{Due, DueTimes, MOST_ROUNDS};
use event_dedup::EventDedup;
use eviction::EvictionManager;
use image_gc::ImageGarbage;
use pending_resizes::PendingResizes;
use shutdown::NodeShutdown;
use storage_limits::StorageLimits;

/// Waiting events; senders wait when it is full, as none of them may be lost.
pub(crate) const INBOX: usize = 256;

/// So long what no pod waits for leaves the runtime to the pods; the next event begins it then.
const PODS_FIRST: Duration = Duration::from_secs(10);

/// Why the sync loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopEnd {
    NoSenders,
    /// It went round without ever waiting. The process starts again, and finds its pods as they are.
    Spins {
        rounds: u32,
        /// The part that was due; `None` if events kept coming.
        part: Option<Part>,
    },
}

pub(crate) struct SyncLoop {
    inbox: Receiver<SyncEvent>,
    /// For tasks of the loop's own.
    sender: Sender<SyncEvent>,
    books: Rc<RefCell<NodeState>>,
    seen: Rc<RefCell<ObservedCache>>,
    runtime: Rc<PodRuntime>,
    groups: Rc<ContainerManager>,
    devices: Rc<Devices>,
    csi: Rc<Csi>,
    /// Of pods that need nothing.
    sync_frequency: Duration,
    workers: PodWorkers,
    pleg: Pleg,
    logs: LogManager,
    probes: Probes,
    /// What was told of pods, so that it is not told again and again.
    happenings: EventDedup,
    health: SyncHealth,
    /// The runtime was looked at as a whole: what was not seen then is not there.
    relisted: bool,
    /// Pods whose status is to be made anew in this round.
    dirty: SortedSet<PodUid>,
    /// Why the node ends pods that their source still has.
    failed: SortedMap<PodUid, Failed>,
    deadlines: ActiveDeadlines,
    admission: Admission,
    /// The pods that have been taken and whose place nobody else has been given.
    admitted: SortedSet<PodUid>,
    /// The removal of what earlier pods left on disk: once, when it is known which pods there are.
    strays: Option<rt::Task<()>>,
    /// Something of it could not be removed: it is tried again with the next relist.
    strays_failed: Rc<Cell<bool>>,
    /// The groups above the pods are being looked after.
    node_groups: Option<rt::Task<()>>,
    /// The group of burstable pods is being given another weight.
    weighing: Option<rt::Task<()>>,
    /// The groups in which the kernel has killed, of the last time.
    kills: VecDeque<String>,
    /// `None` where it cannot be read.
    kernel_log: Option<Rc<KernelLog>>,
    #[expect(dead_code, reason = "dropping the task ends it")]
    kernel_log_follower: Option<rt::Task<()>>,
    placing: CpuAssignment,
    /// Pods that wait for other resources.
    resizes: PendingResizes,
    /// Pods have come, changed or gone: together they may weigh something else.
    weigh: bool,
    image_garbage: ImageGarbage,
    node_watch: EvictionManager,
    storage_limits: StorageLimits,
    due_times: DueTimes,
    /// Parts whose stall was logged.
    stalled: Vec<Part>,
    shutdown: NodeShutdown,
    /// `None` without a cluster.
    reporter: Option<StatusManager>,
    news: Rc<StatusInputs>,
    /// `None` without a cluster.
    event_sender: Option<EventSender>,
    follower: Option<Follower>,
    /// `None` without a cluster.
    store: Option<OfflineStore>,
    /// What was stored of pods that are no more has been forgotten.
    store_is_tidy: bool,
    /// The versions of pods are being written.
    versions_writer: Option<rt::Task<()>>,
    /// Why they could not be written the last time.
    versions_fault: Option<String>,
    /// Who waits for that, and what is to be told then.
    version_answers: Vec<(Sender<PodAnswer>, PodAnswer)>,
}

/// What the sync loop works with.
pub(crate) struct Dependencies {
    pub(crate) runtime: Rc<PodRuntime>,
    pub(crate) groups: Rc<ContainerManager>,
    pub(crate) managers: ResourceManagers,
    pub(crate) devices: Rc<Devices>,
    pub(crate) csi: Rc<Csi>,
    pub(crate) books: Rc<RefCell<NodeState>>,
    pub(crate) health: SyncHealth,
    /// Of the loop's own inbox.
    pub(crate) sender: Sender<SyncEvent>,
    pub(crate) inbox: Receiver<SyncEvent>,
}

impl SyncLoop {
    pub(crate) fn new(config: &Config, dependencies: Dependencies) -> Self {
        let Dependencies { runtime, groups, managers, devices, csi, books, health, sender, inbox } = dependencies;
        let of_workers = pod_workers::Dependencies {
            runtime: Rc::clone(&runtime),
            groups: Rc::clone(&groups),
            devices: Rc::clone(&devices),
            csi: Rc::clone(&csi),
            inbox: sender.clone(),
        };
        let workers = PodWorkers::new(of_workers, config.pods.max_container_restart_period);
        let probes = Probes::new(runtime.cri(), runtime.dialer(), runtime.node.own_address(), sender.clone());
        let limits = LogLimits {
            file_bytes: config.logs.max_bytes,
            files: config.logs.max_files,
            workers: config.logs.max_workers,
            interval: config.logs.monitor_interval,
        };
        let logs = LogManager::start(runtime.cri(), limits);
        let kernel_log = oom::open_kernel_log();
        let follow = |log| rt::spawn(oom::follow_kernel_log(log, sender.clone()));
        let kernel_log_follower = kernel_log.clone().map(follow);
        let node_watch = EvictionManager::new(&config.eviction, sender.clone());
        let shutdown = NodeShutdown::new(&config.shutdown_phases, sender.clone());
        let pleg = Pleg::new(Rc::clone(&runtime), config.pods.sync_frequency, sender.clone());
        let admission = Admission::new(config, &runtime.node.allocatable, runtime.node.max_pods);
        Self {
            inbox,
            sender,
            books,
            seen: runtime.seen(),
            runtime,
            groups,
            devices,
            csi,
            sync_frequency: config.pods.sync_frequency,
            workers,
            pleg,
            logs,
            probes,
            happenings: EventDedup::default(),
            health,
            relisted: false,
            dirty: SortedSet::new(),
            failed: SortedMap::new(),
            deadlines: ActiveDeadlines::default(),
            admission,
            admitted: SortedSet::new(),
            strays: None,
            strays_failed: Rc::default(),
            node_groups: None,
            weighing: None,
            kills: VecDeque::new(),
            kernel_log,
            kernel_log_follower,
            placing: CpuAssignment::new(managers),
            resizes: PendingResizes::default(),
            weigh: true,
            image_garbage: ImageGarbage::default(),
            node_watch,
            storage_limits: StorageLimits::default(),
            due_times: DueTimes::default(),
            stalled: Vec::new(),
            shutdown,
            reporter: None,
            news: Rc::default(),
            event_sender: None,
            follower: None,
            store: None,
            store_is_tidy: false,
            versions_writer: None,
            versions_fault: None,
            version_answers: Vec::new(),
        }
    }

    /// With somebody to tell what happens.
    pub(crate) fn sending_events(self, event_sender: Option<EventSender>) -> Self {
        Self { event_sender, ..self }
    }

    /// With a cluster, which is told what becomes of the pods and asked for what they need.
    pub(crate) fn in_cluster(self, client: &Client, store: &OfflineStore, node: &str) -> Self {
        let reporter = StatusManager::new(client.clone(), node, self.sender.clone());
        let follower = Follower::new(client.clone(), store.clone(), self.sender.clone());
        Self { reporter: Some(reporter), follower: Some(follower), store: Some(store.clone()), ..self }
    }

    /// With somebody who passes on what happens to the node.
    pub(crate) fn telling(self, news: Rc<StatusInputs>) -> Self {
        Self { news, ..self }
    }

    /// Runs until every sender of events is gone, or the loop spins: it has gone round 10,000 times and not waited once.
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
            // What has queued up meanwhile is taken in before work is begun: a removal overtakes a start.
            while let Ok(event) = self.inbox.try_recv() {
                self.handle(event, now);
            }
            self.start_work(now);
            self.hold_off_stalled(&due, now);
            self.health.end_round();
            if self.due_times.spins(waited) {
                return LoopEnd::Spins { rounds: MOST_ROUNDS, part: self.due_times.due_part(&self.due(), now) };
            }
            // The other tasks of this thread get their turn, whatever is due here.
            rt::yield_now().await;
        }
    }

    /// Holds off the parts that were due before this round and still are.
    fn hold_off_stalled(&mut self, before: &Due, now: Instant) {
        let after = self.due();
        for part in self.due_times.after_round(before, &after, now) {
            metrics::count(Count::LoopStalls, &[part.name()]);
            if !self.stalled.contains(&part) {
                self.stalled.push(part);
                log!(warn, "sync loop part due but idle, holding it off", part = part);
            }
        }
    }

    /// Nothing can be done without the runtime: a try would only count as a failure of each pod.
    fn can_work(&self) -> bool {
        self.relisted && self.books.borrow().runtime.ready
    }

    /// Whether what no pod waits for may be done, that was asked for then: nothing is done for any pod, or something has
    /// been for long. At the start, pods come first.
    fn pods_rest(&self, asked: Instant, now: Instant) -> bool {
        let is_late = now.saturating_duration_since(asked) >= PODS_FIRST;
        is_late || self.workers.iter().all(|worker| worker.busy.is_none())
    }

    /// When each part needs a round that no event asks for.
    fn due(&self) -> Due {
        // Work waits for the runtime.
        let works = self.can_work();
        [
            (Part::ActiveDeadlines, self.deadlines.next()),
            (Part::NodePressure, self.node_watch.due().filter(|_| works)),
            (Part::PodWorkers, self.workers.due().filter(|_| works)),
            (Part::Shutdown, self.shutdown.due()),
            (Part::StatusManager, self.reporter.as_ref().and_then(StatusManager::due)),
            (Part::Versions, self.books.borrow().versions.due()),
        ]
    }

    /// The next event, or `None` when a part is due, and whether the loop had to wait for it; an error when no sender is
    /// left.
    async fn next_event(&self, due: &Due) -> Result<(Option<SyncEvent>, bool), RecvError> {
        let moment = self.due_times.next(due);
        let waits = self.inbox.is_empty() && moment.is_none_or(|moment| moment > rt::now());
        let event = async { self.inbox.recv().await.map(Some) };
        let next = match moment {
            Some(moment) => {
                let timer = async {
                    rt::sleep_until(moment).await;
                    Ok(None)
                };
                rt::either(event, timer).await
            }
            None => event.await,
        };
        next.map(|event| (event, waits))
    }
}
