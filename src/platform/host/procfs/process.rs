//! The files about one process or thread. Pure.

use std::time::Duration;

use super::{MILLISECONDS_PER_TICK, number, value};

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

/// The control groups of a process, of both versions: lines of a hierarchy's number, its controllers and the path.
#[derive(Clone, Debug)]
pub(crate) struct ProcessCgroups(String);

impl ProcessStat {
    pub(super) fn parse(stat: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(stat);
        // The second field is the name of the program, which may contain everything.
        let (pid, rest) = text.split_once(" (")?;
        let (_, fields) = rest.rsplit_once(") ")?;
        pid.parse::<u32>().ok()?;
        let time = |field: usize| {
            let ticks: u64 = fields.split_whitespace().nth(field - FIRST_STAT_FIELD)?.parse().ok()?;
            ticks.checked_mul(MILLISECONDS_PER_TICK).map(Duration::from_millis)
        };
        Some(Self {
            cpu_time: time(UTIME_FIELD)?.checked_add(time(STIME_FIELD)?)?,
            started_after_boot: time(STARTTIME_FIELD)?,
        })
    }
}

/// The number of the first field after the name, and of others: proc_pid_stat(5).
const FIRST_STAT_FIELD: usize = 3;
const UTIME_FIELD: usize = 14;
const STIME_FIELD: usize = 15;
const STARTTIME_FIELD: usize = 22;

impl ProcessStatus {
    pub(super) fn parse(status: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(status);
        let bytes = |key: &str| Some(number(&text, key)?.saturating_mul(1024));
        Some(Self {
            state: value(&text, "State:")?.to_owned(),
            resident_bytes: bytes("VmRSS:"),
            virtual_bytes: bytes("VmSize:"),
            voluntary_context_switches: number(&text, "voluntary_ctxt_switches:"),
        })
    }
}

impl ProcessCgroups {
    pub(crate) fn parse(cgroup: &[u8]) -> Self {
        Self(String::from_utf8_lossy(cgroup).into_owned())
    }

    /// The group of cgroup v2, from the root of its hierarchy.
    pub(crate) fn v2(&self) -> Option<&str> {
        self.path_where(|hierarchy, _| hierarchy == "0")
    }

    /// The group in the hierarchy of v1 that has `controller`.
    pub(crate) fn v1(&self, controller: &str) -> Option<&str> {
        self.path_where(|_, controllers| controllers.split(',').any(|name| name == controller))
    }

    fn path_where(&self, is_wanted: impl Fn(&str, &str) -> bool) -> Option<&str> {
        self.0.lines().find_map(|line| {
            let (hierarchy, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            is_wanted(hierarchy, controllers).then_some(path)
        })
    }
}

pub(super) fn written_bytes(io: &[u8]) -> Option<u64> {
    number(&String::from_utf8_lossy(io), "write_bytes:")
}

/// From the auxiliary vector: pairs of words.
pub(super) fn page_size(auxv: &[u8]) -> Option<u64> {
    let words = auxv.chunks_exact(size_of::<usize>()).filter_map(|word| word.try_into().ok().map(usize::from_ne_bytes));
    let (keys, values) = (words.clone().step_by(2), words.skip(1).step_by(2));
    let (_, size) = keys.zip(values).find(|(key, _)| *key == AT_PAGESZ)?;
    u64::try_from(size).ok()
}

/// The key of the page size in the auxiliary vector.
const AT_PAGESZ: usize = 6;

/// The soft limit.
pub(super) fn open_files_limit(limits: &[u8]) -> Option<u64> {
    match value(&String::from_utf8_lossy(limits), "Max open files")?.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        files => files.parse().ok(),
    }
}

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
        let kernel_thread: Vec<&str> = STATUS.lines().filter(|line| !line.starts_with("Vm")).collect();
        assert_eq!(ProcessStatus::parse(kernel_thread.join("\n").as_bytes()).unwrap().resident_bytes, None);
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
