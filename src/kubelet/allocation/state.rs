//! Resources by pod, with their checkpoint file.

use std::cell::{Cell, RefCell};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::checkpoint::{self, Entries, MAX_ALLOCATION_STATE_BYTES};
use super::pod_resource_info::PodResourceInfo;
use crate::platform::host::changed_file::ChangedFile;
use crate::platform::host::directories::set_aside;
use crate::platform::host::file;
use crate::platform::rt;
use crate::types::api::{PodUid, ResourceRequirements};

/// The text for more containers is made on the blocking pool.
const MAX_ALLOCATIONS_OF_TURN: usize = 500;
/// Changes that come together are written together.
const ALLOCATION_WRITE_DELAY: Duration = Duration::from_millis(200);
/// Delay after a failed write.
const ALLOCATION_WRITE_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Cheap to clone; clones share the state. Without a file the state is lost with the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodResourceState(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    file: Option<ChangedFile>,
    entries: RefCell<Entries>,
    /// One write at a time.
    write_lock: rt::Semaphore,
    /// Changes so far, and those that are in the file.
    changes: Cell<u64>,
    written: Cell<u64>,
    /// The pods that are not in the file.
    left_out: RefCell<Vec<PodUid>>,
    /// The state has changed since the writer last looked.
    is_changed: Cell<bool>,
    is_writing: Cell<bool>,
    writer: RefCell<Option<rt::Task<()>>>,
    has_failed: Cell<bool>,
}

impl Default for Inner {
    fn default() -> Self {
        Self::new(None, Entries::new())
    }
}

impl Inner {
    fn new(file: Option<ChangedFile>, entries: Entries) -> Self {
        Self {
            file,
            entries: RefCell::new(entries),
            write_lock: rt::Semaphore::new(1),
            changes: Cell::new(0),
            written: Cell::new(0),
            left_out: RefCell::default(),
            is_changed: Cell::new(false),
            is_writing: Cell::new(false),
            writer: RefCell::default(),
            has_failed: Cell::new(false),
        }
    }
}

