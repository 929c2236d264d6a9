//! The latest time that this node has seen, kept on disk: after a reboot without a battery the clock is behind, and
//! expired certificates of clients and servers would be valid again.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use crate::platform::host::clock;
use crate::platform::host::durable::{self, StoredFile};
use crate::platform::rt;
use crate::types::error::ErrorChain;

#[derive(Debug)]
pub(crate) struct TimeMark {
    file: PathBuf,
    /// A Unix time in seconds.
    mark: Cell<u64>,
}

/// The file, below the root directory.
pub(crate) const LATEST_TIME: &str = "coracle/latest-time";
/// How often the mark is written: a certificate that expires counts for at most this long after a reboot.
const TIME_MARK_INTERVAL: Duration = Duration::from_secs(3600);
const MAX_TIME_MARK_BYTES: u64 = 64;

impl TimeMark {
    pub(crate) const fn new(file: PathBuf) -> Self {
        Self { file, mark: Cell::new(0) }
    }

    /// The time that has certainly passed; 0 if none is known.
    pub(crate) fn get(&self) -> u64 {
        self.mark.get()
    }

    fn set(&self, mark: u64) {
        self.mark.set(mark);
        clock::note_latest(mark);
    }

    /// Reads the mark.
    pub(crate) async fn load(&self) {
        let file = self.file.clone();
        match rt::blocking(move || durable::read(&file, MAX_TIME_MARK_BYTES)).await {
            Ok(StoredFile::Whole(text)) => self.set(parse(&text).unwrap_or(0)),
            Ok(StoredFile::Damaged | StoredFile::Nothing) => {}
            Err(error) => {
                log!(warn, "failed to read the latest time", file = self.file.display(), error = ErrorChain(&error));
            }
        }
    }

    /// Raises the mark, now and every hour. Never returns.
    pub(crate) async fn run(&self) {
        let mut has_failed = false;
        loop {
            let now = u64::try_from(clock::now().unix_seconds()).unwrap_or(0);
            if now > self.mark.get() {
                self.set(now);
                let (file, text) = (self.file.clone(), now.to_string());
                let written = rt::blocking(move || durable::write(&file, text.as_bytes())).await;
                if let Some(error) = written.as_ref().err().filter(|_| !has_failed) {
                    let error = ErrorChain(error);
                    log!(warn, "failed to keep the latest time", file = self.file.display(), error = error);
                }
                has_failed = written.is_err();
            }
            rt::sleep(TIME_MARK_INTERVAL).await;
        }
    }
}

fn parse(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_survives_a_restart_and_never_falls() {
        let file = std::env::temp_dir().join(format!("coracle-time-mark-{}", std::process::id()));
        let marks = rt::simulate(1, |world| {
            let file = file.clone();
            async move {
                let kept = |mark: TimeMark| async move {
                    mark.load().await;
                    let before = mark.get();
                    let _ = rt::deadline(Duration::from_secs(10), mark.run()).await;
                    (before, mark.get())
                };
                let first = kept(TimeMark::new(file.clone())).await;
                world.step_wall_clock(-1_000_000);
                (first, kept(TimeMark::new(file)).await)
            }
        });
        std::fs::remove_file(&file).unwrap();
        let ((nothing, first), (restored, second)) = marks.unwrap();
        assert_eq!((nothing, restored, second), (0, first, first));
    }
}
