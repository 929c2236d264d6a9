//! Versions of the node's own pods, and rollback to earlier ones.
//!
//! ```text
//!   SourceUpdate -> apply -> the version to run instead of the manifest's, if any
//!   statuses -> judge -> accepted or rejected -> coracle/versions/NAMESPACE_NAME.json (durable)
//! ```
//!
//! Only pods are versioned: a manifest's ConfigMaps and Secrets always are the manifest's.

use std::fs;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::cluster_trials::ClusterTrials;
use super::error::{RequestError, WriteError};
use super::image_tags::{lookup_interval, running_digest, tagged_images};
use super::record::{Record, RecordAction, TrialResult, TrialState};
use crate::control::pod_sources::static_pod::{is_own_uid, owning_workload};
use crate::platform::host::directories::set_aside;
use crate::platform::host::durable::{self, StoredFile};
use crate::state::pods::{SourceName, SourcePod, SourceUpdate, TagTarget};
use crate::types::api::{Pod, PodStatus, PodUid};
use crate::types::sorted::{SortedMap, SortedSet};

#[derive(Debug, Default)]
pub(crate) struct Versions {
    directory: PathBuf,
    /// By file name.
    records: SortedMap<String, Entry>,
    /// The files that the disk could not read.
    unread: SortedSet<String>,
    /// The disk could not read their directory.
    is_unlisted: bool,
    /// Changes that are not on disk.
    dirty: SortedSet<String>,
    /// Changes being written.
    in_flight: SortedSet<String>,
    /// When a failed write is retried.
    retry: Option<Instant>,
    /// Pods of the cluster that are judged.
    pub(super) cluster: ClusterTrials,
}

#[derive(Debug)]
struct Entry {
    record: Record,
    /// The pod's source and manifest; `None` until a source reports the pod.
    owner: Option<(SourceName, Arc<str>)>,
    /// The source's pod, if the tags of its images are followed: another version of it may be on offer.
    manifest: Option<Arc<Pod>>,
}

/// A pod's versions as shown to users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionView {
    /// Such as `default/web-node1`.
    pub(crate) pod: String,
    /// A word and its explanation; `None` if the manifest's version runs.
    pub(crate) state: Option<(&'static str, String)>,
    pub(crate) earlier: usize,
}

/// Another pod of the same owner.
pub(super) struct Sibling<'a> {
    /// The version that runs.
    pub(super) runs: &'a Pod,
    pub(super) has_next: bool,
    /// Why the next version of another pod has to wait.
    pub(super) holds_up: Option<&'static str>,
}

impl Sibling<'_> {
    /// Why the next version of another pod, which is ready or not, waits for this one. Pods that are not ready come first.
    pub(super) fn comes_first(&self, is_ready: bool, is_pulling: bool, other_is_ready: bool) -> Option<&'static str> {
        let waits = !is_ready && (!self.has_next || other_is_ready);
        let why = self.holds_up.or(waits.then_some("is not ready"));
        why.or(is_pulling.then_some("is replaced first"))
    }
}

/// A file to write, or to remove.
pub(crate) type FileChange = (PathBuf, Option<Vec<u8>>);

/// Room for a few versions of a large pod.
const MAX_VERSION_RECORD_BYTES: u64 = 16 << 20;
/// Wait before a failed write is retried, unless a new change is written before.
const VERSION_WRITE_RETRY_DELAY: Duration = Duration::from_secs(30);

impl Versions {
    /// Reads the versions in `directory`. Blocking. Damaged files are set aside: no file keeps a pod from running. What the
    /// disk cannot read may be readable later.
    pub(crate) fn open(directory: PathBuf) -> Self {
        let mut versions = Self { directory, ..Self::default() };
        let entries = match fs::read_dir(&versions.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return versions,
            entries => entries,
        };
        let files = entries.and_then(Iterator::collect::<io::Result<Vec<_>>>).unwrap_or_else(|error| {
            log!(warn, "failed to read pod versions", directory = versions.directory.display(), error = error);
            versions.is_unlisted = true;
            Vec::new()
        });
        for entry in files {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == CLUSTER_TRIALS {
                let value = load(&entry.path()).ok().flatten();
                versions.cluster = value.map(|value| ClusterTrials::from_json(&value)).unwrap_or_default();
            }
            if !name.ends_with(VERSION_RECORD_SUFFIX) {
                continue;
            }
            match load(&entry.path()).map(|value| value.and_then(Record::from_json)) {
                Ok(Some(record)) => drop(versions.records.insert(name, Entry { record, owner: None, manifest: None })),
                Ok(None) => {
                    if let Err(error) = set_aside(&entry.path()) {
                        log!(warn, "pod version record not used", file = entry.path().display(), error = error);
                    }
                }
                Err(error) => {
                    log!(warn, "failed to read pod versions", file = entry.path().display(), error = error);
                    versions.unread.insert(name);
                }
            }
        }
        versions
    }

