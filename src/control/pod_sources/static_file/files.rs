//! The state of each manifest file: what must be read, and which files are really gone. Pure.
//!
//! ```text
//!             closed, moved in            good
//!   unknown ---------------------> read ------> its pods are wanted
//!      |  otherwise: unchanged for a while,       |       |
//!      |  and no process writes it                |       |
//!      +------------------------------>           |       | invalid, unreadable
//!                                                 |       +-----------> its last good pods stay wanted
//!                                    missing in two good listings, a moment apart
//!                                                 +-------------------> its pods are no longer wanted
//! ```
//!
//! The same applies to ConfigMaps and Secrets.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::names::is_manifest;
use crate::control::pod_sources::merge::same_content;
use crate::control::pod_sources::static_pod::{ManifestObject, Object};
use crate::state::objects::{ConfigObject, ObjectKind, SourceObject};
use crate::state::pods::{SourceName, SourcePod, SourceProblem, SourceUpdate};
use crate::types::api::yaml::ParseError;
use crate::types::api::{Pod, Time};
use crate::types::sorted::{SortedMap, SortedSet};

/// The files of a manifest directory, or a single manifest.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    /// The path is a manifest file, not a directory.
    single: bool,
    files: SortedMap<OsString, File>,
    /// The directory of the last good listing.
    directory: Option<DirectoryId>,
    /// A listing has failed since: the next directory may be a different one.
    lost: bool,
    /// When another directory replaced the known one.
    replaced: Option<Instant>,
    /// When boot is over. Until then an initially empty directory may still be mounted or filled.
    boot_over: Instant,
    /// The directory was empty at first, during boot.
    doubted: bool,
    /// Complete files: closed by their writer, or moved in.
    closed: SortedSet<OsString>,
    /// Files open for writing, and when they were last written to.
    writing: SortedMap<OsString, Instant>,
    /// Changed files without an event that they are complete: their stamp, and when it was first seen.
    settling: SortedMap<OsString, (Stamp, Instant)>,
    /// A problem of the directory itself.
    problem: Option<SourceProblem>,
}

#[derive(Debug)]
struct File {
    /// The path, for users.
    origin: Arc<str>,
    /// The stamp when the file was last read; `None` if reading failed or the file was deleted since.
    stamp: Option<Stamp>,
    /// The file's last pods, each in its last good state.
    pods: Vec<Arc<Pod>>,
    /// The file's last ConfigMaps and Secrets.
    objects: Vec<SourceObject>,
    problems: Vec<SourceProblem>,
    /// The file may contain a pod that could not be parsed.
    broken: bool,
    half_written: bool,
    missing_since: Option<Instant>,
    /// The file was deleted, so its pods end, even if it is written again at once.
    deleted: bool,
}

/// Detects changes of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
    /// Modification and change time, in seconds and nanoseconds.
    pub(super) times: [i64; 4],
}

/// Identifies a directory, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectoryId {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// Time since the epoch when the directory was created, if the file system has it. Needed because the inode numbers
    /// of deleted directories are reused.
    pub(super) born: Option<Duration>,
}

/// The manifests in a directory at one moment.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) directory: DirectoryId,
    /// The source is one file, and the directory is the one that contains it.
    pub(super) single: bool,
    /// An existing file whose metadata cannot be read has an error in place of its stamp.
    pub(super) files: SortedMap<OsString, Result<Stamp, Arc<io::Error>>>,
    /// Files that are skipped for their names.
    pub(super) skipped: SortedSet<OsString>,
}

/// An inotify event of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileEvent {
    /// Created: empty, or complete if it is a link.
    Created,
    Written,
    /// Closed by its writer.
    Closed,
    /// Renamed to this name, and so complete.
    MovedIn,
    /// Mode or owner changed.
    Attributes,
    /// Renamed to another name: some editors do so before they write the file again.
    MovedAway,
    Deleted,
}

