//! The resource usage of a cgroup, from all of its files in one pass.
//!
//! For callers that read many groups often: a reader is reused and allocates only for text longer than any before.
//! Files are opened relative to the group's directory, so that the kernel resolves the long path once.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::containers::is_monitor;
use super::stat_files::{
    Bound, CpuStat, DeviceIo, MemoryStat, bound, cpu_max, io_stat, memory_hits, memory_throttles, number, oom_kills,
};
use crate::platform::host::procfs::Pressure;

/// Reads the groups of one hierarchy one after the other.
#[derive(Debug)]
pub(crate) struct UsageReader {
    root: PathBuf,
    /// The path of the current group.
    path: PathBuf,
    text: String,
}

/// How many files of a group to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// Memory usage, and the number of processes and threads.
    Memory,
    /// Also CPU time and memory limits.
    CpuAndMemory,
    /// Also pressure stall information.
    Pressure,
    /// Everything, including all limits.
    Whole,
}

/// The usage of a group. Values that the kernel or the group lacks, or that were not read, are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu: Option<CpuStat>,
    /// Bytes, page cache included.
    pub(crate) memory_current: Option<u64>,
    pub(crate) memory_peak: Option<u64>,
    pub(crate) memory_max: Option<Bound>,
    pub(crate) memory_low: Option<Bound>,
    pub(crate) swap_current: Option<u64>,
    pub(crate) swap_max: Option<Bound>,
    pub(crate) memory: Option<MemoryStat>,
    pub(crate) oom_kills: Option<u64>,
    /// How often usage was about to exceed `memory.max`.
    pub(crate) memory_hits: Option<u64>,
    /// How often usage was throttled at `memory.high`.
    pub(crate) memory_throttles: Option<u64>,
    /// Processes and threads.
    pub(crate) pids: Option<u64>,
    pub(crate) pids_max: Option<Bound>,
    pub(crate) cpu_max: Option<(Bound, u64)>,
    pub(crate) cpu_weight: Option<u64>,
    pub(crate) cpu_pressure: Option<Pressure>,
    pub(crate) memory_pressure: Option<Pressure>,
    pub(crate) io_pressure: Option<Pressure>,
    /// Empty without the `io` controller.
    pub(crate) io: Vec<DeviceIo>,
}

impl Usage {
    /// Memory that cannot be reclaimed at once: usage without inactive file pages. Eviction and `kubectl top` use it.
    pub(crate) fn working_set(&self) -> Option<u64> {
        Some(self.memory_current?.saturating_sub(self.memory.as_ref()?.inactive_file))
    }
}

impl UsageReader {
    pub(crate) fn new(hierarchy: &Path) -> Self {
        Self { root: hierarchy.to_owned(), path: PathBuf::new(), text: String::new() }
    }

    /// Fails if there is no such group. The root of the hierarchy has fewer files.
    pub(crate) fn read(&mut self, group: &str, depth: Depth) -> io::Result<Usage> {
        let group = self.open(group)?;
        let mut usage = Usage {
            memory_current: self.file(&group, "memory.current", number)?.flatten(),
            memory: self.file(&group, "memory.stat", MemoryStat::parse)?,
            pids: self.file(&group, "pids.current", number)?.flatten(),
            ..Usage::default()
        };
        if depth >= Depth::CpuAndMemory {
            usage.cpu = self.file(&group, "cpu.stat", CpuStat::parse)?;
            usage.memory_max = self.file(&group, "memory.max", bound)?.flatten();
            usage.swap_current = self.file(&group, "memory.swap.current", number)?.flatten();
            usage.swap_max = self.file(&group, "memory.swap.max", bound)?.flatten();
        }
        if depth >= Depth::Pressure {
            usage.cpu_pressure = self.file(&group, "cpu.pressure", Pressure::parse)?;
            usage.memory_pressure = self.file(&group, "memory.pressure", Pressure::parse)?;
            usage.io_pressure = self.file(&group, "io.pressure", Pressure::parse)?;
        }
        if depth >= Depth::Whole {
            usage.memory_peak = self.file(&group, "memory.peak", number)?.flatten();
            usage.memory_low = self.file(&group, "memory.low", bound)?.flatten();
            let events = |text: &str| (oom_kills(text), memory_hits(text), memory_throttles(text));
            (usage.oom_kills, usage.memory_hits, usage.memory_throttles) =
                self.file(&group, "memory.events", events)?.unwrap_or_default();
            usage.pids_max = self.file(&group, "pids.max", bound)?.flatten();
            usage.cpu_max = self.file(&group, "cpu.max", cpu_max)?.flatten();
            usage.io = self.file(&group, "io.stat", io_stat)?.unwrap_or_default();
            usage.cpu_weight = self.file(&group, "cpu.weight", number)?.flatten();
        }
        Ok(usage)
    }

