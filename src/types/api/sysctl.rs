//! Kernel parameters by name: how they are written, whose they are, and which of them harm nobody else. Pure.

/// The name with dots between its parts. Where slashes part it, a dot is part of a name and becomes a slash.
pub fn dotted_sysctl(name: &str) -> String {
    if name.find(['.', '/']).is_none_or(|first| name.get(first..).is_some_and(|rest| rest.starts_with('.'))) {
        return name.to_owned();
    }
    let swap = |c| match c {
        '.' => '/',
        '/' => '.',
        c => c,
    };
    name.chars().map(swap).collect()
}

/// The namespace of the kernel in which a parameter has a value of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysctlNamespace {
    Ipc,
    Net,
}

impl SysctlNamespace {
    /// Of a name with dots, or of the common beginning of several; `None` where all share one value.
    pub fn of(name: &str) -> Option<Self> {
        let begins = |beginnings: &[&str]| beginnings.iter().any(|beginning| name.starts_with(beginning));
        if name == "kernel.sem" || begins(&["kernel.shm", "kernel.msg", "fs.mqueue."]) {
            Some(Self::Ipc)
        } else if begins(&["net."]) {
            Some(Self::Net)
        } else {
            None
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ipc => "IPC",
            Self::Net => "Net",
        }
    }
}

/// Major and minor number of a kernel.
pub type KernelVersion = (u32, u32);

/// `6.1.0-18-amd64` is 6.1; what cannot be read is older than everything.
pub fn kernel_version(release: &str) -> KernelVersion {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether a pod may set it without being asked: nothing outside of the pod is touched by it. That holds only from the
/// kernel on that gave it a value for each namespace.
pub fn is_safe_sysctl(name: &str, kernel: KernelVersion) -> bool {
    SAFE.iter().any(|(safe, since)| *safe == name && kernel >= *since)
}

const SAFE: [(&str, KernelVersion); 12] = [
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_with_dots() {
        for (name, expected) in [
            ("net.ipv4.ip_forward", "net.ipv4.ip_forward"),
            ("net/ipv4/ip_forward", "net.ipv4.ip_forward"),
            ("net/ipv4/conf/eno2.100/rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
            ("net.ipv4.conf.eno2/100.rp_filter", "net.ipv4.conf.eno2/100.rp_filter"),
            ("plain", "plain"),
        ] {
            assert_eq!(dotted_sysctl(name), expected);
        }
    }

    #[test]
    fn a_parameter_has_the_namespace_that_the_kernel_gave_it() {
        for (name, expected) in [
            ("kernel.shmmax", Some(SysctlNamespace::Ipc)),
            ("kernel.msg", Some(SysctlNamespace::Ipc)),
            ("kernel.sem", Some(SysctlNamespace::Ipc)),
            ("kernel.semaphore", None),
            ("fs.mqueue.msg_max", Some(SysctlNamespace::Ipc)),
            ("net.core.somaxconn", Some(SysctlNamespace::Net)),
            ("vm.swappiness", None),
        ] {
            assert_eq!(SysctlNamespace::of(name), expected, "{name}");
        }
    }

    #[test]
    fn what_is_safe_is_so_from_some_kernel_on() {
        assert_eq!(kernel_version("6.1.0-18-amd64\n"), (6, 1));
        assert_eq!(kernel_version("4.14-rc1"), (4, 14));
        assert_eq!(kernel_version(""), (0, 0));
        assert!(is_safe_sysctl("kernel.shm_rmid_forced", (3, 2)));
        assert!(is_safe_sysctl("net.ipv4.tcp_rmem", (4, 15)) && is_safe_sysctl("net.ipv4.tcp_rmem", (5, 0)));
        assert!(!is_safe_sysctl("net.ipv4.tcp_rmem", (4, 14)));
        assert!(!is_safe_sysctl("net.core.somaxconn", (6, 1)));
    }
}
