//! The pod and its spec. Pure.

use std::cmp::Ordering;
use std::time::Duration;

use super::affinity::Affinity;
use super::container::Container;
use super::map::Map;
use super::metadata::{Dropped, ObjectMeta};
use super::pod_status::PodStatus;
use super::quantity::Quantity;
use super::resources::ResourceRequirements;
use super::security::PodSecurityContext;
use super::text_objects::{PodResourceClaims, PodSchedulingGates};
use super::texts::{Texts, Unread, UnreadList};
use super::volume::Volume;
use crate::types::sorted::SortedMap;

object! {
    pub struct Pod {
        @always {
            api_version: V1,
            kind: PodKind,
            metadata: ObjectMeta,
            spec: PodSpec,
            status: PodStatus,
        }
    }
}

words! {
    #[derive(Default)]
    pub enum V1 {
        #[default]
        V1 = "v1",
    }
}

words! {
    #[derive(Default)]
    pub enum PodKind {
        #[default]
        Pod = "Pod",
    }
}

object! {
    pub struct PodSpec {
        @always {
            containers: Vec<Container>,
        }
        init_containers: Vec<Container>,
        ephemeral_containers: Vec<Container>,
        volumes: Vec<Volume>,
        restart_policy: RestartPolicy,
        termination_grace_period_seconds: Option<i64>,
        active_deadline_seconds: Option<i64>,
        node_name: String,
        node_selector: Map<String>,
        service_account_name: String,
        /// Deprecated alias of `serviceAccountName`.
        service_account: String,
        automount_service_account_token: Option<bool>,
        host_network: bool,
        host_pid: bool = "hostPID",
        host_ipc: bool = "hostIPC",
        host_users: Option<bool>,
        share_process_namespace: Option<bool>,
        security_context: Option<Box<PodSecurityContext>>,
        image_pull_secrets: Vec<LocalObjectReference>,
        hostname: String,
        subdomain: String,
        set_hostname_as_fqdn: Option<bool> = "setHostnameAsFQDN",
        hostname_override: Option<String>,
        dns_policy: DnsPolicy,
        dns_config: Option<Box<PodDnsConfig>>,
        host_aliases: Vec<HostAlias>,
        enable_service_links: Option<bool>,
        tolerations: Vec<Toleration>,
        priority_class_name: String,
        priority: Option<i32>,
        preemption_policy: String,
        readiness_gates: Vec<PodReadinessGate>,
        runtime_class_name: Option<String>,
        overhead: Map<Quantity>,
        /// Pod-level resources.
        resources: Option<Box<ResourceRequirements>>,
        resource_claims: PodResourceClaims,
        os: Option<PodOs>,
        scheduler_name: String,
        affinity: Option<Box<Affinity>>,
        topology_spread_constraints: UnreadList,
        scheduling_gates: PodSchedulingGates,
        scheduling_group: Option<Unread>,
        workload_ref: Option<Unread>,
        deprecated_service_account: Dropped,
    }
}

words! {
    /// Also used for single containers: `Always` makes an init container a sidecar.
    #[derive(Default)]
    pub enum RestartPolicy {
        #[default]
        Always = "Always",
        Never = "Never",
        OnFailure = "OnFailure",
    }
}

words! {
    #[derive(Default)]
    pub enum DnsPolicy {
        #[default]
        ClusterFirst = "ClusterFirst",
        ClusterFirstWithHostNet = "ClusterFirstWithHostNet",
        Default = "Default",
        None = "None",
    }
}

object! {
    pub struct PodDnsConfig {
        nameservers: Vec<String>,
        searches: Vec<String>,
        options: Vec<PodDnsConfigOption>,
    }
}

object! {
    pub struct PodDnsConfigOption {
        name: String,
        value: Option<String>,
    }
}

object! {
    pub struct HostAlias {
        ip: String,
        hostnames: Texts,
    }
}

object! {
    pub struct LocalObjectReference {
        name: String,
    }
}

object! {
    pub struct PodReadinessGate {
        condition_type: String,
    }
}

object! {
    pub struct PodOs {
        name: String,
    }
}

object! {
    pub struct Toleration {
        key: String,
        /// Absent means `Equal`.
        operator: Option<TolerationOperator>,
        value: String,
        /// Absent means every effect.
        effect: Option<TaintEffect>,
        toleration_seconds: Option<i64>,
    }
}

words! {
    pub enum TolerationOperator {
        Equal = "Equal",
        Exists = "Exists",
        Gt = "Gt",
        Lt = "Lt",
    }
}

words! {
    pub enum TaintEffect {
        NoExecute = "NoExecute",
        NoSchedule = "NoSchedule",
        PreferNoSchedule = "PreferNoSchedule",
    }
}

