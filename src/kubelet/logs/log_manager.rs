//! Keeps the logs of all containers within their limits.
//!
//! ```text
//!            written (one inotify event)          due
//!   resting -----------------------------> waiting ----> checked --+-> resting, with a new inotify watch
//!                                                                  +-> rotation
//! ```
//!
//! An idle log causes no work. A log that is written to is checked again before it can exceed its limit at the fastest
//! expected growth.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use nix::sys::inotify::WatchDescriptor;

use super::limits::LogLimits;
use super::links::link;
use super::rotate::{RotateError, RotationState, rotate_if_due};
use super::watch::Watch;
use crate::platform::cri::RuntimeService;
use crate::platform::rt;
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;

/// A container's log and its symlink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagedLog {
    pub(crate) container_id: String,
    pub(crate) log: PathBuf,
    pub(crate) link: PathBuf,
    /// False for an exited container, whose log no longer grows.
    pub(crate) runs: bool,
}

/// Rotates logs until it is dropped.
pub(crate) struct LogManager {
    /// Changes that the task has not taken yet; the newest of each pod.
    changes: Rc<RefCell<Changes>>,
    changed: Sender<()>,
    /// The logs last passed to the task, so that only changes are passed.
    pod_logs: RefCell<Changes>,
    _task: rt::Task<()>,
}

type Changes = SortedMap<PodUid, Vec<ManagedLog>>;

impl LogManager {
    pub(crate) fn start(cri: RuntimeService, limits: LogLimits) -> Self {
        let (changed, inbox) = async_channel::bounded(1);
        let changes = Rc::default();
        let task = rt::spawn(RotationTask::new(cri, limits).run(Rc::clone(&changes), inbox));
        Self { changes, changed, pod_logs: RefCell::default(), _task: task }
    }

    /// Replaces the pod's logs.
    pub(crate) fn set_pod_logs(&self, pod: &PodUid, logs: Vec<ManagedLog>) {
        let mut pod_logs = self.pod_logs.borrow_mut();
        if pod_logs.get(pod).map_or(logs.is_empty(), |former| *former == logs) {
            return;
        }
        if logs.is_empty() {
            pod_logs.remove(pod);
        } else {
            pod_logs.insert(pod.clone(), logs.clone());
        }
        self.changes.borrow_mut().insert(pod.clone(), logs);
        // A full channel already wakes the task.
        let _ = self.changed.try_send(());
    }
}

struct RotationTask {
    cri: RuntimeService,
    limits: LogLimits,
    /// `None`: inotify is not available and logs are polled.
    watch: Option<Watch>,
    /// By container id.
    logs: SortedMap<String, Entry>,
    watched: SortedMap<WatchDescriptor, String>,
    workers: Rc<rt::Semaphore>,
    done: (Sender<Done>, Receiver<Done>),
}

struct Entry {
    pod: PodUid,
    log: Rc<PathBuf>,
    rotation: RotationState,
    looked: Instant,
    next: Option<Instant>,
    /// The file has existed before.
    has_existed: bool,
    rotating: Option<rt::Task<()>>,
    /// A failure has been logged.
    failing: bool,
}

type Done = (String, Result<RotationState, RotateError>);

enum WakeReason {
    Changed,
    LogChanges(std::io::Result<Option<Vec<WatchDescriptor>>>),
    Done(Done),
    Due,
    Closed,
}

/// Delay after a failure.
const LOG_ROTATION_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay for a log that the runtime does not write.
const UNWRITTEN_LOG_DELAY: Duration = Duration::from_secs(60);
/// Capacity of the workers' results; workers wait when it is full.
const PENDING_LOG_RESULTS: usize = 16;

impl RotationTask {
    fn new(cri: RuntimeService, limits: LogLimits) -> Self {
        let watch = Watch::new().inspect_err(|error| {
            log!(warn, "failed to watch logs, polling instead", error = ErrorChain(error));
        });
        let workers = usize::try_from(limits.workers.max(1)).unwrap_or(1);
        Self {
            cri,
            limits,
            watch: watch.ok(),
            logs: SortedMap::new(),
            watched: SortedMap::new(),
            workers: Rc::new(rt::Semaphore::new(workers)),
            done: async_channel::bounded(PENDING_LOG_RESULTS),
        }
    }

    async fn run(mut self, changes: Rc<RefCell<Changes>>, changed: Receiver<()>) {
        loop {
            match self.woken(&changed).await {
                WakeReason::Closed => return,
                WakeReason::Changed => {
                    for (pod, logs) in changes.take() {
                        self.change(&pod, logs).await;
                    }
                }
                WakeReason::LogChanges(Ok(Some(watches))) => watches.iter().for_each(|watch| self.written(watch)),
                WakeReason::LogChanges(Ok(None)) => self.check_all(),
                WakeReason::LogChanges(Err(error)) => {
                    log!(warn, "failed to watch logs, polling instead", error = ErrorChain(&error));
                    self.watch = None;
                    self.check_all();
                }
                WakeReason::Done((id, rotation)) => self.rotation_done(&id, rotation),
                WakeReason::Due => {}
            }
            self.check_due();
        }
    }

