//! Host names of pods. Pure.

use super::config_error::ConfigError;
use crate::types::api::Pod;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hostname {
    pub(crate) name: String,
    /// `<subdomain>.<namespace>.svc.<cluster domain>`; empty without a subdomain.
    pub(crate) domain: String,
}

/// Host name and domain of `pod`; a static pod has the name of its mirror pod.
pub(crate) fn hostname(pod: &Pod, cluster_domain: &str) -> Hostname {
    let spec = &pod.spec;
    if let Some(name) = &spec.hostname_override {
        return Hostname { name: shortened(name), domain: String::new() };
    }
    let name = shortened(if spec.hostname.is_empty() { &pod.metadata.name } else { &spec.hostname });
    let domain = if spec.subdomain.is_empty() {
        String::new()
    } else {
        [&spec.subdomain, ".", &pod.metadata.namespace, ".svc.", cluster_domain].concat()
    };
    Hostname { name, domain }
}

/// The host name for the pod's UTS namespace.
pub(crate) fn kernel_hostname(pod: &Pod, cluster_domain: &str) -> Result<String, ConfigError> {
    let Hostname { name, domain } = hostname(pod, cluster_domain);
    if domain.is_empty() || pod.spec.set_hostname_as_fqdn != Some(true) {
        return Ok(name);
    }
    let fqdn = [name.as_str(), ".", &domain].concat();
    if fqdn.len() > MAX_KERNEL_NAME_CHARS { Err(ConfigError::HostnameTooLong { fqdn }) } else { Ok(fqdn) }
}

/// Truncates to a DNS label: pod names may be longer.
fn shortened(name: &str) -> String {
    match name.get(..MAX_LABEL_CHARS) {
        Some(start) => start.trim_end_matches(['-', '.']).to_owned(),
        None => name.to_owned(),
    }
}

/// Of a DNS label (RFC 1123): upstream cuts longer pod names in `truncatePodHostnameIfNeeded`.
const MAX_LABEL_CHARS: usize = 63;
/// The kernel's `__NEW_UTS_LEN`.
const MAX_KERNEL_NAME_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = name.to_owned();
        pod.metadata.namespace = "boats".to_owned();
        pod
    }

    #[test]
    fn long_name_is_cut_without_trailing_dash_or_dot() {
        assert_eq!(hostname(&pod("web"), "").name, "web");
        let long = format!("{}-.{}", "a".repeat(61), "b".repeat(9));
        assert_eq!(hostname(&pod(&long), "").name, "a".repeat(61));
        let exact = "a".repeat(63);
        assert_eq!(hostname(&pod(&exact), "").name, exact);
    }

    #[test]
    fn domain_needs_a_subdomain_and_fqdn_must_fit_the_kernel() {
        let mut pod = pod("web");
        pod.spec.hostname = "little".to_owned();
        pod.spec.set_hostname_as_fqdn = Some(true);
        assert_eq!(kernel_hostname(&pod, "cluster.local").unwrap(), "little");
        pod.spec.subdomain = "fleet".to_owned();
        assert_eq!(hostname(&pod, "cluster.local").domain, "fleet.boats.svc.cluster.local");
        assert_eq!(kernel_hostname(&pod, "cluster.local").unwrap(), "little.fleet.boats.svc.cluster.local");
        pod.spec.subdomain = "f".repeat(60);
        let error = kernel_hostname(&pod, "cluster.local").unwrap_err();
        assert!(error.to_string().contains("too long (64 characters is the max, 91 characters requested)"), "{error}");
        pod.spec.set_hostname_as_fqdn = None;
        assert_eq!(kernel_hostname(&pod, "cluster.local").unwrap(), "little");
    }
}
