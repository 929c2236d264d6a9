//! Update locks: an application keeps the node from stopping its pod.
//!
//! ```text
//!   a decision asks in each round -> permits -> no annotation, the lock is free, or the limit is over: it may go on
//!                                            -> UpdateLockTried: the lock is held; it asks again later
//! ```
//!
//! At rest nothing is read: a lock is tried when a decision needs it, and every five seconds while one waits. A lock that
//! the node has taken is kept until the pod has ended, so that the application cannot begin what must not be stopped.

use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;
use serde_json::{Value, json};

use super::held_pods::{
    Answer, Decision, HeldPod, HeldPods, LOCK_RETRY_DELAY, LockState, has_lock, is_on_hold, lock_limit, may_be_held,
};
use crate::control::pod_table::{Effect, PodTable};
use crate::control::pod_workers::State;
use crate::kubelet::status::OwnCondition;
use crate::kubelet::volumes::{self, SetUpInputs};
use crate::platform::host::clock;
use crate::platform::host::durable::{self, StoredFile};
use crate::platform::rt;
use crate::state::objects::Objects;
use crate::state::pods::{PodEvent, SyncEvent, UpdateLock};
use crate::types::api::annotations::{UPDATE_LOCK, update_lock};
use crate::types::api::conditions::UPDATE_HELD;
use crate::types::api::{ConditionStatus, EventKind, Pod, PodUid, Reason, Time};
use crate::types::error::ErrorChain;
use crate::types::owned::{Owned, View};
use crate::types::sorted::SortedMap;

/// Room for the pods of a node.
const MAX_HELD_PODS_BYTES: u64 = 64 << 10;
/// A decision that was waiting when the former agent ended asks again within this time.
const STORED_WAIT_AGE: Duration = Duration::from_secs(10 * 60);

/// Since when decisions have waited for pods, kept over restarts of the agent: uptimes and times.
pub(crate) type HeldSince = SortedMap<PodUid, (Duration, Time)>;
/// Whether the pod's application holds its lock.
pub(crate) type HeldCheck = Pin<Box<dyn Future<Output = bool>>>;

pub(crate) struct UpdateLocks {
    held: Owned<HeldPods>,
    /// The longest limit that a pod may set.
    max_lock_limit: Duration,
    /// Locks that the node has taken, and when.
    taken: SortedMap<PodUid, (File, Instant)>,
    objects: View<Objects>,
    inbox: Sender<SyncEvent>,
    file: PathBuf,
    stored: HeldSince,
    /// Uptime at the start of the agent.
    started: Duration,
    is_unwritten: bool,
    writer: Option<rt::Task<()>>,
    attempts: SortedMap<PodUid, rt::Task<()>>,
    /// Files being closed.
    closing: Vec<rt::Task<()>>,
}

impl UpdateLocks {
    pub(crate) fn new(
        (file, stored): (PathBuf, HeldSince),
        max_lock_limit: Duration,
        objects: View<Objects>,
        inbox: Sender<SyncEvent>,
    ) -> Self {
        Self {
            held: Owned::default(),
            max_lock_limit,
            taken: SortedMap::new(),
            objects,
            inbox,
            file,
            stored,
            started: clock::uptime(),
            is_unwritten: false,
            writer: None,
            attempts: SortedMap::new(),
            closing: Vec::new(),
        }
    }

    pub(crate) fn view(&self) -> View<HeldPods> {
        self.held.view()
    }

    /// When a lock is tried again, a limit is over, or a lock that was taken for nothing is released.
    /// The lock of a pod that is being stopped is released when it has ended, however long that takes.
    pub(crate) fn next_due(&self, pods: &PodTable) -> Option<Instant> {
        let is_unused = |uid: &PodUid| pods.syncing(uid).is_some() && !self.held.read().pods.contains_key(uid);
        let unused = self.taken.iter().filter(|&(uid, _)| is_unused(uid));
        let unused = unused.map(|(_, (_, since))| *since + LOCK_RETRY_DELAY).min();
        self.held.read().due().into_iter().chain(unused).min()
    }

