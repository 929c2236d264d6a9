//! The node's own object, as far as it stays what it is while this process runs. Pure.

use std::net::IpAddr;

use crate::kubelet::node::{Facts, Machine, NodeSettings};
use crate::platform::config::{Config, Reporting};
use crate::types::api::{
    DaemonEndpoint, EPHEMERAL_STORAGE, Format, KUBERNETES_VERSION, Map, Node, NodeDaemonEndpoints, NodeSpec,
    NodeStatus, NodeSwapStatus, NodeSystemInfo, ObjectMeta, PODS, Quantity, ResourceList, Taint,
};

/// What an API server is told of this node, whatever happens on it.
#[derive(Clone, Debug)]
pub(crate) struct NodeProfile {
    pub(super) metadata: ObjectMeta,
    spec: NodeSpec,
    pub(super) capacity: ResourceList,
    pub(super) allocatable: ResourceList,
    /// All but the runtime's version.
    pub(super) info: NodeSystemInfo,
    pub(super) endpoints: NodeDaemonEndpoints,
    /// Those that the user has given.
    pub(super) ips: Vec<IpAddr>,
    pub(super) external_cloud: bool,
    /// A node whose disk cannot be told is not ready.
    pub(super) needs_storage: bool,
    /// What others have put into the node's object of extended resources stays when it registers.
    pub(super) keeps_extended: bool,
}

/// The labels that are brought in order at every registration; others that a node was given are its administrator's to
/// change (`updateDefaultLabels`).
pub(super) const DEFAULT_LABELS: [&str; 11] = [
    HOSTNAME,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    OS,
    ARCH,
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// The labels that are brought in order with every report.
pub(super) const STANDING_LABELS: [&str; 2] = [OS, ARCH];
const HOSTNAME: &str = "kubernetes.io/hostname";
const OS: &str = "kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";

/// Volumes are for a controller to attach, not for this node.
pub(super) const ATTACHED_BY_CONTROLLER: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Tells a cloud's controller which address to choose.
pub(super) const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";

const LINUX: &str = "linux";

impl NodeProfile {
    pub(crate) fn new(config: &Config, facts: &Facts, machine: &Machine, settings: &NodeSettings) -> Self {
        let reporting = &config.cluster.reporting;
        let mut annotations = Map::new();
        annotations.insert(ATTACHED_BY_CONTROLLER, "true".to_owned());
        let given: Vec<String> = specified(&config.node.ips).map(ToString::to_string).collect();
        if reporting.external_cloud && !given.is_empty() {
            annotations.insert(PROVIDED_IP, given.join(","));
        }
        let pods = Quantity::new(settings.max_pods.into(), Format::DecimalSi);
        let needs_storage = config.eviction.local_storage;
        let with_pods = |mut list: ResourceList| {
            list.insert(PODS, pods);
            if !needs_storage {
                list.remove(EPHEMERAL_STORAGE);
            }
            list
        };
        Self {
            metadata: ObjectMeta {
                name: settings.node_name.clone(),
                labels: labels(&settings.node_name, machine.architecture, &config.node.labels),
                annotations,
                ..ObjectMeta::default()
            },
            spec: spec(reporting),
            capacity: with_pods(facts.capacity()),
            allocatable: with_pods(settings.allocatable.clone()),
            info: info(machine, facts),
            endpoints: NodeDaemonEndpoints {
                kubelet_endpoint: DaemonEndpoint { port: config.identity.server.address.port().into() },
            },
            ips: config.node.ips.clone(),
            external_cloud: reporting.external_cloud,
            needs_storage,
            keeps_extended: false,
        }
    }

    /// A node that has had devices before is no new one under an old name (`ShouldResetExtendedResourceCapacity`).
    pub(crate) fn known_before(self, keeps_extended: bool) -> Self {
        Self { keeps_extended, ..self }
    }

    /// The object to register with.
    pub(crate) fn node(&self, status: NodeStatus) -> Node {
        Node { metadata: self.metadata.clone(), spec: self.spec.clone(), status, ..Node::default() }
    }
}

/// 0.0.0.0 and :: only say which family is wanted.
pub(super) fn specified(ips: &[IpAddr]) -> impl Iterator<Item = &IpAddr> {
    ips.iter().filter(|ip| !ip.is_unspecified())
}

fn labels(name: &str, architecture: &str, given: &Map<String>) -> Map<String> {
    let own = [
        (HOSTNAME, label_value(name)),
        (OS, LINUX),
        (ARCH, architecture),
        ("beta.kubernetes.io/os", LINUX),
        ("beta.kubernetes.io/arch", architecture),
    ];
    let given = given.iter().map(|(key, value)| (key, value.clone()));
    own.into_iter().map(|(key, value)| (key, value.to_owned())).chain(given).collect()
}

/// A node's name may be longer than the value of a label, and an API server takes no part of an object that is wrong.
fn label_value(name: &str) -> &str {
    name.get(..63).map_or(name, |head| head.trim_end_matches(['-', '.']))
}

fn spec(reporting: &Reporting) -> NodeSpec {
    let taint = |key: &str, value: &str| Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: "NoSchedule".into(),
        time_added: None,
    };
    let mut taints = reporting.taints.clone();
    if reporting.unschedulable {
        taints.push(taint("node.kubernetes.io/unschedulable", ""));
    }
    if reporting.external_cloud {
        taints.push(taint("node.cloudprovider.kubernetes.io/uninitialized", "true"));
    }
    NodeSpec {
        provider_id: reporting.provider_id.clone(),
        unschedulable: reporting.unschedulable,
        taints,
        ..NodeSpec::default()
    }
}

