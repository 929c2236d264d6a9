//! Rotates one log: removes the oldest files, renames the full one, makes the runtime reopen.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{error, fmt};

use super::files;
use super::limits::LogLimits;
use super::rotated_names::next_stamp;
use crate::platform::cri::{self, RuntimeService};
use crate::platform::host::clock;
use crate::platform::rt;

/// Sizes of a log's files, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RotationState {
    pub(super) size: u64,
    /// Total of the rotated files.
    pub(super) full: u64,
    /// Whether the current file is missing.
    pub(super) away: bool,
}

/// Deadline for the runtime to reopen, so that a hanging runtime does not block other logs for long.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Brings the log of a running container below its limits. `has_existed`: its file has existed before.
pub(super) async fn rotate_if_due(
    cri: &RuntimeService,
    id: &str,
    log: &Path,
    limits: LogLimits,
    has_existed: bool,
) -> Result<RotationState, RotateError> {
    let path = log.to_owned();
    match rt::blocking(move || make_room(&path, limits)).await.map_err(RotateError::Files)? {
        LogFiles::Fits(rotation) => Ok(rotation),
        // The runtime keeps its logs elsewhere or has not started writing.
        LogFiles::Away { full: 0 } if !has_existed => Ok(RotationState { size: 0, full: 0, away: true }),
        LogFiles::Away { full } => {
            // The file was removed, or an earlier rotation was interrupted: the runtime still writes to the renamed
            // file.
            reopen(cri, id).await?;
            Ok(RotationState { size: 0, full, away: true })
        }
        LogFiles::Renamed { to } => match reopen(cri, id).await {
            Ok(()) => {
                // The runtime wrote to the renamed file until it reopened.
                let log = log.to_owned();
                rt::blocking(move || count(&log)).await.map_err(RotateError::Files)
            }
            Err(error) => {
                let log = log.to_owned();
                rt::blocking(move || put_back(&to, &log)).await.map_err(RotateError::Files)?;
                Err(error)
            }
        },
    }
}

async fn reopen(cri: &RuntimeService, id: &str) -> Result<(), RotateError> {
    match rt::deadline(REOPEN_TIMEOUT, cri.reopen_container_log(id)).await {
        Ok(reopened) => reopened.map_err(RotateError::Runtime),
        Err(_) => Err(RotateError::Late),
    }
}

enum LogFiles {
    Fits(RotationState),
    /// The current file does not exist.
    Away {
        full: u64,
    },
    Renamed {
        to: PathBuf,
    },
}

/// Removes surplus files, and renames the current file if it is full.
fn make_room(log: &Path, limits: LogLimits) -> io::Result<LogFiles> {
    let mut files = files::list(log)?;
    let current = if files.last().is_some_and(|file| file.stamp.is_none()) { files.pop() } else { None };
    let size = current.as_ref().map_or(0, |file| file.size);
    let rotates = current.is_some() && size >= limits.file_bytes;
    let sizes: Vec<u64> = files.iter().map(|file| file.size).collect();
    let surplus = limits.surplus(&sizes, size, rotates);
    let last = files.last().and_then(|file| file.stamp.clone());
    let mut failed = None;
    for file in files.drain(..surplus.min(files.len())) {
        // A file that cannot be removed does not prevent the rotation.
        failed = fs::remove_file(&file.path).err().or(failed);
    }
    let full = files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size));
    if current.is_none() {
        return Ok(LogFiles::Away { full });
    }
    if !rotates {
        return failed.map_or(Ok(LogFiles::Fits(RotationState { size, full, away: false })), Err);
    }
    let mut to = log.as_os_str().to_owned();
    to.push(".");
    to.push(next_stamp(clock::timestamp(), last.as_deref()));
    let to = PathBuf::from(to);
    fs::rename(log, &to)?;
    Ok(LogFiles::Renamed { to })
}

/// The current sizes. A missing current file counts as empty.
fn count(log: &Path) -> io::Result<RotationState> {
    let mut rotation = RotationState { size: 0, full: 0, away: false };
    for file in files::list(log)? {
        let count = if file.stamp.is_some() { &mut rotation.full } else { &mut rotation.size };
        *count = count.saturating_add(file.size);
    }
    Ok(rotation)
}

/// The runtime still writes to the renamed file: restores its name, unless the runtime has created a new file after
/// all.
fn put_back(renamed: &Path, log: &Path) -> io::Result<()> {
    // link(2) fails if the name is taken; rename(2) would replace the runtime's new file.
    match fs::hard_link(renamed, log) {
        Ok(()) => fs::remove_file(renamed),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Not every file system supports hard links.
        Err(_) if !log.exists() => fs::rename(renamed, log),
        Err(_) => Ok(()),
    }
}

#[derive(Debug)]
pub(super) enum RotateError {
    Files(io::Error),
    Runtime(cri::Error),
    Late,
}

impl fmt::Display for RotateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Files(_) => "remove or rename log files",
            Self::Runtime(_) => "reopen the log in the runtime",
            Self::Late => "the runtime did not reopen the log in time",
        })
    }
}

impl error::Error for RotateError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Files(error) => Some(error),
            Self::Runtime(error) => Some(error),
            Self::Late => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TempDir(PathBuf);

    impl TempDir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("coracle-rotate-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> =
                fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const LIMITS: LogLimits = LogLimits { file_bytes: 10, files: 3, workers: 1, interval: Duration::from_secs(10) };

    #[test]
    fn full_log_is_renamed_and_the_oldest_file_removed() {
        let dir = TempDir::new("full");
        let log = dir.0.join("0.log");
        for name in ["0.log.20990102-030405", "0.log.20260102-030405", "0.log", "1.log", "note"] {
            fs::write(dir.0.join(name), "0123456789").unwrap();
        }
        let found = make_room(&log, LIMITS).unwrap();
        let LogFiles::Renamed { to } = found else { panic!("it was not renamed") };
        let names = ["0.log.20990102-030405", "0.log.20990102-030406", "1.log", "note"];
        assert_eq!(dir.names(), names, "the clock is behind the newest file");
        fs::write(to, "0123456789 and more").unwrap();
        assert_eq!(count(&log).unwrap(), RotationState { size: 0, full: 29, away: false });
        assert!(matches!(make_room(&log, LIMITS).unwrap(), LogFiles::Away { full: 29 }));
    }

    #[test]
    fn log_below_its_limit_loses_only_surplus_files() {
        let dir = TempDir::new("fits");
        let log = dir.0.join("0.log");
        fs::write(&log, "x").unwrap();
        fs::write(dir.0.join("0.log.20260102-030405"), "x".repeat(30)).unwrap();
        let found = make_room(&log, LIMITS).unwrap();
        assert!(matches!(found, LogFiles::Fits(RotationState { size: 1, full: 0, away: false })));
        assert_eq!(dir.names(), ["0.log"]);
    }

    #[test]
    fn log_is_renamed_back_if_the_runtime_does_not_reopen_it() {
        let dir = TempDir::new("back");
        let (log, renamed) = (dir.0.join("0.log"), dir.0.join("0.log.20260102-030405"));
        fs::write(&renamed, "old").unwrap();
        put_back(&renamed, &log).unwrap();
        assert_eq!(dir.names(), ["0.log"]);
        fs::rename(&log, &renamed).unwrap();
        fs::write(&log, "new").unwrap();
        put_back(&renamed, &log).unwrap();
        assert_eq!((dir.names().len(), fs::read_to_string(&log).unwrap().as_str()), (2, "new"));
    }
}