    /// Whether the node may stop the pod now. A decision that may not asks again in each round, until it may.
    pub(crate) fn permits(&mut self, uid: &PodUid, decision: Decision, pods: &PodTable, now: Instant) -> bool {
        let pod = pods.syncing(uid).and_then(|worker| worker.pod.clone());
        pod.is_none_or(|pod| self.permits_pod(&pod, is_on_hold(&pod), decision, pods, now))
    }

    /// Whether the node may replace the pod by its next version, whose manifest may hold the present one.
    pub(super) fn permits_update(&mut self, uid: &PodUid, next: &Pod, pods: &PodTable, now: Instant) -> bool {
        let pod = pods.syncing(uid).and_then(|worker| worker.pod.clone());
        pod.is_none_or(|pod| self.permits_pod(&pod, is_on_hold(next), Decision::Update, pods, now))
    }

    /// Whether the node may stop all of these pods now. If not, no lock is kept meanwhile.
    pub(crate) fn permit_all(&mut self, uids: &[PodUid], decision: Decision, pods: &PodTable, now: Instant) -> bool {
        let permitted: Vec<&PodUid> = uids.iter().filter(|uid| self.permits(uid, decision, pods, now)).collect();
        let permits_all = permitted.len() == uids.len();
        if !permits_all {
            for uid in permitted {
                if let Some(held) = self.held.write().pods.get_mut(uid).filter(|held| held.state == LockState::Free) {
                    held.state = LockState::Wait(now + LOCK_RETRY_DELAY);
                    held.due = Some(now + LOCK_RETRY_DELAY);
                }
                self.release(uid);
            }
        }
        permits_all
    }

    fn permits_pod(
        &mut self,
        pod: &Arc<Pod>,
        is_on_hold: bool,
        decision: Decision,
        pods: &PodTable,
        now: Instant,
    ) -> bool {
        let uid = &pod.metadata.uid;
        let (has_lock, uptime) = (has_lock(pod), clock::uptime());
        if !is_on_hold && !has_lock && !self.held.read().pods.contains_key(uid) {
            return true;
        }
        let since = self.since(uid, uptime);
        let answer = {
            let mut held = self.held.write();
            let held = held.pods.entry(uid.clone()).or_insert_with(|| HeldPod::new(pod, decision, since, now));
            (held.decision, held.limit) = (decision, lock_limit(pod, self.max_lock_limit));
            held.ask(is_on_hold, has_lock, uptime, now)
        };
        if answer == Answer::Try {
            self.try_lock(pod, pods);
        }
        answer == Answer::Yes
    }

    fn since(&self, uid: &PodUid, uptime: Duration) -> (Duration, Time) {
        let is_recent = uptime.saturating_sub(self.started) < STORED_WAIT_AGE;
        self.stored.get(uid).filter(|_| is_recent).copied().unwrap_or_else(|| (uptime, clock::now()))
    }

    fn try_lock(&mut self, pod: &Arc<Pod>, pods: &PodTable) {
        let (uid, inbox) = (pod.metadata.uid.clone(), self.inbox.clone());
        let tried = lock_attempt(pod, pods, &self.objects.read());
        let task = rt::spawn(async move {
            let result = tried.await;
            // Fails only when the agent is ending.
            let _ = inbox.send(SyncEvent::UpdateLockTried(uid, result)).await;
        });
        self.attempts.insert(pod.metadata.uid.clone(), task);
    }

    /// The node tried to take the lock of a pod.
    pub(crate) fn on_tried(&mut self, uid: &PodUid, result: Result<UpdateLock, String>, now: Instant) -> Vec<Effect> {
        self.attempts.remove(uid);
        let (holder, file, unusable) = match result {
            Ok(UpdateLock::Held) => (Some("the application".to_owned()), None, None),
            Ok(UpdateLock::Taken(file)) => (None, file, None),
            Err(why) => (None, None, Some(why)),
        };
        let is_awaited = self.held.write().pods.get_mut(uid).map(|held| held.tried(holder, now)).is_some();
        match file {
            Some(file) if is_awaited => drop(self.taken.insert(uid.clone(), (file, now))),
            file => self.closing.push(rt::spawn(close(uid, file))),
        }
        let event = unusable.map(|why| {
            let message = format!("The update lock is not used: {why}");
            Effect::Record(PodEvent::of_pod(uid, EventKind::Warning, Reason::UPDATE_LOCK_UNUSABLE, message))
        });
        event.into_iter().collect()
    }

