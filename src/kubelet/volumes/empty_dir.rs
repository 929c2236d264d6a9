//! Setting up an emptyDir: a directory on the disk, or a file system in memory.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};

use super::error::Problem;
use super::plan::{EmptyDir, Medium};
use crate::platform::host::directories;
use crate::platform::host::mounts::is_mount_point;
use crate::types::error::ErrorChain;

/// Sets `directory` up, unless it is already.
pub(super) fn set_up(directory: &EmptyDir) -> Result<(), Problem> {
    let EmptyDir { path, marker, medium, group } = directory;
    let ready = marker.join("ready");
    if ready.is_file() && is_there(path, medium) {
        return Ok(());
    }
    make_open(path).map_err(Problem::io("make", path))?;
    let mounted = match medium {
        Medium::Disk => Ok(()),
        Medium::HugePages { page_size } => mount_once(path, || huge_pages(path, *page_size)),
        Medium::Memory { size } => mount_once(path, || memory(path, *size)),
    };
    mounted.map_err(Problem::io("mount a file system in memory on", path))?;
    if let Some(group) = *group {
        // Not every file system has owners.
        if let Err(error) = give_to_group(path, group) {
            log!(warn, "volume not given to its group", path = path.display(), error = ErrorChain(&error));
        }
    }
    mark(marker, &ready).map_err(Problem::io("make", &ready))
}

/// After the node has started again the mark is still there, and what was in memory is not.
fn is_there(path: &Path, medium: &Medium) -> bool {
    match medium {
        Medium::Disk => path.is_dir(),
        Medium::HugePages { .. } | Medium::Memory { .. } => is_mount_point(path).unwrap_or(false),
    }
}

/// A directory for every user there is.
fn make_open(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        directories::make_own(parent, 0o755)?;
    }
    directories::make_own(path, 0o777)?;
    // One that is not marked as ready may have been made and not yet opened.
    if is_mount_point(path)? { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(0o777)) }
}

fn mount_once(path: &Path, mount: impl FnOnce() -> Result<(), Errno>) -> io::Result<()> {
    if is_mount_point(path)? { Ok(()) } else { Ok(mount()?) }
}

fn memory(path: &Path, size: Option<u64>) -> Result<(), Errno> {
    let tmpfs = |options: &str| mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), Some(options));
    // A size of 0 is no bound.
    let size = format!("size={}", size.unwrap_or(0));
    // What a pod keeps in memory must not end on a disk. Kernels before 6.3 cannot promise it.
    match tmpfs(&[&size, ",noswap"].concat()) {
        Err(Errno::EINVAL) => tmpfs(&size),
        result => result,
    }
}

fn huge_pages(path: &Path, page_size: u64) -> Result<(), Errno> {
    let options = format!("pagesize={page_size}");
    mount(Some("nodev"), path, Some("hugetlbfs"), MsFlags::empty(), Some(options.as_str()))
}

/// The group may do what the owner may, and what is made here belongs to it.
fn give_to_group(path: &Path, group: u32) -> io::Result<()> {
    chown(path, None, Some(group))?;
    let mode = fs::metadata(path)?.permissions().mode() & 0o7777;
    fs::set_permissions(path, Permissions::from_mode(mode | 0o2770))
}

pub(super) fn mark(marker: &Path, ready: &Path) -> io::Result<()> {
    if let Some(parent) = marker.parent() {
        directories::make_own(parent, 0o750)?;
    }
    directories::make_own(marker, 0o750)?;
    if ready.is_dir() {
        directories::set_aside(ready)?;
    }
    File::create(ready)?.set_permissions(Permissions::from_mode(0o644))
}
