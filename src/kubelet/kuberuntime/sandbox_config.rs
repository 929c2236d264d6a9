//! The sandbox configuration for the runtime. Pure.

use super::config_error::ConfigError;
use super::hostname::kernel_hostname;
use super::labels::{StringMap, sandbox_annotations, sandbox_labels};
use super::resources::{overhead, sandbox_resources};
use super::security_context::sandbox_security_context;
use super::shim_group::SHIM_GROUP;
use crate::kubelet::node::NodeSettings;
use crate::platform::cgroups::CgroupName;
use crate::platform::cri::v1::{
    self, DnsConfig, LinuxPodSandboxConfig, PodSandboxConfig, PodSandboxMetadata, PortMapping,
};
use crate::state::pods::PodDirs;
use crate::types::api::{Container, ContainerPort, Pod, PodSpec, Protocol, dotted_sysctl, qos_class};
use crate::types::sorted::SortedMap;

/// The configuration of `pod`'s sandbox number `attempt`, counted from 0.
pub(crate) fn sandbox_config(
    pod: &Pod,
    attempt: u32,
    node: &NodeSettings,
    dns: &DnsConfig,
) -> Result<PodSandboxConfig, ConfigError> {
    let meta = &pod.metadata;
    let hostname = if pod.spec.host_network { String::new() } else { kernel_hostname(pod, &node.cluster_domain)? };
    let dirs = PodDirs::new(&node.root_dir, &node.pod_logs_dir);
    let group = |root: &str| CgroupName::pod(root, qos_class(pod), &meta.uid);
    let cgroup_parent = node.pod_cgroups.as_ref().map(|cgroups| group(&cgroups.root).path(cgroups.driver));
    Ok(PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: meta.name.clone(),
            uid: meta.uid.to_string(),
            namespace: meta.namespace.clone(),
            attempt,
        }),
        hostname,
        log_directory: dirs.logs(&meta.namespace, &meta.name, &meta.uid).to_string_lossy().into_owned(),
        dns_config: Some(dns.clone()),
        port_mappings: pod.spec.containers.iter().flat_map(port_mappings).collect(),
        labels: sandbox_labels(pod),
        annotations: sandbox_annotations(pod),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: cgroup_parent.unwrap_or_default(),
            security_context: Some(sandbox_security_context(&pod.spec)),
            sysctls: sysctls(&pod.spec),
            overhead: Some(overhead(&pod.spec, node)),
            resources: Some(sandbox_resources(&pod.spec, node)),
        }),
    })
}

/// Sets the group of the sandbox's shim; `None`: its own shim. Where pods share shims, none chooses its group itself: a
/// pod of the cluster could join the shim of the node's own pods.
pub(super) fn set_shim_group(config: &mut PodSandboxConfig, node: &NodeSettings, group: Option<&str>) {
    match group {
        Some(group) => drop(config.annotations.insert(SHIM_GROUP.to_owned(), group.to_owned())),
        None if node.shares_shims => drop(config.annotations.remove(SHIM_GROUP)),
        None => {}
    }
}

/// Every port of a container, whether it has a host port or not, without duplicates.
fn port_mappings(container: &Container) -> impl Iterator<Item = PortMapping> {
    let last_to_first = container.ports.iter().enumerate().rev();
    let first: SortedMap<_, usize> = last_to_first.map(|(index, port)| (identity(port), index)).collect();
    let ports =
        container.ports.iter().enumerate().filter(move |(index, port)| first.get(&identity(port)) == Some(index));
    ports.map(|(_, port)| PortMapping {
        protocol: match port.protocol {
            Protocol::Sctp => v1::Protocol::Sctp,
            Protocol::Tcp => v1::Protocol::Tcp,
            Protocol::Udp => v1::Protocol::Udp,
        },
        container_port: port.container_port,
        host_port: port.host_port,
        host_ip: port.host_ip.clone(),
    })
}

/// Ports are identified by name, or without a name by all other fields.
fn identity(port: &ContainerPort) -> (&str, &str, &str, i32, i32) {
    match port.name.as_str() {
        "" => ("", port.protocol.as_str(), &port.host_ip, port.container_port, port.host_port),
        name => (name, "", "", 0, 0),
    }
}

fn sysctls(spec: &PodSpec) -> StringMap {
    let sysctls = spec.security_context.iter().flat_map(|context| &context.sysctls);
    sysctls.map(|sysctl| (dotted_sysctl(&sysctl.name), sysctl.value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;
    use crate::kubelet::node::PodCgroups;
    use crate::platform::config::CgroupDriver;
    use crate::types::api::{PodSecurityContext, Sysctl};

    #[test]
    fn sysctls_are_written_with_dots() {
        let mut pod = Pod::default();
        let sysctls = vec![Sysctl { name: "kernel/shm_rmid_forced".to_owned(), value: "1".to_owned() }];
        pod.spec.security_context = Some(Box::new(PodSecurityContext { sysctls, ..PodSecurityContext::default() }));
        assert_eq!(super::sysctls(&pod.spec)["kernel.shm_rmid_forced"], "1");
    }

    #[test]
    fn port_is_mapped_once() {
        let port = |name: &str, container_port, host_ip: &str| ContainerPort {
            name: name.to_owned(),
            container_port,
            host_ip: host_ip.to_owned(),
            ..ContainerPort::default()
        };
        let ports = vec![port("", 80, ""), port("", 80, ""), port("", 80, "::1"), port("a", 1, ""), port("a", 2, "")];
        let container = Container { ports, ..Container::default() };
        let mapped: Vec<(i32, String)> =
            port_mappings(&container).map(|port| (port.container_port, port.host_ip)).collect();
        assert_eq!(mapped, [(80, String::new()), (80, "::1".to_owned()), (1, String::new())]);
    }

    #[test]
    fn pod_cannot_choose_its_shim_where_pods_share_shims() {
        let mut pod = Pod::default();
        pod.metadata.annotations = [(SHIM_GROUP, "coracle-0-0".to_owned())].into_iter().collect();
        let group = |shares_shims: bool, group: Option<&str>| {
            let node = NodeSettings { shares_shims, ..golden::node() };
            let mut config = sandbox_config(&pod, 0, &node, &DnsConfig::default()).unwrap();
            set_shim_group(&mut config, &node, group);
            config.annotations.get(SHIM_GROUP).cloned()
        };
        assert_eq!(group(true, None), None);
        assert_eq!(group(true, Some("coracle-7-1")).as_deref(), Some("coracle-7-1"));
        assert_eq!(group(false, None).as_deref(), Some("coracle-0-0"));
    }

    #[test]
    fn cgroup_parent_is_empty_if_pods_have_no_cgroups() {
        let mut pod = Pod::default();
        pod.metadata.uid = "u1".into();
        let parent = |node: &NodeSettings| {
            let config = sandbox_config(&pod, 0, node, &DnsConfig::default()).unwrap();
            config.linux.unwrap().cgroup_parent
        };
        assert_eq!(parent(&golden::node()), "");
        let cgroups = PodCgroups { driver: CgroupDriver::Cgroupfs, root: String::new() };
        let node = NodeSettings { pod_cgroups: Some(cgroups), ..golden::node() };
        assert_eq!(parent(&node), "/kubepods/besteffort/podu1");
    }
}