    /// The groups below `group` that belong to the containers with these ids, each with the index of its id. A runtime
    /// names a container's group by its id, with a prefix and a suffix of its own.
    pub(crate) fn containers<'a>(
        &self,
        group: &str,
        ids: impl Iterator<Item = &'a str> + Clone,
    ) -> io::Result<Vec<(usize, String)>> {
        let entries = std::fs::read_dir(self.root.join(group.trim_start_matches('/')))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let container = |name: String| {
            let is_its = |id: &str| !id.is_empty() && name.contains(id) && !is_monitor(&name);
            let index = ids.clone().position(is_its)?;
            Some((index, [group, "/", &name].concat()))
        };
        Ok(names.filter_map(container).collect())
    }

    /// The processes in the group itself.
    pub(crate) fn processes(&mut self, group: &str) -> Vec<u32> {
        let parse = |text: &str| text.lines().filter_map(|line| line.parse().ok()).collect();
        let read = self.open(group).and_then(|group| self.file(&group, "cgroup.procs", parse));
        read.ok().flatten().unwrap_or_default()
    }

    fn open(&mut self, group: &str) -> io::Result<OwnedFd> {
        self.path.clone_from(&self.root);
        self.path.push(group.trim_start_matches('/'));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(CWD, &self.path, flags, Mode::empty())?)
    }

    fn file<T>(&mut self, group: &OwnedFd, name: &str, parse: impl FnOnce(&str) -> T) -> io::Result<Option<T>> {
        self.text.clear();
        let opened = openat(group, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(io::Error::from);
        match opened.and_then(|file| File::from(file).read_to_string(&mut self.text)) {
            Ok(_) => Ok(Some(parse(&self.text))),
            // A kernel without PSI accounting has the file, but reading it fails.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rt::TestFolder;

    #[test]
    fn missing_files_are_none() {
        let root = std::env::temp_dir().join(format!("coracle-usage-{}", std::process::id()));
        let group = root.join("kubepods/pod1");
        std::fs::create_dir_all(&group).unwrap();
        for (file, text) in [
            (
                "cpu.stat",
                "usage_usec 90\nuser_usec 60\nsystem_usec 30\nnr_periods 5\nnr_throttled 2\nthrottled_usec 7\n",
            ),
            ("cpu.max", "5000 10000\n"),
            ("memory.current", "8192\n"),
            ("memory.max", "max\n"),
            ("memory.stat", "anon 4096\nfile 4096\ninactive_file 1024\npgfault 3\n"),
            ("memory.events", "low 0\noom_kill 2\n"),
            (
                "memory.pressure",
                "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.25 avg60=0 avg300=0 total=4\n",
            ),
            ("pids.current", "3\n"),
            ("io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4\n"),
            ("cgroup.procs", "12\n13\n"),
        ] {
            std::fs::write(group.join(file), text).unwrap();
        }
        std::fs::create_dir(group.join("cri-containerd-abc.scope")).unwrap();
        std::fs::create_dir(group.join("other")).unwrap();
        let mut reader = UsageReader::new(&root);
        let read = |reader: &mut UsageReader| reader.read("/kubepods/pod1", Depth::Whole);
        let (usage, again) = (read(&mut reader), read(&mut reader));
        let memory = reader.read("/kubepods/pod1", Depth::Memory).unwrap();
        let missing = reader.read("/kubepods/pod2", Depth::Whole).map_err(|error| error.kind());
        let containers = reader.containers("/kubepods/pod1", ["", "zz", "abc"].into_iter()).unwrap();
        let processes = [reader.processes("/kubepods/pod1"), reader.processes("/kubepods/pod2")];
        std::fs::remove_dir_all(&root).unwrap();
        let usage = usage.unwrap();
        assert_eq!(usage, again.unwrap());
        let cpu = usage.cpu.as_ref().unwrap();
        assert_eq!((cpu.usage_usec, cpu.nr_throttled, cpu.throttled_usec), (90, 2, 7));
        assert_eq!((usage.working_set(), usage.oom_kills, usage.pids), (Some(7168), Some(2), Some(3)));
        assert_eq!((usage.memory_max, usage.cpu_max), (Some(Bound::None), Some((Bound::At(5000), 10_000))));
        let pressure = usage.memory_pressure.unwrap();
        assert_eq!((pressure.some.avg10_percent_hundredths, pressure.full.unwrap().total_usec), (150, 4));
        assert_eq!((usage.io[0].device, usage.io[0].writes), ((8, 0), 4));
        assert_eq!((usage.swap_current, usage.io_pressure), (None, None));
        assert_eq!((memory.working_set(), memory.pids, memory.cpu), (Some(7168), Some(3), None));
        assert_eq!(missing, Err(io::ErrorKind::NotFound));
        assert_eq!(containers, [(2, "/kubepods/pod1/cri-containerd-abc.scope".to_owned())]);
        assert_eq!(processes, [vec![12, 13], vec![]]);
    }

    #[test]
    fn group_of_a_monitor_is_no_group_of_its_container() {
        let root = TestFolder::new("usage-monitors");
        for name in ["crio-abc.scope", "crio-conmon-abc.scope", "crio-conmon-def", "def"] {
            std::fs::create_dir_all(root.0.join("pod1").join(name)).unwrap();
        }
        let mut found = UsageReader::new(&root.0).containers("/pod1", ["abc", "def"].into_iter()).unwrap();
        found.sort();
        assert_eq!(found, [(0, "/pod1/crio-abc.scope".to_owned()), (1, "/pod1/def".to_owned())]);
    }
}