impl PodResourceState {
    /// Reads the file. A corrupt one is set aside. Without entries the resources come from the pods' statuses or specs,
    /// so that no pod waits for the file.
    pub(super) async fn open(path: PathBuf) -> Self {
        let state_file = path.clone();
        let limit = u64::try_from(MAX_ALLOCATION_STATE_BYTES).unwrap_or(u64::MAX);
        let (entries, written) = rt::blocking(move || {
            let bytes = match file::read_all(&state_file, limit) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Default::default(),
                Err(error) => {
                    log!(warn, "failed to read pod resource checkpoint", file = state_file.display(), error = error);
                    return Default::default();
                }
            };
            if let Some(entries) = checkpoint::parse(&bytes) {
                return (entries, String::from_utf8(bytes).unwrap_or_default());
            }
            log!(warn, "pod resource checkpoint corrupt, set aside", file = state_file.display());
            if let Err(error) = set_aside(&state_file) {
                log!(warn, "failed to set aside pod resource checkpoint", file = state_file.display(), error = error);
            }
            Default::default()
        })
        .await;
        Self(Rc::new(Inner::new(Some(ChangedFile::new(path, limit, written)), entries)))
    }

    pub(crate) fn get(&self, uid: &PodUid) -> Option<PodResourceInfo> {
        self.0.entries.borrow().get(uid).map(|info| PodResourceInfo::clone(info))
    }

    pub(crate) fn contains(&self, uid: &PodUid) -> bool {
        self.0.entries.borrow().contains_key(uid)
    }

    pub(crate) fn container(&self, uid: &PodUid, name: &str) -> Option<ResourceRequirements> {
        self.0.entries.borrow().get(uid)?.containers.get(name).cloned()
    }

    pub(crate) fn set(&self, uid: &PodUid, info: PodResourceInfo) {
        let before = self.0.entries.borrow_mut().insert(uid.clone(), Arc::new(info.clone()));
        if before.is_none_or(|before| *before != info) {
            self.changed();
        }
    }

    /// Sets the resources of one container. True if it had others.
    pub(crate) fn set_container(&self, uid: &PodUid, name: &str, resources: &ResourceRequirements) -> bool {
        let before = {
            let mut entries = self.0.entries.borrow_mut();
            let containers = &mut Arc::make_mut(entries.entry(uid.clone()).or_default()).containers;
            containers.insert(name.to_owned(), resources.clone())
        };
        if before.as_ref() != Some(resources) {
            self.changed();
        }
        before.is_some_and(|before| before != *resources)
    }

    pub(crate) fn set_pod_level(&self, uid: &PodUid, resources: Option<&ResourceRequirements>) {
        let before = {
            let mut entries = self.0.entries.borrow_mut();
            let pod_level = &mut Arc::make_mut(entries.entry(uid.clone()).or_default()).pod_level;
            std::mem::replace(pod_level, resources.cloned().map(Box::new))
        };
        if before.as_deref() != resources {
            self.changed();
        }
    }

    /// Removes the pod. The file follows with the next other change, as upstream's does.
    pub(crate) fn remove(&self, uid: &PodUid) {
        self.0.entries.borrow_mut().remove(uid);
    }

    /// Removes the pods for which `is_known` is false.
    pub(crate) fn remove_orphaned(&self, is_known: impl Fn(&PodUid) -> bool) {
        self.0.entries.borrow_mut().retain(|uid, _| is_known(uid));
    }

    /// Returns when the state is in the file, or could not be written. A failed write is tried again.
    pub(crate) async fn flush(&self) {
        let Some(file) = &self.0.file else { return };
        let _turn = self.0.write_lock.acquire().await;
        let changes = self.0.changes.get();
        if self.0.written.get() == changes {
            return;
        }
        let entries = self.0.entries.borrow().clone();
        let containers: usize = entries.values().map(|info| info.containers.len()).sum();
        let (text, left_out) = match containers > MAX_ALLOCATIONS_OF_TURN {
            true => rt::blocking(move || checkpoint::text(&entries)).await,
            false => checkpoint::text(&entries),
        };
        let known = self.0.left_out.replace(left_out.clone());
        for uid in left_out.iter().filter(|uid| !known.contains(uid)) {
            let file = file.path().display();
            log!(warn, "pod too large for checkpoint of resources, a restart uses its spec", uid = uid, file = file);
        }
        let written = file.write(text).await;
        let had_failed = self.0.has_failed.replace(written.is_err());
        if let Err(error) = written {
            if !had_failed {
                log!(warn, "failed to write pod resource checkpoint", file = file.path().display(), error = error);
            }
            self.changed();
        } else {
            self.0.written.set(changes);
        }
    }

    /// Writes the file soon, in a task.
    fn changed(&self) {
        if self.0.file.is_none() {
            return;
        }
        self.0.changes.set(self.0.changes.get() + 1);
        self.0.is_changed.set(true);
        if self.0.is_writing.replace(true) {
            return;
        }
        let state = self.clone();
        let task = rt::spawn(async move {
            while state.0.is_changed.replace(false) {
                rt::sleep(if state.0.has_failed.get() { ALLOCATION_WRITE_RETRY_DELAY } else { ALLOCATION_WRITE_DELAY })
                    .await;
                state.flush().await;
            }
            state.0.is_writing.set(false);
        });
        self.0.writer.replace(Some(task));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn state_outlives_the_process_and_a_corrupt_file_is_set_aside() {
        let folder = std::env::temp_dir().join(format!("coracle-pod-resources-{}", std::process::id()));
        let path = folder.join("allocated_pods_state");
        let (uid, gone) = (PodUid::from("a"), PodUid::from("gone"));
        let mut resources = ResourceRequirements::default();
        resources.requests.insert("cpu", "1".parse().unwrap());
        rt::block_on(async {
            let state = PodResourceState::open(path.clone()).await;
            assert!(!state.set_container(&uid, "main", &resources), "the first ones replace none");
            state.set(&gone, PodResourceInfo::default());
            state.remove(&gone);
            state.flush().await;
            let again = PodResourceState::open(path.clone()).await;
            assert_eq!(again.container(&uid, "main"), Some(resources.clone()));
            assert!(!again.contains(&gone));
            assert!(again.set_container(&uid, "main", &ResourceRequirements::default()));
            fs::write(&path, "half").unwrap();
            assert!(!PodResourceState::open(path.clone()).await.contains(&uid));
        });
        assert_eq!(fs::read_to_string(folder.join("allocated_pods_state.corrupt")).unwrap(), "half");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn large_pod_does_not_keep_others_out_of_the_file() {
        let folder = std::env::temp_dir().join(format!("coracle-pod-resources-large-{}", std::process::id()));
        let path = folder.join("allocated_pods_state");
        let info = |count: usize| {
            let containers = (0..count).map(|number| (format!("container-{number:05}"), Default::default())).collect();
            PodResourceInfo { containers, pod_level: None }
        };
        rt::block_on(async {
            let state = PodResourceState::open(path.clone()).await;
            for (uid, count) in [("large", 10_000), ("many", 600), ("one", 1)] {
                state.set(&uid.into(), info(count));
            }
            state.flush().await;
            assert!(state.contains(&"large".into()));
            let again = PodResourceState::open(path.clone()).await;
            assert_eq!(again.get(&"large".into()), None);
            assert_eq!((again.get(&"many".into()), again.get(&"one".into())), (Some(info(600)), Some(info(1))));
        });
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn failed_write_is_tried_again() {
        let folder = std::env::temp_dir().join(format!("coracle-pod-resources-again-{}", std::process::id()));
        let path = folder.join("allocated_pods_state");
        let place = path.clone();
        let seen = rt::simulate(1, |world| async move {
            let state = PodResourceState::open(place.clone()).await;
            world.files.failing.set(1000);
            state.set(&"u".into(), PodResourceInfo::default());
            rt::sleep(ALLOCATION_WRITE_DELAY * 2).await;
            world.files.failing.set(0);
            let early = place.exists();
            rt::sleep(ALLOCATION_WRITE_RETRY_DELAY).await;
            (early, place.exists())
        });
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(seen, Ok((false, true)));
    }

    #[test]
    fn changes_are_written_together() {
        let folder = std::env::temp_dir().join(format!("coracle-pod-resources-soon-{}", std::process::id()));
        let path = folder.join("actuated_pods_state");
        let place = path.clone();
        let seen = rt::simulate(1, |_| async move {
            let state = PodResourceState::open(place.clone()).await;
            let mut seen = Vec::new();
            for round in ["1", "2"] {
                for name in ["a", "b"] {
                    let mut resources = ResourceRequirements::default();
                    resources.requests.insert("cpu", round.parse().unwrap());
                    state.set_container(&"u".into(), name, &resources);
                }
                seen.push(fs::read_to_string(&place).unwrap_or_default());
                rt::sleep(ALLOCATION_WRITE_DELAY * 2).await;
                seen.push(fs::read_to_string(&place).unwrap_or_default());
            }
            seen
        });
        fs::remove_dir_all(&folder).unwrap();
        let seen = seen.unwrap();
        let cpus = |text: &str| text.matches("cpu").count();
        assert_eq!(seen.iter().map(|text| cpus(text)).collect::<Vec<_>>(), [0, 2, 2, 2]);
        assert_eq!(seen[1], seen[2]);
        assert_ne!(seen[2], seen[3]);
    }
}