/// The result of comparing a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ListingPlan {
    pub(super) read: Vec<FileToRead>,
    /// When to list the directory again at the latest.
    pub(super) again: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileToRead {
    pub(super) name: OsString,
    pub(super) path: PathBuf,
    /// Its writer has closed it. Another file is read only if no process has it open for writing.
    pub(super) is_closed: bool,
}

/// The result of reading a file.
#[derive(Debug)]
pub(super) enum Content {
    /// A process has it open for writing.
    HalfWritten,
    /// The file no longer exists.
    Gone,
    Unreadable(Arc<io::Error>),
    /// The stamp was taken before the first byte was read.
    Read(Stamp, Result<Vec<ManifestObject>, ParseError>),
}

/// How long a file without an event that it is complete must stay unchanged.
const UNCHANGED_MANIFEST_AGE: Duration = Duration::from_millis(100);
/// An empty file is usually about to be filled, or is vim's test of whether it can write.
const EMPTY_FILE_WAIT: Duration = Duration::from_secs(1);
/// How often a file that a writer keeps open is checked again; its close is an event.
const WRITER_PATIENCE: Duration = Duration::from_secs(20);
/// A file missing for less than this was replaced: some editors rename the old one away first.
const MIN_FILE_ABSENCE: Duration = Duration::from_millis(50);
/// How long a replaced directory may take to be filled, file by file.
const REPLACED_DIRECTORY_WAIT: Duration = Duration::from_secs(10);
/// Further problems of the same file are not reported: one wrong indentation gives many.
const MAX_PROBLEMS: usize = 20;

impl Files {
    pub(super) fn new(path: PathBuf, boot_over: Instant) -> Self {
        Self {
            path,
            boot_over,
            doubted: false,
            single: false,
            files: SortedMap::new(),
            directory: None,
            lost: false,
            replaced: None,
            closed: SortedSet::new(),
            writing: SortedMap::new(),
            settling: SortedMap::new(),
            problem: None,
        }
    }

    /// At the last listing, the path was a manifest file.
    pub(super) fn is_single(&self) -> bool {
        self.single
    }

    /// Handles an event. Returns when to list the directory, if the event requires it.
    pub(super) fn note(&mut self, name: &OsStr, event: FileEvent, now: Instant) -> Option<Instant> {
        if !is_manifest(name) {
            // A hidden link may be a part of the manifests' paths.
            return (event == FileEvent::MovedIn).then_some(now);
        }
        match event {
            FileEvent::Written => {
                self.closed.remove(name);
                self.writing.insert(name.to_owned(), now);
                None
            }
            FileEvent::Closed | FileEvent::MovedIn => {
                self.writing.remove(name);
                self.closed.insert(name.to_owned());
                Some(now)
            }
            FileEvent::Created | FileEvent::Attributes => Some(now + UNCHANGED_MANIFEST_AGE),
            FileEvent::MovedAway | FileEvent::Deleted => {
                self.writing.remove(name);
                self.closed.remove(name);
                if let Some(file) = self.files.get_mut(name) {
                    file.missing_since.get_or_insert(now);
                    if event == FileEvent::Deleted {
                        file.deleted = true;
                        // A file of the same name is another one, whatever its stamp.
                        file.stamp = None;
                    }
                }
                Some(now + MIN_FILE_ABSENCE)
            }
        }
    }

    /// Compares a listing with the known files.
    pub(super) fn compare(&mut self, listing: &Listing, now: Instant, time: Time) -> ListingPlan {
        let first = self.directory.is_none() && self.files.is_empty();
        // Without a birth time, a recreated directory may look like the old one.
        let may_be_another = self.lost && listing.directory.born.is_none();
        let replaced = self.directory.is_some_and(|known| may_be_another || known != listing.directory);
        if replaced && listing.files.is_empty() && !self.files.is_empty() {
            // This is what an unmounted file system looks like.
            self.set_problem("an empty directory has come in its place".to_owned(), time);
            return ListingPlan::default();
        }
        if replaced {
            self.replaced = Some(now);
        }
        let empty_at_first = self.directory.is_none() && listing.files.is_empty();
        self.doubted = (self.doubted || empty_at_first) && now < self.boot_over;
        self.directory = Some(listing.directory);
        self.lost = false;
        self.single = listing.single;
        self.problem = None;

        let mut look = ListingPlan { again: self.doubted.then_some(self.boot_over), ..ListingPlan::default() };
        for (name, stamp) in &listing.files {
            self.compare_file(name, stamp, first, now, time, &mut look);
        }
        self.remove_missing(listing, now, &mut look);
        self.closed.clear();
        self.writing.retain(|name, _| listing.files.contains_key(name));
        self.settling.retain(|name, _| listing.files.contains_key(name));
        look
    }

