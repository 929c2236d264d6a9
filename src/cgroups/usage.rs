//! What a group uses: all of its files in one pass, through one buffer.
//!
//! For who looks at many groups often: a reader is kept, and a look at a group allocates nothing but what the kernel's
//! text first needs room for.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::stat_files::{CpuStat, IoStat, MemoryStat, Pressure, number};

/// Reads groups of one hierarchy, one after the other.
#[derive(Debug)]
pub(crate) struct UsageReader {
    root: PathBuf,
    /// Of the file that is read.
    path: PathBuf,
    text: String,
}

/// One look at a group. What this kernel does not tell, or this group does not have, is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) cpu: Option<CpuStat>,
    /// Bytes, page cache included.
    pub(crate) memory_current: Option<u64>,
    pub(crate) swap_current: Option<u64>,
    pub(crate) memory: Option<MemoryStat>,
    pub(crate) oom_kills: Option<u64>,
    pub(crate) io: Option<IoStat>,
    pub(crate) pids: Option<u64>,
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
    pub(crate) fn read(&mut self, group: &str) -> io::Result<Usage> {
        self.path.clone_from(&self.root);
        self.path.push(group.trim_start_matches('/'));
        std::fs::metadata(&self.path)?;
        Ok(Usage {
            cpu: self.file("cpu.stat", CpuStat::parse)?,
            memory_current: self.file("memory.current", number)?.flatten(),
            swap_current: self.file("memory.swap.current", number)?.flatten(),
            memory: self.file("memory.stat", MemoryStat::parse)?,
            oom_kills: self.file("memory.events", super::stat_files::oom_kills)?.flatten(),
            io: self.file("io.stat", IoStat::parse)?,
            pids: self.file("pids.current", number)?.flatten(),
            cpu_pressure: self.file("cpu.pressure", Pressure::parse)?,
            memory_pressure: self.file("memory.pressure", Pressure::parse)?,
            io_pressure: self.file("io.pressure", Pressure::parse)?,
        })
    }

    fn file<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> T) -> io::Result<Option<T>> {
        self.path.push(name);
        self.text.clear();
        let read = File::open(&self.path).and_then(|mut file| file.read_to_string(&mut self.text));
        self.path.pop();
        match read {
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
            ("memory.current", "8192\n"),
            ("memory.stat", "anon 4096\nfile 4096\ninactive_file 1024\npgfault 3\n"),
            ("memory.events", "low 0\noom_kill 2\n"),
            (
                "memory.pressure",
                "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.25 avg60=0 avg300=0 total=4\n",
            ),
            ("pids.current", "3\n"),
        ] {
            std::fs::write(group.join(file), text).unwrap();
        }
        let mut reader = UsageReader::new(&root);
        let (usage, again) = (reader.read("/kubepods/pod1"), reader.read("/kubepods/pod1"));
        let missing = reader.read("/kubepods/pod2").map_err(|error| error.kind());
        std::fs::remove_dir_all(&root).unwrap();
        let usage = usage.unwrap();
        assert_eq!(usage, again.unwrap());
        let cpu = usage.cpu.as_ref().unwrap();
        assert_eq!((cpu.usage_usec, cpu.nr_throttled, cpu.throttled_usec), (90, 2, 7));
        assert_eq!((usage.working_set(), usage.oom_kills, usage.pids), (Some(7168), Some(2), Some(3)));
        let pressure = usage.memory_pressure.unwrap();
        assert_eq!((pressure.some.avg10_percent_hundredths, pressure.full.unwrap().total_usec), (150, 4));
        assert_eq!((usage.io, usage.swap_current, usage.io_pressure), (None, None, None));
        assert_eq!(missing, Err(io::ErrorKind::NotFound));
    }
}
