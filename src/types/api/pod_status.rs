//! The status of a pod. Pure.

use std::borrow::Cow;

use serde_json::Value;

use super::container_status::ContainerStatus;
use super::map::Map;
use super::quantity::Quantity;
use super::reason::Reason;
use super::resources::ResourceRequirements;
use super::text_objects::PodResourceClaimStatuses;
use super::time::Time;

object! {
    pub struct PodStatus {
        observed_generation: i64,
        phase: PodPhase,
        conditions: Vec<PodCondition>,
        message: String,
        reason: Reason,
        nominated_node_name: String,
        host_ip: String = "hostIP",
        host_ips: Vec<Ip> = "hostIPs",
        pod_ip: String = "podIP",
        pod_ips: Vec<Ip> = "podIPs",
        start_time: Option<Time>,
        init_container_statuses: Vec<ContainerStatus>,
        container_statuses: Vec<ContainerStatus>,
        ephemeral_container_statuses: Vec<ContainerStatus>,
        qos_class: Option<QosClass>,
        resize: String,
        resource_claim_statuses: PodResourceClaimStatuses,
        extended_resource_claim_status: Option<Box<Value>>,
        allocated_resources: Map<Quantity>,
        resources: Option<Box<ResourceRequirements>>,
    }
}

words! {
    #[derive(Default)]
    pub enum PodPhase {
        #[default]
        Pending = "Pending",
        Running = "Running",
        Succeeded = "Succeeded",
        Failed = "Failed",
        Unknown = "Unknown",
    }
    lenient
}

impl PodStatus {
    pub fn is_ready(&self) -> bool {
        let is_true = |condition: &PodCondition| condition.status == ConditionStatus::True;
        self.conditions.iter().any(|condition| condition.kind == conditions::READY && is_true(condition))
    }
}

impl PodPhase {
    /// Whether no container of the pod will run again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

words! {
    pub enum QosClass {
        Guaranteed = "Guaranteed",
        Burstable = "Burstable",
        BestEffort = "BestEffort",
    }
    lenient
}

object! {
    pub struct Ip {
        ip: String,
    }
}

object! {
    pub struct PodCondition {
        @always {
            kind: Cow<'static, str> = "type",
            status: ConditionStatus,
            /// Never set; always written, as `null`.
            last_probe_time: Option<Time>,
            last_transition_time: Option<Time>,
        }
        observed_generation: i64,
        reason: Reason,
        message: String,
    }
}

words! {
    #[derive(Default)]
    pub enum ConditionStatus {
        True = "True",
        False = "False",
        #[default]
        Unknown = "Unknown",
    }
    lenient
}

/// The condition types that the kubelet writes.
pub mod conditions {
    pub const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
    pub const CONTAINERS_READY: &str = "ContainersReady";
    pub const DISRUPTION_TARGET: &str = "DisruptionTarget";
    pub const INITIALIZED: &str = "Initialized";
    pub const POD_READY_TO_START_CONTAINERS: &str = "PodReadyToStartContainers";
    pub const POD_RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
    pub const POD_RESIZE_PENDING: &str = "PodResizePending";
    pub const POD_SCHEDULED: &str = "PodScheduled";
    pub const READY: &str = "Ready";
    /// Of this program: the verdict of the node about the pod's version.
    pub const TRIAL: &str = "coracle.dev/Trial";
    /// Of this program: a decision of the node waits for the application.
    pub const UPDATE_HELD: &str = "coracle.dev/UpdateHeld";
}
