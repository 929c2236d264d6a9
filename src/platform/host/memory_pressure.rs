//! The kernel's word that processes wait for memory, without asking for it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::event::{Timespec, epoll};

use crate::platform::rt;

/// Of the whole machine; the kernel has it since 4.20 where it was built with PSI.
pub(crate) const MEMORY_PRESSURE: &str = "/proc/pressure/memory";

/// Some process has waited for memory for a tenth of two seconds. With a window of two seconds the kernel takes the
/// wish from everybody.
const STALLED: &[u8] = b"some 200000 2000000\0";

/// A wish to be told.
#[derive(Debug)]
pub(crate) struct MemoryStalls {
    /// The kernel calls the file readable at all times: only its urgent word counts, which a set of its own waits for.
    urgent: rt::Async<OwnedFd>,
    #[expect(dead_code, reason = "closing it takes the wish back")]
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

    /// Waits until it happens.
    pub(crate) async fn happened(&self) -> io::Result<()> {
        self.urgent.readable().await?;
        // Taken out, it can happen again.
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
    fn a_machine_without_such_a_file_is_no_panic() {
        assert!(MemoryStalls::watch(Path::new("/nowhere/memory")).is_err());
    }
}