    pub(super) fn has_unread(&self) -> bool {
        self.is_unlisted || !self.unread.is_empty()
    }

    /// Whether the versions of this pod could not be read, if it has any.
    pub(super) fn is_unread(&self, pod: &Pod) -> bool {
        has_versions(pod) && (self.is_unlisted || self.unread.contains(&key(pod)))
    }

    pub(super) fn reads_again(&self) -> impl FnOnce() -> Self + use<> {
        let directory = self.directory.clone();
        move || Self::open(directory)
    }

    /// Takes the records that were read at last. One that still cannot be read counts as damaged: the manifest counts.
    pub(super) fn take_records(&mut self, read: Self) {
        (self.unread, self.is_unlisted) = (SortedSet::new(), false);
        for (key, entry) in read.records {
            self.records.entry(key).or_insert(entry);
        }
    }

    /// Handles an update of a source, and replaces pods with the versions to run. `is_doubled` tells whether another
    /// source has a pod of the same name: such pods have no versions. Trials of stopped pods wait.
    pub(crate) fn apply(
        &mut self,
        update: &mut SourceUpdate,
        is_doubled: impl Fn(&Pod) -> bool,
        is_stopped: impl Fn(&Pod) -> bool,
    ) {
        if update.source == SourceName::Api {
            return;
        }
        let mut seen: SortedMap<String, u32> = SortedMap::new();
        for source in &update.pods {
            *seen.entry(key(&source.pod)).or_default() += 1;
        }
        for source in &mut update.pods {
            let pod = &source.pod;
            let key = key(pod);
            if !has_versions(pod) {
                continue;
            }
            let is_single = seen.get(&key).is_none_or(|count| *count == 1) && !is_doubled(pod);
            let is_known = self.records.get(&key).is_some_and(|entry| match &entry.owner {
                Some((_, origin)) => *origin == source.origin,
                None => entry.record.contains(&entry.record.tags.version(pod).metadata.uid),
            });
            if !is_single && !is_known {
                continue;
            }
            let empty = || Entry { record: Record::default(), owner: None, manifest: None };
            let entry = self.records.entry(key.clone()).or_insert_with(empty);
            entry.owner = Some((update.source, Arc::clone(&source.origin)));
            entry.record.set_stopped(is_stopped(pod));
            entry.manifest = lookup_interval(pod).map(|_| Arc::clone(pod));
            let forgot_tags = entry.record.tags.keep_images_of(pod);
            let version = entry.record.tags.version(pod);
            if entry.record.propose(&version) | forgot_tags {
                self.dirty.insert(key);
            }
            if let Some(runs) = entry.record.runs() {
                source.pod = Arc::clone(runs);
            }
        }
        if update.complete {
            self.forget(|key, entry| {
                let is_own = entry.owner.as_ref().is_some_and(|(source, _)| *source == update.source);
                is_own && !seen.contains_key(key)
            });
        }
    }

    /// The manifests whose images' tags are followed. A user who holds a version wants no other.
    pub(super) fn auto_updated(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let followed = self.records.values().filter(|entry| entry.owner.is_some() && !entry.record.is_held_manually());
        followed.filter_map(|entry| entry.manifest.as_ref())
    }

    /// The uid of the version that runs of this manifest.
    pub(super) fn running_of(&self, manifest: &Pod) -> Option<PodUid> {
        Some(self.records.get(&key(manifest))?.record.runs()?.metadata.uid.clone())
    }

    /// The tags of the manifest's images were looked up. Returns the images whose tags have moved, if another version
    /// is on offer for that.
    pub(super) fn on_tags(
        &mut self,
        manifest: &Pod,
        targets: &[(String, TagTarget)],
        status: &PodStatus,
    ) -> Vec<String> {
        let key = key(manifest);
        let Some(entry) = self.records.get_mut(&key) else { return Vec::new() };
        // The manifest may have changed since.
        let Some(manifest) = &entry.manifest else { return Vec::new() };
        let Some(running) = entry.record.runs().map(Arc::clone) else { return Vec::new() };
        let tagged = tagged_images(manifest);
        let mut moved = Vec::new();
        let before = entry.record.tags.version(manifest);
        for (image, target) in targets.iter().filter(|(image, _)| tagged.contains(image)) {
            let digest = running_digest(&running, image, status);
            if entry.record.tags.record(image, target, digest) {
                self.dirty.insert(key.clone());
                moved.push(image.clone());
            }
        }
        let version = entry.record.tags.version(manifest);
        if version.metadata.uid == before.metadata.uid {
            return Vec::new();
        }
        entry.record.propose(&version);
        moved
    }

