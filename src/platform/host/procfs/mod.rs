//! The one reader of procfs: the kernel's files about the machine and about processes.
//!
//! The `procfs` crate parses most of them. It fails for a whole file if one line is not as it expects, so it gets
//! single lines, or only the lines that are read here: a change in a later kernel then costs one value. These have
//! parsers of our own, whose first lines give the reason: `mountinfo`, pressure stall information, `cpuinfo`,
//! `ipv6_route`, `swaps`. So have `stat`, `status`, `io`, `limits`, `cgroup`, `meminfo` and `vmstat`, of which a few
//! values are read: the crate parses each of their fields, in 75 KB. Numbers below `sys` are files of one word.
//!
//! A file that cannot be read, or a value that is not in it, is `None`.

mod listeners;
mod machine;
mod mountinfo;
mod network;
mod pressure;
mod process;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use procfs::FromBufRead;

use crate::types::sorted::SortedMap;

pub(crate) use machine::{CpuTimes, DiskIo, MemInfo, Processors};
pub(crate) use mountinfo::Mount;
pub(crate) use network::{Counts, Interface};
pub(crate) use pressure::{Pressure, Stall};
pub(crate) use process::{ProcessCgroups, ProcessStat, ProcessStatus};

/// The unit of times in procfs, a hundredth of a second: `USER_HZ` is 100 for programs on every architecture, whatever
/// the kernel's own tick is.
const MILLISECONDS_PER_TICK: u64 = 10;

/// A mounted procfs.
#[derive(Clone, Debug)]
pub(crate) struct Procfs {
    root: PathBuf,
}

/// The directory of one process or thread.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    directory: PathBuf,
}

impl Procfs {
    /// The procfs of this machine.
    pub(crate) fn host() -> Self {
        Self::at("/proc")
    }

    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn process(&self, pid: u32) -> Process {
        Process { directory: self.root.join(pid.to_string()) }
    }

    /// The processes that there are now.
    pub(crate) fn pids(&self) -> io::Result<impl Iterator<Item = u32>> {
        Ok(fs::read_dir(&self.root)?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
    }

    /// This process.
    pub(crate) fn this_process(&self) -> Process {
        Process { directory: self.root.join("self") }
    }

    /// CPU time of the whole machine since it started.
    pub(crate) fn cpu_times(&self) -> Option<CpuTimes> {
        CpuTimes::parse(&self.bytes("stat")?)
    }

    pub(crate) fn memory(&self) -> Option<MemInfo> {
        MemInfo::parse(&self.bytes("meminfo")?)
    }

    /// Page faults, and those among them that waited for a disk.
    pub(crate) fn page_faults(&self) -> Option<(u64, u64)> {
        machine::page_faults(&self.bytes("vmstat")?)
    }

    pub(crate) fn processors(&self) -> Processors {
        Processors::parse(&self.text("cpuinfo").unwrap_or_default())
    }

    /// The device with the numbers `(major, minor)`.
    pub(crate) fn disk_io(&self, device: (u32, u32)) -> Option<DiskIo> {
        DiskIo::parse(&self.bytes("diskstats")?, device)
    }

    /// The names of the block devices, by major and minor number.
    pub(crate) fn disk_names(&self) -> SortedMap<(u32, u32), String> {
        self.bytes("diskstats").map(|text| machine::disk_names(&text)).unwrap_or_default()
    }

    /// Number of tasks, threads among them.
    pub(crate) fn tasks(&self) -> Option<u64> {
        machine::tasks(&self.bytes("loadavg")?)
    }

    /// Maximum number of tasks: the lower of the kernel's limits on pids and on threads.
    pub(crate) fn most_tasks(&self) -> Option<u64> {
        ["kernel/pid_max", "kernel/threads-max"].iter().filter_map(|name| self.sysctl(name)).min()
    }

    /// The value of a file of one word below `sys`.
    pub(crate) fn sysctl<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(&format!("sys/{name}"))?.trim().parse().ok()
    }

    /// The first swap area.
    pub(crate) fn swap_area(&self) -> Option<String> {
        machine::first_swap_area(&self.text("swaps")?)
    }

