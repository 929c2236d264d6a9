//! Device plugin API messages, encoded and decoded with prost as an independent protobuf implementation.

use std::collections::HashMap;

pub(crate) use crate::grpc_plugin::{PluginInfo, RegistrationStatus};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DevicePluginOptions {
    #[prost(bool, tag = "1")]
    pub(crate) pre_start_required: bool,
    #[prost(bool, tag = "2")]
    pub(crate) get_preferred_allocation_available: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RegisterRequest {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(string, tag = "2")]
    pub(crate) endpoint: String,
    #[prost(string, tag = "3")]
    pub(crate) resource_name: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) options: Option<DevicePluginOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListAndWatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<Device>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Device {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, tag = "2")]
    pub(crate) health: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) topology: Option<Topology>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Topology {
    #[prost(message, repeated, tag = "1")]
    pub(crate) nodes: Vec<NumaNode>,
}

impl Topology {
    pub(crate) fn near(node: i64) -> Self {
        Self { nodes: vec![NumaNode { id: node }] }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NumaNode {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// `AllocateRequest` and `PreferredAllocationRequest`, with the fields that tests read.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ForContainers {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_requests: Vec<Ids>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ids {
    #[prost(string, repeated, tag = "1")]
    pub(crate) ids: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) must_include: Vec<String>,
    #[prost(int32, tag = "3")]
    pub(crate) size: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AllocateResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) container_responses: Vec<ContainerAllocateResponse>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerAllocateResponse {
    #[prost(map = "string, string", tag = "1")]
    pub(crate) envs: HashMap<String, String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) mounts: Vec<Mount>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) devices: Vec<DeviceSpec>,
    #[prost(map = "string, string", tag = "4")]
    pub(crate) annotations: HashMap<String, String>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) cdi_devices: Vec<CdiDevice>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Mount {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(bool, tag = "3")]
    pub(crate) read_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeviceSpec {
    #[prost(string, tag = "1")]
    pub(crate) container_path: String,
    #[prost(string, tag = "2")]
    pub(crate) host_path: String,
    #[prost(string, tag = "3")]
    pub(crate) permissions: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CdiDevice {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ListPodResources {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pod_resources: Vec<PodResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodResources {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) namespace: String,
    #[prost(message, repeated, tag = "3")]
    pub(crate) containers: Vec<ContainerResources>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerResources {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) devices: Vec<ContainerDevices>,
    #[prost(int64, repeated, tag = "3")]
    pub(crate) cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) memory: Vec<ContainerMemory>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerMemory {
    #[prost(string, tag = "1")]
    pub(crate) memory_type: String,
    #[prost(uint64, tag = "2")]
    pub(crate) size: u64,
    #[prost(message, optional, tag = "3")]
    pub(crate) topology: Option<Topology>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerDevices {
    #[prost(string, tag = "1")]
    pub(crate) resource_name: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) device_ids: Vec<String>,
    #[prost(message, optional, tag = "3")]
    pub(crate) topology: Option<Topology>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Allocatable {
    #[prost(message, repeated, tag = "1")]
    pub(crate) devices: Vec<ContainerDevices>,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) memory: Vec<ContainerMemory>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetPodResources {
    #[prost(string, tag = "1")]
    pub(crate) pod_name: String,
    #[prost(string, tag = "2")]
    pub(crate) pod_namespace: String,
}
