//! Statistics of external volumes, collected in the background: a driver or file server may hang.

use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::Receiver;

use super::external_volumes::{ForeignVolume, UsageSource};
use super::snapshot::{DiskUsage, FileSystem, VolumeSnapshot};
use crate::kubelet::csi::Csi;
use crate::platform::host::clock;
use crate::platform::host::disk_usage::disk_usage;
use crate::platform::host::file_system::file_system;
use crate::platform::host::mounts::mounted_at;
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::sorted::{SortedMap, SortedSet};

/// The last statistics of each volume. A request starts an inquiry for each, at most once a minute.
pub(super) struct VolumeStatsCache {
    csi: Rc<Csi>,
    /// A pod's author may name thousands of volumes.
    queries: RefCell<SortedMap<ForeignVolume, RunningQuery>>,
}

struct RunningQuery {
    began: Instant,
    cached: Rc<CachedUsage>,
    /// Closed when the walk has ended.
    ended: Receiver<()>,
    task: rt::Task<()>,
}

#[derive(Default)]
struct CachedUsage {
    snapshot: RefCell<Option<VolumeSnapshot>>,
    /// The last inquiry timed out.
    is_slow: Cell<bool>,
}

/// Minimum time between two inquiries about a volume.
const MIN_VOLUME_STATS_INTERVAL: Duration = Duration::from_secs(60);
/// A walk that takes longer tells the sum so far.
const MAX_CLAIM_WALK: Duration = Duration::from_secs(30);
/// How long a request waits before it gets the previous result.
const VOLUME_STATS_WAIT: Duration = Duration::from_millis(500);

impl VolumeStatsCache {
    pub(super) fn new(csi: Rc<Csi>) -> Self {
        Self { csi, queries: RefCell::default() }
    }

    /// Starts the inquiries that are due, and forgets other volumes.
    pub(super) fn begin<'a>(&self, volumes: impl Iterator<Item = &'a ForeignVolume>) {
        let now = rt::now();
        let volumes: Vec<&ForeignVolume> = volumes.collect();
        let wanted: SortedSet<&ForeignVolume> = volumes.iter().copied().collect();
        let mut queries = self.queries.take();
        queries.retain(|volume, _| wanted.contains(&volume));
        for (volume, query) in queries.iter_mut().filter(|(_, query)| query.is_due(now)) {
            *query = self.inquire(volume, Rc::clone(&query.cached), now);
        }
        let new = volumes.into_iter().filter(|volume| !queries.contains_key(*volume));
        let new: Vec<_> = new.map(|volume| (volume.clone(), self.inquire(volume, Rc::default(), now))).collect();
        queries.extend(new);
        self.queries.replace(queries);
    }

    /// Waits briefly for the inquiries, except for volumes that were slow before.
    pub(super) async fn wait(&self) {
        let waits_for = |inquiry: &&RunningQuery| !inquiry.cached.is_slow.get();
        let awaited: Vec<_> = {
            let queries = self.queries.borrow();
            queries
                .values()
                .filter(waits_for)
                .map(|inquiry| (Rc::clone(&inquiry.cached), inquiry.ended.clone()))
                .collect()
        };
        let all_ended = async {
            for (_, ended) in &awaited {
                // Nothing is ever sent; the channel only closes.
                let _ = ended.recv().await;
            }
        };
        if rt::deadline(VOLUME_STATS_WAIT, all_ended).await.is_err() {
            let late = awaited.iter().filter(|(_, ended)| !ended.is_closed());
            late.for_each(|(cached, _)| cached.is_slow.set(true));
        }
    }

    /// The last result for this volume.
    pub(super) fn last_result(&self, volume: &ForeignVolume) -> Option<VolumeSnapshot> {
        let queries = self.queries.borrow();
        queries.get(volume)?.cached.snapshot.borrow().clone()
    }

    fn inquire(&self, volume: &ForeignVolume, cached: Rc<CachedUsage>, now: Instant) -> RunningQuery {
        let (held, ended) = async_channel::bounded(1);
        let (of, csi) = (volume.clone(), Rc::clone(&self.csi));
        let tells = Rc::clone(&cached);
        let task = rt::spawn(async move {
            let usage = match &of.teller {
                UsageSource::Driver { name, handle } => by_driver(&csi, name, handle, &of).await,
                UsageSource::Files { requested } => by_files(&of, *requested).await,
                UsageSource::Mount => by_mount(&of).await,
            };
            let at = clock::timestamp().as_nanosecond();
            tells.snapshot.replace(usage.map(|(disk, used)| VolumeSnapshot {
                at,
                name: of.name,
                claim: of.claim,
                is_elsewhere: true,
                disk,
                used,
            }));
            tells.is_slow.set(rt::elapsed(now) > VOLUME_STATS_WAIT);
            drop(held);
        });
        RunningQuery { began: now, cached, ended, task }
    }
}

impl RunningQuery {
    fn is_due(&self, now: Instant) -> bool {
        self.task.is_finished() && now.saturating_duration_since(self.began) >= MIN_VOLUME_STATS_INTERVAL
    }
}

/// Calls statfs, which blocks until the file server answers.
async fn by_mount(volume: &ForeignVolume) -> Option<(FileSystem, DiskUsage)> {
    let path = volume.path.clone();
    // Separate from the pod's name lookups.
    let owner = format!("volumes of {}", volume.pod);
    let asked = move || if mounted_at(&path).unwrap_or(false) { file_system(&path).ok() } else { None };
    rt::inquire_for(&owner, asked).await.map(of_disk)
}

/// Counts the files: the file system is that of the node. The capacity is what the claim requests.
async fn by_files(volume: &ForeignVolume, requested: u64) -> Option<(FileSystem, DiskUsage)> {
    let path = volume.path.clone();
    let end = rt::now() + MAX_CLAIM_WALK;
    let counted = rt::walk_for(&volume.pod, move || Some((file_system(&path).ok()?, disk_usage(&path, end).ok()?)));
    let (node, used) = counted.await?;
    let available = requested.saturating_sub(used.bytes).min(node.available);
    Some((FileSystem { capacity: requested, available, used: used.bytes, ..node }, used))
}

async fn by_driver(csi: &Csi, driver: &str, handle: &str, volume: &ForeignVolume) -> Option<(FileSystem, DiskUsage)> {
    let volume_path = volume.path.clone();
    // If nothing is mounted, a driver might report the node's own disk.
    let is_there = move || mounted_at(&volume_path).unwrap_or(false) || is_device(&volume_path);
    if !rt::blocking_for(&volume.pod, is_there).await {
        return None;
    }
    match csi.usage(driver, handle, &volume.path).await {
        Ok(usage) => usage,
        Err(error) => {
            log!(
                debug,
                "failed to get volume statistics",
                driver = driver,
                volume = handle,
                error = ErrorChain(&error)
            );
            None
        }
    }
}

/// Only used if nothing is mounted there, so it never asks a file server.
fn is_device(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

fn of_disk(disk: FileSystem) -> (FileSystem, DiskUsage) {
    let inodes = disk.inodes.saturating_sub(disk.inodes_free);
    (disk, DiskUsage { bytes: disk.used, inodes })
}

#[cfg(test)]
mod tests;
