//! Sets up emptyDir volumes: a directory on disk or a tmpfs.

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

/// Sets up `directory` unless that is already done.
pub(super) fn set_up(directory: &EmptyDir) -> Result<(), Problem> {
    let EmptyDir { path, marker, medium, group } = directory;
    let ready = marker.join("ready");
    if ready.is_file() && is_there(path, medium) {
        return Ok(());
    }
    make_open(path).map_err(Problem::io("create", path))?;
    let mounted = match medium {
        Medium::Disk => Ok(()),
        Medium::HugePages { page_size } => mount_once(path, || huge_pages(path, *page_size)),
        Medium::Memory { size } => mount_once(path, || memory(path, *size)),
    };
    mounted.map_err(Problem::io("mount on", path))?;
    if let Some(group) = *group {
        // Not every file system has owners.
        if let Err(error) = give_to_group(path, group) {
            log!(warn, "failed to set group of volume", path = path.display(), error = ErrorChain(&error));
        }
    }
    mark(marker, &ready).map_err(Problem::io("create", &ready))
}

/// After a reboot the marker still exists, but the tmpfs does not.
fn is_there(path: &Path, medium: &Medium) -> bool {
    match medium {
        Medium::Disk => path.is_dir(),
        Medium::HugePages { .. } | Medium::Memory { .. } => is_mount_point(path).unwrap_or(false),
    }
}

/// A directory that every user may write to.
fn make_open(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        directories::make_own(parent, 0o755)?;
    }
    directories::make_own(path, 0o777)?;
    // A directory without the marker may have been created but not opened yet.
    if is_mount_point(path)? { Ok(()) } else { fs::set_permissions(path, Permissions::from_mode(0o777)) }
}

fn mount_once(path: &Path, mount: impl FnOnce() -> Result<(), Errno>) -> io::Result<()> {
    if is_mount_point(path)? { Ok(()) } else { Ok(mount()?) }
}

fn memory(path: &Path, size: Option<u64>) -> Result<(), Errno> {
    let tmpfs = |options: &str| mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::MS_NODEV, Some(options));
    // Size 0 means no limit.
    let size = format!("size={}", size.unwrap_or(0));
    // Memory volumes must not be swapped to disk. Kernels before 6.4 cannot guarantee it.
    match tmpfs(&[&size, ",noswap"].concat()) {
        Err(Errno::EINVAL) => tmpfs(&size),
        result => result,
    }
}

fn huge_pages(path: &Path, page_size: u64) -> Result<(), Errno> {
    let options = format!("pagesize={page_size}");
    mount(Some("nodev"), path, Some("hugetlbfs"), MsFlags::MS_NODEV, Some(options.as_str()))
}

/// Gives the group the owner's permissions, and sets setgid.
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
