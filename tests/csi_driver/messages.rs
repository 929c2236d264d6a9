//! CSI messages, encoded and decoded with prost as an independent protobuf implementation.

use std::collections::HashMap;

type Texts = HashMap<String, String>;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NodeInfo {
    #[prost(string, tag = "1")]
    pub(crate) node_id: String,
    #[prost(int64, tag = "2")]
    pub(crate) max_volumes_per_node: i64,
    #[prost(message, optional, tag = "3")]
    pub(crate) accessible_topology: Option<Topology>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Topology {
    #[prost(map = "string, string", tag = "1")]
    pub(crate) segments: Texts,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Capabilities {
    #[prost(message, repeated, tag = "1")]
    pub(crate) capabilities: Vec<Capability>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Capability {
    #[prost(message, optional, tag = "1")]
    pub(crate) rpc: Option<Rpc>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Rpc {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct VolumeCapability {
    #[prost(oneof = "AccessType", tags = "1, 2")]
    pub(crate) access_type: Option<AccessType>,
    #[prost(message, optional, tag = "3")]
    pub(crate) access_mode: Option<Rpc>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum AccessType {
    #[prost(message, tag = "1")]
    Block(Empty),
    #[prost(message, tag = "2")]
    Mount(MountVolume),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MountVolume {
    #[prost(string, tag = "1")]
    pub(crate) fs_type: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) mount_flags: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) volume_mount_group: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Stage {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) publish_context: Texts,
    #[prost(string, tag = "3")]
    pub(crate) staging_target_path: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) volume_capability: Option<VolumeCapability>,
    #[prost(map = "string, string", tag = "5")]
    pub(crate) secrets: Texts,
    #[prost(map = "string, string", tag = "6")]
    pub(crate) volume_context: Texts,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Publish {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(map = "string, string", tag = "2")]
    pub(crate) publish_context: Texts,
    #[prost(string, tag = "3")]
    pub(crate) staging_target_path: String,
    #[prost(string, tag = "4")]
    pub(crate) target_path: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) volume_capability: Option<VolumeCapability>,
    #[prost(bool, tag = "6")]
    pub(crate) readonly: bool,
    #[prost(map = "string, string", tag = "7")]
    pub(crate) secrets: Texts,
    #[prost(map = "string, string", tag = "8")]
    pub(crate) volume_context: Texts,
}

/// `NodeGetVolumeStatsRequest`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Ask {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) volume_path: String,
}

/// `NodeGetVolumeStatsResponse`
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Usages {
    #[prost(message, repeated, tag = "1")]
    pub(crate) usage: Vec<Usage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Usage {
    #[prost(int64, tag = "1")]
    pub(crate) available: i64,
    #[prost(int64, tag = "2")]
    pub(crate) total: i64,
    #[prost(int64, tag = "3")]
    pub(crate) used: i64,
    /// 1: bytes, 2: inodes.
    #[prost(int32, tag = "4")]
    pub(crate) unit: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Expand {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) volume_path: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) capacity_range: Option<CapacityRange>,
    #[prost(string, tag = "4")]
    pub(crate) staging_target_path: String,
    #[prost(message, optional, tag = "5")]
    pub(crate) volume_capability: Option<VolumeCapability>,
    #[prost(map = "string, string", tag = "6")]
    pub(crate) secrets: Texts,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CapacityRange {
    #[prost(int64, tag = "1")]
    pub(crate) required_bytes: i64,
    #[prost(int64, tag = "2")]
    pub(crate) limit_bytes: i64,
}

/// `NodeUnpublishVolumeRequest` and `NodeUnstageVolumeRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Undo {
    #[prost(string, tag = "1")]
    pub(crate) volume_id: String,
    #[prost(string, tag = "2")]
    pub(crate) path: String,
}