    /// Checks of the pods that an application may hold, for a decision that does not wait.
    pub(crate) fn checks(&self, pods: &PodTable) -> Vec<(PodUid, HeldCheck)> {
        let objects = self.objects.read();
        let workers = pods.workers().iter().filter_map(|worker| worker.pod.as_ref());
        let checks = workers.filter(|pod| may_be_held(pod)).map(|pod| {
            let check: HeldCheck = if is_on_hold(pod) {
                Box::pin(async { true })
            } else {
                let tried = lock_attempt(pod, pods, &objects);
                let uid = pod.metadata.uid.clone();
                Box::pin(async move {
                    match tried.await {
                        Ok(UpdateLock::Held) => true,
                        Ok(UpdateLock::Taken(file)) => {
                            // Not waited for: closing has no deadline, and the check is of the whole node.
                            drop(close(&uid, file));
                            false
                        }
                        Err(_) => false,
                    }
                })
            };
            (pod.metadata.uid.clone(), check)
        });
        checks.collect()
    }

    /// Gives up the decisions that no longer ask, releases the locks of pods that have ended, and shows what changed.
    pub(crate) fn round(&mut self, pods: &PodTable, now: Instant) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.closing.retain(|task| !task.is_finished());
        if self.held.read().pods.is_empty() && self.taken.is_empty() && !self.is_unwritten {
            return effects;
        }
        let mut given_up = Vec::new();
        self.held.write().pods.retain(|uid, held| {
            let is_asked = std::mem::take(&mut held.is_asked);
            if !is_asked {
                given_up.push(uid.clone());
            }
            is_asked
        });
        for uid in given_up {
            self.attempts.remove(&uid);
            self.is_unwritten |= self.stored.remove(&uid).is_some();
            effects.push(Effect::Condition { uid, kind: UPDATE_HELD, condition: None });
        }
        for (uid, held) in &mut self.held.write().pods {
            if held.state == LockState::Expired && !held.is_expiry_told {
                held.is_expiry_told = true;
                let minutes = held.limit.as_secs().div_ceil(60);
                let message = format!("The pod was held for {minutes} min, its limit: the node goes on");
                let reason = Reason::UPDATE_LOCK_EXPIRED;
                effects.push(Effect::Record(PodEvent::of_pod(uid, EventKind::Warning, reason, message)));
                effects.push(Effect::Condition { uid: uid.clone(), kind: UPDATE_HELD, condition: None });
            }
            let Some(line) = held.line().filter(|_| !held.is_held_told) else { continue };
            held.is_held_told = true;
            self.stored.insert(uid.clone(), (held.since, held.since_time));
            self.is_unwritten = true;
            effects.extend(shown(uid, &line));
        }
        let ended = self.taken.iter().filter(|&(uid, (_, since))| match pods.worker(uid).map(|worker| worker.state) {
            Some(State::Sync) => *since + LOCK_RETRY_DELAY <= now && !self.held.read().pods.contains_key(uid),
            Some(State::Terminating { .. }) => false,
            Some(State::Terminated | State::Finished) | None => true,
        });
        let ended: Vec<PodUid> = ended.map(|(uid, _)| uid.clone()).collect();
        ended.iter().for_each(|uid| self.release(uid));
        self.write();
        effects
    }

    fn release(&mut self, uid: &PodUid) {
        if let Some((file, _)) = self.taken.remove(uid) {
            self.closing.push(rt::spawn(close(uid, Some(file))));
        }
    }

    /// One write at a time: a round follows while decisions wait, and when they go on.
    fn write(&mut self) {
        if !self.is_unwritten || self.writer.as_ref().is_some_and(|writer| !writer.is_finished()) {
            return;
        }
        self.is_unwritten = false;
        let (file, text) = (self.file.clone(), to_json(&self.stored, &clock::boot_id()));
        self.writer = Some(rt::spawn(async move {
            let written = rt::blocking(move || match text {
                Some(text) => durable::write_changed_within(&file, text.as_bytes(), MAX_HELD_PODS_BYTES).map(drop),
                None => durable::remove(&file),
            });
            if let Err(error) = written.await {
                log!(warn, "failed to write held pods", error = ErrorChain(&error));
            }
        }));
    }
}

