//! The journal: a file of records, rewritten when more than half of it is obsolete.
//!
//! At any time, also after a power failure, the file has either the old or the new state of each record: appended
//! lines are valid one by one, and a rewritten file replaces the old one only when it is complete.

use std::io;

use super::digest::digest;
use super::files::Files;
use super::names;
use super::record::{BadRecord, Record, RecordValue, lines};
use super::seal::Seal;
use super::shares::{MAX_STORE_BYTES, Shares};
use crate::types::sorted::{SortedMap, SortedSet};

/// The new content of each name; `None`: removed.
pub(super) type Batch = SortedMap<String, Option<Vec<u8>>>;

pub(super) struct Journal {
    files: Box<dyn Files>,
    seal: Seal,
    live_records: SortedMap<Box<str>, LiveRecord>,
    /// Size of the file in bytes.
    length: u64,
    /// The end of the file is unknown, so it must be rewritten before the next append.
    is_in_doubt: bool,
}

/// The record in the file for a name.
#[derive(Clone, Copy, Debug)]
struct LiveRecord {
    /// `None` for content that could not be decrypted.
    digest: Option<u64>,
    length: u64,
}

/// The content of the file.
#[derive(Debug, Default)]
pub(super) struct JournalContents {
    pub(super) contents: SortedMap<String, Vec<u8>>,
    pub(super) faults: Faults,
}

/// Number of unusable records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) damaged: u64,
    pub(super) other_format: u64,
    /// Encrypted with another key, or there is no key now. They are kept.
    pub(super) unopened: u64,
}

/// The result of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommitResult {
    /// Bytes written.
    pub(super) bytes: u64,
    /// Records left out because of the size limit. Of those that may be revoked, the old content is removed.
    pub(super) left_out: u64,
    /// Corrupt lines found since the last commit.
    pub(super) damaged: u64,
    /// How Secrets are stored, if that has changed.
    pub(super) secrets: Option<String>,
}

pub(super) const JOURNAL_FILE: &str = "journal";
/// Becomes the journal when complete.
pub(super) const NEXT: &str = "journal.new";
/// Copies with unusable lines: the newest and the one before it.
pub(super) const SET_ASIDE_FILES: [&str; 2] = ["journal.set-aside-1", "journal.set-aside-2"];

/// Obsolete lines are kept until they exceed the others and this many bytes.
const MIN_OBSOLETE_BYTES: u64 = 256 << 10;
/// A larger file was not written by this program.
const MAX_JOURNAL_BYTES: u64 = 2 * MAX_STORE_BYTES + MIN_OBSOLETE_BYTES + MAX_STORE_BYTES;

impl Journal {
    /// Reads the file. A file with unusable lines is set aside, and the other lines are used. Blocks.
    pub(super) fn open(files: Box<dyn Files>, seal: Seal) -> (Self, io::Result<JournalContents>) {
        let live_records = SortedMap::new();
        let mut journal = Self { files, seal, live_records, length: 0, is_in_doubt: true };
        let contents = journal.load();
        (journal, contents)
    }

    fn load(&mut self) -> io::Result<JournalContents> {
        let bytes = self.current()?;
        let lines = Lines::read(&bytes);
        let contents = self.index(&bytes, &lines);
        // A process that was killed may have left lines that are not durable yet. They are not written again.
        self.is_in_doubt = lines.is_torn || !bytes.is_empty() && self.sync().is_err();
        if lines.has_bad_lines() || lines.live.iter().any(|(name, line)| self.refuses(name, line)) {
            // Setting the file aside is retried with the next batch.
            self.is_in_doubt = true;
            drop(self.rewrite(&[]));
        }
        Ok(contents)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.files.sync(JOURNAL_FILE)?;
        self.files.sync_folder()
    }

    /// Takes the records that the file has.
    fn index(&mut self, bytes: &[u8], lines: &Lines<'_>) -> JournalContents {
        let mut contents = JournalContents::default();
        self.live_records.clear();
        contents.faults.damaged = lines.damaged;
        contents.faults.other_format = lines.other_format;
        for (name, line) in &lines.live {
            if self.refuses(name, line) {
                continue;
            }
            let content = match line.value {
                RecordValue::Content(content) => Some(content.to_vec()),
                RecordValue::Sealed(sealed) => self.seal.open(name, sealed),
                RecordValue::Gone => continue,
            };
            let digest = content.as_deref().map(digest);
            self.live_records.insert((*name).into(), LiveRecord { digest, length: length_of(line.bytes) + 1 });
            match content {
                Some(content) => drop(contents.contents.insert((*name).to_owned(), content)),
                None => contents.faults.unopened += 1,
            }
        }
        self.length = length_of(bytes);
        contents
    }

