//! The files about the machine as a whole: CPU time, memory, disks, tasks. Pure.

use super::{MILLISECONDS_PER_TICK, number};
use crate::types::sorted::SortedMap;

/// CPU time of the machine, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTimes {
    /// Programs, including those with a nice value. Guest time is already included.
    pub(crate) user: u64,
    /// The kernel and interrupts. Steal time is in neither field.
    pub(crate) system: u64,
}

/// In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemInfo {
    pub(crate) total: u64,
    /// The kernel's estimate; before Linux 3.14, which has none, the free memory.
    pub(crate) available: u64,
    pub(crate) swap_total: u64,
    pub(crate) swap_free: u64,
    pub(crate) anon: u64,
    /// The page cache, shared memory and the buffers of devices.
    pub(crate) file: u64,
    pub(crate) active_file: u64,
    pub(crate) inactive_file: u64,
    pub(crate) mapped: u64,
    /// Memory of the kernel that a control group would count.
    pub(crate) kernel: u64,
}

/// A device of `diskstats`. Times are in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskIo {
    pub(crate) reads: u64,
    pub(crate) reads_merged: u64,
    pub(crate) sectors_read: u64,
    pub(crate) read_ms: u64,
    pub(crate) writes: u64,
    pub(crate) writes_merged: u64,
    pub(crate) sectors_written: u64,
    pub(crate) write_ms: u64,
    pub(crate) under_way: u64,
    pub(crate) busy_ms: u64,
    pub(crate) weighted_ms: u64,
}

/// The processors of `cpuinfo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processors {
    pub(crate) processors: u64,
    /// At least one, because kernels of boards do not number them.
    pub(crate) sockets: u64,
    /// If the kernel does not number them, as many as processors.
    pub(crate) cores: u64,
}

impl CpuTimes {
    pub(super) fn parse(stat: &[u8]) -> Option<Self> {
        // Those of each processor and each interrupt are long.
        let line = stat.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"cpu "))?;
        let mut ticks = std::str::from_utf8(line).ok()?.split_whitespace().map(|ticks| ticks.parse::<u64>().ok());
        let mut next = || ticks.next().flatten();
        let (user, nice, system) = (next()?, next()?, next()?);
        let (_idle, _iowait, irq, softirq) = (next()?, next()?, next()?, next()?);
        let nanos = |ticks: [u64; 3]| {
            let sum = ticks.into_iter().fold(0, u64::saturating_add);
            sum.saturating_mul(MILLISECONDS_PER_TICK * 1_000_000)
        };
        Some(Self { user: nanos([user, nice, 0]), system: nanos([system, irq, softirq]) })
    }
}

impl MemInfo {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let bytes = |key: &str| Some(number(&text, key)?.saturating_mul(1024));
        let sum = |keys: &[&str]| keys.iter().filter_map(|key| bytes(key)).fold(0, u64::saturating_add);
        Some(Self {
            total: bytes("MemTotal:")?,
            available: bytes("MemAvailable:").or_else(|| bytes("MemFree:"))?,
            swap_total: sum(&["SwapTotal:"]),
            swap_free: sum(&["SwapFree:"]),
            anon: sum(&["AnonPages:"]),
            file: sum(&["Buffers:", "Cached:"]),
            active_file: sum(&["Active(file):"]),
            inactive_file: sum(&["Inactive(file):"]),
            mapped: sum(&["Mapped:"]),
            kernel: sum(&["Slab:", "KernelStack:", "PageTables:"]),
        })
    }
}

/// The names of the devices of `diskstats` by their numbers.
pub(super) fn disk_names(diskstats: &[u8]) -> SortedMap<(u32, u32), String> {
    let lines = diskstats.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let device = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let numbers = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some((numbers, fields.next()?.to_owned()))
    };
    lines.filter_map(device).collect()
}

impl DiskIo {
    pub(super) fn parse(diskstats: &[u8], (major, minor): (u32, u32)) -> Option<Self> {
        let lines = diskstats.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
        let mut devices = lines.filter_map(|line| procfs::DiskStat::from_line(line).ok());
        let device = devices
            .find(|device| u32::try_from(device.major) == Ok(major) && u32::try_from(device.minor) == Ok(minor))?;
        Some(Self {
            reads: device.reads,
            reads_merged: device.merged,
            sectors_read: device.sectors_read,
            read_ms: device.time_reading,
            writes: device.writes,
            writes_merged: device.writes_merged,
            sectors_written: device.sectors_written,
            write_ms: device.time_writing,
            under_way: device.in_progress,
            busy_ms: device.time_in_progress,
            weighted_ms: device.weighted_time_in_progress,
        })
    }
}

impl Processors {
    /// A parser of our own: the crate keeps every field of every processor in a map, several kilobytes for each.
    pub(super) fn parse(cpuinfo: &str) -> Self {
        let (mut sockets, mut cores) = (Vec::new(), Vec::new());
        let (mut processors, mut socket) = (0u64, "");
        for (key, value) in cpuinfo.lines().filter_map(|line| line.split_once(':')) {
            match key.trim() {
                "processor" => processors += 1,
                "physical id" => {
                    socket = value.trim();
                    if !sockets.contains(&socket) {
                        sockets.push(socket);
                    }
                }
                "core id" if !cores.contains(&(socket, value.trim())) => cores.push((socket, value.trim())),
                _ => {}
            }
        }
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        let cores = if cores.is_empty() { processors } else { count(cores.len()) };
        Self { processors, sockets: count(sockets.len()).max(1), cores }
    }
}

