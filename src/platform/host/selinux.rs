//! Whether SELinux is enabled, and which mounts have labels.

use std::fs;
use std::io;
use std::path::Path;

use super::procfs::Procfs;

/// Whether processes run with labels: the kernel's file system for policies is mounted and writable, and a policy is
/// loaded. A container runtime hides SELinux from containers with a read-only mount.
pub(crate) fn is_enabled(procfs: &Procfs) -> bool {
    let mounts = procfs.mounts().unwrap_or_default();
    let has_policies = mounts.iter().any(|mount| mount.file_system == "selinuxfs" && !mount.read_only);
    has_policies && procfs.this_process().label().as_deref() != Some("kernel")
}

/// Whether each file of the file system mounted at `path` has a label of its own. Does not access the file system.
pub(crate) fn has_labels(path: &Path) -> io::Result<bool> {
    // The mount table has resolved paths.
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    let path = fs::canonicalize(parent)?.join(name);
    let mounts = Procfs::host().mounts()?;
    // Later mounts lie on top of earlier ones.
    Ok(mounts.iter().rfind(|mount| mount.point == path).is_some_and(|mount| mount.labels_files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selinux_is_enabled_with_a_writable_file_system_and_a_policy() {
        let root = std::env::temp_dir().join(format!("coracle-selinux-{}", std::process::id()));
        for directory in ["thread-self", "self/attr"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        let enabled_with = |options: &str, file_system: &str, label: &str| {
            let mounts = format!("30 22 0:21 / /sys/fs/selinux {options} - {file_system} x rw\n");
            fs::write(root.join("thread-self/mountinfo"), mounts).unwrap();
            fs::write(root.join("self/attr/current"), label).unwrap();
            is_enabled(&Procfs::at(root.clone()))
        };
        assert!(enabled_with("rw,relatime", "selinuxfs", "system_u:system_r:init_t:s0\0"));
        assert!(!enabled_with("ro,relatime", "selinuxfs", "system_u:system_r:init_t:s0\0"), "hidden from a container");
        assert!(!enabled_with("rw,relatime", "tmpfs", "unconfined\n"));
        assert!(!enabled_with("rw,relatime", "selinuxfs", "kernel\0"), "no policy is loaded");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn path_that_is_no_mount_has_no_labels() {
        assert!(!has_labels(&std::env::temp_dir()).unwrap() && !has_labels(Path::new("/")).unwrap());
    }
}