/// What others see of a held pod.
fn shown(uid: &PodUid, line: &str) -> [Effect; 2] {
    let condition = OwnCondition {
        kind: UPDATE_HELD,
        status: ConditionStatus::True,
        reason: Reason::UPDATE_HELD,
        message: line.to_owned(),
    };
    let event = PodEvent::of_pod(uid, EventKind::Normal, Reason::UPDATE_HELD, format!("The pod is {line}"));
    [Effect::Record(event), Effect::Condition { uid: uid.clone(), kind: UPDATE_HELD, condition: Some(condition) }]
}

fn lock_attempt(
    pod: &Pod,
    pods: &PodTable,
    objects: &Objects,
) -> impl Future<Output = Result<UpdateLock, String>> + use<> {
    let runtime = pods.runtime();
    let inputs = SetUpInputs { dirs: &runtime.dirs, node: &runtime.node, objects };
    let text = pod.annotation(UPDATE_LOCK).unwrap_or_default();
    let taken = update_lock(text).map(|(volume, path)| volumes::take_update_lock(pod, volume, path, inputs));
    let text = text.to_owned();
    async move {
        match taken {
            Some(taken) => taken.await,
            None => Err(format!("{text:?}: expected a volume of the pod and a path in it, as state/update.lock")),
        }
    }
}

/// Closes the file. The file system may hang.
fn close(uid: &PodUid, file: Option<File>) -> impl Future<Output = ()> + use<> {
    rt::inquire_for(uid.as_str(), move || drop(file))
}

fn to_json(stored: &HeldSince, boot: &str) -> Option<String> {
    if stored.is_empty() {
        return None;
    }
    let pods = stored.iter().map(|(uid, (uptime, time))| {
        (uid.to_string(), json!([u64::try_from(uptime.as_millis()).unwrap_or_default(), time.unix_seconds()]))
    });
    Some(json!({ "boot": boot, "pods": pods.collect::<serde_json::Map<_, _>>() }).to_string())
}

fn from_json(text: &[u8], boot: &str) -> Option<HeldSince> {
    let value: Value = serde_json::from_slice(text).ok()?;
    // After a reboot no application holds a lock.
    if value.get("boot")?.as_str()? != boot {
        return None;
    }
    let pods = value.get("pods")?.as_object()?.iter().filter_map(|(uid, since)| {
        let (uptime, time) = (since.get(0)?.as_u64()?, since.get(1)?.as_i64()?);
        let time = Time::from_unix_nanos(time.saturating_mul(1_000_000_000));
        Some((PodUid::from(uid.as_str()), (Duration::from_millis(uptime), time)))
    });
    Some(pods.collect())
}

/// Reads since when decisions of a former agent have waited. Blocking. An unusable file costs time: they wait anew.
pub(crate) fn read_held_since(file: &Path) -> HeldSince {
    match durable::read(file, MAX_HELD_PODS_BYTES) {
        Ok(StoredFile::Whole(text)) => from_json(&text, &clock::boot_id()).unwrap_or_default(),
        Ok(StoredFile::Damaged | StoredFile::Nothing) => HeldSince::new(),
        Err(error) => {
            log!(warn, "failed to read held pods", file = file.display(), error = ErrorChain(&error));
            HeldSince::new()
        }
    }
}

#[cfg(test)]
impl UpdateLocks {
    pub(crate) fn without_state(inbox: Sender<SyncEvent>) -> Self {
        let stored = (PathBuf::from("/nowhere"), HeldSince::new());
        Self::new(stored, Duration::MAX, Owned::default().view(), inbox)
    }
}

#[cfg(test)]
mod tests;
