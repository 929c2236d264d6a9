//! Applications of static pods that hold their update lock while the manifest changes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::rc::Rc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use super::api_server::NODE;
use super::container_runtime::POD_UID;
use super::life::Node;

/// The volume, and the path in it.
const ANNOTATION: &str = "lock/update.lock";
/// Locks are held for up to as many steps of [`HELD_STEP`], shorter than the limit of a lock.
const MAX_HELD_STEPS: u64 = 60;
const HELD_STEP: Duration = Duration::from_secs(5);

/// The former versions of static pods whose applications hold their locks, by revision.
#[derive(Debug, Default)]
pub(super) struct HeldLocks(BTreeMap<String, HeldLock>);

#[derive(Debug)]
struct HeldLock {
    pod: String,
    uid: String,
    _file: File,
}

impl HeldLocks {
    pub(super) fn is_held(&self, revision: &str) -> bool {
        self.0.contains_key(revision)
    }

    /// The processes that hold locks have ended.
    pub(super) fn release_all(&mut self) {
        self.0.clear();
    }

    /// A person stops the pod, which no lock prevents.
    pub(super) fn release_of(&mut self, pod: &str) {
        self.0.retain(|_, held| held.pod != pod);
    }
}

/// Whether the static pods of this revision name a lock.
pub(super) fn has_lock(revision: &str) -> bool {
    revision.parse::<u64>().is_ok_and(|number| number % 2 == 0)
}

/// The annotation and the volume of a pod with a lock.
pub(super) fn add_lock(metadata: &mut Value, volumes: &mut Vec<Value>) {
    metadata["annotations"] = json!({ "coracle.dev/update-lock": ANNOTATION });
    volumes.push(json!({ "name": "lock", "emptyDir": {} }));
}

impl Node {
    /// The application of a running static pod takes its lock, for as long as the number says.
    pub(super) fn hold_lock(&mut self, revision: &str, pod: &str, which: u64) {
        let Some(uid) = self.uid_of(revision).filter(|_| has_lock(revision)) else { return };
        let path =
            self.machine.disk.join("pods/pods").join(&uid).join("volumes/kubernetes.io~empty-dir/lock/update.lock");
        // The disk may be full.
        let Ok(file) = fs::write(&path, "").and_then(|()| File::open(&path)) else { return };
        // The node may have taken it.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        let lasts = HELD_STEP * u32::try_from(which % MAX_HELD_STEPS).unwrap_or_default();
        self.record.count("update locks held");
        self.record.line(&format!("lock    {pod} revision {revision} holds its update lock for {lasts:?}"));
        let held = HeldLock { pod: pod.to_owned(), uid, _file: file };
        self.wanted.borrow_mut().locks.0.insert(revision.to_owned(), held);
        let (wanted, revision) = (Rc::clone(&self.wanted), revision.to_owned());
        self.later(lasts, move || drop(wanted.borrow_mut().locks.0.remove(&revision)));
    }

    /// The manifest is about to change once more. A version that holds its lock and whose record the disk has not taken
    /// is then in no file: the next agent does not know it, and stops it.
    pub(super) fn release_unrecorded(&self, pod: &str) {
        if !self.record.has_failed_disk() {
            return;
        }
        let record = self.machine.disk.join(format!("pods/coracle/versions/default_{pod}-{NODE}.json"));
        let record = fs::read_to_string(record).unwrap_or_default();
        self.wanted.borrow_mut().locks.0.retain(|_, held| held.pod != pod || record.contains(&held.uid));
    }

    /// The uid of the pod of this revision whose main container runs.
    fn uid_of(&self, revision: &str) -> Option<String> {
        let (id, _) = self.running_of(revision)?;
        self.runtime.look(|runtime| {
            let container = runtime.world.containers.iter().find(|one| one.id == id)?;
            container.config.labels.get(POD_UID).cloned()
        })
    }
}
