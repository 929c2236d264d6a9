//! Disk usage of volumes, from walks that run in the background because they may take long.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::Receiver;

use super::snapshot::VolumeSnapshot;
use crate::platform::host::clock;
use crate::platform::host::disk_usage::disk_usage;
use crate::platform::host::file_system::file_system;
use crate::platform::rt;
use crate::state::pods::VolumeDir;
use crate::types::sorted::SortedMap;

pub(super) type Volumes = (String, Vec<VolumeDir>);

/// The results of walks. A request starts a walk, at most once a minute.
#[derive(Default)]
pub(super) struct DiskUsageCache {
    walked_volumes: Rc<RefCell<SortedMap<String, Vec<VolumeSnapshot>>>>,
    began: Cell<Option<Instant>>,
    under_way: RefCell<Option<RunningWalk>>,
}

struct RunningWalk {
    /// Closed when the walk has ended.
    ended: Receiver<()>,
    #[expect(dead_code, reason = "dropping the task cancels it")]
    task: rt::Task<()>,
}

/// Minimum time between two walks.
const MIN_WALK_INTERVAL: Duration = Duration::from_secs(60);
/// Time limit for all volumes together; each volume has a limit of its own.
const POD_VOLUMES_WALK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request waits for the walk before it gets the previous result; most volumes are small.
const DISK_USAGE_WAIT: Duration = Duration::from_millis(500);

impl DiskUsageCache {
    /// Starts a walk if one is due, and waits briefly for the current one.
    pub(super) async fn update(&self, volumes: impl FnOnce() -> Vec<Volumes>) {
        let now = rt::now();
        if self.began.get().is_none_or(|began| now.saturating_duration_since(began) >= MIN_WALK_INTERVAL) {
            self.began.set(Some(now));
            let (places, walked_volumes) = (volumes(), Rc::clone(&self.walked_volumes));
            let (held, ended) = async_channel::bounded(1);
            let task = rt::spawn(async move {
                let walked = rt::walk(move || walk(places)).await;
                walked_volumes.replace(walked);
                drop(held);
            });
            self.under_way.replace(Some(RunningWalk { ended, task }));
        }
        let ended = self.under_way.borrow().as_ref().map(|walk| walk.ended.clone());
        if let Some(ended) = ended {
            // Nothing is ever sent; the channel only closes.
            let _ = rt::deadline(DISK_USAGE_WAIT, ended.recv()).await;
        }
    }

    /// The last result for this pod.
    pub(super) fn volumes(&self, uid: &str) -> Vec<VolumeSnapshot> {
        self.walked_volumes.borrow().get(uid).cloned().unwrap_or_default()
    }
}

fn walk(pods: Vec<Volumes>) -> SortedMap<String, Vec<VolumeSnapshot>> {
    let end = rt::now() + POD_VOLUMES_WALK_TIMEOUT;
    let volume = |volume_dir: VolumeDir| {
        let disk = file_system(&volume_dir.path).ok()?;
        let used = disk_usage(&volume_dir.path, end).ok()?;
        let at = clock::timestamp().as_nanosecond();
        Some(VolumeSnapshot { at, name: volume_dir.name, claim: None, is_elsewhere: volume_dir.in_memory, disk, used })
    };
    pods.into_iter().map(|(uid, places)| (uid, places.into_iter().filter_map(volume).collect())).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn walk_starts_with_a_request_at_most_once_a_minute() {
        let walks = DiskUsageCache::default();
        let root = std::env::temp_dir().join(format!("coracle-walks-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("file"), vec![1; 10_000]).unwrap();
        let place = |name: &str, path: &Path| VolumeDir {
            name: name.to_owned(),
            path: path.to_owned(),
            kind: "",
            in_memory: false,
        };
        let places = vec![place("here", &root), place("gone", Path::new("/nowhere/at/all"))];
        rt::block_on(async {
            walks.update(|| vec![("u".to_owned(), places)]).await;
            // On a busy machine the walk takes longer than a request waits.
            while walks.walked_volumes.borrow().is_empty() {
                walks.update(|| unreachable!("it is not a minute yet")).await;
            }
        });
        std::fs::remove_dir_all(&root).unwrap();
        let found = walks.volumes("u");
        let [volume] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((volume.name.as_str(), volume.used.inodes), ("here", 2));
        assert!(volume.used.bytes >= 10_000 && volume.disk.capacity > 0 && volume.at > 0, "{volume:?}");
        assert!(walks.volumes("other").is_empty());
    }
}
