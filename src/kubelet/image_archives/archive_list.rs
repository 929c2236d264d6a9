//! State machine of the image archives in the directory. Pure: time is an argument.
//!
//! ```text
//!            unchanged for a while                     imported
//!   Settling ---------------------> Ready -> Importing ------> Imported: its images are kept
//!      ^                                       |   |
//!      | file changed                          |   | the runtime or the tool failed
//!      |                         invalid archive |   +--------> Failed: retried with back-off
//!      +------------------------- Refused <----+
//! ```

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

/// Identifies a version of a file by what survives a reboot or a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    /// Nanoseconds since 1970.
    pub(crate) modified: i64,
}

/// How long a file must be unchanged before it is imported, because it may still be written.
const UNCHANGED_ARCHIVE_AGE: Duration = Duration::from_secs(2);
/// First and longest delay between two attempts.
const FIRST_IMPORT_RETRY_DELAY: Duration = Duration::from_secs(30);
const MAX_IMPORT_RETRY_DELAY: Duration = Duration::from_secs(30 * 60);
/// Attempts before an archive is given up until the file changes or the agent restarts: after a quarter of an hour with
/// these delays. Each one reads the whole file.
const MAX_ARCHIVE_TRIES: u32 = 6;

/// The archives by file name.
#[derive(Debug, Default)]
pub(super) struct ArchiveList {
    files: SortedMap<String, Archive>,
    /// The directory was listed at least once.
    looked: bool,
    /// Why the directory cannot be read.
    problem: String,
    /// Imports keep what the signature policy needs.
    pub(super) keeps_layouts: bool,
}

#[derive(Debug)]
pub(super) struct Archive {
    pub(super) stamp: Stamp,
    pub(super) state: State,
    /// The images of the last import. Kept while the file exists.
    pub(super) names: ArchiveNames,
    /// The last import failed for lack of another image.
    lacks_image: bool,
    retry: Backoff,
    tries: u32,
}

/// The names that an archive has brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ArchiveNames {
    /// Those in the archive.
    pub(super) images: Vec<String>,
    /// Further names of the same images, with their digests.
    pub(super) digests: Vec<String>,
}

impl ArchiveNames {
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.images.iter().chain(&self.digests)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Unchanged since this time.
    Settling(Instant),
    Ready,
    Importing,
    Imported,
    /// The archive is invalid.
    Refused(String),
    /// The import failed; the time of the next attempt, if there is one.
    Failed(String, Option<Instant>),
}

impl Archive {
    fn new(stamp: Stamp, state: State, names: ArchiveNames) -> Self {
        let retry = Backoff::new(FIRST_IMPORT_RETRY_DELAY, MAX_IMPORT_RETRY_DELAY);
        Self { stamp, state, names, lacks_image: false, retry, tries: 0 }
    }

    /// When it has settled, or is due for the next attempt.
    fn due(&self) -> Option<Instant> {
        match self.state {
            State::Settling(since) => Some(since + UNCHANGED_ARCHIVE_AGE),
            State::Failed(_, again) => again,
            State::Ready | State::Importing | State::Imported | State::Refused(_) => None,
        }
    }
}

impl ArchiveList {
    /// Loads the record of an earlier process.
    pub(super) fn load(&mut self, record: &[u8]) {
        let record: Value = serde_json::from_slice(record).unwrap_or_default();
        for (file, known) in record.as_object().into_iter().flatten() {
            let names = |key: &str| {
                let names = known.get(key)?.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
                Some(names.collect())
            };
            let digests = names("digests");
            let has_layouts = known.get("layouts").and_then(Value::as_bool) == Some(true);
            // Earlier versions gave images no names with digests.
            let is_complete = digests.is_some() && (has_layouts || !self.keeps_layouts);
            let state = if is_complete { State::Imported } else { State::Ready };
            let names =
                ArchiveNames { images: names("images").unwrap_or_default(), digests: digests.unwrap_or_default() };
            let size = known.get("size").and_then(Value::as_u64);
            let modified = known.get("modified").and_then(Value::as_i64);
            if let (Some(size), Some(modified)) = (size, modified) {
                let archive = Archive::new(Stamp { size, modified }, state, names);
                self.files.insert(file.clone(), archive);
            }
        }
    }

