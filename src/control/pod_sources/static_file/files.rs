//! What is known of each manifest file, what must be read, and what may be believed to be gone. Pure.
//!
//! ```text
//!             closed, moved in            good
//!   unknown ---------------------> read ------> its pods are wanted
//!      |  otherwise: unchanged for a while        |       |
//!      +------------------------------>           |       | wrong, unreadable
//!                                                 |       +-----------> its last good pods stay wanted
//!                                    not in a good listing, and still not a moment later
//!                                                 +-------------------> its pods are not wanted any more
//! ```
//!
//! For ConfigMaps and Secrets the same holds as for pods.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::names::is_manifest;
use crate::control::pod_sources::merge::same_content;
use crate::control::pod_sources::static_pod::{ManifestObject, Object};
use crate::state::objects::SourceObject;
use crate::state::pods::{SourceName, SourcePod, SourceProblem, SourceUpdate};
use crate::types::api::yaml::ParseError;
use crate::types::api::{Pod, Time};
use crate::types::sorted::{SortedMap, SortedSet};

/// The book of a manifest directory, or of a single manifest.
#[derive(Debug)]
pub(super) struct Files {
    path: PathBuf,
    /// The path is that of a manifest, not of a directory.
    single: bool,
    files: SortedMap<OsString, File>,
    /// The directory of the last good listing.
    directory: Option<DirectoryId>,
    /// It could not be listed since then: what is there next is another one.
    lost: bool,
    /// Another directory came in its place at this moment.
    replaced: Option<Instant>,
    /// When the machine has started as a whole: until then a directory that was empty at first may yet be mounted or filled.
    boot_over: Instant,
    /// It was empty at first, and the machine was starting.
    doubted: bool,
    /// Files whose writer has closed them, or which were moved in whole.
    closed: SortedSet<OsString>,
    /// When a file that is open for writing was written to last.
    writing: SortedMap<OsString, Instant>,
    /// Changed files of which no event says that they are whole, as they were first seen so.
    settling: SortedMap<OsString, (Stamp, Instant)>,
    /// What is wrong with the directory itself.
    problem: Option<SourceProblem>,
}

#[derive(Debug)]
struct File {
    /// Where it stands, for people.
    origin: Arc<str>,
    /// As it was when it was last read; `None` when that failed.
    stamp: Option<Stamp>,
    /// The pods it gave last, each as it was last good.
    pods: Vec<Arc<Pod>>,
    /// The ConfigMaps and Secrets it gave last.
    objects: Vec<SourceObject>,
    problems: Vec<SourceProblem>,
    /// Something in it may be a pod and could not be read as one.
    broken: bool,
    missing_since: Option<Instant>,
}

/// What tells a file from its changed self without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
    /// Modification and change, in seconds and nanoseconds.
    pub(super) times: [i64; 4],
}

/// Which directory it is, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectoryId {
    pub(super) device: u64,
    pub(super) inode: u64,
    /// When it was made, since the epoch, where the file system knows: the number of a deleted inode is used again.
    pub(super) born: Option<Duration>,
}

/// A directory's manifests at one moment.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) directory: DirectoryId,
    /// The source is one file, and the directory is the one that it stands in.
    pub(super) single: bool,
    /// A file that is there and cannot be looked at has no stamp.
    pub(super) files: SortedMap<OsString, Result<Stamp, Arc<io::Error>>>,
}

/// What has happened to a file of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileEvent {
    /// It came into being: empty, or whole as a link.
    Created,
    Written,
    /// Its writer has closed it.
    Closed,
    /// It was renamed to this name: whole.
    MovedIn,
    /// Mode or owner have changed.
    Attributes,
    /// Deleted, or renamed to another name.
    Gone,
}

/// What a look at a listing leads to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// The files to be read, by name and with their paths.
    pub(super) read: Vec<(OsString, PathBuf)>,
    /// When to look again at the latest.
    pub(super) again: Option<Instant>,
}

/// What came of reading a file.
#[derive(Debug)]
pub(super) enum Content {
    /// It is not there any more.
    Gone,
    Unreadable(Arc<io::Error>),
    /// The stamp is from before the first byte was read.
    Read(Stamp, Result<Vec<ManifestObject>, ParseError>),
}

