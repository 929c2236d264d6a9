use std::sync::{Arc, Mutex};

use super::*;
use crate::kubelet::offline::key::{Key, MIN_KEY_BYTES};
use crate::kubelet::offline::seal::KeyPlaces;
use crate::types::sorted::steps;

/// Files in memory that lose what was not synced when the power fails, at any operation.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Disk>>);

#[derive(Clone, Default)]
struct Disk {
    /// The contents as processes see them.
    seen: SortedMap<String, Vec<u8>>,
    /// Synced contents, by the current durable name.
    durable: SortedMap<String, Vec<u8>>,
    /// Files with content that is not synced.
    dirty: SortedSet<String>,
    /// Renames since the directory was synced.
    unsure: Vec<Step>,
    /// Operations until the power fails; `None`: never.
    left: Option<usize>,
    operations: usize,
}

/// A rename: from, to.
type Step = (String, String);

impl Disk {
    fn begin(&mut self) -> io::Result<()> {
        self.operations += 1;
        match &mut self.left {
            Some(0) => Err(io::Error::other("no power")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Memory {
    /// Every possible state of the disk after a power failure: any number of the unsynced renames, and any part of
    /// the unsynced bytes.
    fn after_power_cut(&self) -> Vec<Self> {
        let disk = self.0.lock().unwrap();
        let mut states = Vec::new();
        for steps in 0..=disk.unsure.len() {
            let mut files = disk.durable.clone();
            for step in &disk.unsure[..steps] {
                apply(&mut files, step);
            }
            states.push(files.clone());
            // Unsynced content: a prefix, zeros, or all of it.
            for (name, seen) in disk.seen.iter().filter(|(name, _)| disk.dirty.contains(*name)) {
                let durable = files.get(name).map_or(0, Vec::len);
                if seen.len() <= durable || !seen.starts_with(files.get(name).map_or(&[][..], |bytes| bytes)) {
                    continue;
                }
                for cut in [1, (seen.len() - durable) / 2, seen.len() - durable - 1, seen.len() - durable] {
                    let mut more = files.clone();
                    more.insert(name.clone(), seen[..durable + cut].to_vec());
                    states.push(more);
                    let mut zeros = files.clone();
                    zeros.insert(name.clone(), [&seen[..durable], &vec![0; cut][..]].concat());
                    states.push(zeros);
                }
            }
        }
        let disk = |files: SortedMap<String, Vec<u8>>| Disk { seen: files.clone(), durable: files, ..Disk::default() };
        states.into_iter().map(|files| Self(Arc::new(Mutex::new(disk(files))))).collect()
    }

    fn cut_after(&self, operations: usize) {
        self.0.lock().unwrap().left = Some(operations);
    }

    fn operations(&self) -> usize {
        self.0.lock().unwrap().operations
    }

    fn copy(&self) -> Self {
        Self(Arc::new(Mutex::new(self.0.lock().unwrap().clone())))
    }

    fn file(&self, name: &str) -> Option<Vec<u8>> {
        self.0.lock().unwrap().seen.get(name).cloned()
    }

    fn with(name: &str, bytes: Vec<u8>) -> Self {
        let memory = Self::default();
        memory.0.lock().unwrap().seen.insert(name.to_owned(), bytes.clone());
        memory.0.lock().unwrap().durable.insert(name.to_owned(), bytes);
        memory
    }
}

fn apply(files: &mut SortedMap<String, Vec<u8>>, (from, to): &Step) {
    if let Some(bytes) = files.remove(from) {
        files.insert(to.clone(), bytes);
    }
}

impl Files for Memory {
    fn read(&mut self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let bytes = self.file(name);
        match bytes {
            Some(bytes) if length_of(&bytes) > limit => Err(io::ErrorKind::FileTooLarge.into()),
            bytes => Ok(bytes),
        }
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.begin()?;
        // The old content may be lost at once, the new one arrive later.
        disk.durable.remove(name);
        disk.dirty.insert(name.to_owned());
        disk.seen.insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.dirty.insert(name.to_owned());
        if let Err(error) = disk.begin() {
            // Part of it is written anyway.
            let part = &bytes[..bytes.len() / 2];
            disk.seen.entry(name.to_owned()).or_default().extend_from_slice(part);
            return Err(error);
        }
        disk.seen.entry(name.to_owned()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.begin()?;
        let bytes = disk.seen.get(name).cloned().unwrap_or_default();
        disk.durable.insert(name.to_owned(), bytes);
        disk.dirty.remove(name);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.begin()?;
        if !disk.seen.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let step = (from.to_owned(), to.to_owned());
        apply(&mut disk.seen, &step);
        let is_dirty = disk.dirty.remove(from);
        disk.dirty.remove(to);
        disk.dirty.extend(is_dirty.then(|| to.to_owned()));
        disk.unsure.push(step);
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.begin()?;
        let steps = std::mem::take(&mut disk.unsure);
        for step in &steps {
            apply(&mut disk.durable, step);
        }
        Ok(())
    }
}

fn key() -> Seal {
    Seal::Key(Key::derive(&[7; MIN_KEY_BYTES]).unwrap())
}

fn open(files: &Memory) -> (Journal, JournalContents) {
    let (journal, found) = Journal::open(Box::new(files.clone()), key());
    (journal, found.unwrap())
}

fn batch(changes: &[(&str, Option<&str>)]) -> Batch {
    let owned =
        |(name, content): &(&str, Option<&str>)| ((*name).to_owned(), content.map(|text| text.as_bytes().to_vec()));
    changes.iter().map(owned).collect()
}

fn contents(files: &Memory) -> SortedMap<String, String> {
    let found = open(&files.copy()).1;
    found.contents.into_iter().map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap())).collect()
}

fn said(pairs: &[(&str, &str)]) -> SortedMap<String, String> {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn last_content_of_each_name_is_read_back() {
    let files = Memory::default();
    let (mut journal, found) = open(&files);
    assert!(found.contents.is_empty());
    journal.commit(&batch(&[("pod/a", Some("1")), ("secret/s", Some("2"))])).unwrap();
    journal.commit(&batch(&[("pod/a", Some("3")), ("pod/b", Some("4"))])).unwrap();
    journal.commit(&batch(&[("pod/b", None)])).unwrap();
    assert_eq!(contents(&files), said(&[("pod/a", "3"), ("secret/s", "2")]));
    assert_eq!((journal.records(), journal.length()), (2, length_of(&files.file(JOURNAL_FILE).unwrap())));
}

#[test]
fn unchanged_content_and_new_resource_versions_are_not_written() {
    let files = Memory::default();
    let (mut journal, _) = open(&files);
    let version = |version: &str| format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"data":"x"}}"#);
    let written = journal.commit(&batch(&[("configmap/a", Some(&version("1"))), ("secret/s", Some("2"))])).unwrap();
    assert!(written.bytes > 0);
    let next = open(&files);
    let before = files.operations();
    for (mut journal, _) in [(journal, JournalContents::default()), next] {
        let same = batch(&[("configmap/a", Some(&version("2"))), ("secret/s", Some("2")), ("pod/none", None)]);
        assert_eq!(journal.commit(&same).unwrap(), CommitResult::default());
        assert_eq!(files.operations(), before);
    }
}

#[test]
fn resource_version_as_a_key_of_data_is_content() {
    let files = Memory::default();
    let (mut journal, _) = open(&files);
    let secret = |value: &str| format!(r#"{{"data":{{"resourceVersion":"{value}"}},"metadata":{{"name":"s"}}}}"#);
    journal.commit(&batch(&[("secret/s", Some(&secret("b2xk")))])).unwrap();
    journal.commit(&batch(&[("secret/s", Some(&secret("bmV3")))])).unwrap();
    assert_eq!(contents(&files), said(&[("secret/s", &secret("bmV3"))]));
}

#[test]
fn batch_is_written_with_one_append_and_one_sync() {
    let files = Memory::default();
    let (mut journal, _) = open(&files);
    journal.commit(&batch(&[("pod/a", Some("1"))])).unwrap();
    let before = files.operations();
    journal.commit(&batch(&[("pod/a", Some("2")), ("pod/b", Some("2")), ("pod/c", Some("2"))])).unwrap();
    assert_eq!(files.operations() - before, 2);
}

#[test]
fn file_size_is_bounded_by_twice_the_live_size_and_spare() {
    let files = Memory::default();
    let (mut journal, _) = open(&files);
    let text = "x".repeat(4000);
    let mut written = 0;
    let rounds = 500;
    for round in 0..rounds {
        let content = format!("\"{round}{text}\"");
        written += journal.commit(&batch(&[("pod/a", Some(&content))])).unwrap().bytes;
        assert!(journal.length() <= MIN_OBSOLETE_BYTES + 3 * 5000, "{}", journal.length());
    }
    assert!(written < rounds * 5000, "{written} bytes for {rounds} changes of some 4000");
    assert_eq!(contents(&files).len(), 1);
}

/// The steps of appending, rewriting and reading twice as many records, whose names alternate in the file.
fn steps_of_records(number: usize) -> usize {
    let files = Memory::default();
    let (mut journal, _) = open(&files);
    let records = |first: usize, content: &'static str| -> Batch {
        let record = |record| (format!("pod/ns/{record:06}"), Some(content.as_bytes().to_vec()));
        (first..2 * number).step_by(2).map(record).collect()
    };
    steps::of(|| {
        for first in [1, 0] {
            journal.commit(&records(first, "1")).unwrap();
        }
        files.clone().append(JOURNAL_FILE, b"{\"crc\":\"").unwrap();
        let (mut journal, _) = open(&files);
        journal.commit(&records(0, "2")).unwrap();
        assert_eq!(journal.records(), 2 * number);
        let none = records(1, "").into_keys().map(|name| (name, None)).collect();
        journal.commit(&none).unwrap();
        assert_eq!(journal.records(), number);
    })
}

#[test]
fn work_grows_with_the_number_of_records() {
    let (few, many) = (steps_of_records(500), steps_of_records(2000));
    assert!(0 < few && many <= 5 * few, "{few} steps for 1,000 records, {many} for 4,000");
}

fn too_large() -> String {
    format!("\"{}\"", "x".repeat(usize::try_from(MAX_STORE_BYTES).unwrap()))
}

#[test]
fn object_beyond_the_limit_loses_its_old_content() {
    let (files, large) = (Memory::default(), too_large());
    let (mut journal, _) = open(&files);
    let names = ["configmap/ns/a", "secret/ns/a", "token/ns/sa/u//3607", "trustbundle/a", "trustbundles/x.io%2Fa"];
    let all = |content| names.map(|name| (name, Some(content)));
    journal.commit(&batch(&all("1"))).unwrap();
    let done = journal.commit(&batch(&all(large.as_str()))).unwrap();
    assert_eq!((done.left_out, journal.records()), (5, 0));
    assert_eq!(contents(&files), said(&[]));
    // A value that fits again is stored.
    journal.commit(&batch(&all("1"))).unwrap();
    assert_eq!(contents(&files), said(&names.map(|name| (name, "1"))));
}

#[test]
fn pod_beyond_the_limit_keeps_its_old_content() {
    let (files, large) = (Memory::default(), too_large());
    let (mut journal, _) = open(&files);
    journal.commit(&batch(&[("pod/a", Some("1"))])).unwrap();
    let done = journal.commit(&batch(&[("pod/a", Some(&large)), ("pod/b", Some("2"))])).unwrap();
    assert_eq!(done.left_out, 1);
    assert_eq!(contents(&files), said(&[("pod/a", "1"), ("pod/b", "2")]));
}

/// All ways of writing: appending, and rewriting for two reasons.
fn before_each_way() -> [(&'static str, Memory); 3] {
    let files = Memory::default();
    let (mut journal, _) = open(&files);
    journal.commit(&batch(&[("pod/a", Some("old")), ("pod/b", Some("old")), ("pod/c", Some("old"))])).unwrap();
    let torn = files.copy();
    torn.clone().append(JOURNAL_FILE, b"{\"crc\":\"").unwrap();
    torn.clone().sync(JOURNAL_FILE).unwrap();
    let bad = files.copy();
    bad.clone().append(JOURNAL_FILE, b"{}\n").unwrap();
    bad.clone().sync(JOURNAL_FILE).unwrap();
    [("appended", files), ("after half a line", torn), ("after a bad line", bad)]
}

#[test]
fn power_failure_leaves_the_old_or_the_new_record() {
    let old = said(&[("pod/a", "old"), ("pod/b", "old"), ("pod/c", "old")]);
    let change = batch(&[("pod/a", Some("new")), ("pod/b", None), ("pod/d", Some("new"))]);
    for (way, files) in before_each_way() {
        let mut cuts = 0;
        loop {
            let files = files.copy();
            files.cut_after(cuts);
            let (mut journal, found) = Journal::open(Box::new(files.clone()), key());
            let is_done = found.is_ok() && journal.commit(&change).is_ok();
            let states = files.after_power_cut();
            assert!(!states.is_empty());
            for state in states {
                let found = contents(&state);
                let what = format!("{way}, cut after {cuts} operations: {found:?}");
                let is = |name: &str| found.get(name).map(String::as_str);
                assert_eq!(is("pod/c"), Some("old"), "{what}");
                assert!([Some("old"), Some("new")].contains(&is("pod/a")), "{what}");
                assert!([Some("old"), None].contains(&is("pod/b")), "{what}");
                assert!([Some("new"), None].contains(&is("pod/d")), "{what}");
                if is_done {
                    assert_eq!((is("pod/a"), is("pod/b"), is("pod/d")), (Some("new"), None, Some("new")), "{what}");
                }
                // The next start continues from there.
                let (mut journal, _) = open(&state);
                journal.commit(&change).unwrap();
                assert_eq!(contents(&state), said(&[("pod/a", "new"), ("pod/c", "old"), ("pod/d", "new")]), "{what}");
            }
            if is_done {
                break;
            }
            cuts += 1;
        }
        assert!(cuts >= 2, "{way}: {cuts}");
        assert_eq!(contents(&files), old);
    }
}

#[test]
fn batch_can_be_committed_again_after_a_failed_write() {
    for cuts in 0..2 {
        let (_, files) = before_each_way().into_iter().next().unwrap();
        let (mut journal, _) = open(&files);
        files.cut_after(cuts);
        let change = batch(&[("pod/a", Some("new"))]);
        journal.commit(&change).unwrap_err();
        files.0.lock().unwrap().left = None;
        journal.commit(&change).unwrap();
        assert_eq!(contents(&files), said(&[("pod/a", "new"), ("pod/b", "old"), ("pod/c", "old")]));
    }
}

#[test]
fn record_that_a_failed_write_may_have_changed_is_written_again() {
    for (way, files) in before_each_way() {
        let is_there = contents(&files);
        for changed in [None, Some("new")] {
            for cuts in 0..6 {
                let files = files.copy();
                let (mut journal, _) = open(&files);
                files.cut_after(cuts);
                let failed = journal.commit(&batch(&[("pod/a", changed)])).is_err();
                files.0.lock().unwrap().left = None;
                journal.commit(&batch(&[("pod/a", Some("old"))])).unwrap();
                for files in files.after_power_cut() {
                    assert_eq!(contents(&files), is_there, "{way}: {changed:?}, {cuts} operations, failed: {failed}");
                }
            }
        }
    }
}

#[test]
fn records_of_a_killed_process_are_durable_when_the_next_one_leaves_them_as_they_are() {
    let change = batch(&[("pod/a", Some("new")), ("pod/b", None)]);
    let changed = said(&[("pod/a", "new"), ("pod/c", "old")]);
    for (way, files) in before_each_way() {
        for cuts in 0..6 {
            let files = files.copy();
            files.cut_after(cuts);
            let (mut killed, _) = Journal::open(Box::new(files.clone()), key());
            drop(killed.commit(&change));
            files.0.lock().unwrap().left = None;
            let (mut journal, _) = open(&files);
            journal.commit(&change).unwrap();
            for files in files.after_power_cut() {
                assert_eq!(contents(&files), changed, "{way}, killed after {cuts} operations");
            }
        }
    }
}

#[test]
fn flipped_bit_costs_at_most_two_records_and_the_file_is_set_aside() {
    let (_, files) = before_each_way().into_iter().next().unwrap();
    let bytes = files.file(JOURNAL_FILE).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let files = Memory::with(JOURNAL_FILE, bad.clone());
        let (journal, found) = open(&files);
        // A flipped line break joins two lines, or leaves the last line incomplete.
        assert!(!found.contents.is_empty(), "bit {bit}");
        assert!(found.contents.values().all(|content| content == b"old"), "bit {bit}");
        assert!(found.faults.damaged + u64::from(found.contents.len() < 3) >= 1, "bit {bit}: {:?}", found.faults);
        if found.faults.damaged > 0 {
            assert_eq!(files.file(SET_ASIDE_FILES[0]), Some(bad), "bit {bit}");
            assert_eq!(open(&files).1.faults, Faults::default(), "reported once");
        }
        assert_eq!(journal.records(), found.contents.len());
    }
}

#[test]
fn truncated_file_has_the_records_before_the_cut() {
    let (_, files) = before_each_way().into_iter().next().unwrap();
    let bytes = files.file(JOURNAL_FILE).unwrap();
    for end in 0..bytes.len() {
        let files = Memory::with(JOURNAL_FILE, bytes[..end].to_vec());
        let lines = bytes[..end].iter().filter(|byte| **byte == b'\n').count();
        let (mut journal, found) = open(&files);
        assert_eq!((found.contents.len(), found.faults), (lines, Faults::default()), "cut at {end}");
        journal.commit(&batch(&[("pod/new", Some("1"))])).unwrap();
        assert_eq!(contents(&files).len(), lines + 1);
    }
}

#[test]
fn records_of_another_version_are_set_aside_in_two_files_at_most() {
    let (_, files) = before_each_way().into_iter().next().unwrap();
    let later = b"{\"crc\":\"4d3ae2a9\",\"record\":{\"v\":2}}\n";
    let mut crc = flate2::Crc::new();
    crc.update(b"{\"v\":2}");
    let later = String::from_utf8(later.to_vec()).unwrap().replace("4d3ae2a9", &format!("{:08x}", crc.sum()));
    for _ in 0..4 {
        files.clone().append(JOURNAL_FILE, later.as_bytes()).unwrap();
        let (_, found) = open(&files);
        assert_eq!((found.faults.other_format, found.faults.damaged, found.contents.len()), (1, 0, 3));
        assert_eq!(open(&files).1.faults, Faults::default());
    }
    let names: SortedSet<String> = files.0.lock().unwrap().seen.keys().cloned().collect();
    assert_eq!(names, [JOURNAL_FILE, SET_ASIDE_FILES[0], SET_ASIDE_FILES[1]].map(str::to_owned).into());
}

#[test]
fn arbitrary_file_content_is_tolerated() {
    for bytes in [&b"\0\0\0\0"[..], b"\n\n\n", b"\xff\xfe\n", b"{}\n[]\nnull\n", b"\0\0\n\0"] {
        let files = Memory::with(JOURNAL_FILE, bytes.to_vec());
        let (mut journal, found) = open(&files);
        assert!(found.contents.is_empty());
        journal.commit(&batch(&[("pod/a", Some("1"))])).unwrap();
        assert_eq!(contents(&files), said(&[("pod/a", "1")]));
    }
    let large = usize::try_from(MAX_JOURNAL_BYTES).unwrap() + 1;
    let files = Memory::with(JOURNAL_FILE, vec![b'x'; large]);
    assert!(open(&files).1.contents.is_empty());
    assert_eq!(files.file(SET_ASIDE_FILES[0]).unwrap().len(), large);
}

#[test]
fn secrets_are_encrypted_plain_or_not_written() {
    let change = batch(&[("secret/s", Some("hidden")), ("token/t", Some("hidden")), ("pod/a", Some("seen"))]);
    for (seal, is_written, is_plain) in [(key(), true, false), (Seal::Plain, true, true), (Seal::Memory, false, false)]
    {
        let files = Memory::default();
        let (mut journal, _) = Journal::open(Box::new(files.clone()), seal);
        journal.commit(&change).unwrap();
        let text = String::from_utf8(files.file(JOURNAL_FILE).unwrap()).unwrap();
        assert_eq!((text.contains("hidden"), journal.records()), (is_plain, if is_written { 3 } else { 1 }), "{text}");
        assert!(text.contains("seen"));
    }
}

#[test]
fn undecryptable_record_is_kept_until_replaced() {
    let files = Memory::default();
    let (mut journal, _) = open(&files);
    journal.commit(&batch(&[("secret/s", Some("hidden")), ("secret/t", Some("hidden"))])).unwrap();
    for seal in [Seal::Memory, Seal::Plain, Seal::Key(Key::derive(&[8; MIN_KEY_BYTES]).unwrap())] {
        let (_, found) = Journal::open(Box::new(files.clone()), seal);
        let found = found.unwrap();
        assert_eq!((found.contents.len(), found.faults.unopened, found.faults.damaged), (0, 2, 0));
    }
    let (mut journal, _) = Journal::open(Box::new(files.clone()), Seal::Key(Key::derive(&[8; MIN_KEY_BYTES]).unwrap()));
    journal.commit(&batch(&[("secret/s", Some("newer"))])).unwrap();
    assert_eq!(contents(&files), said(&[("secret/t", "hidden")]));
}

/// Environment variable with the directory of the process under test.
const PLACE: &str = "CORACLE_STORE_UNDER_TEST";

/// Increments two records in one batch forever, and prints each count.
fn write_for_ever(folder: std::path::PathBuf) {
    let (mut journal, found) = Journal::open(Box::new(crate::kubelet::offline::files::Folder(folder)), key());
    let mut count = count_in(&found.unwrap(), "pod/a").unwrap_or(0);
    let filler = "x".repeat(4000);
    loop {
        count += 1;
        let content = format!("\"{count} {filler}\"");
        journal.commit(&batch(&[("pod/a", Some(&content)), ("secret/s", Some(&content))])).unwrap();
        println!("\nwrote {count}");
    }
}

fn count_in(found: &JournalContents, name: &str) -> Option<u64> {
    let text = String::from_utf8(found.contents.get(name)?.clone()).unwrap();
    text.trim_start_matches('"').split(' ').next()?.parse().ok()
}

#[test]
fn committed_records_survive_a_kill() {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;

    if let Some(folder) = std::env::var_os(PLACE) {
        write_for_ever(folder.into());
    }
    let folder = std::env::temp_dir().join(format!("coracle-killed-{}", std::process::id()));
    let name = "kubelet::offline::journal::tests::committed_records_survive_a_kill";
    let mut commits = 0;
    for round in 0..40_u64 {
        let mut writer = Command::new(std::env::current_exe().unwrap());
        writer.args(["--exact", name, "--nocapture"]).env(PLACE, &folder).stdout(Stdio::piped()).stderr(Stdio::null());
        // With panic = abort, the harness runs each test in a process of its own.
        let mut writer = writer.process_group(0).spawn().unwrap();
        let mut said = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
        let count = |line: &String| line.strip_prefix("wrote ").and_then(|count| count.parse::<u64>().ok());
        let first = said.by_ref().find_map(|line| count(&line)).unwrap();
        // The kill falls at another point of the writes in each round.
        std::thread::sleep(std::time::Duration::from_millis(round % 13));
        killpg(Pid::from_raw(writer.id().try_into().unwrap()), Signal::SIGKILL).unwrap();
        writer.wait().unwrap();
        let last = said.filter_map(|line| count(&line)).last().unwrap_or(first);
        let (_, found) = Journal::open(Box::new(crate::kubelet::offline::files::Folder(folder.clone())), key());
        let found = found.unwrap();
        assert_eq!(found.faults, Faults::default(), "round {round}");
        for name in ["pod/a", "secret/s"] {
            let count = count_in(&found, name).unwrap();
            assert!(count == last || count == last + 1, "round {round}: {name} is {count} after {last}");
        }
        commits = last;
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(commits > 40, "{commits}");
}

#[test]
fn plain_secrets_are_dropped_unless_configured() {
    let plain = batch(&[("secret/s", Some("hidden")), ("token/t", Some("hidden")), ("pod/a", Some("seen"))]);
    for seal in [key(), Seal::Memory] {
        let files = Memory::default();
        let (mut journal, _) = Journal::open(Box::new(files.clone()), Seal::Plain);
        journal.commit(&plain).unwrap();
        let (journal, found) = Journal::open(Box::new(files.clone()), seal);
        let found = found.unwrap();
        assert_eq!(found.contents.keys().collect::<Vec<_>>(), ["pod/a"]);
        assert_eq!((found.faults, journal.records()), (Faults::default(), 1));
        let text = String::from_utf8(files.file(JOURNAL_FILE).unwrap()).unwrap();
        assert!(text.contains("seen") && !text.contains("hidden"), "{text}");
    }
}

#[test]
fn corrupt_file_with_plain_secrets_is_not_set_aside() {
    let files = Memory::default();
    let (mut journal, _) = Journal::open(Box::new(files.clone()), Seal::Plain);
    journal.commit(&batch(&[("secret/s", Some("hidden")), ("pod/a", Some("seen"))])).unwrap();
    let damaged = [files.file(JOURNAL_FILE).unwrap(), b"damaged\n".to_vec()].concat();
    let files = Memory::with(JOURNAL_FILE, damaged);
    let (_, found) = Journal::open(Box::new(files.clone()), key());
    assert_eq!(found.unwrap().faults.damaged, 1);
    assert_eq!(files.file(SET_ASIDE_FILES[0]), None);
    assert_eq!(contents(&files), said(&[("pod/a", "seen")]));
}

#[test]
fn unreadable_key_is_read_again_before_a_secret_is_written() {
    let folder = std::env::temp_dir().join(format!("coracle-unread-key-{}", std::process::id()));
    let path = folder.join("store-key");
    // A directory, which cannot be read as a file.
    std::fs::create_dir_all(&path).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let (seal, _) = KeyPlaces { credentials: None, file: Some(path.clone()), plain: false }.seal();
    assert!(matches!(seal, Seal::Unread(_)), "{seal:?}");
    let files = Memory::default();
    let (mut journal, _) = Journal::open(Box::new(files.clone()), seal);
    let secret = batch(&[("secret/s", Some("hidden"))]);
    let refused = [journal.commit(&secret).is_err(), journal.commit(&batch(&[("pod/a", Some("seen"))])).is_err()];
    std::fs::remove_dir(&path).unwrap();
    let done = journal.commit(&secret);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(refused, [true, false], "only Secrets wait for the key");
    assert!(done.unwrap().secrets.is_some_and(|secrets| secrets.starts_with("sealed with")));
    assert_eq!(journal.records(), 2);
}