    /// The record for the next process: the archives that gave images.
    pub(super) fn record(&self) -> Vec<u8> {
        let given = self.files.iter().filter(|(_, archive)| archive.state == State::Imported);
        let entry = |(file, archive): (&String, &Archive)| {
            let Stamp { size, modified } = archive.stamp;
            let ArchiveNames { images, digests } = &archive.names;
            let entry = json!({
                "size": size, "modified": modified, "images": images, "digests": digests, "layouts": self.keeps_layouts,
            });
            (file.clone(), entry)
        };
        let mut text = Value::Object(given.map(entry).collect::<Map<_, _>>()).to_string().into_bytes();
        text.push(b'\n');
        text
    }

    /// Takes a listing of the directory.
    pub(super) fn on_listing(&mut self, listing: &SortedMap<String, Stamp>, now: Instant) {
        self.problem.clear();
        // Files found by the first listing have been there for a while.
        let first = !std::mem::replace(&mut self.looked, true);
        self.files.retain(|file, _| listing.contains_key(file));
        for (file, stamp) in listing {
            let unsettled = if first { State::Ready } else { State::Settling(now) };
            match self.files.get_mut(file) {
                None => drop(self.files.insert(file.clone(), Archive::new(*stamp, unsettled, ArchiveNames::default()))),
                Some(archive) if archive.stamp != *stamp => {
                    let names = std::mem::take(&mut archive.names);
                    *archive = Archive::new(*stamp, unsettled, names);
                }
                Some(_) => {}
            }
        }
        for archive in self.files.values_mut() {
            if archive.due().is_some_and(|due| due <= now) {
                archive.state = State::Ready;
            }
        }
    }

    /// When to look again without an event.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.files.values().filter_map(Archive::due).min()
    }

    /// The directory cannot be read; the known state stays.
    pub(super) fn unlisted(&mut self, problem: String) {
        self.problem = problem;
    }

    pub(super) fn problem(&self) -> &str {
        &self.problem
    }

    pub(super) fn has_ready(&self) -> bool {
        self.files.values().any(|archive| archive.state == State::Ready)
    }

    /// The next archive to import.
    pub(super) fn begin(&mut self) -> Option<String> {
        let (file, archive) = self.files.iter_mut().find(|(_, archive)| archive.state == State::Ready)?;
        archive.state = State::Importing;
        Some(file.clone())
    }

    /// Takes the result of an import. The next listing notices if the file has changed meanwhile.
    pub(super) fn ended(&mut self, file: &str, outcome: Result<ArchiveNames, Failure>, now: Instant) {
        let Some(archive) = self.files.get_mut(file) else { return };
        archive.lacks_image = matches!(outcome, Err(Failure::Lacks(_)));
        archive.state = match outcome {
            Ok(names) => {
                archive.names = names;
                State::Imported
            }
            Err(Failure::Refused(why)) => State::Refused(why),
            Err(Failure::Failed(why)) => {
                archive.tries += 1;
                let again = (archive.tries < MAX_ARCHIVE_TRIES).then(|| now + archive.retry.next_wait());
                State::Failed(why, again)
            }
            Err(Failure::Lacks(why)) => State::Failed(why, Some(now + archive.retry.next_wait())),
        };
        if archive.state == State::Imported {
            // It may have what others lack.
            for other in self.files.values_mut() {
                if other.lacks_image && matches!(other.state, State::Failed(..)) {
                    other.state = State::Ready;
                }
            }
        }
    }

    /// The runtime no longer has all of its images.
    pub(super) fn lost(&mut self, file: &str) {
        if let Some(archive) = self.files.get_mut(file) {
            archive.state = State::Ready;
        }
    }

    /// The imported archives with the names of their images.
    pub(super) fn imported(&self) -> Vec<(String, Vec<String>)> {
        let imported = self.files.iter().filter(|(_, archive)| archive.state == State::Imported);
        imported.map(|(file, archive)| (file.clone(), archive.names.all().cloned().collect())).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Archive)> {
        self.files.iter()
    }
}

