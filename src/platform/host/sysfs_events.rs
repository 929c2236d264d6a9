//! Changes of sysfs files that the kernel reports (`sysfs_notify`), without polling.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::event::{Timespec, epoll};

use crate::platform::rt;

#[derive(Debug)]
pub(crate) struct SysfsEvents {
    /// The files always poll readable: only EPOLLPRI counts, for which they have an epoll instance of their own.
    urgent: rt::Async<OwnedFd>,
    #[expect(dead_code, reason = "a closed file reports nothing")]
    files: Vec<File>,
}

/// The last of a burst counts, and each file is reported once.
const MAX_REPORTED_FILES: usize = 16;

impl SysfsEvents {
    /// Fails if none of the files can report changes.
    pub(crate) fn of(paths: &[PathBuf]) -> io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut files = Vec::new();
        for path in paths.iter().take(MAX_REPORTED_FILES) {
            // Edge-triggered: no file has to be read again through its descriptor.
            let flags = epoll::EventFlags::PRI | epoll::EventFlags::ET;
            let Ok(file) = File::open(path) else { continue };
            if epoll::add(&set, &file, epoll::EventData::new_u64(0), flags).is_ok() {
                files.push(file);
            }
        }
        match files.is_empty() {
            true => Err(io::ErrorKind::NotFound.into()),
            false => Ok(Self { urgent: rt::Async::new_nonblocking(set)?, files }),
        }
    }

    /// Waits for a change.
    pub(crate) async fn happened(&self) -> io::Result<()> {
        self.urgent.readable().await?;
        // Consume the events, so that the next one is noticed.
        let mut events = Vec::with_capacity(MAX_REPORTED_FILES);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(self.urgent.get_ref(), rustix::buffer::spare_capacity(&mut events), Some(&at_once))?;
        Ok(())
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
