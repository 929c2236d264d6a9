//! Converts CRI statistics of pods and containers. Pure.

use super::snapshot::{DiskUsage, Memory, PodSnapshot, UsageStats};
use crate::platform::cri::v1::{
    ContainerStats, CpuUsage, FilesystemUsage, MemoryUsage, NetworkInterfaceUsage, PodSandboxStats, SwapUsage,
};
use crate::platform::host::procfs::{Counts, Interface};

/// Takes the writable layers, and all statistics of pods without cgroups of their own.
pub(super) fn take(pods: &mut [PodSnapshot], containers: &[ContainerStats], sandboxes: &[PodSandboxStats], at: i64) {
    for pod in pods {
        for container in &mut pod.containers {
            let is_it =
                |stats: &&ContainerStats| stats.attributes.as_ref().is_some_and(|entry| entry.id == container.id);
            let Some(stats) = containers.iter().find(is_it) else { continue };
            container.layer = stats.writable_layer.as_ref().map(disk_usage);
            if container.figures.at == 0 {
                let group = std::mem::take(&mut container.figures.group);
                let usage = figures(stats.cpu.as_ref(), stats.memory.as_ref(), stats.swap.as_ref(), at);
                container.figures = UsageStats { group, ..usage };
            }
        }
        if pod.group.is_some() {
            continue;
        }
        let is_it =
            |stats: &&PodSandboxStats| stats.attributes.as_ref().is_some_and(|entry| entry.id == pod.sandbox_id);
        let linux = sandboxes.iter().find(is_it).and_then(|stats| stats.linux.as_ref());
        pod.figures = UsageStats::sum(pod.containers.iter().map(|container| &container.figures), at);
        let Some(linux) = linux else { continue };
        let pod_figures = figures(linux.cpu.as_ref(), linux.memory.as_ref(), None, at);
        if pod_figures.cpu_nanos.is_some() && pod_figures.memory.working_set.is_some() {
            let swap = (pod.figures.swap_used, pod.figures.swap_available);
            pod.figures = UsageStats { swap_used: swap.0, swap_available: swap.1, ..pod_figures };
        }
        pod.processes = pod.processes.or(linux.process.as_ref().and_then(|process| process.process_count));
        if let (true, true, Some(network)) = (pod.interfaces.is_empty(), pod.network_pid.is_some(), &linux.network) {
            let interfaces = network.default_interface.iter().chain(&network.interfaces);
            for entry in interfaces.map(interface) {
                if pod.interfaces.iter().all(|listed| listed.name != entry.name) {
                    pod.interfaces.push(entry);
                }
            }
        }
    }
}

/// Usage of a runtime file system.
pub(super) fn disk_usage(usage: &FilesystemUsage) -> DiskUsage {
    DiskUsage { bytes: usage.used_bytes.unwrap_or(0), inodes: usage.inodes_used.unwrap_or(0) }
}

fn figures(cpu: Option<&CpuUsage>, memory: Option<&MemoryUsage>, swap: Option<&SwapUsage>, at: i64) -> UsageStats {
    let times = [cpu.map(|cpu| cpu.timestamp), memory.map(|memory| memory.timestamp)];
    UsageStats {
        // Without a timestamp from the runtime, the current time is used.
        at: times.into_iter().flatten().find(|at| *at > 0).unwrap_or(at),
        cpu_nanos: cpu.and_then(|cpu| cpu.usage_core_nano_seconds),
        nano_cores: cpu.and_then(|cpu| cpu.usage_nano_cores),
        memory: memory.map_or_else(Memory::default, |memory| Memory {
            // Zero means that the container has no limit.
            available: memory.available_bytes.filter(|bytes| *bytes > 0),
            usage: memory.usage_bytes,
            working_set: memory.working_set_bytes,
            rss: memory.rss_bytes,
            page_faults: memory.page_faults,
            major_page_faults: memory.major_page_faults,
        }),
        swap_used: Some(swap.and_then(|swap| swap.swap_usage_bytes).unwrap_or(0)),
        swap_available: Some(swap.and_then(|swap| swap.swap_available_bytes).unwrap_or(0)),
        ..UsageStats::default()
    }
}

