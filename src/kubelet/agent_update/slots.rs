//! The files of updates: the record, programs and configurations.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::record::{Record, Write};
use crate::platform::host::directories::set_aside;
use crate::platform::host::durable::{self, StoredFile};
use crate::platform::host::file;
use crate::protocol::sha256::sha256;

/// The directory of updates.
#[derive(Clone, Debug)]
pub(crate) struct AgentUpdates {
    pub(super) directory: PathBuf,
}

/// A folder of the directory. Its files are named by their SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Config,
    Program,
}

impl AgentUpdates {
    pub(crate) fn new(root_dir: &Path) -> Self {
        Self { directory: root_dir.join("coracle/agent") }
    }

    /// The record; the default one if there is none. An unusable one is an error, see [`is_damage`].
    pub(crate) fn record(&self) -> io::Result<Record> {
        let record = match durable::read(&self.record_path(), MAX_RECORD_BYTES)? {
            StoredFile::Nothing => Some(Record::default()),
            StoredFile::Damaged => None,
            StoredFile::Whole(bytes) => {
                let value: Option<Value> = serde_json::from_slice(&bytes).ok();
                value.and_then(|value| Record::from_json(&value))
            }
        };
        record.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "damaged, or of another version"))
    }

    /// Sets the damaged record aside. `known` is what is known of it. Returns the record in its place, which says so. For
    /// the launcher and the agent: other processes would set aside a record that the agent has replaced meanwhile.
    pub(crate) fn replace_damaged(&self, known: Record, now: &str) -> io::Result<Record> {
        let mut record = known;
        let mut writes = record.lose(now);
        // The damaged record stays until the former configuration is back.
        writes.retain(|write| *write != Write::Record);
        self.carry_out(&writes, &record)?;
        set_aside(&self.record_path())?;
        self.write(&record).map(|()| record)
    }

    pub(crate) fn record_path(&self) -> PathBuf {
        self.directory.join("record.json")
    }

    pub(crate) fn write(&self, record: &Record) -> io::Result<()> {
        let path = self.record_path();
        durable::write_changed_within(&path, record.to_json().to_string().as_bytes(), MAX_RECORD_BYTES).map(drop)
    }

    /// Changes the record durably.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Record) -> T) -> io::Result<T> {
        let mut record = self.record()?;
        let result = change(&mut record);
        self.write(&record).map(|()| result)
    }

    /// Rejects what is on trial, and restores the former state.
    pub(crate) fn reject(&self, reason: &str, now: &str) -> io::Result<()> {
        let mut record = self.record()?;
        let writes = record.reject(reason, now);
        self.carry_out(&writes, &record)
    }

    /// Ends the trial, or restores the previous program. Returns what runs at the next start.
    pub(crate) fn roll_back(&self, now: &str) -> Result<String, String> {
        let failed = |error: io::Error| format!("{}: {error}", self.record_path().display());
        let mut record = self.record().map_err(failed)?;
        let (name, writes) = record.roll_back(now)?;
        self.carry_out(&writes, &record).map_err(failed)?;
        Ok(name)
    }

    /// Carries out `writes` in their order. Repeating them is right.
    pub(super) fn carry_out(&self, writes: &[Write], record: &Record) -> io::Result<()> {
        for write in writes {
            match write {
                Write::Record => self.write(record)?,
                Write::Config { path, content: None } => durable::remove(path)?,
                Write::Config { path, content: Some(digest) } => {
                    let content = self.read(Place::Config, digest)?;
                    if file::read_all(path, MAX_CONFIG_BYTES).ok().as_ref() != Some(&content) {
                        file::replace(path, &content)?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn path(&self, area: Place, digest: &str) -> PathBuf {
        let path = self.directory.join(area.folder()).join(digest);
        // The name of the file is that of the process in `ps` and `pidof`.
        if area == Place::Program { path.join("coracle") } else { path }
    }

    /// Stores `content` durably. Returns its SHA-256.
    pub(crate) fn store(&self, area: Place, content: &[u8]) -> io::Result<String> {
        let digest = sha256(content);
        if self.read(area, &digest).is_ok() {
            return Ok(digest);
        }
        let path = self.path(area, &digest);
        let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let unfinished = path.with_extension("new");
        let _ = durable::remove(&unfinished);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(area.mode()).open(&unfinished)?;
        file.write_all(content)?;
        file.sync_all()?;
        // A program that is open for writing cannot be executed.
        drop(file);
        fs::rename(&unfinished, &path)?;
        for folder in path.ancestors().skip(1).take_while(|folder| folder.starts_with(&self.directory)) {
            file::sync_folder(folder)?;
        }
        Ok(digest)
    }

    /// The content with this digest. An error if it is missing or damaged.
    pub(crate) fn read(&self, area: Place, digest: &str) -> io::Result<Vec<u8>> {
        let content = file::read_all(&self.path(area, digest), area.limit())?;
        match sha256(&content) == digest {
            true => Ok(content),
            false => Err(io::Error::other("damaged: its SHA-256 is another")),
        }
    }

    /// Removes what no record needs. A failure leaves files, which the next call removes.
    pub(crate) fn clean(&self, record: &Record, also_kept: Option<&str>) {
        let kept = record.digests();
        for area in [Place::Config, Place::Program] {
            for entry in fs::read_dir(self.directory.join(area.folder())).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                if !kept.contains(&&*name) && also_kept != Some(&*name) {
                    let _ = fs::remove_file(entry.path()).or_else(|_| fs::remove_dir_all(entry.path()));
                }
            }
        }
    }
}

impl Place {
    fn folder(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Program => "slots",
        }
    }

    fn mode(self) -> u32 {
        match self {
            Self::Config => 0o600,
            Self::Program => 0o700,
        }
    }

    /// Size limit of a file.
    pub(crate) fn limit(self) -> u64 {
        match self {
            Self::Config => MAX_CONFIG_BYTES,
            Self::Program => MAX_PROGRAM_BYTES,
        }
    }
}

/// Whether the record was read and is unusable. Any other error may pass.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

const MAX_RECORD_BYTES: u64 = 1 << 20;
const MAX_CONFIG_BYTES: u64 = 1 << 20;
/// A debug build has 100 MB; it can be tried too.
const MAX_PROGRAM_BYTES: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kubelet::agent_update::{Before, Subject};
    use crate::platform::rt::TestFolder;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn damage(updates: &AgentUpdates) -> PathBuf {
        fs::create_dir_all(&updates.directory).unwrap();
        fs::write(updates.record_path(), "damaged").unwrap();
        assert!(is_damage(&updates.record().unwrap_err()));
        updates.directory.join("record.json.corrupt")
    }

    #[test]
    fn damaged_record_is_set_aside_and_the_next_one_is_usable() {
        let folder = TestFolder::new("updates-damaged");
        let updates = AgentUpdates::new(&folder.0);
        let aside = damage(&updates);
        let record = updates.replace_damaged(Record::default(), NOW).unwrap();
        assert_eq!(fs::read_to_string(aside).unwrap(), "damaged");
        assert_eq!(updates.record().unwrap(), record);
        assert!(record.is_lost() && record.current.is_none() && !record.last.unwrap().is_announced);
        let subject = Subject::Config { path: "/c".into(), candidate: "a".repeat(64), former: None };
        updates.change(|record| record.arm(subject, Duration::ZERO, Before::default())).unwrap().unwrap();
    }

    #[test]
    fn record_that_cannot_be_read_is_not_damaged() {
        let folder = TestFolder::new("updates-unreadable");
        let updates = AgentUpdates::new(&folder.0);
        fs::create_dir_all(updates.record_path()).unwrap();
        assert!(!is_damage(&updates.record().unwrap_err()));
    }

    #[test]
    fn configuration_on_trial_is_undone_when_the_record_of_its_trial_is_damaged() {
        let folder = TestFolder::new("updates-damaged-trial");
        let updates = AgentUpdates::new(&folder.0);
        let path = folder.0.join("config.yaml");
        fs::write(&path, "new").unwrap();
        let [former, candidate] = ["old", "new"].map(|text| updates.store(Place::Config, text.as_bytes()).unwrap());
        let mut known = Record::default();
        let subject = Subject::Config { path: path.clone(), candidate, former: Some(former.clone()) };
        known.arm(subject, Duration::from_secs(300), Before::default()).unwrap();
        let aside = damage(&updates);
        // The record stays until the former configuration is back.
        fs::write(updates.path(Place::Config, &former), "flipped").unwrap();
        updates.replace_damaged(known.clone(), NOW).unwrap_err();
        assert!(!aside.exists() && is_damage(&updates.record().unwrap_err()));
        fs::write(updates.path(Place::Config, &former), "old").unwrap();
        let record = updates.replace_damaged(known, NOW).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "old");
        assert_eq!((record.trial, record.last.unwrap().is_accepted), (None, false));
    }
}
