//! The parts of the Node object that stay constant while the process runs. Pure.

use std::net::IpAddr;

use crate::kubelet::node::{Machine, NodeInfo, NodeSettings};
use crate::platform::config::{Config, FeatureGates, Gate, Reporting};
use crate::types::api::{
    DECLARED_FEATURES, DaemonEndpoint, EPHEMERAL_STORAGE, Format, KUBERNETES_VERSION, Map, Node, NodeDaemonEndpoints,
    NodeSpec, NodeStatus, NodeSwapStatus, NodeSystemInfo, ObjectMeta, PODS, Quantity, ResourceList, Taint,
};

#[derive(Clone, Debug)]
pub(crate) struct NodeProfile {
    pub(super) metadata: ObjectMeta,
    spec: NodeSpec,
    pub(super) capacity: ResourceList,
    pub(super) allocatable: ResourceList,
    /// Everything but the runtime's version.
    pub(super) info: NodeSystemInfo,
    pub(super) endpoints: NodeDaemonEndpoints,
    /// The configured addresses.
    pub(super) ips: Vec<IpAddr>,
    pub(super) external_cloud: bool,
    /// The node is not ready while its ephemeral storage capacity is unknown.
    pub(super) needs_storage: bool,
    /// What this kubelet can do, for the scheduler.
    pub(super) declared_features: Vec<String>,
    /// Registration keeps extended resources found in the object.
    pub(super) keeps_extended: bool,
    /// Annotations with what the node reports of itself. Empty ones are not at the object.
    pub(super) reports: Map<String>,
}

