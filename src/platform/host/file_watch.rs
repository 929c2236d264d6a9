//! Watches files for changes, creation and removal.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::platform::rt;
use crate::types::sorted::SortedSet;

/// A watch on a set of files. It reports every change after its creation.
#[derive(Debug)]
pub(crate) struct FileWatch {
    inotify: rt::Async<Inotify>,
    /// The relevant names in the watched directories.
    names: SortedSet<OsString>,
    /// Whether every name is relevant.
    watches_everything: bool,
}

impl FileWatch {
    pub(crate) fn new(files: &[PathBuf]) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let mut names = SortedSet::new();
        for file in files {
            names.insert(watch_nearest(&inotify, file)?.to_owned());
            // The directory of a link has no events for the link's target.
            if let Ok(target) = fs::canonicalize(file) {
                if target != *file {
                    names.insert(watch_nearest(&inotify, &target)?.to_owned());
                }
            }
        }
        Ok(Self { inotify: rt::Async::new(inotify)?, names, watches_everything: false })
    }

    /// Watches everything in a directory, or its creation while it does not exist.
    pub(crate) fn of_directory(path: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let mut names = SortedSet::new();
        let watches_everything = inotify.add_watch(path, FILE_CHANGES).is_ok();
        if !watches_everything {
            names.insert(watch_nearest(&inotify, path)?.to_owned());
        }
        Ok(Self { inotify: rt::Async::new(inotify)?, names, watches_everything })
    }

    /// Watches for entries created in or removed from these directories; not for writes.
    pub(crate) fn of_entries(directories: &[PathBuf]) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        for directory in directories {
            inotify.add_watch(directory, FILE_CHANGES.difference(AddWatchFlags::IN_CLOSE_WRITE))?;
        }
        Ok(Self { inotify: rt::Async::new(inotify)?, names: SortedSet::new(), watches_everything: true })
    }

    /// Also watches everything directly in this directory.
    pub(crate) fn add_directory(&self, path: &Path) -> io::Result<()> {
        self.inotify.get_ref().add_watch(path, FILE_CHANGES)?;
        Ok(())
    }

    /// Returns when something has changed. A watch must not be reused after that, as the watched paths may differ.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        loop {
            self.inotify.readable().await?;
            match self.inotify.get_ref().read_events() {
                Ok(events) if events.iter().any(|event| self.concerns(event.name.as_deref())) => return Ok(()),
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// An event without a name is about the directory itself, or the queue has overflowed. The kubelet switches
    /// `..data` when it updates the files of a volume.
    fn concerns(&self, name: Option<&OsStr>) -> bool {
        self.watches_everything || name.is_none_or(|name| name == "..data" || self.names.contains(name))
    }
}

/// Watches the nearest existing directory above `path`; returns the name in it that leads to `path`.
fn watch_nearest<'a>(inotify: &Inotify, mut path: &'a Path) -> io::Result<&'a OsStr> {
    while let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        match inotify.add_watch(parent, FILE_CHANGES) {
            Ok(_) => return Ok(name),
            Err(Errno::ENOENT | Errno::ENOTDIR) => path = parent,
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

const FILE_CHANGES: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_ONLYDIR);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;
    use crate::platform::rt::TestFolder;

    /// Whether a watch on `file`, created before `act`, reports a change within `limit`.
    fn tells(file: &Path, act: impl FnOnce(), limit: Duration) -> bool {
        let watch = FileWatch::new(&[file.to_owned()]).unwrap();
        act();
        rt::block_on(rt::deadline(limit, watch.changed())).is_ok()
    }

    fn is_told(file: &Path, act: impl FnOnce()) -> bool {
        tells(file, act, Duration::from_secs(20))
    }

    /// The kernel queues events synchronously, so a short wait is enough.
    fn is_not_told(file: &Path, act: impl FnOnce()) -> bool {
        !tells(file, act, Duration::from_millis(20))
    }

    #[test]
    fn creation_change_and_removal_are_reported() {
        let folder = TestFolder::new("file-watch-file");
        let (file, other) = (folder.0.join("a"), folder.0.join("b"));
        assert!(is_told(&file, || fs::write(&file, "1").unwrap()));
        assert!(is_told(&file, || fs::write(&file, "2").unwrap()));
        assert!(is_not_told(&file, || fs::write(&other, "1").unwrap()));
        assert!(is_told(&file, || fs::rename(&other, &file).unwrap()));
        assert!(is_told(&file, || fs::remove_file(&file).unwrap()));
        assert!(is_not_told(&file, || ()));
    }

    #[test]
    fn changes_in_a_directory_created_later_are_reported() {
        let folder = TestFolder::new("file-watch-directory");
        let (inner, file) = (folder.0.join("inner"), folder.0.join("inner/a"));
        let tells = |act: &dyn Fn()| {
            let watch = FileWatch::of_directory(&inner).unwrap();
            act();
            rt::block_on(rt::deadline(Duration::from_secs(20), watch.changed())).is_ok()
        };
        assert!(tells(&|| fs::create_dir(&inner).unwrap()));
        assert!(tells(&|| fs::write(&file, "1").unwrap()));
        assert!(tells(&|| fs::remove_file(&file).unwrap()));
        assert!(tells(&|| fs::remove_dir(&inner).unwrap()));
    }

    #[test]
    fn parent_directories_may_come_and_go() {
        let folder = TestFolder::new("file-watch-way");
        let file = folder.0.join("x/y/a");
        assert!(is_told(&file, || fs::create_dir_all(folder.0.join("x/y")).unwrap()));
        assert!(is_told(&file, || fs::write(&file, "").unwrap()));
        assert!(is_told(&file, || fs::remove_dir_all(folder.0.join("x/y")).unwrap()));
    }

    #[test]
    fn changes_behind_links_and_volume_updates_are_reported() {
        let folder = TestFolder::new("file-watch-link");
        let (first, second) = (folder.0.join("..1"), folder.0.join("..2"));
        for dir in [&first, &second] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("ca.crt"), "").unwrap();
        }
        symlink("..1", folder.0.join("..data")).unwrap();
        symlink("..data/ca.crt", folder.0.join("ca.crt")).unwrap();
        let file = folder.0.join("ca.crt");
        assert!(is_told(&file, || fs::write(first.join("ca.crt"), "2").unwrap()));
        symlink("..2", folder.0.join("..data_tmp")).unwrap();
        let turn = || fs::rename(folder.0.join("..data_tmp"), folder.0.join("..data")).unwrap();
        assert!(is_told(&file, turn));
    }
}
