//! The Node object. Pure.
//!
//! Fields that others write are decoded leniently: an unknown word must not make the rest unreadable.

use std::borrow::Cow;

use serde_json::Value;

use super::metadata::ObjectMeta;
use super::pod::V1;
use super::reason::Reason;
use super::resources::ResourceList;
use super::time::Time;

object! {
    pub struct Node {
        @always {
            api_version: V1,
            kind: NodeKind,
            metadata: ObjectMeta,
            spec: NodeSpec,
            status: NodeStatus,
        }
    }
}

words! {
    #[derive(Default)]
    pub enum NodeKind {
        #[default]
        Node = "Node",
    }
}

object! {
    pub struct NodeSpec {
        pod_cidr: String = "podCIDR",
        pod_cidrs: Vec<String> = "podCIDRs",
        provider_id: String = "providerID",
        unschedulable: bool,
        taints: Vec<Taint>,
    }
}

object! {
    pub struct Taint {
        @always {
            key: String,
            effect: Cow<'static, str>,
        }
        value: String,
        time_added: Option<Time>,
    }
}

object! {
    pub struct NodeStatus {
        capacity: ResourceList,
        allocatable: ResourceList,
        conditions: Vec<NodeCondition>,
        addresses: Vec<NodeAddress>,
        daemon_endpoints: NodeDaemonEndpoints,
        node_info: NodeSystemInfo,
        images: Vec<ContainerImage>,
        volumes_in_use: Vec<String>,
        volumes_attached: Vec<Value>,
        runtime_handlers: Vec<NodeRuntimeHandler>,
        features: Option<NodeFeatures>,
        declared_features: Vec<String>,
    }
}

object! {
    pub struct NodeCondition {
        @always {
            kind: Cow<'static, str> = "type",
            status: Cow<'static, str>,
            last_heartbeat_time: Option<Time>,
            last_transition_time: Option<Time>,
        }
        reason: Reason,
        message: String,
    }
}

object! {
    pub struct NodeAddress {
        @always {
            kind: Cow<'static, str> = "type",
            address: String,
        }
    }
}

object! {
    pub struct NodeDaemonEndpoints {
        kubelet_endpoint: DaemonEndpoint,
    }
}

object! {
    pub struct DaemonEndpoint {
        @always {
            port: i32 = "Port",
        }
    }
}

object! {
    pub struct NodeSystemInfo {
        @always {
            machine_id: String = "machineID",
            system_uuid: String = "systemUUID",
            boot_id: String = "bootID",
            kernel_version: String,
            os_image: String,
            container_runtime_version: String,
            kubelet_version: String,
            /// Deprecated upstream: always empty, always written.
            kube_proxy_version: String,
            operating_system: Cow<'static, str>,
            architecture: Cow<'static, str>,
        }
        swap: Option<NodeSwapStatus>,
    }
}

object! {
    pub struct NodeSwapStatus {
        /// In bytes.
        capacity: Option<i64>,
    }
}

object! {
    pub struct ContainerImage {
        @always {
            names: Vec<String>,
        }
        size_bytes: i64,
    }
}

object! {
    pub struct NodeRuntimeHandler {
        @always {
            /// Empty for the default handler.
            name: String,
        }
        features: Option<NodeRuntimeHandlerFeatures>,
    }
}

object! {
    pub struct NodeRuntimeHandlerFeatures {
        recursive_read_only_mounts: Option<bool>,
        user_namespaces: Option<bool>,
    }
}

object! {
    pub struct NodeFeatures {
        supplemental_groups_policy: Option<bool>,
    }
}
