//! Messages about the runtime: version, conditions, features, configuration. Pure.

use crate::protocol::protobuf::{message, open_enum};
use crate::types::sorted::SortedMap;

open_enum! {
    pub enum CgroupDriver {
        Systemd = 0,
        Cgroupfs = 1,
    }
}

message! {
    pub struct VersionRequest {
        1 => version: String,
    }

    pub struct VersionResponse {
        1 => version: String,
        2 => runtime_name: String,
        3 => runtime_version: String,
        4 => runtime_api_version: String,
    }

    /// `RuntimeReady`, `NetworkReady`, or a runtime-specific condition.
    pub struct RuntimeCondition {
        1 => r#type: String,
        2 => status: bool,
        3 => reason: String,
        4 => message: String,
    }

    pub struct RuntimeStatus {
        1 => conditions: Vec<RuntimeCondition>,
    }

    pub struct StatusRequest {
        1 => verbose: bool,
    }

    pub struct RuntimeHandlerFeatures {
        1 => recursive_read_only_mounts: bool,
        2 => user_namespaces: bool,
    }

    pub struct RuntimeHandler {
        /// Empty for the default handler.
        1 => name: String,
        2 => features: Option<RuntimeHandlerFeatures>,
    }

    pub struct RuntimeFeatures {
        1 => supplemental_groups_policy: bool,
        2 => user_namespaces_host_network: bool,
    }

    pub struct StatusResponse {
        1 => status: Option<RuntimeStatus>,
        /// Only if verbose: runtime-specific text, mostly JSON.
        2 => info: SortedMap<String, String>,
        3 => runtime_handlers: Vec<RuntimeHandler>,
        4 => features: Option<RuntimeFeatures>,
    }

    pub struct NetworkConfig {
        /// Comma-separated if there are several.
        1 => pod_cidr: String,
    }

    pub struct RuntimeConfig {
        1 => network_config: Option<NetworkConfig>,
    }

    pub struct UpdateRuntimeConfigRequest {
        1 => runtime_config: Option<RuntimeConfig>,
    }

    pub struct UpdateRuntimeConfigResponse {}

    pub struct RuntimeConfigRequest {}

    pub struct LinuxRuntimeConfiguration {
        1 => cgroup_driver: CgroupDriver,
    }

    pub struct RuntimeConfigResponse {
        1 => linux: Option<LinuxRuntimeConfiguration>,
    }
}