    async fn woken(&self, changed: &Receiver<()>) -> WakeReason {
        let changed = async { changed.recv().await.map_or(WakeReason::Closed, |()| WakeReason::Changed) };
        let done = async { self.done.1.recv().await.map_or(WakeReason::Closed, WakeReason::Done) };
        let log_changes = async {
            match &self.watch {
                Some(watch) => WakeReason::LogChanges(watch.changes().await),
                None => std::future::pending().await,
            }
        };
        let due = async {
            match self.logs.values().filter_map(|entry| entry.next).min() {
                Some(time) => rt::sleep_until(time).await,
                None => std::future::pending().await,
            }
            WakeReason::Due
        };
        rt::either(rt::either(changed, done), rt::either(log_changes, due)).await
    }

    async fn change(&mut self, pod: &PodUid, logs: Vec<ManagedLog>) {
        let runs = |id: &String| logs.iter().any(|log| log.runs && log.container_id == *id);
        self.logs.retain(|id, entry| entry.pod != *pod || runs(id));
        let kept = &self.logs;
        self.watched.retain(|_, id| kept.contains_key(id));
        for log in &logs {
            let now = rt::now();
            if log.runs && !self.logs.contains_key(&log.container_id) {
                let entry = Entry {
                    pod: pod.clone(),
                    log: Rc::new(log.log.clone()),
                    // More than any limit, so that the first check counts the files.
                    rotation: RotationState { size: 0, full: u64::MAX, away: true },
                    has_existed: false,
                    looked: now,
                    next: Some(now),
                    rotating: None,
                    failing: false,
                };
                self.logs.insert(log.container_id.clone(), entry);
            }
        }
        rt::blocking_for(pod.as_str(), move || {
            for kept in logs.iter().filter(|kept| kept.log.exists()) {
                if let Err(error) = link(&kept.link, &kept.log) {
                    log!(debug, "failed to link log", link = kept.link.display(), error = ErrorChain(&error));
                }
            }
        })
        .await;
    }

    fn written(&mut self, watch: &WatchDescriptor) {
        let Some(id) = self.watched.remove(watch) else { return };
        let Some(entry) = self.logs.get_mut(&id) else { return };
        let threshold = self.limits.threshold(entry.rotation.full);
        entry.next = Some(entry.looked + self.limits.next_look(entry.rotation.size, threshold));
    }

    fn check_all(&mut self) {
        let now = rt::now();
        self.logs.values_mut().for_each(|entry| entry.next = Some(now));
    }

    fn check_due(&mut self) {
        let now = rt::now();
        for (id, entry) in &mut self.logs {
            if entry.next.is_none_or(|next| next > now) {
                continue;
            }
            entry.next = None;
            if entry.rotating.is_some() {
                // It is checked when the worker is done.
                continue;
            }
            // Watch before reading the size, so that no write in between is missed.
            let next_write = self.watch.as_ref().and_then(|watch| watch.next_write(&entry.log).ok());
            let size = std::fs::symlink_metadata(&*entry.log).ok().map(|metadata| metadata.len());
            entry.looked = now;
            entry.has_existed |= size.is_some();
            match size {
                Some(size) if size < self.limits.threshold(entry.rotation.full) => {
                    entry.rotation.size = size;
                    match next_write {
                        Some(watch) => drop(self.watched.insert(watch, id.clone())),
                        None => entry.next = Some(now + self.limits.interval),
                    }
                }
                Some(_) | None => {
                    let (id, log, limits, cri) = (id.clone(), Rc::clone(&entry.log), self.limits, self.cri.clone());
                    let (done, workers, seen) = (self.done.0.clone(), Rc::clone(&self.workers), entry.has_existed);
                    entry.rotating = Some(rt::spawn(async move {
                        let turn = workers.acquire().await;
                        let rotation = rotate_if_due(&cri, &id, &log, limits, seen).await;
                        drop(turn);
                        // The receiver outlives the tasks.
                        let _ = done.send((id, rotation)).await;
                    }));
                }
            }
        }
    }

    fn rotation_done(&mut self, id: &str, rotation: Result<RotationState, RotateError>) {
        let Some(entry) = self.logs.get_mut(id) else { return };
        entry.rotating = None;
        let now = rt::now();
        match rotation {
            Ok(rotation) => {
                entry.rotation = rotation;
                entry.failing = false;
                entry.next = Some(match rotation.away {
                    true => now + if entry.has_existed { LOG_ROTATION_RETRY_DELAY } else { UNWRITTEN_LOG_DELAY },
                    false => now,
                });
            }
            Err(error) => {
                if !entry.failing {
                    log!(warn, "failed to rotate log", log = entry.log.display(), error = ErrorChain(&error));
                }
                entry.failing = true;
                entry.next = Some(now + LOG_ROTATION_RETRY_DELAY);
            }
        }
    }
}
