//! Changes of sysfs files that the kernel reports (`sysfs_notify`), without polling.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use rustix::event::epoll;

use crate::platform::host::urgent_events::{MAX_URGENT_FILES, UrgentEvents};

#[derive(Debug)]
pub(crate) struct SysfsEvents {
    events: UrgentEvents,
    #[expect(dead_code, reason = "a closed file reports nothing")]
    files: Vec<File>,
}

impl SysfsEvents {
    /// Fails if none of the files can report changes.
    pub(crate) fn of(paths: &[PathBuf]) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut files = Vec::new();
        for path in paths.iter().take(MAX_URGENT_FILES) {
            // Edge-triggered: no file has to be read again through its descriptor.
            let flags = epoll::EventFlags::PRI | epoll::EventFlags::ET;
            let Ok(file) = File::open(path) else { continue };
            if epoll::add(&set, &file, epoll::EventData::new_u64(0), flags).is_ok() {
                files.push(file);
            }
        }
        match files.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(Self { events: UrgentEvents::new(set)?, files }),
        }
    }

    /// Waits for a change.
    pub(crate) async fn happened(&self) -> io::Result<()> {
        self.events.happened().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_report_nothing_are_no_source_of_events() {
        let plain = std::env::current_exe().unwrap();
        for paths in [vec![], vec![PathBuf::from("/nowhere")], vec![plain]] {
            assert!(SysfsEvents::of(&paths).is_err(), "{paths:?}");
        }
    }
}
