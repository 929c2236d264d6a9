//! The cgroup hierarchy as files: creates, updates, empties and removes groups.

use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};

use super::error::CgroupError;
use super::values::{CpuMax, Limit, Values};

use crate::platform::host::procfs::Procfs;
use crate::platform::rt;

/// A mounted v2 hierarchy. Paths of groups begin with a slash and are relative to the mount point.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: PathBuf,
}

/// The controllers that pods need. Those that the machine lacks are skipped.
const POD_CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "memory", "hugetlb", "pids"];
/// How long killed processes may take to exit.
const KILLED_EXIT_WAIT: Duration = Duration::from_secs(5);
/// How often to empty a group that fills again.
const MAX_KILL_ROUNDS: usize = 3;

impl Tree {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.at(path).is_dir()
    }

    /// Reads a file of a group.
    pub(crate) fn read(&self, path: &str, file: &str) -> io::Result<String> {
        fs::read_to_string(self.at(path).join(file))
    }

    /// Creates the group and its missing parents, with the controllers that pods need.
    pub(crate) fn make(&self, path: &str) -> Result<(), CgroupError> {
        let mut group = self.root.clone();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            enable(&group)?;
            group.push(part);
            // Monitors that do not run as root read the files.
            let made = fs::create_dir(&group).and_then(|()| fs::set_permissions(&group, Permissions::from_mode(0o755)));
            match made {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(CgroupError::new("make", &group, error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Writes the values that differ. A missing file belongs to a controller that the machine lacks, and is skipped.
    pub(crate) fn set(&self, path: &str, values: &Values) -> Result<(), CgroupError> {
        for (file, value) in self.differing(path, values)? {
            write(&self.at(path).join(file), &value)?;
        }
        Ok(())
    }

    /// The files of the group whose values differ, with the wanted values.
    pub(super) fn differing(&self, path: &str, values: &Values) -> Result<Vec<(String, String)>, CgroupError> {
        let group = self.at(path);
        fs::metadata(&group).map_err(CgroupError::io("look for", &group))?;
        let mut files = values.files();
        let mut failed = None;
        files.retain(|(file, value)| match fs::read_to_string(group.join(file)) {
            Ok(text) => !is_value(file, text.trim_end(), value),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                failed.get_or_insert(CgroupError::new("read", &group.join(file), error));
                false
            }
        });
        failed.map_or(Ok(files), Err)
    }

    /// The limits of the group; those that cannot be read are `None`.
    pub(super) fn limits(&self, path: &str) -> Values {
        let read = |file: &str| self.read(path, file).ok();
        let limit = |file: &str| read(file).and_then(|text| Limit::parse(&text));
        Values {
            cpu_weight: read("cpu.weight").and_then(|text| text.trim().parse().ok()),
            cpu_max: read("cpu.max").and_then(|text| CpuMax::parse(&text)),
            memory_max: limit("memory.max"),
            pids_max: limit("pids.max"),
            ..Values::default()
        }
    }

    /// The child groups; empty if the group does not exist.
    pub(crate) fn children(&self, path: &str) -> Result<Vec<String>, CgroupError> {
        self.directories(path).map_err(CgroupError::io("list", &self.at(path)))
    }

    /// The names of the child groups; empty if the group does not exist.
    pub(super) fn directories(&self, path: &str) -> io::Result<Vec<String>> {
        match directories(&self.at(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            child_paths => {
                Ok(child_paths?.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned)).collect())
            }
        }
    }

    /// The processes in the group and below it.
    pub(super) fn processes(&self, path: &str) -> Vec<u32> {
        let mut pids = Vec::new();
        processes(&self.at(path), &mut pids);
        pids.into_iter().filter_map(|pid| pid.try_into().ok()).collect()
    }

    /// Removes the group and everything below it, killing its processes. Returns how many there were.
    pub(crate) fn remove(&self, path: &str) -> Result<usize, CgroupError> {
        let group = self.at(path);
        let mut killed = 0;
        for _ in 0..MAX_KILL_ROUNDS {
            match remove_directories(&group) {
                Ok(()) => return Ok(killed),
                Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => killed += empty(&group)?,
                Err(error) => return Err(CgroupError::new("remove", &group, error)),
            }
        }
        remove_directories(&group).map_err(CgroupError::io("remove", &group))?;
        Ok(killed)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// Whether the file has the value. The kernel rounds memory down to pages.
fn is_value(file: &str, shown: &str, value: &str) -> bool {
    if shown == value || !file.starts_with("memory.") {
        return shown == value;
    }
    let bytes = |text: &str| text.parse::<u64>().ok();
    let page = Procfs::host().this_process().page_size().unwrap_or(1);
    bytes(shown).zip(bytes(value)).is_some_and(|(shown, value)| shown == value - value.checked_rem(page).unwrap_or(0))
}

/// Enables the controllers that pods need for the children of a group.
fn enable(group: &Path) -> Result<(), CgroupError> {
    let read = |name: &str| {
        let file = group.join(name);
        fs::read_to_string(&file).map_err(CgroupError::io("read", &file))
    };
    let (available, enabled) = (read("cgroup.controllers")?, read("cgroup.subtree_control")?);
    let has = |list: &str, controller: &str| list.split_whitespace().any(|one| one == controller);
    for controller in POD_CONTROLLERS {
        if has(&available, controller) && !has(&enabled, controller) {
            write(&group.join("cgroup.subtree_control"), &["+", controller].concat())?;
        }
    }
    Ok(())
}

/// Never creates a file: a missing one is an error.
fn write(file: &Path, value: &str) -> Result<(), CgroupError> {
    let written = fs::OpenOptions::new().write(true).open(file).and_then(|mut open| open.write_all(value.as_bytes()));
    written.map_err(CgroupError::io("write", file))
}

fn directories(group: &Path) -> io::Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            directories.push(entry.path());
        }
    }
    Ok(directories)
}