/// A file without an event that says it is whole must stay as it is for so long.
const SETTLED: Duration = Duration::from_millis(100);
/// An empty file is usually about to be filled (or is vim, trying whether it can write).
const EMPTY_SETTLED: Duration = Duration::from_secs(1);
/// After so long a writer that keeps its file open is not waited for.
const WRITER_PATIENCE: Duration = Duration::from_secs(20);
/// A file that is missing for less was replaced: some editors rename the old one away first.
const GONE: Duration = Duration::from_millis(50);
/// Another directory is being filled, file by file.
const REPLACED: Duration = Duration::from_secs(10);
/// More problems of one file than these say nothing new.
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

    /// At the last look the path was that of a manifest.
    pub(super) fn is_single(&self) -> bool {
        self.single
    }

    /// Takes an event in. When to look at the directory for it, if it says anything.
    pub(super) fn note(&mut self, name: &OsStr, event: FileEvent, now: Instant) -> Option<Instant> {
        if !is_manifest(name) {
            // A hidden link may be what the manifests point through.
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
            FileEvent::Created | FileEvent::Attributes => Some(now + SETTLED),
            FileEvent::Gone => {
                self.writing.remove(name);
                self.closed.remove(name);
                if let Some(file) = self.files.get_mut(name) {
                    file.missing_since.get_or_insert(now);
                }
                Some(now + GONE)
            }
        }
    }

    /// Compares a listing with what is known.
    pub(super) fn look(&mut self, listing: &Listing, now: Instant, time: Time) -> Look {
        let first = self.directory.is_none() && self.files.is_empty();
        // Without a time of birth a directory that was made anew may look like the old one.
        let may_be_another = self.lost && listing.directory.born.is_none();
        let replaced = self.directory.is_some_and(|known| may_be_another || known != listing.directory);
        if replaced && listing.files.is_empty() && !self.files.is_empty() {
            // What shows when a file system is unmounted.
            self.set_problem("an empty directory has come in its place".to_owned(), time);
            return Look::default();
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

        let mut look = Look { again: self.doubted.then_some(self.boot_over), ..Look::default() };
        for (name, stamp) in &listing.files {
            self.look_at(name, stamp, first, now, time, &mut look);
        }
        self.look_for_missing(listing, now, &mut look);
        self.closed.clear();
        self.writing.retain(|name, _| listing.files.contains_key(name));
        self.settling.retain(|name, _| listing.files.contains_key(name));
        look
    }

    fn look_at(
        &mut self,
        name: &OsStr,
        stamp: &Result<Stamp, Arc<io::Error>>,
        first: bool,
        now: Instant,
        time: Time,
        look: &mut Look,
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
            return self.read(name, look);
        }
        let patience = if self.writing.get(name).is_some_and(|written| now < *written + WRITER_PATIENCE) {
            WRITER_PATIENCE
        } else if new_and_empty {
            EMPTY_SETTLED
        } else {
            SETTLED
        };
        let (seen, since) = self.settling.entry(name.to_owned()).or_insert((stamp, now));
        if *seen != stamp {
            (*seen, *since) = (stamp, now);
        }
        let settled = *since + patience;
        if now < settled {
            look.look_again(settled);
        } else {
            self.read(name, look);
        }
    }

    fn read(&mut self, name: &OsStr, look: &mut Look) {
        self.settling.remove(name);
        look.read.push((name.to_owned(), self.path_of(name)));
    }

    /// Removes what is not in the listing and has not been for long enough.
    fn look_for_missing(&mut self, listing: &Listing, now: Instant, look: &mut Look) {
        let replaced = self.replaced.map(|moment| moment + REPLACED);
        self.files.retain(|name, file| {
            if listing.files.contains_key(name) {
                return true;
            }
            let gone = *file.missing_since.get_or_insert(now) + GONE;
            let gone = replaced.map_or(gone, |replaced| gone.max(replaced));
            if now < gone {
                look.look_again(gone);
            }
            now < gone
        });
        if replaced.is_some_and(|replaced| replaced <= now) {
            self.replaced = None;
        }
    }

    /// The directory could not be listed: everything stays as it is.
    pub(super) fn unlisted(&mut self, reason: String, time: Time) {
        self.lost = true;
        self.set_problem(reason, time);
    }

    fn set_problem(&mut self, what: String, time: Time) {
        let keeps_last_good = self.files.values().any(|file| !file.pods.is_empty() || !file.objects.is_empty());
        let since = self.problem.as_ref().filter(|old| old.what == what).map_or(time, |old| old.since);
        let origin = Arc::from(self.path.to_string_lossy());
        self.problem = Some(SourceProblem { origin, what, keeps_last_good, since });
    }

    /// Takes in what came of reading a file.
    pub(super) fn take(&mut self, name: &OsStr, content: Content, time: Time) {
        let (stamp, objects) = match content {
            // The next listing tells whether it comes back.
            Content::Gone => return,
            Content::Unreadable(error) => (None, Err(format!("cannot be read: {error}"))),
            Content::Read(stamp, Err(error)) => (Some(stamp), Err(error.to_string())),
            Content::Read(stamp, Ok(objects)) if objects.is_empty() => (Some(stamp), Err(EMPTY.to_owned())),
            Content::Read(stamp, Ok(objects)) => (Some(stamp), Ok(objects)),
        };
        let old = self.files.remove(name).unwrap_or_else(|| File::new(&self.path_of(name)));
        let mut reading = Reading::new(objects, &old, time);
        let keeps_last_good = reading.keep_what_may_have_been_lost(old.pods, old.objects);
        let Reading { pods, objects, problems, broken_pods: broken, .. } = reading;
        let origin = old.origin;
        let problem = |what: String| {
            let since = old.problems.iter().find(|old| old.what == what).map_or(time, |old| old.since);
            SourceProblem { origin: Arc::clone(&origin), what, keeps_last_good, since }
        };
        let problems = problems.into_iter().take(MAX_PROBLEMS).map(problem).collect();
        self.files
            .insert(name.to_owned(), File { origin, stamp, pods, objects, problems, broken, missing_since: None });
    }

    /// Everything that the files hold at present.
    pub(super) fn update(&self) -> SourceUpdate {
        let pods = self.files.values().flat_map(|file| {
            file.pods.iter().map(|pod| SourcePod { pod: Arc::clone(pod), origin: Arc::clone(&file.origin) })
        });
        let problems = self.problem.iter().chain(self.files.values().flat_map(|file| &file.problems));
        SourceUpdate {
            source: SourceName::File,
            pods: pods.collect(),
            mirrors: Vec::new(),
            objects: self.files.values().flat_map(|file| &file.objects).cloned().collect(),
            problems: problems.cloned().collect(),
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
            missing_since: None,
        }
    }
}