impl Toleration {
    /// Whether it tolerates a taint. `compares`: `Gt` and `Lt` compare values; otherwise they never match.
    pub fn tolerates(&self, key: &str, value: &str, effect: &str, compares: bool) -> bool {
        self.effect.is_none_or(|tolerated| tolerated.as_str() == effect)
            && (self.key.is_empty() || self.key == key)
            && match self.operator.unwrap_or(TolerationOperator::Equal) {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => self.value == value,
                TolerationOperator::Gt => compares && self.compared(value) == Some(Ordering::Greater),
                TolerationOperator::Lt => compares && self.compared(value) == Some(Ordering::Less),
            }
    }

    /// How the taint's value compares with this one. Both are decimal integers (`compareNumericValues`).
    fn compared(&self, of_taint: &str) -> Option<Ordering> {
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| number.to_string() == text);
        Some(number(of_taint)?.cmp(&number(&self.value)?))
    }
}

impl PodSpec {
    /// `terminationGracePeriodSeconds`, or the API's default.
    pub fn termination_grace(&self) -> Duration {
        self.termination_grace_period_seconds.map_or(Duration::from_secs(30), grace_of_seconds)
    }

    /// Every container: init, main, ephemeral.
    pub fn all_containers(&self) -> impl Iterator<Item = &Container> {
        self.init_containers.iter().chain(&self.containers).chain(&self.ephemeral_containers)
    }

    /// For work that looks up many names.
    pub fn containers_by_name(&self) -> SortedMap<&str, &Container> {
        self.all_containers().map(|container| (container.name.as_str(), container)).collect()
    }
}

/// A grace period from a spec. A negative one counts as one second, as with the kubelet. Capped, so that adding it to a
/// clock cannot overflow.
pub fn grace_of_seconds(seconds: i64) -> Duration {
    let seconds = u64::try_from(seconds).unwrap_or(1);
    Duration::from_secs(seconds.min(i32::MAX.unsigned_abs().into()))
}

/// `name_namespace`, upstream's full name of a pod.
pub fn full_name(name: &str, namespace: &str) -> String {
    [name, "_", namespace].concat()
}

impl Pod {
    /// The grace period of a deleted pod: that of the deletion, or else that of its spec.
    pub fn deletion_grace(&self) -> Duration {
        let seconds = self.metadata.deletion_grace_period_seconds;
        seconds.map_or_else(|| self.spec.termination_grace(), grace_of_seconds)
    }

    pub fn full_name(&self) -> String {
        full_name(&self.metadata.name, &self.metadata.namespace)
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.get(key).map(String::as_str)
    }

    /// Whether the pod comes from an API server.
    pub fn is_of_cluster(&self) -> bool {
        self.annotation(annotations::CONFIG_SOURCE).is_some_and(|source| source == "api")
    }

    /// Whether the pod is a static pod: from any source but the API server.
    pub fn is_static(&self) -> bool {
        self.annotation(annotations::CONFIG_SOURCE).is_some_and(|source| source != "api")
    }

    /// Value of the label `static` of upstream's metrics.
    pub(crate) fn static_label(&self) -> &'static str {
        if self.is_static() { "true" } else { "" }
    }

    /// Whether the pod is a mirror pod, which represents a static pod in the API server.
    pub fn is_mirror(&self) -> bool {
        self.metadata.annotations.contains_key(annotations::CONFIG_MIRROR)
    }

    /// Whether the pod may preempt others and is exempt from eviction.
    pub fn is_critical(&self) -> bool {
        self.is_static() || self.is_mirror() || self.has_critical_priority()
    }

    /// Whether eviction and admission spare the pod. Upstream spares every static pod; with `static_pods_count` only
    /// the priority of a static pod counts.
    pub fn is_spared(&self, static_pods_count: bool) -> bool {
        if static_pods_count && self.is_static() { self.has_critical_priority() } else { self.is_critical() }
    }

    /// Whether its priority is that of the system's own pods.
    pub fn has_critical_priority(&self) -> bool {
        self.spec.priority.is_some_and(|priority| priority >= SYSTEM_CRITICAL_PRIORITY)
    }

    /// Whether something other than a running container decides that the pod is ready.
    pub fn has_readiness_check(&self) -> bool {
        !self.spec.readiness_gates.is_empty()
            || self.spec.all_containers().any(|container| container.readiness_probe.is_some())
    }
}