    fn compare_file(
        &mut self,
        name: &OsStr,
        stamp: &Result<Stamp, Arc<io::Error>>,
        first: bool,
        now: Instant,
        time: Time,
        plan: &mut ListingPlan,
    ) {
        let known = self.files.get_mut(name).map(|file| {
            file.missing_since = None;
            file.stamp
        });
        let stamp = match stamp {
            Ok(stamp) => *stamp,
            Err(error) => return self.take(name, Content::Unreadable(Arc::clone(error)), time),
        };
        let closed = self.closed.contains(name);
        if known == Some(Some(stamp)) && !closed {
            self.settling.remove(name);
            return;
        }
        let new_and_empty = known.is_none() && stamp.size == 0;
        if !new_and_empty && (closed || first) {
            return self.read(name, closed, plan);
        }
        let is_half_written = self.files.get(name).is_some_and(|file| file.half_written);
        let is_writing = self.writing.get(name).is_some_and(|written| now < *written + WRITER_PATIENCE);
        let patience = if is_half_written || is_writing {
            WRITER_PATIENCE
        } else if new_and_empty {
            EMPTY_FILE_WAIT
        } else {
            UNCHANGED_MANIFEST_AGE
        };
        let (seen, since) = self.settling.entry(name.to_owned()).or_insert((stamp, now));
        if *seen != stamp {
            (*seen, *since) = (stamp, now);
        }
        let settled = *since + patience;
        if now < settled {
            plan.next_listing(settled);
        } else {
            self.read(name, false, plan);
        }
    }

    fn read(&mut self, name: &OsStr, is_closed: bool, plan: &mut ListingPlan) {
        self.settling.remove(name);
        plan.read.push(FileToRead { name: name.to_owned(), path: self.path_of(name), is_closed });
    }

    /// Removes files that have been missing from the listings for long enough.
    fn remove_missing(&mut self, listing: &Listing, now: Instant, plan: &mut ListingPlan) {
        let replaced = self.replaced.map(|moment| moment + REPLACED_DIRECTORY_WAIT);
        self.files.retain(|name, file| {
            if listing.files.contains_key(name) {
                return true;
            }
            let gone = *file.missing_since.get_or_insert(now) + MIN_FILE_ABSENCE;
            let gone = replaced.map_or(gone, |replaced| gone.max(replaced));
            if now < gone {
                plan.next_listing(gone);
            }
            now < gone
        });
        if replaced.is_some_and(|replaced| replaced <= now) {
            self.replaced = None;
        }
    }

    /// The directory could not be listed: all pods stay.
    pub(super) fn unlisted(&mut self, reason: String, time: Time) {
        self.lost = true;
        self.set_problem(reason, time);
    }

    fn set_problem(&mut self, message: String, time: Time) {
        let keeps_last_good = self.files.values().any(|file| !file.pods.is_empty() || !file.objects.is_empty());
        let since = self.problem.as_ref().filter(|old| old.message == message).map_or(time, |old| old.since);
        let origin = Arc::from(self.path.to_string_lossy());
        self.problem = Some(SourceProblem { origin, message, keeps_last_good, since });
    }