    /// Pods were stopped or started.
    pub(crate) fn set_stopped(&mut self, is_stopped: impl Fn(&Pod) -> bool) {
        for entry in self.records.values_mut() {
            let is_stopped = entry.record.runs().is_some_and(|pod| is_stopped(pod));
            entry.record.set_stopped(is_stopped);
        }
    }

    /// All sources have reported: forgets pods that none of them has.
    pub(crate) fn on_all_sources_ready(&mut self) {
        self.forget(|_, entry| entry.owner.is_none());
    }

    fn forget(&mut self, is_gone: impl Fn(&str, &Entry) -> bool) {
        let Self { records, dirty, .. } = self;
        records.retain(|key, entry| {
            let is_gone = is_gone(key, entry);
            if is_gone {
                dirty.insert(key.clone());
            }
            !is_gone
        });
    }

    /// Judges the trials. `works`: pods can be worked on, so their deadlines start. A rejected version runs until the
    /// node `may_stop` it.
    pub(crate) fn judge(
        &mut self,
        works: bool,
        now: Instant,
        doing: impl Fn(&PodUid) -> TrialState,
        mut may_stop: impl FnMut(&PodUid) -> bool,
    ) -> Vec<(PodUid, TrialResult)> {
        let mut verdicts = Vec::new();
        for (key, entry) in &mut self.records {
            let Some(uid) = entry.record.on_trial(works, now).cloned() else { continue };
            if let Some(verdict) = entry.record.judge(doing(&uid), &mut || may_stop(&uid), now) {
                self.dirty.insert(key.clone());
                verdicts.push((uid, verdict));
            }
        }
        verdicts
    }

    /// When a trial ends or a failed write is retried.
    pub(crate) fn due(&self) -> Option<Instant> {
        let trials = self.records.values().filter_map(|entry| entry.record.due());
        trials.chain(self.cluster.due()).chain(self.retry).min()
    }