    /// Whether the line is a plain-text Secret or token although they must be encrypted. It is dropped, because it may
    /// have been added by anyone with write access to the disk; the cluster sends it again.
    fn refuses(&self, name: &str, line: &Line<'_>) -> bool {
        is_secret(name) && matches!(line.value, RecordValue::Content(_)) && !matches!(self.seal, Seal::Plain)
    }

    /// Writes a batch durably; unchanged records are not written. Blocks.
    ///
    /// After an error each record may or may not have been written; the batch, or one with newer records, can be
    /// committed again.
    pub(super) fn commit(&mut self, batch: &Batch) -> io::Result<CommitResult> {
        let mut done = CommitResult { secrets: self.read_key(batch)?, ..CommitResult::default() };
        if self.is_in_doubt {
            // Which records of the failed batch were written is only known from the file.
            let bytes = self.current()?;
            self.index(&bytes, &Lines::read(&bytes));
        }
        let mut pending = Vec::new();
        let mut shares = Shares::of(self.live_records.iter().map(|(name, record)| (&**name, record.length)));
        for (name, content) in batch {
            let stored = self.live_records.get(name.as_str()).copied();
            let Some(mut record) = self.pending_record(name, content.as_deref(), stored) else { continue };
            let old = stored.map_or(0, |record| record.length);
            if !shares.replace(name, old, record.live_length()) {
                done.left_out += 1;
                let is_kept = !names::may_be_revoked(name);
                let Some(gone) = self.pending_record(name, None, stored).filter(|_| !is_kept) else { continue };
                shares.replace(name, old, 0);
                record = gone;
            }
            pending.push(record);
        }
        let live = shares.all();
        if pending.is_empty() && !self.is_in_doubt {
            return Ok(done);
        }
        let more: u64 = pending.iter().map(|record| length_of(&record.line)).sum();
        let spare = (self.length + more).saturating_sub(live);
        if self.is_in_doubt || self.length == 0 || spare > live.max(MIN_OBSOLETE_BYTES) {
            let (bytes, damaged) = self.rewrite(&pending)?;
            return Ok(CommitResult { bytes, damaged, ..done });
        }
        let bytes = pending.iter().flat_map(|record| &record.line).copied().collect::<Vec<u8>>();
        self.is_in_doubt = true;
        self.files.append(JOURNAL_FILE, &bytes)?;
        self.files.sync(JOURNAL_FILE)?;
        self.is_in_doubt = false;
        self.length += more;
        self.note(&pending);
        Ok(CommitResult { bytes: more, ..done })
    }

    /// Before a Secret is written, retries to read a key that was unreadable before. Returns how Secrets are stored
    /// if that changed.
    fn read_key(&mut self, batch: &Batch) -> io::Result<Option<String>> {
        let Seal::Unread(places) = &self.seal else { return Ok(None) };
        if !batch.iter().any(|(name, content)| content.is_some() && is_secret(name)) {
            return Ok(None);
        }
        let (seal, secrets) = places.seal();
        if matches!(seal, Seal::Unread(_)) {
            return Err(io::Error::other(format!("secrets are {secrets}")));
        }
        self.seal = seal;
        Ok(Some(secrets))
    }

    /// `None` if it is unchanged or may not be written.
    fn pending_record(&self, name: &str, content: Option<&[u8]>, stored: Option<LiveRecord>) -> Option<PendingRecord> {
        let digest = content.map(digest);
        let mut line = Vec::new();
        match content {
            None => {
                stored?;
                Record { name, value: RecordValue::Gone }.write(&mut line);
            }
            Some(_) if stored.is_some_and(|record| record.digest == digest) => return None,
            Some(content) if is_secret(name) => match &self.seal {
                Seal::Memory | Seal::Unread(_) => return None,
                Seal::Plain => Record { name, value: RecordValue::Content(content) }.write(&mut line),
                Seal::Key(key) => {
                    let sealed = key.seal(name, content)?;
                    Record { name, value: RecordValue::Sealed(sealed.as_bytes()) }.write(&mut line);
                }
            },
            Some(content) => Record { name, value: RecordValue::Content(content) }.write(&mut line),
        }
        Some(PendingRecord { name: name.into(), digest, is_there: content.is_some(), line })
    }

