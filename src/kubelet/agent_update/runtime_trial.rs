//! A configuration of the container runtime on trial: the former file comes back unless the trial was good.
//!
//! ```text
//! ROOT_DIR/coracle/agent/runtime/record.json   the file and the command that restarts the runtime, while there is a trial
//! ROOT_DIR/coracle/agent/runtime/former        the former file; missing if there was none
//! ROOT_DIR/coracle/agent/runtime/lock          held by the process that judges the trial
//! ROOT_DIR/coracle/agent/runtime/verdict.json  how the last trial ended, until the agent takes it into its own record
//! ```
//!
//! The record comes first. A trial whose judge has died, also in a power cut, is undone at the next start of the agent.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

use super::record::TrialEnd;
use super::slots::AgentUpdates;
use crate::platform::host::clock;
use crate::platform::host::durable::{self, StoredFile};
use crate::platform::host::file;

#[derive(Debug)]
pub(crate) struct RuntimeTrial {
    folder: PathBuf,
    path: PathBuf,
    restart: String,
    /// Ends with the process.
    _lock: Flock<File>,
}

/// The error is one line.
type Outcome<T> = Result<T, String>;

const MAX_RUNTIME_CONFIG_BYTES: u64 = 1 << 20;
const MAX_RUNTIME_RECORD_BYTES: u64 = 64 << 10;

impl RuntimeTrial {
    /// Puts `content` in place of the file at `path`, and restarts the runtime by the command `restart` of a shell.
    pub(crate) fn begin(root_dir: &Path, path: &Path, content: &[u8], restart: &str) -> Outcome<Self> {
        let folder = folder(root_dir);
        fs::create_dir_all(&folder).map_err(|error| line(&folder, &error))?;
        let lock = lock(&folder).ok_or("another configuration of the runtime is on trial")?;
        // A link stays one.
        let path = fs::canonicalize(path).or_else(|_| std::path::absolute(path)).map_err(|error| line(path, &error))?;
        let trial = Self { folder, path, restart: restart.to_owned(), _lock: lock };
        trial.save_former().map_err(|error| line(&trial.folder, &error))?;
        let record = json!({ "path": trial.path, "restart": trial.restart }).to_string();
        let written = durable::write(&trial.folder.join(RECORD), record.as_bytes());
        written.map_err(|error| line(&trial.folder, &error))?;
        let begun = file::replace(&trial.path, content).map_err(|error| line(&trial.path, &error));
        match begun.and_then(|()| run(&trial.restart)) {
            Ok(()) => Ok(trial),
            Err(why) => Err(trial.undo(&why)),
        }
    }

    /// The trial that a process has left without a verdict, if there is one.
    pub(crate) fn abandoned(root_dir: &Path) -> Option<Outcome<Self>> {
        let folder = folder(root_dir);
        let record = folder.join(RECORD);
        if !record.exists() {
            return None;
        }
        let lock = lock(&folder)?;
        let bytes = match durable::read(&record, MAX_RUNTIME_RECORD_BYTES) {
            Ok(StoredFile::Whole(bytes)) => bytes,
            Ok(StoredFile::Nothing) => return None,
            Ok(StoredFile::Damaged) => return Some(Err(format!("{}: damaged", record.display()))),
            Err(error) => return Some(Err(line(&record, &error))),
        };
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let text = |key| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let trial = text("path").zip(text("restart"));
        let trial = trial.map(|(path, restart)| Self { folder, path: path.into(), restart, _lock: lock });
        Some(trial.ok_or_else(|| format!("{}: damaged", record.display())))
    }

    /// The new configuration stays.
    pub(crate) fn accept(self) -> Outcome<()> {
        self.keep_verdict(None);
        self.forget()
    }

    /// Restores the former file and restarts the runtime. Returns what happened, as one line.
    pub(crate) fn undo(self, why: &str) -> String {
        let fault = |undone: &Outcome<()>| match undone {
            Ok(()) => format!("{why}; the former one is back"),
            Err(error) => format!("{why}; failed to restore the former one: {error}"),
        };
        let undone = self.restore().and_then(|()| run(&self.restart));
        self.keep_verdict(Some(&fault(&undone)));
        let undone = undone.and_then(|()| self.forget());
        format!("{} rejected: {}", self.path.display(), fault(&undone))
    }