fn interface(usage: &NetworkInterfaceUsage) -> Interface {
    let counts = |bytes: Option<u64>, errors: Option<u64>| Counts {
        bytes: bytes.unwrap_or(0),
        errors: errors.unwrap_or(0),
        ..Counts::default()
    };
    Interface {
        name: usage.name.clone(),
        received: counts(usage.rx_bytes, usage.rx_errors),
        sent: counts(usage.tx_bytes, usage.tx_errors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::stats::snapshot::ContainerSnapshot;
    use crate::platform::cri::v1::{ContainerAttributes, LinuxPodSandboxStats, NetworkUsage, PodSandboxAttributes};

    fn pod(group: Option<&str>, figures_at: i64) -> PodSnapshot {
        let figures = UsageStats { at: figures_at, cpu_nanos: Some(1), ..UsageStats::default() };
        let container = ContainerSnapshot { id: "c".to_owned(), figures, ..ContainerSnapshot::default() };
        PodSnapshot {
            group: group.map(str::to_owned),
            sandbox_id: "s".to_owned(),
            network_pid: Some(1),
            containers: vec![container],
            ..PodSnapshot::default()
        }
    }

    fn told() -> ContainerStats {
        ContainerStats {
            attributes: Some(ContainerAttributes { id: "c".to_owned(), ..ContainerAttributes::default() }),
            cpu: Some(CpuUsage { timestamp: 5, usage_core_nano_seconds: Some(70), ..CpuUsage::default() }),
            memory: Some(MemoryUsage {
                working_set_bytes: Some(80),
                available_bytes: Some(0),
                ..MemoryUsage::default()
            }),
            writable_layer: Some(FilesystemUsage { used_bytes: Some(90), ..FilesystemUsage::default() }),
            ..ContainerStats::default()
        }
    }

    #[test]
    fn pod_with_a_cgroup_takes_only_layers_from_the_runtime() {
        let mut pods = [pod(Some("/kubepods/pod1"), 7)];
        take(&mut pods, &[told()], &[], 9);
        let container = &pods[0].containers[0];
        assert_eq!((container.figures.cpu_nanos, container.layer.map(|layer| layer.bytes)), (Some(1), Some(90)));
        assert_eq!(pods[0].figures, UsageStats::default());
    }

    #[test]
    fn pod_without_a_cgroup_takes_everything_from_the_runtime() {
        let mut pods = [pod(None, 0)];
        take(&mut pods, &[told()], &[], 9);
        let figures = &pods[0].containers[0].figures;
        assert_eq!((figures.at, figures.cpu_nanos, figures.memory.working_set), (5, Some(70), Some(80)));
        assert_eq!((figures.memory.available, figures.swap_used), (None, Some(0)));
        assert_eq!((pods[0].figures.at, pods[0].figures.cpu_nanos), (9, Some(70)));
        let interface = |name: &str| NetworkInterfaceUsage {
            name: name.to_owned(),
            rx_bytes: Some(3),
            ..NetworkInterfaceUsage::default()
        };
        let network = NetworkUsage {
            default_interface: Some(interface("eth0")),
            interfaces: vec![interface("eth0"), interface("net1")],
            ..NetworkUsage::default()
        };
        let linux = LinuxPodSandboxStats {
            cpu: Some(CpuUsage { usage_core_nano_seconds: Some(75), ..CpuUsage::default() }),
            memory: Some(MemoryUsage { working_set_bytes: Some(85), ..MemoryUsage::default() }),
            network: Some(network),
            ..LinuxPodSandboxStats::default()
        };
        let attributes = Some(PodSandboxAttributes { id: "s".to_owned(), ..PodSandboxAttributes::default() });
        let sandbox = PodSandboxStats { attributes, linux: Some(linux) };
        take(&mut pods, &[told()], &[sandbox], 9);
        assert_eq!((pods[0].figures.cpu_nanos, pods[0].figures.memory.working_set), (Some(75), Some(85)));
        let names: Vec<&str> = pods[0].interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["eth0", "net1"]);
    }
}
