//! Memory pressure stall notifications from the kernel, without polling.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::event::epoll;

use crate::platform::host::urgent_events::UrgentEvents;

/// System-wide PSI, available since Linux 4.20 if built in.
pub(crate) const MEMORY_PRESSURE_FILE: &str = "/proc/pressure/memory";

/// Fires if some process stalls on memory for 200 ms within 2 s. Unprivileged users may only use windows that are
/// multiples of 2 s.
const STALLED: &[u8] = b"some 200000 2000000\0";

/// A PSI trigger.
#[derive(Debug)]
pub(crate) struct MemoryStalls {
    events: UrgentEvents,
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
        Ok(Self { events: UrgentEvents::new(set)?, trigger })
    }

    /// Waits for the trigger to fire.
    pub(crate) async fn happened(&self) -> io::Result<()> {
        self.events.happened().await
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