    /// Carries out a user's request. Returns what was done.
    pub(crate) fn apply_request(&mut self, pod: &Pod, action: RecordAction) -> Result<&'static str, RequestError> {
        let key = key(pod);
        match self.records.get_mut(&key).filter(|_| has_versions(pod)) {
            Some(entry) => {
                let done = entry.record.apply_request(action)?;
                self.dirty.insert(key);
                Ok(done)
            }
            None if pod.is_of_cluster() => Err(RequestError::ClusterPod),
            None => Err(RequestError::NoVersions),
        }
    }

    /// The version to run instead of the source's pod, if the pod has versions.
    pub(crate) fn runs(&self, source: &SourcePod) -> Option<&Arc<Pod>> {
        let entry = self.records.get(&key(&source.pod)).filter(|_| has_versions(&source.pod))?;
        let is_its = entry.owner.as_ref().is_some_and(|(_, origin)| *origin == source.origin);
        if is_its { entry.record.runs() } else { None }
    }

    /// Every version that may run again or runs next, for its images.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let of_own_pods = self.records.values().flat_map(|entry| entry.record.kept().iter().chain(entry.record.next()));
        of_own_pods.chain(self.cluster.kept())
    }

    /// The pods with a next version: the version that runs, and the next one, whose images are to be pulled.
    pub(crate) fn nexts(&self) -> impl Iterator<Item = (&PodUid, &Arc<Pod>)> {
        let owned = self.records.values().filter(|entry| entry.owner.is_some());
        owned.filter_map(|entry| Some((&entry.record.runs()?.metadata.uid, entry.record.next()?)))
    }

    /// Whether another version may replace the one with this uid at any time: the next one, or the one before.
    pub(crate) fn may_be_replaced(&self, uid: &PodUid) -> bool {
        let replaced = self.records.values().filter(|entry| entry.record.may_be_replaced());
        replaced.filter_map(|entry| entry.record.runs()).any(|runs| runs.metadata.uid == *uid)
    }

    /// The other pods with the same owner as `next`.
    pub(super) fn siblings<'a>(&'a self, next: &'a Pod) -> impl Iterator<Item = Sibling<'a>> {
        let owner = owning_workload(next);
        let owned = self.records.values().filter(move |entry| entry.owner.is_some() && owner.is_some());
        owned.filter_map(move |entry| {
            let runs = entry.record.runs()?;
            let is_other = runs.metadata.name != next.metadata.name;
            let (has_next, holds_up) = (entry.record.next().is_some(), entry.record.holds_up_others());
            (is_other && owning_workload(runs) == owner).then_some(Sibling { runs, has_next, holds_up })
        })
    }

    /// The version with this uid no longer waits for its images. True if there was one.
    pub(crate) fn take_next(&mut self, uid: &PodUid) -> bool {
        let Self { records, dirty, .. } = self;
        let taken = records.iter_mut().find_map(|(key, entry)| entry.record.take_next(uid).then_some(key));
        dirty.extend(taken.cloned());
        taken.is_some()
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = VersionView> {
        let owned = self.records.iter().filter(|(_, entry)| entry.owner.is_some());
        let owned = owned.map(|(key, entry)| VersionView {
            pod: key.trim_end_matches(VERSION_RECORD_SUFFIX).replacen('_', "/", 1),
            state: entry.record.state(),
            earlier: entry.record.earlier(),
        });
        let of_cluster = self.cluster.states().map(|(pod, state, why)| VersionView {
            pod: pod.to_owned(),
            state: Some((state, why.to_owned())),
            earlier: 0,
        });
        owned.chain(of_cluster)
    }

    /// The pods that do not run the version of their manifest, as `default/web-node1 held`, and the pods of the cluster
    /// that were rejected; empty if there are none.
    pub(crate) fn held(&self) -> String {
        let held = self.records.iter().filter(|(_, entry)| entry.record.is_held());
        let held = held.filter_map(|(key, entry)| {
            let (word, _) = entry.record.state()?;
            Some(format!("{} {word}", key.trim_end_matches(VERSION_RECORD_SUFFIX).replacen('_', "/", 1)))
        });
        let rejected = self.cluster.rejected().map(|name| format!("{name} rejected"));
        held.chain(rejected).collect::<Vec<_>>().join(",")
    }

    /// The changes to write, in flight until [`Self::on_written`].
    pub(crate) fn take_unwritten(&mut self, now: Instant) -> Vec<FileChange> {
        if self.retry.is_some_and(|at| now >= at) {
            self.retry = None;
            self.dirty.extend(mem::take(&mut self.in_flight));
        }
        if self.cluster.take_dirty() {
            self.dirty.insert(CLUSTER_TRIALS.to_owned());
        }
        if self.dirty.is_empty() {
            return Vec::new();
        }
        self.in_flight.extend(mem::take(&mut self.dirty));
        self.retry = None;
        let written = self.in_flight.iter().map(|key| {
            let value = match key.as_str() {
                CLUSTER_TRIALS => self.cluster.to_json(),
                key => self.records.get(key).map(|entry| entry.record.to_json()),
            };
            (self.directory.join(key), value.map(|value| value.to_string().into_bytes()))
        });
        written.collect()
    }

    /// The changes in flight were written, or must be written again.
    pub(crate) fn on_written(&mut self, complete: bool, now: Instant) {
        if self.in_flight.iter().any(|key| key == CLUSTER_TRIALS) {
            self.cluster.on_written();
        }
        if complete {
            self.in_flight.clear();
        }
        self.retry = (!complete).then(|| now + VERSION_WRITE_RETRY_DELAY);
    }
}

/// Writes the changes. An error does not keep the others from being written; the first is returned. Blocking.
pub(crate) fn write(written: &[FileChange]) -> Result<(), WriteError> {
    let mut result = Ok(());
    for (path, text) in written {
        let done = match text {
            Some(text) => durable::write_changed_within(path, text, MAX_VERSION_RECORD_BYTES).map(drop),
            None => durable::remove(path),
        };
        result = result.and(done.map_err(|cause| WriteError { path: path.clone(), cause }));
    }
    result
}

/// `None`: the file is damaged.
fn load(path: &Path) -> io::Result<Option<Value>> {
    Ok(match durable::read(path, MAX_VERSION_RECORD_BYTES)? {
        StoredFile::Whole(text) => serde_json::from_slice(&text).ok(),
        StoredFile::Damaged | StoredFile::Nothing => None,
    })
}

/// Only pods whose uid is a hash of their manifest have versions.
fn has_versions(pod: &Pod) -> bool {
    pod.is_static() && is_own_uid(pod.metadata.uid.as_str())
}

fn key(pod: &Pod) -> String {
    [&*pod.metadata.namespace, "_", &*pod.metadata.name, VERSION_RECORD_SUFFIX].concat()
}

/// The file of [`ClusterTrials`].
const CLUSTER_TRIALS: &str = "cluster-trials";
const VERSION_RECORD_SUFFIX: &str = ".json";

#[cfg(test)]
mod tests;