/// Removes directories from the inside out. Directories that vanish meanwhile are no error.
fn remove_directories(group: &Path) -> io::Result<()> {
    let gone = |result: io::Result<()>| match result {
        // ENODEV: the group was removed while it was listed.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ENODEV as i32) => {
            Ok(())
        }
        other => other,
    };
    gone(directories(group).and_then(|inner| inner.iter().try_for_each(|inner| remove_directories(inner))))?;
    gone(fs::remove_dir(group))
}

/// Kills all processes in the group and below, and waits for their exit. Returns how many there were.
fn empty(group: &Path) -> Result<usize, CgroupError> {
    let mut pids = Vec::new();
    processes(group, &mut pids);
    let kill_file = group.join("cgroup.kill");
    if kill_file.exists() {
        write(&kill_file, "1")?;
    } else {
        // cgroup.kill needs Linux 5.14; without it kill one by one.
        for pid in &pids {
            // The process may have exited already.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    }
    wait_until_empty(group)?;
    Ok(pids.len())
}

fn processes(group: &Path, into: &mut Vec<i32>) {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    // Processes of another PID namespace are listed as 0.
    into.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    for inner in directories(group).unwrap_or_default() {
        processes(&inner, into);
    }
}

/// `cgroup.events` polls POLLPRI on each change.
fn wait_until_empty(group: &Path) -> Result<(), CgroupError> {
    let file = group.join("cgroup.events");
    let failed = |error| CgroupError::new("wait for the processes of", group, error);
    let until = rt::now() + KILLED_EXIT_WAIT;
    loop {
        let open = match fs::File::open(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(failed)?,
        };
        let text = io::read_to_string(&open).map_err(failed)?;
        if text.lines().any(|line| line == "populated 0") {
            return Ok(());
        }
        let time_left = until.saturating_duration_since(rt::now());
        if time_left.is_zero() {
            return Err(failed(io::ErrorKind::TimedOut.into()));
        }
        let timeout = rustix::event::Timespec::try_from(time_left).ok();
        // The file is read again in any case.
        let _ = poll(&mut [PollFd::new(&open, PollFlags::PRI)], timeout.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::host::directories::is_under_service_umask;

    /// A folder that looks like a cgroup with these files.
    fn group(path: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(path).unwrap();
        files.iter().for_each(|(name, text)| fs::write(path.join(name), text).unwrap());
    }

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("coracle-cgroups-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn only_changed_and_existing_files_are_written() {
        let root = scratch("set");
        group(&root.join("a"), &[("cpu.weight", "4\n"), ("memory.max", "max\n")]);
        let values = Values {
            cpu_weight: Some(4),
            memory_max: Some(Limit::At(4096)),
            huge_pages: vec![(2 << 20, Limit::At(0))],
            ..Values::default()
        };
        let tree = Tree::new(&root);
        let differing = tree.differing("/a", &values).unwrap();
        let set = tree.set("/a", &values);
        let text = fs::read_to_string(root.join("a/memory.max"));
        let weight = fs::read_to_string(root.join("a/cpu.weight"));
        let missing = tree.set("/b", &values).map_err(|error| error.to_string());
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(differing, [("memory.max".to_owned(), "4096".to_owned())]);
        assert!(set.is_ok());
        // A plain file keeps the tail of longer content, unlike the kernel's files.
        assert_eq!((text.unwrap().as_str(), weight.unwrap().as_str()), ("4096", "4\n"));
        assert_eq!(missing, Err(format!("look for {}", root.join("b").display())));
    }

    #[test]
    fn memory_that_the_kernel_has_rounded_down_to_pages_is_not_written_again() {
        let page = Procfs::host().this_process().page_size().unwrap();
        assert!(page.is_power_of_two() && page >= 4096, "{page}");
        let root = scratch("pages");
        let shown = (9 * page).to_string();
        group(
            &root.join("a"),
            &[("memory.max", &shown), ("memory.low", &shown), ("pids.max", "9"), ("memory.min", "max")],
        );
        let with = |max, low, pids| Values {
            memory_max: Some(Limit::At(max)),
            memory_low: Some(low),
            pids_max: Some(Limit::At(pids)),
            ..Values::default()
        };
        let tree = Tree::new(&root);
        let files = |values: Values| {
            let differing = tree.differing("/a", &values).unwrap();
            differing.into_iter().map(|(file, _)| file).collect::<Vec<_>>()
        };
        let found = [
            files(with(9 * page + 1, 10 * page - 1, 9)),
            files(with(10 * page, 9 * page - 1, 9)),
            files(with(9 * page, 9 * page, 10)),
            files(Values { memory_min: Some(0), ..Values::default() }),
        ];
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, [vec![], vec!["memory.max", "memory.low"], vec!["pids.max"], vec!["memory.min"]]);
    }

    #[test]
    fn missing_controllers_are_enabled_along_the_path() {
        let root = scratch("make");
        group(&root, &[("cgroup.controllers", "cpu io memory pids\n"), ("cgroup.subtree_control", "cpu memory\n")]);
        let tree = Tree::new(&root);
        let made = tree.make("/kubepods");
        let written = fs::read_to_string(root.join("cgroup.subtree_control"));
        let (there, twice) = (tree.exists("/kubepods"), tree.make("/kubepods"));
        let deeper = tree.make("/kubepods/pod1").map_err(|error| error.to_string());
        fs::remove_dir_all(&root).unwrap();
        assert!(made.is_ok() && there && twice.is_ok());
        // A plain file shows the last write over the earlier ones.
        assert_eq!(written.unwrap(), "+pidsemory\n");
        assert_eq!(deeper, Err(format!("read {}", root.join("kubepods/cgroup.controllers").display())));
    }

    #[test]
    fn groups_can_be_read_by_everyone_whatever_the_umask() {
        if !is_under_service_umask("platform::cgroups::tree::tests::groups_can_be_read_by_everyone_whatever_the_umask")
        {
            return;
        }
        let root = scratch("mode");
        group(&root, &[("cgroup.controllers", ""), ("cgroup.subtree_control", "")]);
        let made = Tree::new(&root).make("/kubepods");
        let mode = fs::metadata(root.join("kubepods")).map(|found| found.permissions().mode() & 0o777);
        fs::remove_dir_all(&root).unwrap();
        made.unwrap();
        assert_eq!(mode.unwrap(), 0o755);
    }

    #[test]
    fn group_is_removed_with_its_children() {
        let root = scratch("remove");
        fs::create_dir_all(root.join("pod1/a/b")).unwrap();
        fs::create_dir_all(root.join("pod1/c")).unwrap();
        let tree = Tree::new(&root);
        let results = (tree.remove("/pod1").ok(), tree.remove("/pod1").ok(), tree.exists("/pod1"));
        let children = tree.children("/pod1");
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(results, (Some(0), Some(0), false));
        assert_eq!(children.unwrap(), Vec::<String>::new());
    }
}