    /// For the agent. If that fails, the caller still tells the verdict where it runs.
    fn keep_verdict(&self, fault: Option<&str>) {
        let end = TrialEnd::of_runtime(&self.path, fault, &clock::timestamp().to_string());
        let _ = durable::write(&self.folder.join(VERDICT), end.to_json().to_string().as_bytes());
    }

    fn save_former(&self) -> io::Result<()> {
        let former = self.folder.join(FORMER);
        match file::read_all(&self.path, MAX_RUNTIME_CONFIG_BYTES) {
            Ok(content) => file::replace(&former, &content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => durable::remove(&former),
            Err(error) => Err(error),
        }
    }

    fn restore(&self) -> Outcome<()> {
        let former = self.folder.join(FORMER);
        let restored = match file::read_all(&former, MAX_RUNTIME_CONFIG_BYTES) {
            Ok(content) => file::replace(&self.path, &content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => durable::remove(&self.path),
            Err(error) => Err(error),
        };
        restored.map_err(|error| line(&self.path, &error))
    }

    fn forget(&self) -> Outcome<()> {
        durable::remove(&self.folder.join(RECORD)).map_err(|error| line(&self.folder, &error))
    }
}

impl AgentUpdates {
    /// Whether a trial of the runtime's configuration has left a verdict.
    pub(crate) fn has_runtime_verdict(&self) -> bool {
        self.runtime_verdict().exists()
    }

    /// Makes the verdict on the runtime's configuration the last one of the record. It is removed last, so that a cut
    /// before repeats both writes.
    pub(crate) fn take_runtime_verdict(&self) -> io::Result<()> {
        let path = self.runtime_verdict();
        let bytes = match durable::read(&path, MAX_RUNTIME_RECORD_BYTES)? {
            StoredFile::Nothing => return Ok(()),
            // It says nothing, and is removed.
            StoredFile::Damaged => Vec::new(),
            StoredFile::Whole(bytes) => bytes,
        };
        let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if let Some(end) = TrialEnd::from_json(&value) {
            self.change(|record| record.last = Some(end))?;
        }
        durable::remove(&path)
    }

    fn runtime_verdict(&self) -> PathBuf {
        self.directory.join("runtime").join(VERDICT)
    }
}

const RECORD: &str = "record.json";
const FORMER: &str = "former";
const VERDICT: &str = "verdict.json";

fn folder(root_dir: &Path) -> PathBuf {
    root_dir.join("coracle/agent/runtime")
}

fn line(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// `None` if another process holds it.
fn lock(folder: &Path) -> Option<Flock<File>> {
    let file = File::options().write(true).create(true).truncate(false).open(folder.join("lock")).ok()?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

fn run(restart: &str) -> Outcome<()> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", restart]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{restart}: {status}")),
        Err(error) => Err(format!("{restart}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Board {
        root: PathBuf,
        file: PathBuf,
    }

    impl Board {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("coracle-runtime-trial-{name}-{}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            let file = root.join("config.toml");
            fs::write(&file, "former").unwrap();
            Self { root, file }
        }

        fn content(&self) -> String {
            fs::read_to_string(&self.file).unwrap()
        }

        /// A restart of a runtime that does not start with the content `bad`.
        fn restart(&self) -> String {
            format!("echo restart >>{0}/restarts; ! grep -q bad {0}/config.toml", self.root.display())
        }

        fn restarts(&self) -> usize {
            fs::read_to_string(self.root.join("restarts")).unwrap_or_default().lines().count()
        }

        fn begin(&self, content: &str) -> Outcome<RuntimeTrial> {
            RuntimeTrial::begin(&self.root, &self.file, content.as_bytes(), &self.restart())
        }

        fn abandoned(&self) -> Option<RuntimeTrial> {
            RuntimeTrial::abandoned(&self.root).map(Result::unwrap)
        }
    }

    impl Drop for Board {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn good_configuration_stays_and_leaves_no_trial() {
        let board = Board::new("good");
        let trial = board.begin("new").unwrap();
        assert_eq!((&*board.content(), board.restarts()), ("new", 1));
        assert!(board.begin("third").unwrap_err().contains("another configuration"));
        assert!(board.abandoned().is_none(), "its judge lives");
        trial.accept().unwrap();
        assert!(board.abandoned().is_none());
        assert_eq!((&*board.content(), board.restarts()), ("new", 1));
    }

    #[test]
    fn configuration_with_which_the_runtime_does_not_start_is_undone() {
        let board = Board::new("bad");
        let error = board.begin("bad").unwrap_err();
        assert!(error.contains("exit status: 1; the former one is back"), "{error}");
        assert_eq!((&*board.content(), board.restarts()), ("former", 2));
        assert!(board.abandoned().is_none());
    }

    #[test]
    fn trial_without_a_judge_is_undone_also_if_there_was_no_file() {
        let board = Board::new("cut");
        drop(board.begin("new").unwrap());
        let line = board.abandoned().unwrap().undo("no verdict");
        assert!(line.ends_with("rejected: no verdict; the former one is back"), "{line}");
        assert_eq!((&*board.content(), board.restarts()), ("former", 2));
        fs::remove_file(&board.file).unwrap();
        drop(board.begin("new").unwrap());
        board.abandoned().unwrap().undo("no verdict");
        assert!(!board.file.exists() && board.abandoned().is_none());
    }

    #[test]
    fn cut_before_and_after_each_write_leaves_the_former_file_or_a_trial_that_is_undone() {
        let board = Board::new("writes");
        drop(board.begin("new").unwrap());
        // Cut after the record, before the file.
        fs::write(&board.file, "former").unwrap();
        board.abandoned().unwrap().undo("no verdict");
        assert_eq!(board.content(), "former");
        // Cut after the restoration, before the record is removed.
        drop(board.begin("new").unwrap());
        board.abandoned().unwrap().restore().unwrap();
        board.abandoned().unwrap().undo("no verdict");
        assert_eq!(board.content(), "former");
        assert!(board.abandoned().is_none());
    }

    fn taken(board: &Board) -> TrialEnd {
        let updates = AgentUpdates::new(&board.root);
        assert!(updates.has_runtime_verdict());
        updates.take_runtime_verdict().unwrap();
        assert!(!updates.has_runtime_verdict());
        let last = updates.record().unwrap().last.unwrap();
        assert!(!last.is_announced);
        // Without a new one the last one stays.
        updates.take_runtime_verdict().unwrap();
        assert_eq!(updates.record().unwrap().last.as_ref(), Some(&last));
        last
    }

    #[test]
    fn agent_takes_the_verdict_once() {
        let board = Board::new("verdict");
        assert!(!AgentUpdates::new(&board.root).has_runtime_verdict());
        let path = board.file.display();
        board.begin("new").unwrap().accept().unwrap();
        assert_eq!(taken(&board).line(), format!("runtime's {path} accepted"));
        board.begin("bad").unwrap_err();
        let line = taken(&board).line();
        let (begin, end) = (format!("runtime's {path} rejected: "), "exit status: 1; the former one is back");
        assert!(line.starts_with(&begin) && line.ends_with(end), "{line}");
        drop(board.begin("new").unwrap());
        board.abandoned().unwrap().undo("no verdict");
        assert_eq!(taken(&board).reason, "no verdict; the former one is back");
    }

    #[test]
    fn verdict_says_that_the_former_file_could_not_be_restored() {
        let board = Board::new("worse");
        let error = RuntimeTrial::begin(&board.root, &board.file, b"new", "false").unwrap_err();
        let reason = "false: exit status: 1; failed to restore the former one: false: exit status: 1";
        assert_eq!((error.split_once("rejected: ").unwrap().1, &*taken(&board).reason), (reason, reason));
        assert!(board.abandoned().is_some(), "the next start tries again");
    }

    #[test]
    fn damaged_verdict_is_removed_and_changes_nothing() {
        let board = Board::new("damaged");
        board.begin("new").unwrap().accept().unwrap();
        fs::write(folder(&board.root).join(VERDICT), "damaged").unwrap();
        let updates = AgentUpdates::new(&board.root);
        updates.take_runtime_verdict().unwrap();
        assert_eq!((updates.has_runtime_verdict(), updates.record().unwrap().last), (false, None));
    }

    #[test]
    fn reason_of_a_verdict_is_bounded() {
        let end = TrialEnd::of_runtime(Path::new("/c"), Some(&"x".repeat(1 << 20)), "now");
        assert_eq!(end.reason.len(), 1024);
        assert_eq!(TrialEnd::from_json(&end.to_json()), Some(end));
    }
}
