//! Sysctls: their names, their kernel namespaces, and which of them are safe. Pure.

/// The name with dots as separators. In a name with slashes as separators, dots become slashes.
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

/// The kernel namespace that isolates a sysctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysctlNamespace {
    Ipc,
    Net,
}

impl SysctlNamespace {
    /// Takes a dotted name or a prefix of names; `None` if the sysctl is not namespaced.
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

/// Major and minor version of a kernel.
pub type KernelVersion = (u32, u32);

/// `6.1.0-18-amd64` is 6.1; an unreadable number is 0.
pub fn kernel_version(release: &str) -> KernelVersion {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether every pod may set the sysctl: it affects nothing outside the pod, from the kernel version on that
/// namespaced it.
pub fn is_safe_sysctl(name: &str, kernel: KernelVersion) -> bool {
    SAFE.iter().any(|(safe, since)| *safe == name && kernel >= *since)
}

const SAFE: [(&str, KernelVersion); 14] = [
    ("kernel.shm_rmid_forced", (0, 0)),
    ("net.ipv4.ip_local_port_range", (0, 0)),
    ("net.ipv4.ip_local_reserved_ports", (3, 16)),
    ("net.ipv4.ip_unprivileged_port_start", (0, 0)),
    ("net.ipv4.ping_group_range", (0, 0)),
    ("net.ipv4.tcp_fin_timeout", (4, 6)),
    ("net.ipv4.tcp_keepalive_intvl", (4, 5)),
    ("net.ipv4.tcp_keepalive_probes", (4, 5)),
    ("net.ipv4.tcp_keepalive_time", (4, 5)),
    ("net.ipv4.tcp_notsent_lowat", (4, 6)),
    ("net.ipv4.tcp_rmem", (4, 15)),
    ("net.ipv4.tcp_slow_start_after_idle", (4, 15)),
    ("net.ipv4.tcp_syncookies", (0, 0)),
    ("net.ipv4.tcp_wmem", (4, 15)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysctl_names_use_dots() {
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
    fn each_sysctl_has_its_kernel_namespace() {
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
    fn safe_sysctl_needs_a_minimum_kernel() {
        assert_eq!(kernel_version("6.1.0-18-amd64\n"), (6, 1));
        assert_eq!(kernel_version("4.14-rc1"), (4, 14));
        assert_eq!(kernel_version(""), (0, 0));
        assert!(is_safe_sysctl("kernel.shm_rmid_forced", (3, 2)));
        assert!(is_safe_sysctl("net.ipv4.tcp_rmem", (4, 15)) && is_safe_sysctl("net.ipv4.tcp_rmem", (5, 0)));
        assert!(!is_safe_sysctl("net.ipv4.tcp_rmem", (4, 14)));
        // Since 1.37.
        for (name, since) in [("net.ipv4.tcp_notsent_lowat", (4, 6)), ("net.ipv4.tcp_slow_start_after_idle", (4, 15))] {
            assert!(is_safe_sysctl(name, since) && !is_safe_sysctl(name, (since.0, since.1 - 1)), "{name}");
        }
        assert!(!is_safe_sysctl("net.core.somaxconn", (6, 1)));
    }
}
