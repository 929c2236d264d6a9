//! The record of a panic, which ends the process, and what the next process reads of it.

use std::any::Any;
use std::fs;
use std::io;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::platform::host::clock;
use crate::platform::host::file::{read_head, replace};
use crate::platform::rt;
use crate::types::api::{decode_bytes, record};
use crate::types::error::ErrorChain;

record! {
    /// A panic of this program.
    #[derive(Eq)]
    pub(crate) struct PanicRecord {
        /// RFC 3339, by a clock that may have been wrong.
        pub(crate) time: String,
        pub(crate) boot_id: String,
        pub(crate) pid: u32,
        pub(crate) version: String,
        /// The name of the thread.
        pub(crate) thread: String,
        /// File, line and column.
        pub(crate) location: String,
        pub(crate) message: String,
        /// When the next process started.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) next_start: Option<String>,
    }
}

/// Records the first panic of this process below `root_dir`, after it was printed. The process ends after that.
pub(crate) fn record_panics(root_dir: &Path) {
    static RECORDED: AtomicBool = AtomicBool::new(false);
    let path = path_below(root_dir);
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        if RECORDED.swap(true, Ordering::Relaxed) {
            return;
        }
        let record = PanicRecord::new(panic);
        let path = path.clone();
        let (done, written) = mpsc::channel();
        // A disk that hangs must not keep the process from ending.
        let writer = rt::thread("panic", move || {
            record.write(&path);
            // Too late for the waiting thread.
            let _ = done.send(());
        });
        if writer.is_ok() {
            // At its end, the process ends without a record.
            let _ = written.recv_timeout(WRITE_LIMIT);
        }
    }));
}

/// The last panic. If it ended the previous process, logs it and notes this start.
pub(super) fn load_last_panic(root_dir: &Path) -> Option<PanicRecord> {
    let path = path_below(root_dir);
    let record = PanicRecord::read(&path)?;
    if record.next_start.is_some() {
        return Some(record);
    }
    let PanicRecord { time, thread, location, message, .. } = &record;
    log!(error, "the last process panicked", at = time, thread = thread, location = location, message = message);
    let record = PanicRecord { next_start: Some(clock::now().to_string()), ..record };
    let noted = record.clone();
    // The work runs without its future: a slow disk does not delay the start.
    drop(rt::blocking(move || noted.write(&path)));
    Some(record)
}

fn path_below(root_dir: &Path) -> PathBuf {
    root_dir.join("coracle/last-panic.json")
}

impl PanicRecord {
    fn new(panic: &PanicHookInfo<'_>) -> Self {
        let thread = std::thread::current();
        Self {
            time: clock::now().to_string(),
            boot_id: clock::boot_id(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            thread: thread.name().unwrap_or("unnamed").to_owned(),
            location: panic.location().map(ToString::to_string).unwrap_or_default(),
            message: message(panic.payload()).chars().take(MAX_PANIC_CHARS).collect(),
            next_start: None,
        }
    }

    /// A corrupt file is set aside, so that it does not prevent a start.
    fn read(path: &Path) -> Option<Self> {
        let bytes = match read_head(path, MAX_PANIC_RECORD_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                log!(warn, "failed to read the panic record", path = path.display(), error = ErrorChain(&error));
                return None;
            }
        };
        match decode_bytes(&bytes) {
            Ok(record) => Some(record),
            Err(error) => {
                log!(warn, "panic record corrupt, set aside", path = path.display(), error = ErrorChain(&error));
                // At worst the file is found again at the next start.
                let _ = fs::rename(path, path.with_extension("json.corrupt"));
                None
            }
        }
    }

    fn write(&self, path: &Path) {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        if let Err(error) = replace(path, &text) {
            log!(warn, "failed to write the panic record", path = path.display(), error = ErrorChain(&error));
        }
    }
}

fn message(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}

/// Longest message: a record stays small whatever panics.
const MAX_PANIC_CHARS: usize = 2000;
/// Holds such a message when every character is escaped.
const MAX_PANIC_RECORD_BYTES: usize = 32 << 10;
/// Time limit for the write.
const WRITE_LIMIT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::platform::rt::TestFolder;

    const VARIABLE: &str = "CORACLE_TEST_PANICS_BELOW";
    const TEST: &str = "control::server::watchdog::panic_record::tests::first_panic_of_a_process_is_known_to_the_next";

    /// The child process.
    fn panic_twice(folder: &Path) -> ! {
        record_panics(folder);
        for number in 0..2 {
            let thread = std::thread::Builder::new().name(format!("worker-{number}"));
            let panics = move || assert!(number > 1, "number {number}: {}", "\u{1}".repeat(100_000));
            assert!(thread.spawn(panics).unwrap().join().is_err());
        }
        std::process::exit(7);
    }

    #[test]
    fn first_panic_of_a_process_is_known_to_the_next() {
        if let Some(folder) = std::env::var_os(VARIABLE) {
            panic_twice(Path::new(&folder));
        }
        if cfg!(panic = "abort") {
            // There the child's test is a process of its own, and its exit code is not the child's.
            return;
        }
        let folder = TestFolder::new("panic-child");
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", TEST, "--nocapture"]).env(VARIABLE, &folder.0).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("panicked at src/"), "{output:?}");
        let found = rt::block_on(async { load_last_panic(&folder.0) }).unwrap();
        assert_eq!((found.thread.as_str(), found.message.chars().count()), ("worker-0", MAX_PANIC_CHARS));
        assert!(found.message.starts_with("number 0: \u{1}"), "{found:?}");
        assert!(found.location.starts_with("src/control/server/watchdog/panic_record.rs:"), "{found:?}");
        assert!(!found.time.is_empty() && found.next_start.is_some(), "{found:?}");
        // The note is written in the background.
        let path = path_below(&folder.0);
        let is_noted = || PanicRecord::read(&path).is_some_and(|record| record.next_start.is_some());
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        while !is_noted() {
            assert!(std::time::Instant::now() < deadline, "the note is not written");
            std::thread::yield_now();
        }
    }

    #[test]
    fn panic_is_reported_at_one_start_only() {
        let folder = TestFolder::new("panic-once");
        let path = path_below(&folder.0);
        assert_eq!(load_last_panic(&folder.0), None);
        let noted = PanicRecord { message: "m".to_owned(), next_start: Some("t".to_owned()), ..PanicRecord::default() };
        noted.write(&path);
        assert_eq!(load_last_panic(&folder.0), Some(noted));
        fs::write(&path, "{").unwrap();
        assert_eq!((load_last_panic(&folder.0), load_last_panic(&folder.0)), (None, None));
        assert!(path.with_extension("json.corrupt").exists());
    }
}