/// Labels that every registration restores; the others belong to the administrator once they are set
/// (`updateDefaultLabels`).
pub(super) const DEFAULT_LABELS: [&str; 11] = [
    HOSTNAME,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    NODE_OS_LABEL,
    ARCH,
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
/// Labels that every report restores.
pub(super) const STANDING_LABELS: [&str; 2] = [NODE_OS_LABEL, ARCH];
const HOSTNAME: &str = "kubernetes.io/hostname";
const NODE_OS_LABEL: &str = "kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";

/// Marks that the attach/detach controller attaches volumes, not the node.
pub(super) const ATTACHED_BY_CONTROLLER: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Tells the cloud controller which address to use.
pub(super) const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";

const LINUX: &str = "linux";

impl NodeProfile {
    pub(crate) fn new(config: &Config, node_info: &NodeInfo, machine: &Machine, settings: &NodeSettings) -> Self {
        let reporting = &config.cluster.reporting;
        let mut annotations = Map::new();
        annotations.insert(ATTACHED_BY_CONTROLLER, "true".to_owned());
        let configured: Vec<String> = specified(&config.node.ips).map(ToString::to_string).collect();
        if reporting.external_cloud && !configured.is_empty() {
            annotations.insert(PROVIDED_IP, configured.join(","));
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
            capacity: with_pods(node_info.capacity()),
            allocatable: with_pods(settings.allocatable.clone()),
            info: info(machine, node_info),
            endpoints: NodeDaemonEndpoints {
                kubelet_endpoint: DaemonEndpoint { port: config.identity.server.address.port().into() },
            },
            ips: config.node.ips.clone(),
            external_cloud: reporting.external_cloud,
            needs_storage,
            declared_features: declared_features(&config.gates),
            keeps_extended: false,
            reports: Map::new(),
        }
    }

    /// Call with true if the node had devices before: then it is not a new node under an old name
    /// (`ShouldResetExtendedResourceCapacity`).
    pub(crate) fn known_before(self, keeps_extended: bool) -> Self {
        Self { keeps_extended, ..self }
    }

    /// The object to register.
    pub(crate) fn node(&self, status: NodeStatus) -> Node {
        let mut metadata = self.metadata.clone();
        for (name, value) in self.reports.iter().filter(|(_, value)| !value.is_empty()) {
            metadata.annotations.insert(name, value.clone());
        }
        Node { metadata, spec: self.spec.clone(), status, ..Node::default() }
    }
}

/// Drops 0.0.0.0 and ::, which only select a family.
pub(super) fn specified(ips: &[IpAddr]) -> impl Iterator<Item = &IpAddr> {
    ips.iter().filter(|ip| !ip.is_unspecified())
}

fn declared_features(gates: &FeatureGates) -> Vec<String> {
    let declared = DECLARED_FEATURES.into_iter().filter(|feature| gates.has_feature(feature));
    declared.filter(|_| gates.is_on(Gate::NodeDeclaredFeatures)).map(str::to_owned).collect()
}

fn labels(name: &str, architecture: &str, configured: &Map<String>) -> Map<String> {
    let standard_labels = [
        (HOSTNAME, label_value(name)),
        (NODE_OS_LABEL, LINUX),
        (ARCH, architecture),
        ("beta.kubernetes.io/os", LINUX),
        ("beta.kubernetes.io/arch", architecture),
    ];
    let configured = configured.iter().map(|(key, value)| (key, value.clone()));
    standard_labels.into_iter().map(|(key, value)| (key, value.to_owned())).chain(configured).collect()
}

/// Node names may be longer than label values, and the API server rejects an object with any invalid part.
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

fn info(machine: &Machine, node_info: &NodeInfo) -> NodeSystemInfo {
    let swap = i64::try_from(node_info.swap_bytes).ok().filter(|bytes| *bytes > 0);
    NodeSystemInfo {
        machine_id: machine.machine_id.clone(),
        system_uuid: machine.system_uuid.clone(),
        boot_id: machine.boot_id.clone(),
        kernel_version: machine.kernel_version.clone(),
        os_image: machine.os_image.clone(),
        // The build metadata after the plus sign is ignored in version comparisons (semver 2.0, section 10).
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

    /// The profile of a single-CPU node, modified by `change`.
    pub(in crate::kubelet::node) fn profile(change: impl FnOnce(&mut Config, &mut NodeInfo)) -> NodeProfile {
        let mut config = Config::default();
        "n".clone_into(&mut config.node.name);
        let mut facts = NodeInfo { cpus: 1, memory_bytes: 1 << 30, storage_bytes: 1 << 30, ..NodeInfo::default() };
        change(&mut config, &mut facts);
        let machine = Machine { architecture: "arm", boot_id: "boot".to_owned(), ..Machine::default() };
        NodeProfile::new(&config, &facts, &machine, &NodeSettings::new(&config, &facts))
    }

    #[test]
    fn configured_labels_override_the_defaults() {
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
    fn long_name_is_cut_in_the_label() {
        assert_eq!(label_value(&"a".repeat(63)), "a".repeat(63));
        assert_eq!(label_value(&format!("{}-.b.c", "a".repeat(61))), "a".repeat(61));
    }

    #[test]
    fn taints_are_in_order_configured_unschedulable_cloud() {
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
    fn provided_ip_is_annotated_for_clouds() {
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
    fn version_is_parsed_by_every_reader() {
        let version = profile(|_, _| {}).info.kubelet_version;
        let (version, build) = version.split_once('+').unwrap();
        let parts: Vec<&str> = version.strip_prefix('v').unwrap().split('.').collect();
        assert!(parts.len() == 3 && parts.iter().all(|part| part.parse::<u32>().is_ok()), "{version}");
        // Semver section 10: only letters, digits, hyphens and dots.
        assert!(build.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)), "{build}");
    }

    #[test]
    fn uncounted_storage_is_not_in_capacity() {
        let with = profile(|_, _| {});
        let without = profile(|config, _| config.eviction.local_storage = false);
        let has = |profile: &NodeProfile| {
            [&profile.capacity, &profile.allocatable].map(|l| l.contains_key("ephemeral-storage"))
        };
        assert_eq!((has(&with), has(&without)), ([true; 2], [false; 2]));
        assert_eq!(with.capacity.get(PODS).unwrap().to_string(), "110");
    }
}
