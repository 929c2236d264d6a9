//! Pod admission: rejects a pod before any of it is created if it may not or cannot run on this node.

mod app_armor;
mod fit;
mod host;
mod host_ports;
mod preemption;
mod pressure;
mod sysctls;
mod this_node;

use crate::platform::config::{Config, FeatureGates, Gate};
use crate::state::pods::NodeFields;
use crate::types::api::{
    DECLARED_FEATURES, HUGE_PAGES_PREFIX, Pod, PodUid, Quantity, Reason, ResourceList, SupplementalGroupsPolicy,
    log_directory_fault, required_features,
};
use crate::types::metrics::{self, Count};

pub(crate) use pressure::check_pressure;

use fit::{FreeResources, InsufficientResource};
use sysctls::AllowedSysctls;
use this_node::ThisNode;

/// The reason and message of a rejection, as upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

/// Upstream's `admissionRejectionReasons`. The reason of a taint, a label or a port is not among them.
const COUNTED_REJECTION_REASONS: &[Reason] = &[
    Reason::APP_ARMOR,
    Reason::EVICTED,
    Reason::INIT_CONTAINER_RESTART_POLICY_FORBIDDEN,
    Reason::NODE_SHUTDOWN,
    Reason::OUT_OF_CPU,
    Reason::OUT_OF_EPHEMERAL_STORAGE,
    Reason::OUT_OF_MEMORY,
    Reason::OUT_OF_PODS,
    Reason::POD_FEATURE_UNSUPPORTED,
    Reason::POD_LEVEL_RESOURCES_NOT_SUPPORTED,
    Reason::POD_OS_NOT_SUPPORTED,
    Reason::POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH,
    Reason::SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED,
    Reason::SYSCTL_FORBIDDEN,
    Reason::TOPOLOGY_AFFINITY_ERROR,
    Reason::UNEXPECTED_ADMISSION_ERROR,
    Reason::VOLUME_ATTACHMENT_LIMIT_EXCEEDED,
];