    /// Pressure of the whole machine: `resource` is `cpu`, `memory` or `io`.
    pub(crate) fn pressure(&self, resource: &str) -> Option<Pressure> {
        Some(Pressure::parse(&self.text(&format!("pressure/{resource}"))?))
    }

    /// The interface of the IPv4 default route with the lowest metric.
    pub(crate) fn default_interface(&self) -> Option<String> {
        network::default_interface(&self.bytes("net/route")?)
    }

    /// The same for IPv6.
    pub(crate) fn default_ipv6_interface(&self) -> Option<String> {
        network::default_ipv6_interface(&self.text("net/ipv6_route")?)
    }

    /// The mounts that this thread sees, in case it has a mount namespace of its own.
    pub(crate) fn mounts(&self) -> io::Result<Vec<Mount>> {
        Ok(mountinfo::parse(&fs::read(self.root.join("thread-self/mountinfo"))?))
    }

    fn bytes(&self, file: &str) -> Option<Vec<u8>> {
        fs::read(self.root.join(file)).ok()
    }

    fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.root.join(file)).ok()
    }
}

impl Process {
    pub(crate) fn stat(&self) -> Option<ProcessStat> {
        ProcessStat::parse(&self.bytes("stat")?)
    }

    pub(crate) fn status(&self) -> Option<ProcessStatus> {
        ProcessStatus::parse(&self.bytes("status")?)
    }

    pub(crate) fn cgroups(&self) -> Option<ProcessCgroups> {
        Some(ProcessCgroups::parse(&self.bytes("cgroup")?))
    }

    /// The lines of all its control groups.
    pub(crate) fn cgroup_text(&self) -> Option<String> {
        String::from_utf8(self.bytes("cgroup")?).ok()
    }

    /// The label of its security module.
    pub(crate) fn label(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.bytes("attr/current")?).into_owned();
        Some(text.trim_end_matches(['\0', '\n']).to_owned())
    }

    /// Bytes that the process has caused to be written to disks.
    pub(crate) fn written_bytes(&self) -> Option<u64> {
        process::written_bytes(&self.bytes("io")?)
    }

    /// Bytes of a page of memory.
    pub(crate) fn page_size(&self) -> Option<u64> {
        process::page_size(&self.bytes("auxv")?)
    }

    /// Number of files that the process may have open; `u64::MAX` without a limit.
    pub(crate) fn open_files_limit(&self) -> Option<u64> {
        process::open_files_limit(&self.bytes("limits")?)
    }

    /// Number of open files.
    pub(crate) fn open_files(&self) -> Option<u64> {
        let directory = self.directory.join("fd");
        // Since Linux 6.2 the size of the directory is their number.
        match fs::metadata(&directory).map(|metadata| metadata.len()) {
            Ok(files @ 1..) => Some(files),
            _ => {
                let count = u64::try_from(fs::read_dir(&directory).ok()?.count()).ok()?;
                // The directory itself was open meanwhile.
                Some(count.saturating_sub(u64::from(self.directory.ends_with("self"))))
            }
        }
    }

    /// The network interfaces that the process sees.
    pub(crate) fn interfaces(&self) -> Vec<Interface> {
        Interface::parse_all(&self.bytes("net/dev").unwrap_or_default())
    }

    pub(crate) fn thread(&self, id: u32) -> Self {
        Self { directory: self.directory.join("task").join(id.to_string()) }
    }

    /// The threads that there are now.
    pub(crate) fn threads(&self) -> io::Result<impl Iterator<Item = Self>> {
        Ok(fs::read_dir(self.directory.join("task"))?.flatten().map(|entry| Self { directory: entry.path() }))
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// A container may make some of the files long, such as that of its network interfaces.
    fn bytes(&self, file: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let opened = fs::File::open(self.directory.join(file)).ok()?;
        io::Read::read_to_end(&mut io::Read::take(opened, MAX_PROC_FILE_BYTES), &mut bytes).ok()?;
        Some(bytes)
    }
}

/// Bytes read of one file of a process.
const MAX_PROC_FILE_BYTES: u64 = 1 << 20;

