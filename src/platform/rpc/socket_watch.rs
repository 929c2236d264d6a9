//! Notices that a socket is created or recreated: its server is back.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::platform::rt;

/// Distinguishes a socket from a later one at the same path: file systems use the numbers of inodes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Identity {
    /// `None` if nothing is there.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::symlink_metadata(path).ok()?;
        Some(Self { device: metadata.dev(), inode: metadata.ino(), changed: (metadata.ctime(), metadata.ctime_nsec()) })
    }
}

/// Waits until there is a socket at `path` other than `old`. Waits forever if inotify fails: callers also retry by
/// time.
pub(super) async fn renewed(path: &Path, old: Option<Identity>) {
    if watch(path, old).await.is_err() {
        std::future::pending().await
    }
}

async fn watch(path: &Path, old: Option<Identity>) -> io::Result<()> {
    loop {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let name = watch_nearest(&inotify, path)?;
        // The watch misses nothing from here on, but the socket may have been created before.
        let now = Identity::of(path);
        if now.is_some() && now != old {
            return Ok(());
        }
        something_about(&rt::Async::new(inotify)?, name).await?;
    }
}

/// Watches the nearest existing directory above `path`; returns the name in it that leads to `path`.
fn watch_nearest<'a>(inotify: &Inotify, mut path: &'a Path) -> io::Result<&'a OsStr> {
    while let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
        // A relative path without a directory.
        let directory = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        match inotify.add_watch(directory, COMES_AND_GOES) {
            Ok(_) => return Ok(name),
            Err(Errno::ENOENT | Errno::ENOTDIR) => path = parent,
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

/// Waits for an event about `name` or about the directory itself.
async fn something_about(inotify: &rt::Async<Inotify>, name: &OsStr) -> io::Result<()> {
    loop {
        inotify.readable().await?;
        match inotify.get_ref().read_events() {
            Ok(events) if events.iter().any(|event| event.name.as_deref().is_none_or(|of| of == name)) => return Ok(()),
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

const COMES_AND_GOES: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_ONLYDIR);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::platform::rt::TestFolder;

    /// An action on the path, and whether it must be noticed.
    type Step = (fn(&Path), bool);

    /// Takes the first step before the wait begins.
    #[track_caller]
    fn check(path: &str, steps: &[Step]) {
        let folder = TestFolder::new("appearance");
        let path = folder.0.join(path);
        rt::block_on(async {
            let (first, rest) = steps.split_first().unwrap();
            (first.0)(&path);
            let waits = rt::spawn({
                let (path, old) = (path.clone(), Identity::of(&path));
                async move { renewed(&path, old).await }
            });
            rt::yield_now().await;
            for (step, noticed) in rest {
                step(&path);
                // inotify queues events synchronously; they only have to be read.
                let until = std::time::Instant::now() + Duration::from_secs(if *noticed { 20 } else { 0 });
                rt::sleep(Duration::from_millis(20)).await;
                while !waits.is_finished() && std::time::Instant::now() < until {
                    rt::sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(waits.is_finished(), *noticed);
            }
        });
    }

    fn make(path: &Path) {
        fs::write(path, "").unwrap();
    }

    fn make_another(path: &Path) {
        fs::write(path.with_extension("new"), "").unwrap();
        fs::rename(path.with_extension("new"), path).unwrap();
    }

    fn make_directory(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
    }

    fn remove(path: &Path) {
        fs::remove_file(path).unwrap();
    }

    fn remove_directory(path: &Path) {
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    fn nothing(_: &Path) {}

    #[test]
    fn new_socket_is_noticed() {
        check("s", &[(nothing, false), (|path| make(&path.with_file_name("other")), false), (make, true)]);
    }

    #[test]
    fn stale_socket_is_not_new() {
        check("s", &[(make, false), (nothing, false), (remove, false), (make, true)]);
        check("s", &[(make, false), (make_another, true)]);
    }

    #[test]
    fn parent_directories_may_come_and_go() {
        check("a/b/s", &[(nothing, false), (make_directory, false), (make, true)]);
        check("a/s", &[(make_directory, false), (remove_directory, false), (make_directory, false), (make, true)]);
    }

    #[test]
    fn socket_created_before_the_watch_is_noticed() {
        let folder = TestFolder::new("appearance");
        let path = folder.0.join("s");
        let old = Identity::of(&path);
        make(&path);
        rt::block_on(renewed(&path, old));
    }
}
