//! The record of a stalled sync loop, in memory and on disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::control::server::pulse::Activity;
use crate::platform::host::clock;
use crate::platform::host::file::{read_head, replace};
use crate::platform::host::thread_state::ThreadState;
use crate::types::api::{Time, decode_bytes, record};
use crate::types::error::ErrorChain;

record! {
    /// A stall of the sync loop.
    pub(crate) struct Stall {
        /// RFC 3339, by a clock that may have been wrong.
        pub(crate) time: String,
        pub(crate) boot_id: String,
        pub(crate) pid: u32,
        /// How long the stall had lasted at that time.
        pub(crate) seconds: u64,
        /// The activity of the sync loop; empty if the process could not record it.
        pub(crate) doing: String,
        /// Number of rounds without waiting, if the loop ended because it was spinning.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) rounds: Option<u32>,
        /// The part that was always due, if the loop was spinning.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) part: Option<String>,
        /// The state of the sync loop's thread.
        pub(crate) thread: ThreadState,
        /// The loop recovered after this time.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) moved_again_after_seconds: Option<u64>,
        /// The loop did not recover: when the next process started.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) next_start: Option<String>,
    }
}

record! {
    /// The watchdogs that are on.
    pub(crate) struct WatchdogStatus {
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) service_manager_seconds: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) device: Option<DeviceStatus>,
    }
}

record! {
    pub(crate) struct DeviceStatus {
        pub(crate) path: String,
        /// False while the device cannot be opened.
        pub(crate) armed: bool,
        pub(crate) timeout_seconds: u64,
        /// The watchdog caused the last reset.
        pub(crate) reset_the_board: bool,
    }
}

impl Stall {
    /// A stall of this process.
    pub(super) fn new(time: Time, seconds: u64, activity: Activity, thread: ThreadState) -> Self {
        Self {
            time: time.to_string(),
            boot_id: clock::boot_id(),
            pid: std::process::id(),
            seconds,
            doing: activity.text().to_owned(),
            thread,
            ..Self::default()
        }
    }

    /// The activity of the process, as one line.
    pub(crate) fn description(&self) -> String {
        let Self { doing, thread: ThreadState { state, wait_channel, .. }, .. } = self;
        if doing.is_empty() {
            return "for a reason that the process could not tell: stopped or starved as a whole".to_owned();
        }
        let wait_place = if wait_channel.is_empty() { String::new() } else { format!(" in {wait_channel}") };
        let thread = if state.is_empty() { String::new() } else { format!("; its thread: {state}{wait_place}") };
        let part = self.part.as_ref().map_or_else(String::new, |part| format!(" ({part} was due)"));
        format!("while {doing}{part}{thread}")
    }
}

/// `last-stall.json` in the state directory, written at a stall and again when it ends.
#[derive(Clone, Debug)]
pub(super) struct StallFile(PathBuf);

impl StallFile {
    pub(super) fn below(root_dir: &Path) -> Self {
        Self(root_dir.join("coracle/last-stall.json"))
    }

    /// Reads the record. A corrupt file is set aside, so that it does not prevent a start.
    pub(super) fn read(&self) -> Option<Stall> {
        let path = self.0.display();
        let bytes = match read_head(&self.0, MAX_STALL_RECORD_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                log!(warn, "failed to read the stall record", path = path, error = ErrorChain(&error));
                return None;
            }
        };
        match decode_bytes(&bytes) {
            Ok(stall) => Some(stall),
            Err(error) => {
                log!(warn, "stall record corrupt, set aside", path = path, error = ErrorChain(&error));
                // At worst the file is found again at the next start.
                let _ = fs::rename(&self.0, self.0.with_extension("json.corrupt"));
                None
            }
        }
    }

    pub(super) fn write(&self, stall: &Stall) {
        let text = serde_json::to_vec_pretty(stall).unwrap_or_default();
        if let Err(error) = replace(&self.0, &text) {
            log!(warn, "failed to write the stall record", path = self.0.display(), error = ErrorChain(&error));
        }
    }
}

/// Far more than a record needs.
const MAX_STALL_RECORD_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_back_and_a_corrupt_one_is_set_aside() {
        let root = std::env::temp_dir().join(format!("coracle-stall-{}", std::process::id()));
        let file = StallFile::below(&root);
        assert_eq!(file.read(), None);
        let stall = Stall::new(clock::now(), 37, Activity::Relisted, ThreadState::default());
        file.write(&Stall::default());
        file.write(&stall);
        let back = file.read();
        fs::write(&file.0, "{\"time\": 7").unwrap();
        let damaged = (file.read(), file.read());
        let names = fs::read_dir(root.join("coracle")).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names.collect();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(back, Some(stall));
        assert_eq!(damaged, (None, None));
        assert_eq!(names, ["last-stall.json.corrupt"]);
    }

    #[test]
    fn unwritable_directory_is_harmless() {
        let file = StallFile::below(Path::new("/proc"));
        file.write(&Stall::default());
        assert_eq!(file.read(), None);
    }

    #[test]
    fn summary_line_tells_what_is_known() {
        let thread = ThreadState { state: "D (disk sleep)".to_owned(), ..ThreadState::default() };
        let mut stall = Stall { doing: "taking in manifests".to_owned(), thread, ..Stall::default() };
        assert_eq!(stall.description(), "while taking in manifests; its thread: D (disk sleep)");
        stall.thread.wait_channel = "pipe_write".to_owned();
        assert_eq!(stall.description(), "while taking in manifests; its thread: D (disk sleep) in pipe_write");
        stall.doing.clear();
        assert_eq!(stall.description(), "for a reason that the process could not tell: stopped or starved as a whole");
    }
}
