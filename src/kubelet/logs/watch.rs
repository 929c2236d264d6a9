//! One-shot inotify watches on logs: a log that is written constantly causes no more wake-ups than one written rarely.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use crate::platform::rt;

pub(super) struct Watch {
    /// `None` while it is dropped.
    inotify: Option<rt::Async<Inotify>>,
    counted: Option<&'static WatchSlots>,
}

/// Limits a number of watches.
pub(super) struct WatchSlots {
    limit: usize,
    open: AtomicUsize,
}

/// The watches of log readers. By default the kernel allows root 128 inotify instances, for all daemons together.
pub(super) static OF_READERS: WatchSlots = WatchSlots::new(32);

impl WatchSlots {
    const fn new(limit: usize) -> Self {
        Self { limit, open: AtomicUsize::new(0) }
    }

    /// A new watch; `None` if too many are open, or if the kernel has none.
    pub(super) fn take(&'static self) -> Option<Watch> {
        let next = |open| (open < self.limit).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        let Ok(mut watch) = Watch::new() else {
            self.leave();
            return None;
        };
        watch.counted = Some(self);
        Some(watch)
    }

    fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Closing an inotify instance waits for the kernel, up to a tenth of a second on a busy machine. The task that drops the
/// watch does not wait.
impl Drop for Watch {
    fn drop(&mut self) {
        let (inotify, counted) = (self.inotify.take(), self.counted);
        if inotify.is_some() {
            drop(rt::slow(move || {
                drop(inotify);
                counted.map(WatchSlots::leave);
            }));
        }
    }
}

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Self { inotify: Some(rt::Async::new(inotify)?), counted: None })
    }

    fn inotify(&self) -> io::Result<&rt::Async<Inotify>> {
        self.inotify.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Watches for the next write to the file, once.
    pub(super) fn next_write(&self, file: &Path) -> io::Result<WatchDescriptor> {
        let once = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ONESHOT;
        Ok(self.inotify()?.get_ref().add_watch(file, once)?)
    }

    /// Watches everything that happens to the files in a folder.
    pub(super) fn folder(&self, folder: &Path) -> io::Result<WatchDescriptor> {
        let watched_events = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_DELETE_SELF;
        Ok(self.inotify()?.get_ref().add_watch(folder, watched_events)?)
    }

    /// The events since the last call; `None` if events were lost and everything has to be checked.
    pub(super) async fn changes(&self) -> io::Result<Option<Vec<WatchDescriptor>>> {
        let inotify = self.inotify()?;
        inotify.readable().await?;
        let mut changed = Vec::new();
        let mut lost = false;
        loop {
            match inotify.get_ref().read_events() {
                Ok(events) => {
                    lost |= events.iter().any(|event| event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW));
                    changed.extend(events.into_iter().map(|event| event.wd));
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            if changed.len() >= MAX_LOG_EVENTS_PER_READ {
                break;
            }
        }
        Ok((!lost).then_some(changed))
    }
}

/// Limit per call, so that constant writers do not starve the reader.
const MAX_LOG_EVENTS_PER_READ: usize = 4096;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::platform::rt::block_on;

    #[test]
    fn watches_are_limited_and_closed_by_another_thread() {
        static SLOTS: WatchSlots = WatchSlots::new(2);
        let (first, second) = (SLOTS.take(), SLOTS.take());
        assert!(first.is_some() && second.is_some() && SLOTS.take().is_none());
        // Nothing is closed while the threads for it are busy.
        let (release, hangs) = async_channel::bounded::<()>(1);
        let hung: Vec<_> = (0..64)
            .map(|_| {
                let hangs = hangs.clone();
                rt::slow(move || hangs.recv_blocking().is_err())
            })
            .collect();
        drop(first);
        assert!(SLOTS.take().is_none(), "it was closed at once");
        drop(release);
        block_on(async {
            for one in hung {
                one.await;
            }
        });
        let end = Instant::now() + Duration::from_secs(20);
        while SLOTS.take().is_none() {
            assert!(Instant::now() < end, "it was not closed");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