/// Why an archive gave no images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Invalid; only a changed file can succeed.
    Refused(String),
    Failed(String),
    /// A delta of an image that the node does not have, and may yet get.
    Lacks(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) | Self::Failed(why) | Self::Lacks(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Failure {}

/// Whether a file with this name may be an archive; hidden files and unfinished downloads are not.
pub(super) fn is_archive(name: &str) -> bool {
    let unfinished = [".part", ".partial", ".filepart", ".tmp", ".new", "~"];
    !name.starts_with('.') && !unfinished.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(files: &[(&str, u64)]) -> SortedMap<String, Stamp> {
        files.iter().map(|(file, size)| ((*file).to_owned(), Stamp { size: *size, modified: 1 })).collect()
    }

    fn state<'a>(archive_list: &'a ArchiveList, file: &str) -> &'a State {
        &archive_list.files.get(file).expect("it is known").state
    }

    fn images(names: &[&str]) -> ArchiveNames {
        let images = names.iter().map(|&name| name.to_owned()).collect();
        ArchiveNames { images, digests: vec![format!("digest of {}", names.concat())] }
    }

    #[test]
    fn existing_files_are_imported_at_once_and_new_ones_after_settling() {
        let (mut archive_list, start) = (ArchiveList::default(), Instant::now());
        archive_list.on_listing(&listing(&[("b", 1), ("a", 1)]), start);
        assert_eq!(archive_list.next_due(), None);
        assert_eq!(
            [archive_list.begin(), archive_list.begin(), archive_list.begin()],
            [Some("a".to_owned()), Some("b".to_owned()), None]
        );
        let all = |size| listing(&[("a", 1), ("b", 1), ("c", size)]);
        archive_list.on_listing(&all(1), start);
        assert_eq!(archive_list.next_due(), Some(start + UNCHANGED_ARCHIVE_AGE));
        // The file is still being written.
        let later = start + UNCHANGED_ARCHIVE_AGE;
        archive_list.on_listing(&all(2), later);
        assert_eq!((archive_list.next_due(), archive_list.has_ready()), (Some(later + UNCHANGED_ARCHIVE_AGE), false));
        archive_list.on_listing(&all(2), later + UNCHANGED_ARCHIVE_AGE);
        assert_eq!(archive_list.begin().as_deref(), Some("c"));
    }

    #[test]
    fn images_are_kept_while_their_file_exists() {
        let (mut archive_list, start) = (ArchiveList::default(), Instant::now());
        archive_list.on_listing(&listing(&[("a", 1)]), start);
        archive_list.begin();
        archive_list.ended("a", Ok(images(&["x:1"])), start);
        let names = vec!["x:1".to_owned(), "digest of x:1".to_owned()];
        assert_eq!(archive_list.imported(), [("a".to_owned(), names.clone())]);
        archive_list.on_listing(&listing(&[("a", 2)]), start);
        let pinned = |archive_list: &ArchiveList| {
            archive_list.iter().flat_map(|(_, archive)| archive.names.all().cloned()).collect::<Vec<_>>()
        };
        assert_eq!(pinned(&archive_list), names);
        archive_list.unlisted("gone".to_owned());
        assert_eq!(pinned(&archive_list), names);
        archive_list.on_listing(&listing(&[]), start);
        assert_eq!(pinned(&archive_list), [] as [&str; 0]);
    }

    #[test]
    fn refused_file_waits_for_a_change_and_failed_one_is_retried() {
        let (mut archive_list, start) = (ArchiveList::default(), Instant::now());
        let mut now = start;
        archive_list.on_listing(&listing(&[("bad", 1), ("late", 1)]), now);
        archive_list.begin();
        archive_list.ended("bad", Err(Failure::Refused("no".to_owned())), now);
        for _ in 0..MAX_ARCHIVE_TRIES {
            assert_eq!(archive_list.begin().as_deref(), Some("late"));
            archive_list.ended("late", Err(Failure::Failed("away".to_owned())), now);
            assert!(!archive_list.has_ready());
            now += MAX_IMPORT_RETRY_DELAY;
            archive_list.on_listing(&listing(&[("bad", 1), ("late", 1)]), now);
        }
        assert!(!archive_list.has_ready());
        assert_eq!(state(&archive_list, "late"), &State::Failed("away".to_owned(), None));
        assert_eq!(state(&archive_list, "bad"), &State::Refused("no".to_owned()));
        archive_list.on_listing(&listing(&[("bad", 2), ("late", 1)]), now);
        archive_list.on_listing(&listing(&[("bad", 2), ("late", 1)]), now + UNCHANGED_ARCHIVE_AGE);
        assert_eq!(state(&archive_list, "bad"), &State::Ready);
    }

    #[test]
    fn archive_that_lacks_an_image_is_retried_after_another_import() {
        let (mut list, mut now) = (ArchiveList::default(), Instant::now());
        let files = listing(&[("a.delta", 1), ("b.tar", 1)]);
        list.on_listing(&files, now);
        for _ in 0..2 * MAX_ARCHIVE_TRIES {
            assert_eq!(list.begin().as_deref(), Some("a.delta"));
            list.ended("a.delta", Err(Failure::Lacks("needs b".to_owned())), now);
            now = list.next_due().unwrap_or(now);
            list.on_listing(&files, now);
        }
        assert_eq!(list.begin().as_deref(), Some("a.delta"));
        list.ended("a.delta", Err(Failure::Lacks("needs b".to_owned())), now);
        assert_eq!(list.begin().as_deref(), Some("b.tar"));
        list.ended("b.tar", Ok(images(&["b:1"])), now);
        assert_eq!(list.begin().as_deref(), Some("a.delta"));
    }

    #[test]
    fn import_that_runtime_refused_waits_for_its_time_whatever_else_is_imported() {
        let (mut list, now) = (ArchiveList::default(), Instant::now());
        list.on_listing(&listing(&[("a", 1), ("b", 1), ("c", 1)]), now);
        list.begin();
        list.ended("a", Err(Failure::Failed("away".to_owned())), now);
        for file in ["b", "c"] {
            assert_eq!(list.begin().as_deref(), Some(file));
            list.ended(file, Ok(images(&["x:1"])), now);
        }
        assert!(!list.has_ready());
        assert_eq!(list.next_due(), Some(now + FIRST_IMPORT_RETRY_DELAY));
    }

    #[test]
    fn restart_imports_only_changed_files() {
        let (mut archive_list, start) = (ArchiveList::default(), Instant::now());
        archive_list.on_listing(&listing(&[("a", 1), ("b", 1)]), start);
        for name in ["x:1", "y:1"] {
            let file = archive_list.begin().unwrap();
            archive_list.ended(&file, Ok(images(&[name])), start);
        }
        let mut next = ArchiveList::default();
        next.load(&archive_list.record());
        assert_eq!(next.record(), archive_list.record());
        next.on_listing(&listing(&[("a", 1), ("b", 2)]), start);
        assert_eq!((next.begin().as_deref(), next.begin()), (Some("b"), None));
        next.lost("a");
        assert_eq!(next.begin().as_deref(), Some("a"));
        let mut of_earlier_version = ArchiveList::default();
        of_earlier_version.load(br#"{"a": {"size": 1, "modified": 1, "images": ["x:1"]}}"#);
        of_earlier_version.on_listing(&listing(&[("a", 1)]), start);
        let names: Vec<_> = of_earlier_version.iter().flat_map(|(_, archive)| archive.names.all().cloned()).collect();
        assert_eq!((names, of_earlier_version.begin().as_deref()), (vec!["x:1".to_owned()], Some("a")));
        let mut with_policy = ArchiveList { keeps_layouts: true, ..ArchiveList::default() };
        with_policy.load(&archive_list.record());
        assert!(with_policy.has_ready(), "imported without what the signature policy needs");
        while let Some(file) = with_policy.begin() {
            with_policy.ended(&file, Ok(images(&["x:1"])), start);
        }
        let mut restarted = ArchiveList { keeps_layouts: true, ..ArchiveList::default() };
        restarted.load(&with_policy.record());
        assert!(!restarted.has_ready());
        let mut nothing = ArchiveList::default();
        nothing.load(b"{\"a\": {\"images\": 7}}");
        nothing.load(b"what");
        assert_eq!(nothing.iter().count(), 0);
    }

    #[test]
    fn unfinished_files_are_not_archives() {
        let on_their_way = [".a.tar", "a.tar.part", "a.tar.filepart", "a.tmp", "a.tar~", ".a.tar.new"];
        assert!(!on_their_way.into_iter().any(is_archive));
        assert!(["a.tar", "a.tar.zst", "a.tgz", "a", "-a.tar"].into_iter().all(is_archive));
    }
}
