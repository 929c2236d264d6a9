//! Watches a manifest directory with inotify: its files, and its own creation, removal and replacement.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use super::files::FileEvent;
use crate::platform::rt;

/// An event from the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DirectoryEvent {
    /// The directory may have changed and must be listed.
    Directory,
    File(OsString, FileEvent),
}

pub(super) struct Watch {
    inotify: rt::Async<Inotify>,
    path: PathBuf,
    /// The watch on the directory that holds the manifests.
    directory: Option<WatchDescriptor>,
    /// The watch on the nearest existing directory above it, and the name in that directory that leads to the
    /// manifests.
    above: Option<(WatchDescriptor, OsString)>,
    /// The path is a manifest file: its name, the only relevant one in the directory.
    single: Option<OsString>,
}

impl Watch {
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        Ok(Self {
            inotify: rt::Async::new(inotify)?,
            path: path.to_owned(),
            directory: None,
            above: None,
            single: None,
        })
    }

    /// Updates the watches to where the path leads now. All later changes cause events.
    ///
    /// An unchanged directory keeps its watch: that costs two system calls and loses no event.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        let inotify = self.inotify.get_ref();
        let (directory, single) = match inotify.add_watch(&self.path, MANIFEST_DIRECTORY_EVENTS) {
            Ok(directory) => (Ok(Some(directory)), None),
            // A file is watched through its directory, because an editor may replace it.
            Err(Errno::ENOTDIR) => {
                let parent = self.path.parent().unwrap_or(Path::new("/"));
                (
                    inotify.add_watch(parent, MANIFEST_DIRECTORY_EVENTS).map(Some),
                    self.path.file_name().map(ToOwned::to_owned),
                )
            }
            Err(Errno::ENOENT) => (Ok(None), None),
            Err(error) => (Err(error), None),
        };
        // The directory of a single file is already being watched.
        let above = if single.is_some() { Ok(None) } else { self.nearest_above() };
        let wanted = directory.ok().flatten();
        let kept = [wanted, above.as_ref().ok().and_then(|above| above.as_ref().map(|(above, _)| *above))];
        for old in [self.directory, self.above.as_ref().map(|(above, _)| *above)].into_iter().flatten() {
            if !kept.contains(&Some(old)) {
                // Fails if the directory is gone, and its watch with it.
                let _ = inotify.rm_watch(old);
            }
        }
        let failed = directory.err().or(above.as_ref().err().copied());
        (self.directory, self.single) = (wanted, single);
        self.above = above.unwrap_or_default();
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn nearest_above(&self) -> Result<Option<(WatchDescriptor, OsString)>, Errno> {
        let mut path = self.path.as_path();
        while let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            match self.inotify.get_ref().add_watch(parent, ENTRIES) {
                Ok(watch) => return Ok(Some((watch, name.to_owned()))),
                Err(Errno::ENOENT | Errno::ENOTDIR) => path = parent,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Waits for events, and returns all that are queued.
    pub(super) async fn events(&self) -> io::Result<Vec<DirectoryEvent>> {
        loop {
            self.inotify.readable().await?;
            let mut noticed = Vec::new();
            loop {
                match self.inotify.get_ref().read_events() {
                    Ok(events) => noticed.extend(events.into_iter().filter_map(|event| self.notice(event))),
                    Err(Errno::EAGAIN) => break,
                    Err(Errno::EINTR) => {}
                    Err(error) => return Err(error.into()),
                }
                if noticed.len() >= MAX_EVENTS {
                    break;
                }
            }
            if !noticed.is_empty() {
                return Ok(noticed);
            }
        }
    }

    fn notice(&self, event: InotifyEvent) -> Option<DirectoryEvent> {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            return Some(DirectoryEvent::Directory);
        }
        if self.above.as_ref().is_some_and(|(watch, _)| *watch == event.wd) {
            let (_, leads_on) = self.above.as_ref()?;
            // Without a name, the event concerns the directory itself.
            return event.name.is_none_or(|name| name == *leads_on).then_some(DirectoryEvent::Directory);
        }
        if self.directory != Some(event.wd) {
            // The event is of a removed watch.
            return None;
        }
        let Some(name) = event.name else { return Some(DirectoryEvent::Directory) };
        if self.single.as_ref().is_some_and(|single| *single != name) || event.mask.contains(AddWatchFlags::IN_ISDIR) {
            return None;
        }
        file_event(event.mask).map(|event| DirectoryEvent::File(name, event))
    }
}

fn file_event(mask: AddWatchFlags) -> Option<FileEvent> {
    [
        (AddWatchFlags::IN_CLOSE_WRITE, FileEvent::Closed),
        (AddWatchFlags::IN_MOVED_TO, FileEvent::MovedIn),
        (AddWatchFlags::IN_MODIFY, FileEvent::Written),
        (AddWatchFlags::IN_CREATE, FileEvent::Created),
        (AddWatchFlags::IN_ATTRIB, FileEvent::Attributes),
        (AddWatchFlags::IN_DELETE, FileEvent::Deleted),
        (AddWatchFlags::IN_MOVED_FROM, FileEvent::MovedAway),
    ]
    .into_iter()
    .find_map(|(flag, event)| mask.contains(flag).then_some(event))
}

/// Events of the directory that holds the manifests.
const MANIFEST_DIRECTORY_EVENTS: AddWatchFlags =
    AddWatchFlags::IN_CLOSE_WRITE.union(AddWatchFlags::IN_MODIFY).union(AddWatchFlags::IN_ATTRIB).union(ENTRIES);

/// Events of a directory above it: only entries that are added or removed.
const ENTRIES: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_ONLYDIR);

/// Maximum number of events per call, so that a busy writer does not keep the reader from its work.
const MAX_EVENTS: usize = 4096;
