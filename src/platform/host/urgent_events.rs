//! Waits for EPOLLPRI of kernel files, which always poll readable: so they have an epoll instance of their own.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{Timespec, epoll};

use crate::platform::rt;

#[derive(Debug)]
pub(super) struct UrgentEvents(rt::Async<OwnedFd>);

/// The last of a burst counts, and each file is reported once.
pub(super) const MAX_URGENT_FILES: usize = 16;

impl UrgentEvents {
    /// `set` has at most [`MAX_URGENT_FILES`] files.
    pub(super) fn new(set: OwnedFd) -> io::Result<Self> {
        Ok(Self(rt::Async::new_nonblocking(set)?))
    }

    pub(super) async fn happened(&self) -> io::Result<()> {
        self.0.readable().await?;
        // Consume the events, so that the next one is noticed.
        let mut events = Vec::with_capacity(MAX_URGENT_FILES);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(self.0.get_ref(), rustix::buffer::spare_capacity(&mut events), Some(&at_once))?;
        Ok(())
    }
}
