//! Deployments, DaemonSets and StatefulSets of manifests, as far as they have a meaning on one node. Pure.

use super::affinity::LabelSelector;
use super::int_or_string::IntOrString;
use super::metadata::{Dropped, ObjectMeta};
use super::pod::PodSpec;
use super::volume_claim::VolumeClaim;

object! {
    /// An `apps/v1` object that has a template of pods. Its fields are those of all kinds.
    pub struct Workload {
        api_version: String,
        kind: String,
        metadata: ObjectMeta,
        spec: WorkloadSpec,
        status: Dropped,
    }
}

object! {
    pub struct WorkloadSpec {
        replicas: Option<i32>,
        selector: Option<LabelSelector>,
        template: PodTemplate,
        strategy: UpdateStrategy,
        /// Of DaemonSets and StatefulSets.
        update_strategy: UpdateStrategy,
        progress_deadline_seconds: Option<i32>,
        revision_history_limit: Option<i32>,
        paused: bool,
        service_name: String,
        volume_claim_templates: Vec<VolumeClaim>,
    }
}

object! {
    pub struct PodTemplate {
        metadata: ObjectMeta,
        spec: PodSpec,
    }
}

object! {
    pub struct UpdateStrategy {
        strategy_type: Option<UpdateStrategyType> = "type",
        rolling_update: Option<RollingUpdate>,
    }
}

object! {
    pub struct RollingUpdate {
        max_surge: Option<IntOrString>,
        max_unavailable: Option<IntOrString>,
        partition: i32,
    }
}

words! {
    pub enum UpdateStrategyType {
        OnDelete = "OnDelete",
        Recreate = "Recreate",
        RollingUpdate = "RollingUpdate",
    }
}
