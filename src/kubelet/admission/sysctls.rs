//! The sysctl allowlist. Pure.

use std::fmt;

use super::Rejection;
use crate::types::api::{KernelVersion, Pod, Reason, SysctlNamespace, dotted_sysctl, is_safe_sysctl};

/// Safe sysctls and those from the configuration: names, and prefixes ending in `*`.
#[derive(Clone, Debug)]
pub(super) struct AllowedSysctls {
    unsafe_ones: Vec<String>,
    kernel: KernelVersion,
}

impl AllowedSysctls {
    pub(super) fn new(unsafe_ones: &[String], kernel: KernelVersion) -> Self {
        Self { unsafe_ones: unsafe_ones.iter().map(|name| dotted_sysctl(name)).collect(), kernel }
    }

    pub(super) fn check(&self, pod: &Pod) -> Result<(), Rejection> {
        let sysctls = pod.spec.security_context.iter().flat_map(|context| &context.sysctls);
        for sysctl in sysctls {
            self.check_name(pod, &dotted_sysctl(&sysctl.name)).map_err(|forbidden| Rejection {
                reason: Reason::SYSCTL_FORBIDDEN,
                message: format!("forbidden sysctl: {forbidden}"),
            })?;
        }
        Ok(())
    }

    fn check_name<'n>(&self, pod: &Pod, name: &'n str) -> Result<(), Forbidden<'n>> {
        let is_listed = |listed: &String| match listed.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => listed == name,
        };
        if !is_safe_sysctl(name, self.kernel) && !self.unsafe_ones.iter().any(is_listed) {
            return Err(Forbidden::NotListed { name });
        }
        match SysctlNamespace::of(name) {
            Some(namespace @ SysctlNamespace::Ipc) if pod.spec.host_ipc => Err(Forbidden::OfHost { name, namespace }),
            Some(namespace @ SysctlNamespace::Net) if pod.spec.host_network => {
                Err(Forbidden::OfHost { name, namespace })
            }
            _ => Ok(()),
        }
    }
}

/// Why a pod may not set a sysctl.
enum Forbidden<'n> {
    NotListed {
        name: &'n str,
    },
    /// The pod shares the namespace, so the sysctl would change the host.
    OfHost {
        name: &'n str,
        namespace: SysctlNamespace,
    },
}

impl fmt::Display for Forbidden<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed { name } => write!(f, "{name:?} not allowlisted"),
            Self::OfHost { name, namespace } => {
                write!(f, "{name:?} not allowed with host {} enabled", namespace.as_str())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{PodSecurityContext, Sysctl};

    fn pod(names: &[&str]) -> Pod {
        let sysctl = |name: &&str| Sysctl { name: (*name).to_owned(), value: "1".to_owned() };
        let sysctls = names.iter().map(sysctl).collect();
        let mut pod = Pod::default();
        pod.spec.security_context = Some(Box::new(PodSecurityContext { sysctls, ..PodSecurityContext::default() }));
        pod
    }

    #[track_caller]
    fn check(allowed: &[&str], pod: &Pod, expected: Option<&str>) {
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let found = AllowedSysctls::new(&allowed, (6, 1)).check(pod);
        let found = found.err().map(|rejection| {
            assert_eq!(rejection.reason, Reason::SYSCTL_FORBIDDEN);
            rejection.message
        });
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn unsafe_sysctls_need_the_nodes_permission() {
        let pod = pod(&["kernel.shm_rmid_forced", "net/core/somaxconn", "kernel.msgmax"]);
        let forbidden = "forbidden sysctl: \"net.core.somaxconn\" not allowlisted";
        check(&[], &pod, Some(forbidden));
        check(&["kernel.msg*"], &pod, Some(forbidden));
        check(&["kernel.msg*", "net.core.somaxconn"], &pod, None);
        check(&["kernel/msgmax", "net.*"], &pod, None);
        check(&["net.core.somax"], &pod, Some(forbidden));
    }

    #[test]
    fn sysctl_of_a_host_namespace_is_refused() {
        let mut net = pod(&["net.ipv4.tcp_syncookies"]);
        net.spec.host_ipc = true;
        check(&[], &net, None);
        net.spec.host_network = true;
        let message = "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host Net enabled";
        check(&[], &net, Some(message));
        let mut ipc = pod(&["kernel.msgmax"]);
        ipc.spec.host_ipc = true;
        let message = "forbidden sysctl: \"kernel.msgmax\" not allowed with host IPC enabled";
        check(&["kernel.msg*"], &ipc, Some(message));
    }
}