    /// Handles the result of reading a file.
    pub(super) fn take(&mut self, name: &OsStr, content: Content, time: Time) {
        let half_written = matches!(content, Content::HalfWritten);
        let (stamp, objects) = match content {
            // The next listing tells whether it comes back.
            Content::Gone => return,
            Content::HalfWritten => (None, Err(HALF_WRITTEN.to_owned())),
            Content::Unreadable(error) => (None, Err(format!("cannot be read: {error}"))),
            Content::Read(stamp, Err(error)) => (Some(stamp), Err(error.to_string())),
            Content::Read(stamp, Ok(objects)) if objects.is_empty() => (Some(stamp), Err(EMPTY_MANIFEST.to_owned())),
            Content::Read(stamp, Ok(objects)) => (Some(stamp), Ok(objects)),
        };
        let old = self.files.remove(name).unwrap_or_else(|| File::new(&self.path_of(name)));
        let mut reading = Reading::new(objects, &old, time);
        let keeps_last_good = reading.keep_previous_of_broken(old.pods, old.objects);
        let Reading { pods, objects, problems, broken_pods: broken, .. } = reading;
        let (origin, deleted) = (old.origin, old.deleted);
        let problem = |message: String| {
            let since = old.problems.iter().find(|old| old.message == message).map_or(time, |old| old.since);
            SourceProblem { origin: Arc::clone(&origin), message, keeps_last_good, since }
        };
        let problems = problems.into_iter().take(MAX_PROBLEMS).map(problem).collect();
        let file = File { origin, stamp, pods, objects, problems, broken, half_written, missing_since: None, deleted };
        self.files.insert(name.to_owned(), file);
    }

    /// The update without the pods of files that were deleted and are there again; `None` without such files. Their
    /// pods end, and start again with the next update.
    pub(super) fn update_of_deletions(&mut self) -> Option<SourceUpdate> {
        let is_back =
            |file: &File| file.deleted && file.missing_since.is_none() && file.stamp.is_some() && !file.broken;
        let are_back = self.files.values().any(is_back);
        let update = are_back.then(|| self.update_of(|file| !is_back(file)));
        for file in self.files.values_mut().filter(|file| is_back(file)) {
            file.deleted = false;
        }
        update
    }

    /// The complete update of this source.
    pub(super) fn update(&self) -> SourceUpdate {
        self.update_of(|_| true)
    }

    fn update_of(&self, has_pods: impl Fn(&File) -> bool) -> SourceUpdate {
        let pods = self.files.values().filter(|file| has_pods(file)).flat_map(|file| {
            file.pods.iter().map(|pod| SourcePod { pod: Arc::clone(pod), origin: Arc::clone(&file.origin) })
        });
        let problems = self.problem.iter().chain(self.files.values().flat_map(|file| &file.problems));
        SourceUpdate {
            source: SourceName::File,
            pods: pods.collect(),
            mirrors: Vec::new(),
            objects: self.files.values().flat_map(|file| &file.objects).cloned().collect(),
            problems: problems.cloned().collect(),
            unread: Vec::new(),
            complete: self.directory.is_some()
                && !self.doubted
                && self.problem.is_none()
                && self.settling.is_empty()
                && !self.files.values().any(|file| file.broken),
            relisted: false,
        }
    }

    fn path_of(&self, name: &OsStr) -> PathBuf {
        if self.single { self.path.clone() } else { self.path.join(name) }
    }
}

impl File {
    fn new(path: &Path) -> Self {
        Self {
            origin: Arc::from(path.to_string_lossy()),
            stamp: None,
            pods: Vec::new(),
            objects: Vec::new(),
            problems: Vec::new(),
            broken: false,
            half_written: false,
            missing_since: None,
            deleted: false,
        }
    }
}

/// The parsed content of a file.
#[derive(Default)]
struct Reading {
    pods: Vec<Arc<Pod>>,
    objects: Vec<SourceObject>,
    /// One line each.
    problems: Vec<String>,
    /// The file may contain a pod that could not be parsed.
    broken_pods: bool,
    broken_objects: bool,
}

