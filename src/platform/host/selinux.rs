//! Whether SELinux is enabled, which mounts have labels, and the policy's label of containers' files.

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

/// The label that the policy gives to files of containers, such as `system_u:object_r:container_file_t:s0`. Read below
/// `root`, as libselinux and container runtimes do.
pub(crate) fn container_file_label(root: &Path) -> Option<String> {
    let read = |path: &Path| fs::read_to_string(root.join(path)).ok();
    let of_policy = || {
        let config = read(Path::new("etc/selinux/config"))?;
        let policy = config.lines().find_map(|line| line.trim().strip_prefix("SELINUXTYPE="))?.trim().to_owned();
        // A name, never a path.
        let policy = Path::new("etc/selinux").join(Path::new(&policy).file_name()?);
        read(&policy.join("contexts/lxc_contexts"))
    };
    let contexts = read(Path::new("usr/share/containers/selinux/contexts")).or_else(of_policy)?;
    let entry = |name: &str| {
        let mut entries = contexts.lines().filter_map(|line| line.split_once('='));
        entries.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().trim_matches('"').to_owned())
    };
    // Without a label for processes, runtimes label nothing.
    entry("process").filter(|label| !label.is_empty())?;
    entry("file").filter(|label| label.split(':').count() >= 3)
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

    #[test]
    fn file_label_is_that_of_the_loaded_policy() {
        let root = std::env::temp_dir().join(format!("coracle-selinux-contexts-{}", std::process::id()));
        assert_eq!(container_file_label(&root), None);
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("etc/selinux/config", "# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n");
        let contexts = "process = \"system_u:system_r:container_t:s0\"\ncontent = \"x\"\n\
                        file = \"system_u:object_r:container_file_t:s0\"\n";
        write("etc/selinux/targeted/contexts/lxc_contexts", contexts);
        let label = container_file_label(&root);
        write("usr/share/containers/selinux/contexts", "file = \"a:b:c:s0\"\n");
        let without_process = container_file_label(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(label.as_deref(), Some("system_u:object_r:container_file_t:s0"));
        assert_eq!(without_process, None);
    }
}
