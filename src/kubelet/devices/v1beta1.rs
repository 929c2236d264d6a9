//! The messages of deviceplugin v1beta1. Pure.

use crate::protocol::protobuf::{decode, message};
use crate::types::sorted::SortedMap;

/// The only version of the API.
pub(super) const DEVICE_PLUGIN_VERSION: &str = "v1beta1";
/// Health of a device that can be allocated.
pub(super) const HEALTHY: &str = "Healthy";

message! {
    pub(super) struct Empty {}

    pub(super) struct DevicePluginOptions {
        /// Call `PreStartContainer` before each container start.
        1 => pre_start_required: bool,
        /// The plugin supports GetPreferredAllocation.
        2 => get_preferred_allocation_available: bool,
    }

    pub(super) struct RegisterRequest {
        1 => version: String,
        /// Name of the plugin's socket, in the directory of the kubelet's socket.
        2 => endpoint: String,
        3 => resource_name: String,
        4 => options: Option<DevicePluginOptions>,
    }

    pub(super) struct ListAndWatchResponse {
        1 => devices: Vec<Device>,
    }

    pub(super) struct Device {
        1 => id: String,
        2 => health: String,
        3 => topology: Option<TopologyInfo>,
    }

    pub(super) struct TopologyInfo {
        1 => nodes: Vec<NumaNode>,
    }

    pub(super) struct NumaNode {
        1 => id: i64,
    }

    pub(super) struct PreStartContainerRequest {
        1 => devices_ids: Vec<String>,
    }

    pub(super) struct PreferredAllocationRequest {
        1 => container_requests: Vec<ContainerPreferredAllocationRequest>,
    }

    pub(super) struct ContainerPreferredAllocationRequest {
        1 => available_device_ids: Vec<String>,
        2 => must_include_device_ids: Vec<String>,
        3 => allocation_size: i32,
    }

    pub(super) struct PreferredAllocationResponse {
        1 => container_responses: Vec<ContainerPreferredAllocationResponse>,
    }

    pub(super) struct ContainerPreferredAllocationResponse {
        1 => device_ids: Vec<String>,
    }

    pub(super) struct AllocateRequest {
        1 => container_requests: Vec<ContainerAllocateRequest>,
    }

    pub(super) struct ContainerAllocateRequest {
        1 => devices_ids: Vec<String>,
    }

    pub(super) struct AllocateResponse {
        1 => container_responses: Vec<ContainerAllocateResponse>,
    }

    pub(super) struct ContainerAllocateResponse {
        1 => envs: SortedMap<String, String>,
        2 => mounts: Vec<Mount>,
        3 => devices: Vec<DeviceSpec>,
        4 => annotations: SortedMap<String, String>,
        5 => cdi_devices: Vec<CdiDevice>,
    }

    pub(super) struct Mount {
        1 => container_path: String,
        2 => host_path: String,
        3 => read_only: bool,
    }

    pub(super) struct DeviceSpec {
        1 => container_path: String,
        2 => host_path: String,
        /// Some of `r`, `w` and `m`.
        3 => permissions: String,
    }

    pub(super) struct CdiDevice {
        1 => name: String,
    }
}

/// Decodes a plugin's answer as each message, for the fuzz targets.
pub fn check_response(bytes: &[u8]) {
    let _ = decode::<DevicePluginOptions>(bytes);
    let _ = decode::<ListAndWatchResponse>(bytes);
    let _ = decode::<PreferredAllocationResponse>(bytes);
    let _ = decode::<AllocateResponse>(bytes);
    let _ = decode::<RegisterRequest>(bytes);
}
