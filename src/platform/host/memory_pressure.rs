//! Memory pressure stall notifications from the kernel, without polling.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::event::{Timespec, epoll};

use crate::platform::rt;

/// System-wide PSI, available since Linux 4.20 if built in.
pub(crate) const MEMORY_PRESSURE_FILE: &str = "/proc/pressure/memory";

/// Fires if some process stalls on memory for 200 ms within 2 s. Unprivileged users may only use windows that are
/// multiples of 2 s.
const STALLED: &[u8] = b"some 200000 2000000\0";

/// A PSI trigger.
#[derive(Debug)]
pub(crate) struct MemoryStalls {
    /// The trigger file always polls readable: only its EPOLLPRI counts, for which it has an epoll instance of its own.
    urgent: rt::Async<OwnedFd>,
    #[expect(dead_code, reason = "closing it removes the trigger")]
    trigger: File,
}

impl MemoryStalls {
    pub(crate) fn watch(path: &Path) -> io::Result<Self> {
        let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let mut trigger = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        trigger.write_all(STALLED)?;
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&set, &trigger, epoll::EventData::new_u64(0), epoll::EventFlags::PRI)?;
        Ok(Self { urgent: rt::Async::new_nonblocking(set)?, trigger })
    }

    /// Waits for the trigger to fire.
    pub(crate) async fn happened(&self) -> io::Result<()> {
        self.urgent.readable().await?;
        // Consume the event, so that the next one is noticed.
        let mut events = Vec::with_capacity(1);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(self.urgent.get_ref(), rustix::buffer::spare_capacity(&mut events), Some(&at_once))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_psi_file_is_an_error() {
        let error = MemoryStalls::watch(Path::new("/nowhere/memory")).err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::NotFound));
    }
}