impl Reading {
    fn new(objects: Result<Vec<ManifestObject>, String>, old: &File, time: Time) -> Self {
        let mut reading = Self::default();
        match objects {
            Err(problem) => {
                reading.broken_pods = true;
                reading.broken_objects = true;
                reading.problems.push(problem);
            }
            Ok(objects) => objects.into_iter().for_each(|object| reading.add(object, old, time)),
        }
        reading
    }

    fn add(&mut self, object: ManifestObject, old: &File, time: Time) {
        self.problems.extend(object.problem());
        self.problems.extend(object.warning_lines().map(|line| format!("warning: {line}")));
        match object.object {
            Ok(Object::Pod(pod)) => self.pods.push(kept_or_new(*pod, &old.pods)),
            Ok(Object::Workload(workload)) => {
                self.pods.extend(workload.pods.into_iter().map(|pod| kept_or_new(pod, &old.pods)));
                workload.claims.into_iter().for_each(|claim| self.add_config(claim, old, time));
            }
            Ok(Object::Config(config)) => self.add_config(config, old, time),
            // Refused before.
            Ok(Object::Agent(_)) => {}
            Err(_) => {
                self.broken_pods |= object.kind.may_be_pod();
                self.broken_objects |= object.kind.may_be_config();
            }
        }
    }

    fn add_config(&mut self, config: ConfigObject, old: &File, time: Time) {
        let same = old.objects.iter().find(|old| *old.object == config);
        self.objects.push(match same {
            Some(same) => same.clone(),
            None => SourceObject { object: Arc::new(config), origin: Arc::clone(&old.origin), since: time },
        });
    }

    /// Keeps the old pods or objects that a broken part may have been. True if one was kept.
    fn keep_previous_of_broken(&mut self, pods: Vec<Arc<Pod>>, objects: Vec<SourceObject>) -> bool {
        let before = self.pods.len() + self.objects.len();
        if self.broken_pods {
            for pod in pods {
                if !self.pods.iter().any(|new| is_successor(new, &pod)) {
                    self.pods.push(pod);
                }
            }
        }
        if self.broken_objects || self.broken_pods {
            for object in objects {
                // A broken StatefulSet may have had claims.
                let is_meant = self.broken_objects || object.object.key.kind == ObjectKind::VolumeClaim;
                if is_meant && !self.objects.iter().any(|new| new.object.key == object.object.key) {
                    self.objects.push(object);
                }
            }
        }
        self.pods.len() + self.objects.len() > before
    }
}

/// The old allocation if the pod is unchanged, with the time when it was first seen.
fn kept_or_new(pod: Pod, old_pods: &[Arc<Pod>]) -> Arc<Pod> {
    let pod = Arc::new(pod);
    let old = old_pods.iter().find(|old| old.metadata.uid == pod.metadata.uid && same_content(old, &pod));
    old.map_or(pod, Arc::clone)
}

fn is_successor(pod: &Pod, old: &Pod) -> bool {
    pod.metadata.name == old.metadata.name && pod.metadata.namespace == old.metadata.namespace
}

/// Whether two updates are equal.
/// Pointers tell, because an unchanged pod keeps its allocation (`kept_or_new`).
pub(super) fn is_same_update(one: &SourceUpdate, other: &SourceUpdate) -> bool {
    // A completed update stays complete.
    (one.complete || !other.complete)
        && one.problems == other.problems
        && one.pods.len() == other.pods.len()
        && one.pods.iter().zip(&other.pods).all(|(one, other)| Arc::ptr_eq(&one.pod, &other.pod))
        && one.objects.len() == other.objects.len()
        && one.objects.iter().zip(&other.objects).all(|(one, other)| Arc::ptr_eq(&one.object, &other.object))
}

const HALF_WRITTEN: &str = "a program has it open for writing; it is read when it is closed";
const EMPTY_MANIFEST: &str = "there is nothing in the file; to remove its pods, delete it";

impl ListingPlan {
    fn next_listing(&mut self, due: Instant) {
        self.again = Some(self.again.map_or(due, |again| again.min(due)));
    }
}

#[cfg(test)]
mod tests;