/// What a file says by itself.
#[derive(Default)]
struct Reading {
    pods: Vec<Arc<Pod>>,
    objects: Vec<SourceObject>,
    /// One line each.
    problems: Vec<String>,
    /// Something may be a pod and is none.
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
            Ok(Object::Config(config)) => {
                let same = old.objects.iter().find(|old| *old.object == config);
                self.objects.push(match same {
                    Some(same) => same.clone(),
                    None => SourceObject { object: Arc::new(config), origin: Arc::clone(&old.origin), since: time },
                });
            }
            Err(_) => {
                self.broken_pods |= object.kind.may_be_pod();
                self.broken_objects |= object.kind.may_be_config();
            }
        }
    }

    /// Nobody can tell which of the old pods or objects a broken part is: none of them goes. True if one was kept.
    fn keep_what_may_have_been_lost(&mut self, pods: Vec<Arc<Pod>>, objects: Vec<SourceObject>) -> bool {
        let before = self.pods.len() + self.objects.len();
        if self.broken_pods {
            for pod in pods {
                if !self.pods.iter().any(|new| is_successor(new, &pod)) {
                    self.pods.push(pod);
                }
            }
        }
        if self.broken_objects {
            for object in objects {
                if !self.objects.iter().any(|new| new.object.key == object.object.key) {
                    self.objects.push(object);
                }
            }
        }
        self.pods.len() + self.objects.len() > before
    }
}

/// The old object if it is the same pod: what goes by it need not be done again, and it was seen first then.
fn kept_or_new(pod: Pod, old_pods: &[Arc<Pod>]) -> Arc<Pod> {
    let pod = Arc::new(pod);
    let old = old_pods.iter().find(|old| old.metadata.uid == pod.metadata.uid && same_content(old, &pod));
    old.map_or(pod, Arc::clone)
}

fn is_successor(pod: &Pod, old: &Pod) -> bool {
    pod.metadata.name == old.metadata.name && pod.metadata.namespace == old.metadata.namespace
}

/// Whether two updates say the same.
pub(super) fn says_the_same(one: &SourceUpdate, other: &SourceUpdate) -> bool {
    // That it was complete once is not taken back.
    (one.complete || !other.complete)
        && one.problems == other.problems
        && one.pods.len() == other.pods.len()
        && one.pods.iter().zip(&other.pods).all(|(one, other)| Arc::ptr_eq(&one.pod, &other.pod))
        && one.objects.len() == other.objects.len()
        && one.objects.iter().zip(&other.objects).all(|(one, other)| Arc::ptr_eq(&one.object, &other.object))
}

const EMPTY: &str = "there is nothing in the file; to remove its pods, delete it";

impl Look {
    fn look_again(&mut self, moment: Instant) {
        self.again = Some(self.again.map_or(moment, |again| again.min(moment)));
    }
}

#[cfg(test)]
mod tests;
