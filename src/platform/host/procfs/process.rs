//! The files about one process or thread. Pure.

use std::time::Duration;

use super::{MILLISECONDS_PER_TICK, lines, number_of, numbers, value_of};

/// The fields of `stat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) cpu_time: Duration,
    /// When the process started, after the machine did.
    pub(crate) started_after_boot: Duration,
}

/// The fields of `status` that are used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStatus {
    /// Such as `D (disk sleep)`.
    pub(crate) state: String,
    /// Kernel threads have none.
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) voluntary_context_switches: Option<u64>,
}

/// The control groups of a process, of both versions.
#[derive(Clone, Debug)]
pub(crate) struct ProcessCgroups(Vec<String>);

impl ProcessStat {
    pub(super) fn parse(stat: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(stat);
        // The program's name may contain anything.
        let (_, fields) = text.rsplit_once(") ")?;
        let ticks = numbers(fields.split_whitespace().skip(CPU_TIME_FIELD));
        let [user, system, _, _, _, _, _, _, started, ..] = *ticks.as_slice() else { return None };
        let time = |ticks: u64| ticks.checked_mul(MILLISECONDS_PER_TICK).map(Duration::from_millis);
        Some(Self { cpu_time: time(user.saturating_add(system))?, started_after_boot: time(started)? })
    }
}

impl ProcessStatus {
    pub(super) fn parse(status: &[u8]) -> Option<Self> {
        Some(Self {
            state: value_of(status, "State")?.to_owned(),
            resident_bytes: number_of(status, "VmRSS"),
            virtual_bytes: number_of(status, "VmSize"),
            voluntary_context_switches: number_of(status, "voluntary_ctxt_switches"),
        })
    }
}

impl ProcessCgroups {
    pub(crate) fn parse(cgroup: &[u8]) -> Self {
        Self(lines(cgroup).map(str::to_owned).collect())
    }

    /// The group of cgroup v2, from the root of its hierarchy.
    pub(crate) fn v2(&self) -> Option<&str> {
        self.0.iter().find_map(|line| line.strip_prefix("0::"))
    }

    /// The group in the hierarchy of v1 that has `controller`: `9:cpu,cpuacct:/path`.
    pub(crate) fn v1(&self, controller: &str) -> Option<&str> {
        self.0.iter().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == controller).then_some(path)
        })
    }
}

pub(super) fn written_bytes(io: &[u8]) -> Option<u64> {
    number_of(io, "write_bytes")
}

/// A line has the name of a limit, the soft limit, the hard limit and mostly a unit.
pub(super) fn open_files_limit(limits: &[u8]) -> Option<u64> {
    let limit = lines(limits).find_map(|line| line.strip_prefix("Max open files"))?;
    match limit.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        files => files.parse().ok(),
    }
}

/// The place of `utime` among the fields behind the program's name.
const CPU_TIME_FIELD: usize = 11;

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = include_str!("../../../../tests/data/procfs/linux-6.18-x86_64/self/status");
    const LIMITS: &str = include_str!("../../../../tests/data/procfs/linux-6.18-x86_64/self/limits");

    #[test]
    fn program_may_have_any_name() {
        let rest = "S 1 7 7 0 -1 4194560 1 2 3 4 50 6 7 8 20 0 1 0 12345 2 3 18446744073709551615 4 5 6 0 0 0 0 0 0 0 0 0 17 0";
        let expected =
            ProcessStat { cpu_time: Duration::from_millis(560), started_after_boot: Duration::from_millis(123_450) };
        for name in ["coracle", "a) b ", "", "(", ") S 1 (c", "a\nb", "\u{fffd}"] {
            let stat = format!("7 ({name}) {rest}\n");
            assert_eq!(ProcessStat::parse(stat.as_bytes()), Some(expected), "{name}");
        }
        let not_utf8 = [b"7 (\xff) ", rest.as_bytes()].concat();
        assert_eq!(ProcessStat::parse(&not_utf8), Some(expected));
        let late = format!("7 (a) {rest}").replace("12345", "5000000000");
        let started = ProcessStat::parse(late.as_bytes()).unwrap().started_after_boot;
        assert_eq!(started, Duration::from_secs(50_000_000), "after 497 days");
    }

    #[test]
    fn stat_that_is_not_whole_is_none() {
        for bad in ["", "(", "(a) S 1", "7 (a", "7 (a)", "7 (a) ", "7 (a) S", "7 (a) S 1)", "é (a) S 1", "7 (a) S 1 x"]
        {
            assert_eq!(ProcessStat::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn odd_lines_of_a_status_are_passed_over() {
        let status = ProcessStatus::parse(STATUS.as_bytes()).unwrap();
        assert_eq!((status.state.as_str(), status.resident_bytes), ("R (running)", Some(1720 << 10)));
        let odd = STATUS.replace("Umask:\t0022", "Umask:\tnone").replace("Cpus_allowed:\t3", "Cpus_allowed:\tall");
        assert_eq!(ProcessStatus::parse(format!("{odd}\nNew\n").as_bytes()), Some(status));
        let kernel_thread = STATUS.replace("\nVm", "\nNoVm");
        assert_eq!(ProcessStatus::parse(kernel_thread.as_bytes()).unwrap().resident_bytes, None);
        assert_eq!(ProcessStatus::parse(b""), None);
    }

    #[test]
    fn process_is_in_a_group_of_either_version() {
        let groups = |text: &str| ProcessCgroups::parse(text.as_bytes());
        let v2 = groups("0::/kubepods/pod1/a:b c\n");
        assert_eq!((v2.v2(), v2.v1("memory")), (Some("/kubepods/pod1/a:b c"), None));
        let hybrid = groups("12:cpu,cpuacct:/k8s.io/a\nodd\n9:memory:/k8s.io/abc\n1:name=systemd:/x\n0::/\n");
        assert_eq!(
            (hybrid.v2(), hybrid.v1("memory"), hybrid.v1("cpuacct")),
            (Some("/"), Some("/k8s.io/abc"), Some("/k8s.io/a"))
        );
        assert_eq!((groups("").v2(), groups("").v1("cpu")), (None, None));
    }

    #[test]
    fn soft_limit_of_open_files_counts() {
        assert_eq!(open_files_limit(LIMITS.as_bytes()), Some(20_000));
        let unlimited = LIMITS.replace("20000                20000", "unlimited            unlimited");
        assert_eq!(open_files_limit(unlimited.as_bytes()), Some(u64::MAX));
        let odd = format!("\n{LIMITS}\nMax new\nMax new limit 1 2 things\n");
        assert_eq!(open_files_limit(odd.as_bytes()), Some(20_000));
        assert_eq!(open_files_limit(b""), None);
    }

    #[test]
    fn written_bytes_are_those_of_disks() {
        let io = "rchar: 8299\nwchar: 1323\nsyscr: 12\nsyscw: 1\nread_bytes: 0\nwrite_bytes: 4096\ncancelled_write_bytes: 0\n";
        assert_eq!(written_bytes(io.as_bytes()), Some(4096));
        assert_eq!(written_bytes(format!("{io}new: none\n").as_bytes()), Some(4096));
        assert_eq!(written_bytes(b""), None);
    }
}