    fn note(&mut self, pending: &[PendingRecord]) {
        let record = |one: &PendingRecord| LiveRecord { digest: one.digest, length: one.live_length() };
        self.live_records.extend(pending.iter().map(|one| (one.name.clone(), record(one))));
        // Removed records have no length.
        self.live_records.retain(|_, record| record.length > 0);
    }

    /// Rewrites the file with these records and without obsolete lines. Returns its length and the number of corrupt
    /// lines.
    fn rewrite(&mut self, pending: &[PendingRecord]) -> io::Result<(u64, u64)> {
        let old = self.current()?;
        let whole = Lines::read(&old);
        let mut bytes = Vec::new();
        let mut kept = Vec::new();
        let pending_names: SortedSet<&str> = pending.iter().map(|one| &*one.name).collect();
        for (name, line) in &whole.live {
            if line.value == RecordValue::Gone || pending_names.contains(*name) || self.refuses(name, line) {
                continue;
            }
            bytes.extend_from_slice(line.bytes);
            bytes.push(b'\n');
            let digest = self.live_records.get(*name).and_then(|record| record.digest);
            kept.push((Box::from(*name), LiveRecord { digest, length: length_of(line.bytes) + 1 }));
        }
        pending.iter().filter(|one| one.is_there).for_each(|one| bytes.extend_from_slice(&one.line));
        self.is_in_doubt = true;
        self.files.write(NEXT, &bytes)?;
        self.files.sync(NEXT)?;
        // A file with plain secrets is not kept.
        if whole.has_bad_lines() && !whole.live.iter().any(|(name, line)| self.refuses(name, line)) {
            // At most two copies are kept, so that they cannot fill the disk.
            let [newest, before] = SET_ASIDE_FILES;
            match self.files.rename(newest, before) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.files.rename(JOURNAL_FILE, newest)?;
        }
        self.files.rename(NEXT, JOURNAL_FILE)?;
        self.files.sync_folder()?;
        self.is_in_doubt = false;
        self.live_records = kept.into_iter().collect();
        self.note(pending);
        self.length = length_of(&bytes);
        Ok((self.length, whole.damaged + whole.other_format))
    }

    /// The bytes of the journal. If a rewrite was interrupted after the old journal was set aside, completes it.
    fn current(&mut self) -> io::Result<Vec<u8>> {
        match self.files.read(JOURNAL_FILE, MAX_JOURNAL_BYTES) {
            Ok(Some(bytes)) => return Ok(bytes),
            Ok(None) => {}
            // A file of this size is not used at all.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                let [newest, _] = SET_ASIDE_FILES;
                self.files.rename(JOURNAL_FILE, newest)?;
                self.files.sync_folder()?;
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        }
        let Some(bytes) = self.files.read(NEXT, MAX_JOURNAL_BYTES)? else { return Ok(Vec::new()) };
        self.files.rename(NEXT, JOURNAL_FILE)?;
        self.files.sync_folder()?;
        Ok(bytes)
    }

    pub(super) fn records(&self) -> usize {
        self.live_records.len()
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }
}

/// A record to write.
struct PendingRecord {
    name: Box<str>,
    digest: Option<u64>,
    is_there: bool,
    line: Vec<u8>,
}

impl PendingRecord {
    fn live_length(&self) -> u64 {
        if self.is_there { length_of(&self.line) } else { 0 }
    }
}

/// The last record of each name in a file.
#[derive(Default)]
struct Lines<'a> {
    live: SortedMap<&'a str, Line<'a>>,
    damaged: u64,
    other_format: u64,
    /// The file ends in the middle of a line after a power failure; that line was never reported as written.
    is_torn: bool,
}

struct Line<'a> {
    value: RecordValue<'a>,
    bytes: &'a [u8],
}

impl<'a> Lines<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let (whole, rest) = lines(bytes);
        let mut read = Self { is_torn: !rest.is_empty(), ..Self::default() };
        let mut records = Vec::new();
        for bytes in whole {
            match Record::read(bytes) {
                Ok(Record { name, value }) => records.push((name, Line { value, bytes })),
                Err(BadRecord::Damaged) => read.damaged += 1,
                Err(BadRecord::OtherFormat) => read.other_format += 1,
            }
        }
        read.live = records.into_iter().collect();
        read
    }

    fn has_bad_lines(&self) -> bool {
        self.damaged + self.other_format > 0
    }
}

/// Whether the record is only written encrypted, unless plain storage is configured.
pub(super) fn is_secret(name: &str) -> bool {
    ["secret/", "token/", names::READ_RECORD_PREFIX].iter().any(|kind| name.starts_with(kind))
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