/// Parses each row of a table on its own, after the head lines that the crate expects. Skips rows that do not parse.
fn rows<'a, T: FromBufRead + 'a>(head: &'static [u8], table: &'a [u8]) -> impl Iterator<Item = T> + 'a {
    table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).filter_map(move |line| {
        let lines = [head, line].concat();
        T::from_buf_read(lines.as_slice()).ok()
    })
}

/// What follows `key` on its line.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// The first word after `key`, a number. The unit of sizes is kB.
fn number(text: &str, key: &str) -> Option<u64> {
    value(text, key)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of an x86_64 machine with Linux 6.18, but for `self/cgroup`: that of a container on a host with both
    /// versions of control groups.
    #[test]
    fn files_of_a_real_kernel_are_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/procfs/linux-6.18-x86_64");
        let procfs = Procfs::at(root);
        let memory = procfs.memory().unwrap();
        assert_eq!((memory.total, memory.swap_total), (24_684_096 << 10, 0));
        assert!(memory.available > memory.anon && memory.kernel > 0 && memory.mapped > 0, "{memory:?}");
        let times = procfs.cpu_times().unwrap();
        assert!(times.user > times.system && times.system > 0, "{times:?}");
        assert!(procfs.page_faults().unwrap().0 > 0);
        assert!(procfs.tasks().unwrap() > 100);
        assert!(procfs.disk_io((254, 0)).unwrap().reads > 0);
        let process = procfs.this_process();
        let names = process.interfaces().into_iter().map(|interface| interface.name).collect::<Vec<_>>();
        assert_eq!(names, ["lo", "ifb0", "ifb1", "eth0"]);
        assert_eq!(procfs.default_interface().as_deref(), Some("eth0"));
        assert_eq!(procfs.default_ipv6_interface().as_deref(), Some("eth0"));
        assert!(process.stat().unwrap().started_after_boot.as_secs() > 1000);
        let status = process.status().unwrap();
        assert!(status.resident_bytes.unwrap() < status.virtual_bytes.unwrap(), "{status:?}");
        assert_eq!(process.written_bytes(), Some(0));
        assert_eq!(process.open_files_limit(), Some(20_000));
        let cgroups = process.cgroups().unwrap();
        assert_eq!((cgroups.v1("memory"), cgroups.v2()), (Some("/k8s.io/abc"), Some("/")));
    }

    #[test]
    fn files_of_this_machine_are_read() {
        let procfs = Procfs::host();
        let memory = procfs.memory().unwrap();
        assert!(0 < memory.available && memory.available < memory.total, "{memory:?}");
        assert!(procfs.cpu_times().is_some() && procfs.page_faults().is_some());
        let (now, most) = (procfs.tasks().unwrap(), procfs.most_tasks().unwrap());
        assert!(0 < now && now < most, "{now} of {most}");
        assert!(procfs.processors().processors > 0);
        assert!(procfs.mounts().unwrap().iter().any(|mount| mount.point == Path::new("/")));
        let this = procfs.this_process();
        assert!(this.stat().is_some() && this.status().is_some() && this.cgroups().is_some());
        assert!(this.open_files().unwrap() > 0 && this.open_files() < this.open_files_limit());
        // A thread of another test may end meanwhile.
        assert!(this.threads().unwrap().any(|thread| thread.status().is_some()));
        assert!(!procfs.process(std::process::id()).interfaces().is_empty());
    }

    #[test]
    fn files_that_are_not_there_are_none() {
        let procfs = Procfs::at("/nonexistent");
        assert_eq!(
            (procfs.memory(), procfs.cpu_times(), procfs.tasks(), procfs.most_tasks()),
            (None, None, None, None)
        );
        assert_eq!(procfs.processors(), Processors { sockets: 1, ..Processors::default() });
        assert!(procfs.mounts().is_err() && procfs.this_process().threads().is_err());
        assert_eq!(procfs.this_process().interfaces(), []);
        assert_eq!((procfs.this_process().open_files(), procfs.sysctl::<u64>("kernel/pid_max")), (None, None));
    }
}