pub(super) fn page_faults(vmstat: &[u8]) -> Option<(u64, u64)> {
    let text = String::from_utf8_lossy(vmstat);
    Some((number(&text, "pgfault ")?, number(&text, "pgmajfault ")?))
}

pub(super) fn tasks(loadavg: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(loadavg).ok()?;
    text.split_ascii_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

/// `swaps` has a head line. The crate does not read this file.
pub(super) fn first_swap_area(swaps: &str) -> Option<String> {
    swaps.lines().nth(1)?.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = include_str!("../../../../tests/data/procfs/linux-6.18-x86_64/stat");
    const MEMINFO: &str = include_str!("../../../../tests/data/procfs/linux-6.18-x86_64/meminfo");

    #[test]
    fn cpu_time_is_that_of_programs_the_kernel_and_interrupts() {
        let rest = "ctxt 1\nbtime 2\nprocesses 3\n";
        let stat = format!("cpu  100 20 30 4000 50 6 7 8 9 0\ncpu0 1 1 1 x 1 1 1 1 1 0\nintr x\n{rest}");
        let expected = CpuTimes { user: 1_200_000_000, system: 430_000_000 };
        assert_eq!(CpuTimes::parse(stat.as_bytes()), Some(expected));
        for bad in ["", "cpu  1 2 3\n", "cpu  1 2 3 4 5 6\n", "cpu  x 20 30 4000 50 6 7 8 9 0\n"] {
            assert_eq!(CpuTimes::parse(format!("{bad}{rest}").as_bytes()), None, "{bad:?}");
        }
        assert!(CpuTimes::parse(STAT.as_bytes()).is_some());
    }

    #[test]
    fn memory_is_in_bytes_and_an_odd_or_missing_line_is_nothing() {
        let info = MemInfo::parse(MEMINFO.as_bytes()).unwrap();
        assert_eq!(info.total, 24_684_096 << 10);
        let odd = format!("{MEMINFO}\nNew: 1 MB of it\nNewer\n: 7\nMoreFree: -1 kB\n");
        assert_eq!(MemInfo::parse(odd.as_bytes()), Some(info));
        let without = |key: &str| -> Vec<u8> {
            MEMINFO
                .lines()
                .filter(|line| !line.starts_with(key))
                .flat_map(|line| [line, "\n"].concat().into_bytes())
                .collect()
        };
        assert_eq!(MemInfo::parse(&without("AnonPages")), Some(MemInfo { anon: 0, ..info }));
        let free = MEMINFO.lines().find_map(|line| line.strip_prefix("MemFree:")?.trim().strip_suffix(" kB"));
        let available = free.unwrap().parse::<u64>().unwrap() << 10;
        assert_eq!(MemInfo::parse(&without("MemAvailable")), Some(MemInfo { available, ..info }), "before Linux 3.14");
        assert_eq!((MemInfo::parse(b""), MemInfo::parse(&without("MemTotal"))), (None, None));
    }

    #[test]
    fn page_faults_are_two_lines_of_vmstat() {
        assert_eq!(page_faults(b"pgfree x\npgfault 12\npgmajfault 3\n"), Some((12, 3)));
        assert_eq!((page_faults(b"pgfault 12\n"), page_faults(b"")), (None, None));
    }

    #[test]
    fn disk_is_found_by_its_numbers() {
        let text = b" 254       1 odd x\n 254       0 vda 724589 50998 30508682 807 520868 428885 92809136 462 0 89 1296 1 2 3 4\n   \
                    7 0 loop0 1 2 3\n";
        let found = DiskIo::parse(text, (254, 0)).unwrap();
        assert_eq!((found.reads, found.sectors_written, found.weighted_ms), (724_589, 92_809_136, 1296));
        assert_eq!((DiskIo::parse(text, (254, 1)), DiskIo::parse(text, (7, 0))), (None, None));
    }

    #[test]
    fn tasks_are_behind_the_slash() {
        assert_eq!(tasks(b"0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!((tasks(b"nonsense"), tasks(b"")), (None, None));
    }

    #[test]
    fn processors_are_counted_by_their_ids() {
        let two =
            "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t\t: 0\n";
        assert_eq!(Processors::parse(two), Processors { processors: 2, sockets: 1, cores: 1 });
        let board = "processor : 0\nprocessor : 1\n\nHardware\t: BCM2835\n";
        assert_eq!(Processors::parse(board), Processors { processors: 2, sockets: 1, cores: 2 });
    }

    #[test]
    fn swap_is_on_where_an_area_stands_below_the_head_line() {
        let head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert_eq!((first_swap_area(head), first_swap_area("")), (None, None));
        let zram = format!("{head}/dev/zram0                              partition\t524284\t\t0\t\t100\n");
        assert_eq!(first_swap_area(&zram), Some("/dev/zram0".to_owned()));
    }
}
