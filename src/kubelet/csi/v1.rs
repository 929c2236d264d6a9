//! The messages of `csi.v1.Node` in use. Pure.

use crate::protocol::protobuf::{decode, message};
use crate::types::sorted::SortedMap;

/// Driver capabilities (`NodeServiceCapability.RPC.Type`).
pub(super) const STAGE_UNSTAGE_VOLUME: i32 = 1;
pub(super) const GET_VOLUME_STATS: i32 = 2;
pub(super) const EXPAND_VOLUME: i32 = 3;
pub(super) const SINGLE_NODE_MULTI_WRITER: i32 = 5;
pub(super) const VOLUME_MOUNT_GROUP: i32 = 6;

message! {
    pub(super) struct Empty {}

    pub(super) struct NodeGetInfoResponse {
        1 => node_id: String,
        2 => max_volumes_per_node: i64,
        3 => accessible_topology: Option<Topology>,
    }

    pub(super) struct Topology {
        1 => segments: SortedMap<String, String>,
    }

    pub(super) struct NodeGetCapabilitiesResponse {
        1 => capabilities: Vec<NodeServiceCapability>,
    }

    pub(super) struct NodeServiceCapability {
        1 => rpc: Option<CapabilityRpc>,
    }

    pub(super) struct CapabilityRpc {
        1 => kind: i32,
    }

    pub(super) struct VolumeCapability {
        1 => block: Option<Empty>,
        2 => mount: Option<MountVolume>,
        3 => access_mode: Option<AccessMode>,
    }

    pub(super) struct MountVolume {
        1 => fs_type: String,
        2 => mount_flags: Vec<String>,
        3 => volume_mount_group: String,
    }

    pub(super) struct AccessMode {
        1 => mode: i32,
    }

    pub(super) struct NodeStageVolumeRequest {
        1 => volume_id: String,
        2 => publish_context: SortedMap<String, String>,
        3 => staging_target_path: String,
        4 => volume_capability: Option<VolumeCapability>,
        5 => secrets: SortedMap<String, String>,
        6 => volume_context: SortedMap<String, String>,
    }

    pub(super) struct NodePublishVolumeRequest {
        1 => volume_id: String,
        2 => publish_context: SortedMap<String, String>,
        3 => staging_target_path: String,
        4 => target_path: String,
        5 => volume_capability: Option<VolumeCapability>,
        6 => readonly: bool,
        7 => secrets: SortedMap<String, String>,
        8 => volume_context: SortedMap<String, String>,
    }

    pub(super) struct NodeExpandVolumeRequest {
        1 => volume_id: String,
        2 => volume_path: String,
        3 => capacity_range: Option<CapacityRange>,
        4 => staging_target_path: String,
        5 => volume_capability: Option<VolumeCapability>,
        6 => secrets: SortedMap<String, String>,
    }

    pub(super) struct CapacityRange {
        1 => required_bytes: i64,
    }

    pub(super) struct NodeExpandVolumeResponse {
        1 => capacity_bytes: i64,
    }

    /// `NodeUnpublishVolumeRequest` and `NodeUnstageVolumeRequest`.
    pub(super) struct UndoRequest {
        1 => volume_id: String,
        2 => path: String,
    }

    pub(super) struct NodeGetVolumeStatsRequest {
        1 => volume_id: String,
        2 => volume_path: String,
    }

    pub(super) struct NodeGetVolumeStatsResponse {
        1 => usage: Vec<VolumeUsage>,
    }

    pub(super) struct VolumeUsage {
        1 => available: i64,
        2 => total: i64,
        3 => used: i64,
        4 => unit: i32,
    }
}

/// Decodes a driver's answer as each message, for the fuzz targets.
pub fn check_answer(bytes: &[u8]) {
    let _ = decode::<NodeGetInfoResponse>(bytes);
    let _ = decode::<NodeGetCapabilitiesResponse>(bytes);
    let _ = decode::<NodeExpandVolumeResponse>(bytes);
    let _ = decode::<NodeGetVolumeStatsResponse>(bytes);
}
