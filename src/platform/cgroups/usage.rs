//! What a group uses: all of its files in one pass, through one buffer.
//!
//! For who looks at many groups often: a reader is kept, and a look at a group allocates nothing but what the kernel's
//! text first needs room for. The files are opened from the group's directory, so that the kernel walks the long path to
//! it once.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::stat_files::{Bound, CpuStat, MemoryStat, bound, cpu_max, memory_hits, number, oom_kills};
use crate::platform::host::procfs::Pressure;

/// Reads groups of one hierarchy, one after the other.
#[derive(Debug)]
pub(crate) struct UsageReader {
    root: PathBuf,
    /// Of the group that is read.
    path: PathBuf,
    text: String,
}

/// How much of a group is looked at: each file costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// Memory, and how many processes and threads there are.
    Memory,
    /// That, the processor's time and memory's bounds.
    CpuAndMemory,
    /// That, and who waits for what.
    Pressure,
    /// Everything, with what the group may have.
    Whole,
}

/// One look at a group. What this kernel does not tell, or this group does not have, or was not looked at, is `None`.
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
    /// How often it was held to its bound.
    pub(crate) memory_hits: Option<u64>,
    /// Processes and threads.
    pub(crate) pids: Option<u64>,
    pub(crate) pids_max: Option<Bound>,
    pub(crate) cpu_max: Option<(Bound, u64)>,
    pub(crate) cpu_weight: Option<u64>,
    pub(crate) cpu_pressure: Option<Pressure>,
    pub(crate) memory_pressure: Option<Pressure>,
    pub(crate) io_pressure: Option<Pressure>,
}

impl Usage {
    /// What cannot be taken back at once: without the file pages that have not been used for some time. It is what
    /// eviction goes by, and what `kubectl top` shows.
    pub(crate) fn working_set(&self) -> Option<u64> {
        Some(self.memory_current?.saturating_sub(self.memory.as_ref()?.inactive_file))
    }
}

impl UsageReader {
    pub(crate) fn new(hierarchy: &Path) -> Self {
        Self { root: hierarchy.to_owned(), path: PathBuf::new(), text: String::new() }
    }

    /// An error if there is no such group. The root of the hierarchy has fewer files than the others.
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
            let events = self.file(&group, "memory.events", |text| (oom_kills(text), memory_hits(text)))?;
            (usage.oom_kills, usage.memory_hits) = events.unwrap_or_default();
            usage.pids_max = self.file(&group, "pids.max", bound)?.flatten();
            usage.cpu_max = self.file(&group, "cpu.max", cpu_max)?.flatten();
            usage.cpu_weight = self.file(&group, "cpu.weight", number)?.flatten();
        }
        Ok(usage)
    }

    /// Which of the groups below `group` are those of the containers with these ids, and where each id stands among them:
    /// a runtime names the group of a container after its id, and puts its own words around it.
    pub(crate) fn containers<'a>(
        &self,
        group: &str,
        ids: impl Iterator<Item = &'a str> + Clone,
    ) -> io::Result<Vec<(usize, String)>> {
        let entries = std::fs::read_dir(self.root.join(group.trim_start_matches('/')))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let container = |name: String| {
            let place = ids.clone().position(|id| !id.is_empty() && name.contains(id))?;
            Some((place, [group, "/", &name].concat()))
        };
        Ok(names.filter_map(container).collect())
    }

    /// The processes that are in the group itself.
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
            // The pressure of a kernel that does not count it is there and cannot be read.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_look_reads_all_that_a_group_has_and_misses_nothing_that_it_has_not() {
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
        assert_eq!((usage.swap_current, usage.io_pressure), (None, None));
        assert_eq!((memory.working_set(), memory.pids, memory.cpu), (Some(7168), Some(3), None));
        assert_eq!(missing, Err(io::ErrorKind::NotFound));
        assert_eq!(containers, [(2, "/kubepods/pod1/cri-containerd-abc.scope".to_owned())]);
        assert_eq!(processes, [vec![12, 13], vec![]]);
    }
}
