//! Parsers of cgroup v2 usage and event files. Pure.
//!
//! See the kernel's admin guide, cgroup-v2. A missing key counts as 0, and lines in an unknown format, perhaps from a
//! later kernel, are skipped.

/// `cpu.stat`. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuStat {
    pub(crate) usage_usec: u64,
    pub(crate) user_usec: u64,
    pub(crate) system_usec: u64,
    pub(crate) nr_periods: u64,
    pub(crate) nr_throttled: u64,
    pub(crate) throttled_usec: u64,
    pub(crate) nr_bursts: u64,
    pub(crate) burst_usec: u64,
}

/// The fields of `memory.stat` that are used here. In bytes, except for the faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryStat {
    pub(crate) anon: u64,
    pub(crate) file: u64,
    pub(crate) kernel: u64,
    pub(crate) shmem: u64,
    pub(crate) file_mapped: u64,
    pub(crate) active_anon: u64,
    pub(crate) inactive_anon: u64,
    pub(crate) active_file: u64,
    pub(crate) inactive_file: u64,
    pub(crate) pgfault: u64,
    pub(crate) pgmajfault: u64,
}

/// A device of `io.stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeviceIo {
    /// Major and minor number.
    pub(crate) device: (u32, u32),
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
}

/// Parses `io.stat`.
pub(super) fn io_stat(text: &str) -> Vec<DeviceIo> {
    let device = |line: &str| {
        let (device, fields) = line.split_once(' ')?;
        let (major, minor) = device.split_once(':')?;
        let mut io = DeviceIo { device: (major.parse().ok()?, minor.parse().ok()?), ..DeviceIo::default() };
        for (key, value) in fields.split(' ').filter_map(|field| field.split_once('=')) {
            let Some(value) = number(value) else { continue };
            match key {
                "rbytes" => io.read_bytes = value,
                "wbytes" => io.written_bytes = value,
                "rios" => io.reads = value,
                "wios" => io.writes = value,
                _ => {}
            }
        }
        Some(io)
    };
    text.lines().filter_map(device).collect()
}

impl CpuStat {
    pub(super) fn parse(text: &str) -> Self {
        let mut stat = Self::default();
        for (key, value) in flat_keyed(text) {
            match key {
                "usage_usec" => stat.usage_usec = value,
                "user_usec" => stat.user_usec = value,
                "system_usec" => stat.system_usec = value,
                "nr_periods" => stat.nr_periods = value,
                "nr_throttled" => stat.nr_throttled = value,
                "throttled_usec" => stat.throttled_usec = value,
                "nr_bursts" => stat.nr_bursts = value,
                "burst_usec" => stat.burst_usec = value,
                _ => {}
            }
        }
        stat
    }
}

impl MemoryStat {
    pub(super) fn parse(text: &str) -> Self {
        let mut stat = Self::default();
        for (key, value) in flat_keyed(text) {
            match key {
                "anon" => stat.anon = value,
                "file" => stat.file = value,
                "kernel" => stat.kernel = value,
                "shmem" => stat.shmem = value,
                "file_mapped" => stat.file_mapped = value,
                "active_anon" => stat.active_anon = value,
                "inactive_anon" => stat.inactive_anon = value,
                "active_file" => stat.active_file = value,
                "inactive_file" => stat.inactive_file = value,
                "pgfault" => stat.pgfault = value,
                "pgmajfault" => stat.pgmajfault = value,
                _ => {}
            }
        }
        stat
    }
}

/// Number of processes that the OOM killer has killed in the group and below it, from `memory.events`.
pub(crate) fn oom_kills(text: &str) -> Option<u64> {
    flat_keyed(text).find_map(|(key, value)| (key == "oom_kill").then_some(value))
}

/// How often usage was about to exceed `memory.max`, from `memory.events`.
pub(super) fn memory_hits(text: &str) -> Option<u64> {
    flat_keyed(text).find_map(|(key, value)| (key == "max").then_some(value))
}

/// How often usage was throttled at `memory.high`, from `memory.events`.
pub(super) fn memory_throttles(text: &str) -> Option<u64> {
    flat_keyed(text).find_map(|(key, value)| (key == "high").then_some(value))
}

/// An upper bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    At(u64),
    None,
}

impl Bound {
    pub(crate) fn at(self) -> Option<u64> {
        match self {
            Self::At(most) => Some(most),
            Self::None => None,
        }
    }
}

/// Parses a bound such as `memory.max`.
pub(super) fn bound(text: &str) -> Option<Bound> {
    match text.trim() {
        "max" => Some(Bound::None),
        text => text.parse().ok().map(Bound::At),
    }
}

/// Parses `cpu.max`: quota and period in microseconds.
pub(super) fn cpu_max(text: &str) -> Option<(Bound, u64)> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some((bound(quota)?, period.parse().ok()?))
}

/// Parses a file that contains one number.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn flat_keyed(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| line.split_once(' ')).filter_map(|(key, value)| Some((key, number(value)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_whole_words() {
        let text = "low 0\nhigh 5\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(oom_kills(text), Some(2));
        assert_eq!(oom_kills("oom_kill x\n"), None);
        assert_eq!(oom_kills("oom 1\noom_kills 2\n"), None);
        assert_eq!(oom_kills(""), None);
        assert_eq!((memory_hits(text), memory_throttles(text)), (Some(12), Some(5)));
    }

    #[test]
    fn bound_is_a_number_or_none() {
        assert_eq!((bound("4096\n"), bound("max\n"), bound("")), (Some(Bound::At(4096)), Some(Bound::None), None));
        assert_eq!(cpu_max("25000 100000\n"), Some((Bound::At(25_000), 100_000)));
        assert_eq!(cpu_max("max 100000\n"), Some((Bound::None, 100_000)));
        assert_eq!((cpu_max("max\n"), cpu_max("x 1\n")), (None, None));
    }

    #[test]
    fn each_device_has_its_counts() {
        let text = "253:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0 cost.usage=7\n7:1 \nnonsense\n";
        let disk = DeviceIo { device: (253, 0), read_bytes: 4096, written_bytes: 8192, reads: 1, writes: 2 };
        let loop_device = DeviceIo { device: (7, 1), ..DeviceIo::default() };
        assert_eq!(io_stat(text), [disk, loop_device]);
    }

    #[test]
    fn what_a_later_kernel_writes_is_passed_over() {
        let stat =
            CpuStat::parse("usage_usec 5\ncore_sched.force_idle_usec 1\ncore_sched 0\n\nnonsense\nuser_usec -1\n");
        assert_eq!(stat, CpuStat { usage_usec: 5, ..CpuStat::default() });
        let stat = MemoryStat::parse("anon 4096\nzswapped 1\npgfault 18446744073709551616\n");
        assert_eq!(stat, MemoryStat { anon: 4096, ..MemoryStat::default() });
    }
}