/// The lowest priority of the classes `system-cluster-critical` and `system-node-critical`.
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Annotations that the kubelet reads or writes.
pub mod annotations {
    /// The source of the pod: `file`, `http`, `api`.
    pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
    /// When the source first saw the pod.
    pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
    /// The hash of a static pod's manifest, from which the kubelet derives its uid.
    pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
    /// Prefix of a container name: its AppArmor profile, from before the API had a field for it.
    pub const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";
    /// In a mirror pod: the hash of its static pod.
    pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
    /// In a mirror pod: the ConfigMaps and Secrets of its static pod, which a mirror pod may not refer to.
    pub const MIRROR_LEAVES_OUT: &str = "coracle.dev/mirror-leaves-out";
    /// How long a new version of a manifest may take to become ready before the kubelet rolls it back.
    pub const READY_WITHIN: &str = "coracle.dev/ready-within";
    /// How often the node looks up the tags of the pod's images. An image whose tag has moved makes a new version.
    pub const AUTO_UPDATE: &str = "coracle.dev/auto-update";
    /// On a Secret of a manifest: the public key of the board for which its values are sealed.
    pub const SEALED_FOR: &str = "coracle.dev/sealed-for";
    /// How many versions of a manifest to keep.
    pub const KEEP_VERSIONS: &str = "coracle.dev/keep-versions";
    /// `false`: a new version of a manifest replaces the present one before its images are pulled.
    pub const PULL_FIRST: &str = "coracle.dev/pull-first";
    /// `true`: a new version of a manifest does not replace the present one while the board runs on its battery.
    pub const NEEDS_MAINS: &str = "coracle.dev/needs-mains";
    /// `true`: the pod's images are pulled at once, whatever windows and budgets say.
    pub const URGENT: &str = "coracle.dev/urgent";
    /// `true`: the pod shares no shim of the runtime with other pods.
    pub const OWN_SHIM: &str = "coracle.dev/own-shim";
    /// `true`: the pods of one owner are replaced by their new versions one after the other.
    pub const ONE_AT_A_TIME: &str = "coracle.dev/one-at-a-time";
    /// In the node's memory: the spec of the Job whose template the pod is.
    pub const JOB: &str = "coracle.dev/job";
    /// In the node's memory: the spec of the CronJob whose template the pod is, beside [`JOB`].
    pub const CRON_JOB: &str = "coracle.dev/cron-job";
    /// Of a pod that the node shows: what its next version waits for.
    pub const NEXT_VERSION: &str = "coracle.dev/next-version";
    /// `VOLUME/PATH`: the application holds a lock (flock) on this file while it must not be stopped.
    pub const UPDATE_LOCK: &str = "coracle.dev/update-lock";
    /// `true`: the node does not stop the pod by its own decision.
    pub const HOLD: &str = "coracle.dev/hold";
    /// How long a decision waits for [`UPDATE_LOCK`] and [`HOLD`] at most.
    pub const UPDATE_LOCK_LIMIT: &str = "coracle.dev/update-lock-limit";
    /// Of a pod that the node shows: who holds it, and what waits for that.
    pub const UPDATE_HELD: &str = "coracle.dev/update-held";
    /// Conditions on the devices that the pod's containers get, by resource: `{example.com/camera: {model: imx219}}`.
    pub const DEVICE_SELECTORS: &str = "coracle.dev/device-selectors";
    /// In the runtime's container annotations: the devices allocated to the container, and their options.
    pub const DEVICES: &str = "coracle.dev/devices";
    /// In the runtime's annotations of a static pod's sandbox and containers: the hash of the spec that they run.
    pub const SPEC_HASH: &str = "coracle.dev/spec-hash";

    /// Parses [`READY_WITHIN`] and [`UPDATE_LOCK_LIMIT`]: `90s`, `5m` or `1h`, up to a day.
    pub fn ready_within(text: &str) -> Option<std::time::Duration> {
        let (number, seconds) = [("s", 1), ("m", 60), ("h", 3600)]
            .into_iter()
            .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))?;
        // `parse` would accept a sign.
        let number = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse::<u64>().ok()).flatten()?;
        let seconds = number.checked_mul(seconds)?;
        (1..=86_400).contains(&seconds).then(|| std::time::Duration::from_secs(seconds))
    }

    /// Parses [`AUTO_UPDATE`], as [`ready_within`], from a minute.
    pub fn auto_update(text: &str) -> Option<std::time::Duration> {
        ready_within(text).filter(|interval| *interval >= std::time::Duration::from_secs(60))
    }

    /// Parses [`UPDATE_LOCK`]: the volume, and the path in it.
    pub fn update_lock(text: &str) -> Option<(&str, &str)> {
        let (volume, path) = text.split_once('/')?;
        let is_inside = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
        (!volume.is_empty() && is_inside).then_some((volume, path))
    }

    /// Parses [`HOLD`], [`NEEDS_MAINS`], [`ONE_AT_A_TIME`], [`PULL_FIRST`] and [`URGENT`].
    pub fn yes_or_no(text: &str) -> Option<bool> {
        match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        }
    }

    /// Parses [`KEEP_VERSIONS`]: 1 to 10.
    pub fn keep_versions(text: &str) -> Option<usize> {
        text.parse().ok().filter(|count| (1..=10).contains(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_deletion_grace_period_overflows_a_clock() {
        let mut pod = Pod::default();
        for (given, grace) in [(None, 30), (Some(7), 7), (Some(0), 0), (Some(-1), 1), (Some(i64::MAX), 2_147_483_647)] {
            pod.metadata.deletion_grace_period_seconds = given;
            assert_eq!(pod.deletion_grace(), Duration::from_secs(grace), "{given:?}");
        }
    }
}
