//! Notices that one of some files may have changed, come or gone.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::platform::rt;
use crate::types::sorted::SortedSet;

/// A watch on some files. What is looked at after it was made is either as it is now, or told of.
#[derive(Debug)]
pub(crate) struct FileWatch {
    inotify: rt::Async<Inotify>,
    /// The names in the watched directories that matter.
    names: SortedSet<OsString>,
    /// Every name matters.
    all: bool,
}

impl FileWatch {
    pub(crate) fn new(files: &[PathBuf]) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let mut names = SortedSet::new();
        for file in files {
            names.insert(watch_nearest(&inotify, file)?.to_owned());
            // A link's own directory does not tell of the file that it leads to.
            if let Ok(target) = fs::canonicalize(file) {
                if target != *file {
                    names.insert(watch_nearest(&inotify, &target)?.to_owned());
                }
            }
        }
        Ok(Self { inotify: rt::Async::new(inotify)?, names, all: false })
    }

    /// The same for whatever is in a directory; for the directory itself while there is none.
    pub(crate) fn of_directory(path: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let mut names = SortedSet::new();
        let all = inotify.add_watch(path, CHANGES).is_ok();
        if !all {
            names.insert(watch_nearest(&inotify, path)?.to_owned());
        }
        Ok(Self { inotify: rt::Async::new(inotify)?, names, all })
    }

    /// What comes to be in these directories or is gone from there; not what is written to it.
    pub(crate) fn of_entries(directories: &[PathBuf]) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        for directory in directories {
            inotify.add_watch(directory, CHANGES.difference(AddWatchFlags::IN_CLOSE_WRITE))?;
        }
        Ok(Self { inotify: rt::Async::new(inotify)?, names: SortedSet::new(), all: true })
    }

    /// Whatever is in this directory matters too; not what is below it.
    pub(crate) fn add_directory(&self, path: &Path) -> io::Result<()> {
        self.inotify.get_ref().add_watch(path, CHANGES)?;
        Ok(())
    }

    /// Returns when something has happened. Only once: what is watched then may be something else.
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

    /// Without a name it is the directory itself, or more than the kernel could tell. `..data` is what the kubelet turns
    /// round when it changes the files of a volume.
    fn concerns(&self, name: Option<&OsStr>) -> bool {
        self.all || name.is_none_or(|name| name == "..data" || self.names.contains(name))
    }
}

/// Watches the nearest directory above `path` that exists; the name in it that leads there.
fn watch_nearest<'a>(inotify: &Inotify, mut path: &'a Path) -> io::Result<&'a OsStr> {
    while let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        match inotify.add_watch(parent, CHANGES) {
            Ok(_) => return Ok(name),
            Err(Errno::ENOENT | Errno::ENOTDIR) => path = parent,
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

const CHANGES: AddWatchFlags = AddWatchFlags::IN_CREATE
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

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("coracle-file-watch-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Whether a watch on `file`, made before `act`, tells of it within this time.
    fn tells(file: &Path, act: impl FnOnce(), limit: Duration) -> bool {
        let watch = FileWatch::new(&[file.to_owned()]).unwrap();
        act();
        rt::block_on(rt::deadline(limit, watch.changed())).is_ok()
    }

    fn is_told(file: &Path, act: impl FnOnce()) -> bool {
        tells(file, act, Duration::from_secs(20))
    }

    /// What the kernel has to tell is there already.
    fn is_not_told(file: &Path, act: impl FnOnce()) -> bool {
        !tells(file, act, Duration::from_millis(20))
    }

    #[test]
    fn a_file_that_comes_changes_or_goes_is_told_and_its_neighbours_are_not() {
        let folder = Folder::new("file");
        let (file, other) = (folder.0.join("a"), folder.0.join("b"));
        assert!(is_told(&file, || fs::write(&file, "1").unwrap()));
        assert!(is_told(&file, || fs::write(&file, "2").unwrap()));
        assert!(is_not_told(&file, || fs::write(&other, "1").unwrap()));
        assert!(is_told(&file, || fs::rename(&other, &file).unwrap()));
        assert!(is_told(&file, || fs::remove_file(&file).unwrap()));
        assert!(is_not_told(&file, || ()));
    }

    #[test]
    fn whatever_happens_in_a_directory_is_told_also_when_the_directory_comes_later() {
        let folder = Folder::new("directory");
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
    fn directories_on_the_way_may_come_and_go() {
        let folder = Folder::new("way");
        let file = folder.0.join("x/y/a");
        assert!(is_told(&file, || fs::create_dir_all(folder.0.join("x/y")).unwrap()));
        assert!(is_told(&file, || fs::write(&file, "").unwrap()));
        assert!(is_told(&file, || fs::remove_dir_all(folder.0.join("x/y")).unwrap()));
    }

    #[test]
    fn a_file_behind_a_link_is_told_of_also_when_a_volume_turns() {
        let folder = Folder::new("link");
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