fn info(machine: &Machine, facts: &Facts) -> NodeSystemInfo {
    let swap = i64::try_from(facts.swap_bytes).ok().filter(|bytes| *bytes > 0);
    NodeSystemInfo {
        machine_id: machine.machine_id.clone(),
        system_uuid: machine.system_uuid.clone(),
        boot_id: machine.boot_id.clone(),
        kernel_version: machine.kernel_version.clone(),
        os_image: machine.os_image.clone(),
        // What is behind the plus sign takes no part when versions are compared (semver 2.0, section 10).
        kubelet_version: format!("{KUBERNETES_VERSION}+coracle-{}", env!("CARGO_PKG_VERSION")),
        operating_system: LINUX.into(),
        architecture: machine.architecture.into(),
        swap: swap.map(|capacity| NodeSwapStatus { capacity: Some(capacity) }),
        ..NodeSystemInfo::default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The profile of a node of one processor, changed as a test wants it.
    pub(in crate::kubelet::node) fn profile(change: impl FnOnce(&mut Config, &mut Facts)) -> NodeProfile {
        let mut config = Config::default();
        "n".clone_into(&mut config.node.name);
        let mut facts = Facts { cpus: 1, memory_bytes: 1 << 30, storage_bytes: 1 << 30, ..Facts::default() };
        change(&mut config, &mut facts);
        let machine = Machine { architecture: "arm", boot_id: "boot".to_owned(), ..Machine::default() };
        NodeProfile::new(&config, &facts, &machine, &NodeSettings::new(&config, &facts))
    }

    #[test]
    fn a_user_may_give_labels_and_even_replace_the_nodes_own() {
        let profile = profile(|config, _| {
            config.node.labels = [("a", "b"), (HOSTNAME, "mine")].map(|(k, v)| (k, v.to_owned())).into_iter().collect();
        });
        let labels: Vec<(&str, &str)> = profile.metadata.labels.iter().map(|(k, v)| (k, v.as_str())).collect();
        let expected = [
            ("a", "b"),
            ("beta.kubernetes.io/arch", "arm"),
            ("beta.kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "arm"),
            ("kubernetes.io/hostname", "mine"),
            ("kubernetes.io/os", "linux"),
        ];
        assert_eq!(labels, expected);
    }

    #[test]
    fn a_name_too_long_for_a_label_is_cut_there() {
        assert_eq!(label_value(&"a".repeat(63)), "a".repeat(63));
        assert_eq!(label_value(&format!("{}-.b.c", "a".repeat(61))), "a".repeat(61));
    }

    #[test]
    fn taints_come_from_the_user_from_the_wish_for_no_pods_and_from_a_cloud_in_this_order() {
        let profile = profile(|config, _| {
            let own = Taint { key: "own".to_owned(), effect: "NoExecute".into(), ..Taint::default() };
            let reporting = &mut config.cluster.reporting;
            reporting.taints = vec![own];
            reporting.unschedulable = true;
            reporting.external_cloud = true;
            reporting.provider_id = "x://y".to_owned();
        });
        let spec = profile.node(NodeStatus::default()).spec;
        let taints: Vec<(&str, &str)> = spec.taints.iter().map(|taint| (taint.key.as_str(), &*taint.effect)).collect();
        let expected = [
            ("own", "NoExecute"),
            ("node.kubernetes.io/unschedulable", "NoSchedule"),
            ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
        ];
        assert_eq!(taints, expected);
        assert_eq!((spec.unschedulable, spec.provider_id.as_str()), (true, "x://y"));
    }

    #[test]
    fn a_cloud_is_told_of_the_address_that_the_user_has_given() {
        let ip = |cloud: bool, ips: &[&str]| {
            let profile = profile(|config, _| {
                config.node.ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
                config.cluster.reporting.external_cloud = cloud;
            });
            profile.metadata.annotations.get(PROVIDED_IP).cloned()
        };
        assert_eq!(ip(true, &["10.0.0.1", "::2"]).as_deref(), Some("10.0.0.1,::2"));
        assert_eq!(ip(true, &["0.0.0.0"]), None);
        assert_eq!(ip(false, &["10.0.0.1"]), None);
    }

    #[test]
    fn the_version_is_one_that_every_reader_of_versions_takes() {
        let version = profile(|_, _| {}).info.kubelet_version;
        let (version, build) = version.split_once('+').unwrap();
        let parts: Vec<&str> = version.strip_prefix('v').unwrap().split('.').collect();
        assert!(parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok()), "{version}");
        // Semver section 10: nothing but letters, digits, hyphens and dots.
        assert!(build.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)), "{build}");
    }

    #[test]
    fn a_disk_whose_use_nobody_counts_is_not_offered() {
        let with = profile(|_, _| {});
        let without = profile(|config, _| config.eviction.local_storage = false);
        let has = |profile: &NodeProfile| {
            [&profile.capacity, &profile.allocatable].map(|l| l.contains_key("ephemeral-storage"))
        };
        assert_eq!((has(&with), has(&without)), ([true; 2], [false; 2]));
        assert_eq!(with.capacity.get(PODS).unwrap().to_string(), "110");
    }
}
