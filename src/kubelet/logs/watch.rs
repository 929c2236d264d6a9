//! One-shot inotify watches on logs: a log that is written constantly causes no more wake-ups than one written rarely.

use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

use crate::platform::rt;

pub(super) struct Watch(rt::Async<Inotify>);

impl Watch {
    pub(super) fn new() -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Self(rt::Async::new(inotify)?))
    }

    /// Watches for the next write to the file, once.
    pub(super) fn next_write(&self, file: &Path) -> io::Result<WatchDescriptor> {
        let once = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ONESHOT;
        Ok(self.0.get_ref().add_watch(file, once)?)
    }

    /// Watches everything that happens to the files in a folder.
    pub(super) fn folder(&self, folder: &Path) -> io::Result<WatchDescriptor> {
        let all = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_DELETE_SELF;
        Ok(self.0.get_ref().add_watch(folder, all)?)
    }

    /// The events since the last call; `None` if events were lost and everything has to be checked.
    pub(super) async fn changes(&self) -> io::Result<Option<Vec<WatchDescriptor>>> {
        self.0.readable().await?;
        let mut told = Vec::new();
        let mut lost = false;
        loop {
            match self.0.get_ref().read_events() {
                Ok(events) => {
                    lost |= events.iter().any(|event| event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW));
                    told.extend(events.into_iter().map(|event| event.wd));
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            if told.len() >= MOST {
                break;
            }
        }
        Ok((!lost).then_some(told))
    }
}

/// Limit per call, so that constant writers do not starve the reader.
const MOST: usize = 4096;