impl Rejection {
    /// The reason in the metric of rejections, as upstream's `recordAdmissionRejection` counts it: a tenant may invent
    /// names of extended resources.
    pub(crate) fn counted_reason(&self) -> &str {
        match self.reason.as_str() {
            reason if COUNTED_REJECTION_REASONS.contains(&self.reason) => reason,
            reason if reason.starts_with("OutOf") => "OutOfExtendedResources",
            _ => "Other",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Admission {
    sysctls: AllowedSysctls,
    node: ThisNode,
    room: FreeResources,
    /// Static pods may be preempted and evicted like other pods.
    static_pods_count: bool,
    gates: FeatureGates,
    has_app_armor: fn() -> bool,
}

impl Admission {
    /// `allocatable`: resources for all pods; `pods`: maximum number of pods.
    pub(crate) fn new(config: &Config, allocatable: &ResourceList, pods: u32) -> Self {
        // A zero means that the amount could not be detected: every machine has CPU and memory.
        let is_known = |name: &str, amount: &Quantity| !amount.is_zero() || name.starts_with(HUGE_PAGES_PREFIX);
        let countable = allocatable.iter().filter(|(name, amount)| is_known(name, amount));
        let resources = countable.map(|(name, amount)| (name, *amount)).collect();
        Self {
            sysctls: AllowedSysctls::new(&config.pods.allowed_unsafe_sysctls, host::kernel()),
            node: ThisNode::new(
                &config.node.name,
                host::MACHINE,
                &config.node.labels,
                config.gates.is_on(Gate::TaintTolerationComparisonOperators),
            ),
            room: FreeResources {
                resources,
                extended: ResourceList::new(),
                pods: i64::from(pods),
                claims_count: config.gates.is_on(Gate::DraExtendedResource),
            },
            static_pods_count: config.eviction.static_pods,
            gates: config.gates.clone(),
            has_app_armor: host::has_app_armor,
        }
    }

    /// Applies the labels, taints and extended resources of the Node object.
    pub(crate) fn in_cluster(&mut self, mut fields: NodeFields) {
        self.room.extended = std::mem::take(&mut fields.extended);
        self.node.in_cluster(fields);
    }

    /// Admits the pod beside `other_pods`, which are all pods that have not ended; returns the pods to preempt.
    /// `strict_groups`: the runtime supports the strict supplemental groups policy. `allocation`: the result of the
    /// resource managers. Device plugin resources (`is_device`) are already allocated.
    pub(crate) fn admit(
        &self,
        pod: &Pod,
        other_pods: &[&Pod],
        strict_groups: bool,
        allocation: Result<(), Rejection>,
        is_device: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<PodUid>, Rejection> {
        check_log_directory(pod)?;
        // In the order of upstream's handlers: the first that refuses gives the reason that users see.
        self.sysctls.check(pod)?;
        allocation?;
        self.node.check_os(pod)?;
        self.check_sidecars(pod)?;
        check_groups(pod, strict_groups)?;
        let lacks = fit::insufficient_resources(pod, other_pods, &self.room, is_device);
        let victims = self.make_room(pod, other_pods, &lacks)?;
        if app_armor::is_wanted(pod) {
            app_armor::check((self.has_app_armor)())?;
        }
        self.check_features(pod)?;
        Ok(victims)
    }

    /// Whether the resized pod fits beside `other_pods`; returns the pods to preempt. What does not grow needs no room.
    pub(crate) fn check_resize(
        &self,
        allocated: &Pod,
        wanted: &Pod,
        other_pods: &[&Pod],
        is_device: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<PodUid>, Rejection> {
        let is_of_pod = allocated.spec.resources != wanted.spec.resources;
        if is_of_pod && !self.gates.is_on(Gate::InPlacePodLevelResourcesVerticalScaling) {
            return Err(Rejection { reason: Reason::INFEASIBLE, message: NO_POD_LEVEL_RESIZE.to_owned() });
        }
        let mut lacks = fit::insufficient_resources(wanted, other_pods, &self.room, is_device);
        lacks.retain(|lack| lack.requested > fit::takes(allocated, &lack.resource));
        self.make_room(wanted, other_pods, &lacks)
    }

    /// For a critical pod, a problem that preemption cannot solve takes precedence.
    fn make_room(
        &self,
        pod: &Pod,
        other_pods: &[&Pod],
        lacks: &[InsufficientResource],
    ) -> Result<Vec<PodUid>, Rejection> {
        let misplaced = self.misplaced(pod, other_pods);
        let Some(first) = lacks.first() else { return misplaced.map_or_else(|| Ok(Vec::new()), Err) };
        if pod.is_spared(self.static_pods_count) {
            if let Some(misplaced) = misplaced {
                return Err(misplaced);
            }
            if let Some(victims) = preemption::victims(pod, other_pods, lacks, self.static_pods_count) {
                // Upstream counts each preempted pod under the first missing resource.
                victims.iter().for_each(|_| metrics::count(Count::Preemptions, &[&first.resource]));
                return Ok(victims);
            }
        }
        Err(Rejection { reason: first.reason(), message: first.to_string() })
    }

    /// Rejects a pod that needs a feature that the node does not declare (`declaredFeaturesAdmitHandler`).
    fn check_features(&self, pod: &Pod) -> Result<(), Rejection> {
        let has = |feature: &&str| DECLARED_FEATURES.contains(feature) && self.gates.has_feature(feature);
        let missing = required_features(pod).into_iter().filter(|feature| !has(feature)).collect::<Vec<_>>().join(", ");
        if missing.is_empty() {
            return Ok(());
        }
        let message = format!("Pod requires node features that are not available: {missing}");
        Err(Rejection { reason: Reason::POD_FEATURE_UNSUPPORTED, message })
    }

    /// Rejects a pod with sidecars while their gate is off (`predicateAdmitHandler`).
    fn check_sidecars(&self, pod: &Pod) -> Result<(), Rejection> {
        if self.gates.is_on(Gate::SidecarContainers) {
            return Ok(());
        }
        let Some(sidecar) = pod.spec.init_containers.iter().find(|container| container.is_sidecar()) else {
            return Ok(());
        };
        let message = format!("Init container {:?} may not have a non-default restartPolicy", sidecar.name);
        Err(Rejection { reason: Reason::INIT_CONTAINER_RESTART_POLICY_FORBIDDEN, message })
    }

    fn misplaced(&self, pod: &Pod, other_pods: &[&Pod]) -> Option<Rejection> {
        let mut detail = String::new();
        let (reason, why) = if !self.node.is_selected(pod) {
            (Reason::NODE_AFFINITY, "node(s) didn't match Pod's node affinity/selector")
        } else if !self.node.is_named(pod) {
            (Reason::NODE_NAME, "node(s) didn't match the requested node name")
        } else if let Some(conflict) = host_ports::conflict(pod, other_pods) {
            // Upstream does not say which port and pod.
            detail = [": ", &conflict].concat();
            (Reason::NODE_PORTS, "node(s) didn't have free ports for the requested pod ports")
        } else if !self.node.is_tolerated(pod) {
            (Reason::TAINT_TOLERATION, "node(s) had taints that the pod didn't tolerate")
        } else {
            return None;
        };
        let message = format!("Predicate {reason} failed: {why}{detail}");
        Some(Rejection { reason, message })
    }
}

const NO_POD_LEVEL_RESIZE: &str =
    "In-place resize of pod-level resources is turned off by the feature gate InPlacePodLevelResourcesVerticalScaling";

/// Rejects a pod whose logs can have no directory. Upstream tries for ever to create it.
fn check_log_directory(pod: &Pod) -> Result<(), Rejection> {
    let refused = |fault| Rejection { reason: Reason::POD_NAME_TOO_LONG, message: format!("Pod name is {fault}") };
    log_directory_fault(&pod.metadata).map_or(Ok(()), |fault| Err(refused(fault)))
}

fn check_groups(pod: &Pod, strict_groups: bool) -> Result<(), Rejection> {
    let policy = pod.spec.security_context.as_ref().and_then(|context| context.supplemental_groups_policy);
    if policy == Some(SupplementalGroupsPolicy::Strict) && !strict_groups {
        return Err(Rejection {
            reason: Reason::SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED,
            message: "SupplementalGroupsPolicy=Strict is not supported in this node".to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::{
        CPU, Container, ContainerPort, ContainerRestartRule, MEMORY, PodSecurityContext, RestartPolicy,
        RestartRuleAction, SecurityProfile, SecurityProfileType,
    };

    #[test]
    fn strict_supplemental_groups_need_runtime_support() {
        let mut pod = Pod::default();
        assert_eq!(check_groups(&pod, false), Ok(()));
        for (policy, expected) in [(SupplementalGroupsPolicy::Merge, true), (SupplementalGroupsPolicy::Strict, false)] {
            let supplemental_groups_policy = Some(policy);
            let context = PodSecurityContext { supplemental_groups_policy, ..PodSecurityContext::default() };
            pod.spec.security_context = Some(Box::new(context));
            assert_eq!(check_groups(&pod, false).is_ok(), expected);
            assert_eq!(check_groups(&pod, true), Ok(()));
        }
    }

    fn admission() -> Admission {
        admission_with(FeatureGates::default())
    }

    fn admission_with(gates: FeatureGates) -> Admission {
        let mut config = Config { gates, ..Config::default() };
        "node1".clone_into(&mut config.node.name);
        let allocatable = [(CPU, "1".parse().unwrap()), (MEMORY, Quantity::ZERO)].into_iter().collect();
        Admission::new(&config, &allocatable, 3)
    }

    fn pod(uid: &str, cpu: &str) -> Pod {
        let mut container = Container::default();
        container.resources.requests.insert(CPU, cpu.parse().unwrap());
        let mut pod = Pod::default();
        pod.metadata.uid = uid.into();
        pod.spec.containers = vec![container];
        pod
    }

    /// The reason and message of the rejection, or the pods to preempt.
    #[track_caller]
    fn check(pod: &Pod, others: &[&Pod], expected: Result<&[&str], (&str, &str)>) {
        let found = admission().admit(pod, others, false, Ok(()), &|_| false);
        let found = found.as_ref().map(|uids| uids.iter().map(PodUid::as_str).collect::<Vec<_>>());
        let found = found.as_deref().map_err(|refused| (refused.reason.as_str(), refused.message.as_str()));
        assert_eq!(found, expected);
    }

    const PORTS: (&str, &str) = (
        "NodePorts",
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports: \
                       TCP port 80 is used by /",
    );
    const AFFINITY: (&str, &str) =
        ("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector");
    const NAME: (&str, &str) = ("NodeName", "Predicate NodeName failed: node(s) didn't match the requested node name");

    #[test]
    fn metric_of_rejections_has_upstreams_reasons_only() {
        for (reason, counted) in [
            ("OutOfcpu", "OutOfcpu"),
            ("OutOfephemeral-storage", "OutOfephemeral-storage"),
            ("OutOfexample.com/fpga", "OutOfExtendedResources"),
            ("OutOfhugepages-2Mi", "OutOfExtendedResources"),
            ("TopologyAffinityError", "TopologyAffinityError"),
            ("TaintToleration", "Other"),
            ("NodePorts", "Other"),
            ("PodNameTooLong", "Other"),
        ] {
            let rejection = Rejection { reason: reason.to_owned().into(), message: String::new() };
            assert_eq!(rejection.counted_reason(), counted);
        }
    }

    #[test]
    fn pod_whose_log_directory_would_have_too_long_a_name_is_rejected() {
        let mut named = pod("123e4567-e89b-12d3-a456-426614174000", "400m");
        named.metadata.namespace = "n".repeat(63);
        named.metadata.name = "p".repeat(154);
        check(&named, &[], Ok(&[]));
        named.metadata.name.push('p');
        let message = format!(
            "Pod name is too long: the log directory {}_NAME_UID of pod {:?} has 256 bytes, and a file name may have 255",
            named.metadata.namespace, named.metadata.name
        );
        check(&named, &[], Err(("PodNameTooLong", &message)));
    }

    #[test]
    fn app_armor_profile_that_is_not_loaded_is_left_to_the_runtime_of_a_host_with_app_armor() {
        let kind = Some(SecurityProfileType::Localhost);
        let profile = SecurityProfile { kind, localhost_profile: Some("not-loaded-yet".to_owned()) };
        let context = PodSecurityContext { app_armor_profile: Some(profile), ..PodSecurityContext::default() };
        let mut confined = pod("p", "1");
        confined.spec.security_context = Some(Box::new(context));
        let admit = |has_app_armor, pod: &Pod| {
            let admission = Admission { has_app_armor, ..admission() };
            admission.admit(pod, &[], false, Ok(()), &|_| false).map_err(|refused| refused.reason)
        };
        assert_eq!(admit(|| true, &confined), Ok(vec![]));
        assert_eq!(admit(|| false, &confined), Err(Reason::APP_ARMOR));
        assert_eq!(admit(|| false, &pod("p", "1")), Ok(vec![]));
    }

    #[test]
    fn pod_is_rejected_for_the_first_failed_check() {
        let other = pod("o", "600m");
        check(&pod("p", "400m"), &[&other], Ok(&[]));
        let full = ("OutOfcpu", "Node didn't have enough resource: cpu, requested: 500, used: 600, capacity: 1000");
        let mut wanted = pod("p", "500m");
        check(&wanted, &[&other], Err(full));
        wanted.spec.node_name = "node2".to_owned();
        check(&wanted, &[&other], Err(full));
        check(&wanted, &[], Err(NAME));
        wanted.spec.node_selector.insert("none", String::new());
        check(&wanted, &[], Err(AFFINITY));
        let pods = ("OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3");
        check(&wanted, &[&other, &other, &other], Err(pods));
    }

    #[test]
    fn gates_that_are_off_reject_what_needs_them() {
        let restarts_all = |pod: &mut Pod| {
            let rule = ContainerRestartRule { action: RestartRuleAction::RestartAllContainers, exit_codes: None };
            pod.spec.containers[0].restart_policy_rules = vec![rule];
        };
        let sidecar = |pod: &mut Pod| {
            let restart_policy = Some(RestartPolicy::Always);
            pod.spec.init_containers =
                vec![Container { name: "mesh".to_owned(), restart_policy, ..Container::default() }];
        };
        let claimed = |pod: &mut Pod| {
            pod.spec.containers[0].resources.requests.insert("example.com/fpga", "1".parse().unwrap());
            let mapping = json!({"containerName": "", "resourceName": "example.com/fpga", "requestName": "r"});
            let status = json!({"resourceClaimName": "c", "requestMappings": [mapping]});
            pod.status.extended_resource_claim_status = Some(Box::new(status));
        };
        #[track_caller]
        fn check(gate: Gate, change: impl Fn(&mut Pod), reason: &str) {
            let mut wanted = pod("p", "100m");
            change(&mut wanted);
            let admit = |gates| {
                let mut admission = admission_with(gates);
                admission.room.extended.insert("example.com/fpga", Quantity::ZERO);
                admission.admit(&wanted, &[], false, Ok(()), &|_| false).map_err(|refused| refused.reason.to_string())
            };
            assert_eq!(admit(FeatureGates::default()), Ok(vec![]), "{gate:?}");
            assert_eq!(admit(FeatureGates::default().with(gate, false)), Err(reason.to_owned()), "{gate:?}");
        }
        check(Gate::RestartAllContainersOnContainerExits, restarts_all, "PodFeatureUnsupported");
        check(Gate::SidecarContainers, sidecar, "InitContainerRestartPolicyForbidden");
        check(Gate::DraExtendedResource, claimed, "OutOfexample.com/fpga");
    }

    #[test]
    fn pod_level_resize_follows_its_gate() {
        let (allocated, mut wanted) = (pod("p", "100m"), pod("p", "100m"));
        wanted.spec.resources = Some(Box::default());
        let check = |gates| admission_with(gates).check_resize(&allocated, &wanted, &[], &|_| false);
        assert_eq!(check(FeatureGates::default()), Ok(vec![]));
        let off = FeatureGates::default().with(Gate::InPlacePodLevelResourcesVerticalScaling, false);
        assert_eq!(check(off).unwrap_err().reason, Reason::INFEASIBLE);
    }

    #[test]
    fn two_pods_cannot_share_a_host_port() {
        let mut one = pod("1", "0");
        one.spec.containers[0].ports = vec![ContainerPort { host_port: 80, ..ContainerPort::default() }];
        check(&one, &[&one], Err(PORTS));
    }

    #[test]
    fn preemption_happens_only_if_all_other_checks_pass() {
        let other = pod("o", "600m");
        let mut critical = pod("c", "500m");
        critical.spec.priority = Some(2_000_001_000);
        check(&critical, &[&other], Ok(&["o"]));
        assert_eq!(metrics::labels_of(Count::Preemptions), ["cpu"]);
        critical.spec.node_selector.insert("none", String::new());
        check(&critical, &[&other], Err(AFFINITY));
        // Even the whole node is not enough.
        let mut large = pod("c", "2");
        large.spec.priority = Some(2_000_001_000);
        let message = "Node didn't have enough resource: cpu, requested: 2000, used: 600, capacity: 1000";
        check(&large, &[&other], Err(("OutOfcpu", message)));
    }

    #[test]
    fn unknown_resource_rejects_no_pod() {
        let mut wanted = pod("p", "1");
        wanted.spec.containers[0].resources.requests.insert(MEMORY, "1Ti".parse().unwrap());
        check(&wanted, &[], Ok(&[]));
    }
}
