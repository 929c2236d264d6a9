//! The limit of a claim's directory: a project quota, on a file system that is mounted with `prjquota`.
//!
//! The node's `chattr` and `setquota` set it, because the system calls for it need unsafe code. The kernel then shows the
//! limit as the size of the file system in that directory, so that nothing has to be remembered.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use super::error::Problem;
use super::node_program::{failed, run, run_checked};
use crate::platform::host::file_system::room;
use crate::platform::host::mounts::mount_of;
use crate::state::objects::claim_limit;

/// Limits `directory` to what its claim requests, `bytes`, unless it is limited to that already or its file system keeps no
/// such limits. The first time, this reads the whole directory.
pub(super) fn set(directory: &Path, bytes: u64) -> Result<(), Problem> {
    let root = directory.parent().unwrap_or(directory);
    let disk = capacity(root)?;
    let limit = claim_limit(bytes);
    if is_in_force(capacity(directory)?, limit, disk) {
        return Ok(());
    }
    let mount = mount_of(directory).map_err(Problem::io("find the mount of", directory))?;
    let Some(mount) = mount.filter(|mount| mount.limits_projects) else { return Ok(()) };
    let metadata = fs::metadata(directory).map_err(Problem::io("stat", directory))?;
    let project = project_of(metadata.ino()).to_string();
    // Both fail for links and pipes, which have no content; what is made later inherits the project.
    let mut tag = Command::new("chattr");
    tag.args(["-R", "-f", "-p", &project]).arg(directory);
    let (_, tagged) = run(tag, "chattr")?;
    let mut inherit = Command::new("chattr");
    inherit.args(["-R", "-f", "+P"]).arg(directory);
    let (_, inherits) = run(inherit, "chattr")?;
    // Last: a set-up that was interrupted before is repeated as a whole.
    let mut limited = Command::new("setquota");
    limited.args(["-P", &project, "0", &(limit / 1024).to_string(), "0", "0"]).arg(&mount.point);
    run_checked(limited, "setquota")?;
    if is_in_force(capacity(directory)?, limit, disk) {
        return Ok(());
    }
    Err(failed("chattr", format!("the quota of {} is not in force: {tagged}; {inherits}", directory.display())))
}

fn capacity(path: &Path) -> Result<u64, Problem> {
    room(path).map(|room| room.capacity).map_err(Problem::io("statfs", path))
}

/// Whether a directory with this size has that limit. The kernel shows a limit only if it is smaller than the disk.
fn is_in_force(shown: u64, limit: u64, disk: u64) -> bool {
    shown == limit.min(disk)
}

/// The number of the directory's project: the low 30 bits of its inode number, above the small numbers that people give,
/// as `setquota` takes 31 bits. A file system has that many inodes only on disks of terabytes: there two directories with
/// the same bits share one limit.
fn project_of(inode: u64) -> u64 {
    const FIRST_PROJECT: u64 = 1 << 30;
    FIRST_PROJECT | (inode & (FIRST_PROJECT - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_in_force_if_the_directory_shows_it_as_its_size() {
        let disk = 1 << 30;
        assert!(is_in_force(1 << 20, 1 << 20, disk));
        assert!(!is_in_force(disk, 1 << 20, disk), "no quota");
        assert!(!is_in_force(1 << 20, 2 << 20, disk), "the request has grown");
        assert!(is_in_force(disk, 2 << 30, disk), "the disk itself is the limit");
        assert!(!is_in_force(1 << 20, 2 << 30, disk), "the request has outgrown the disk");
    }

    #[test]
    fn projects_are_31_bits_and_none_of_the_small_numbers() {
        assert_eq!(project_of(12), 1_073_741_836);
        assert_eq!(project_of(u64::MAX), (1 << 31) - 1);
    }

    #[test]
    fn directory_without_project_quotas_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("coracle-claim-quota-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        set(&folder, 1 << 20).unwrap();
        assert!(set(Path::new("/nowhere/at/all"), 1).unwrap_err().to_string().contains("statfs /nowhere/at"));
        fs::remove_dir(&folder).unwrap();
    }
}
