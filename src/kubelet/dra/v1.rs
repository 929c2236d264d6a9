//! The messages of the `DRAPlugin` service. Versions v1 and v1beta1 have the same. Pure.

use crate::protocol::protobuf::message;

/// The services that the kubelet can call, as plugins name them.
pub(super) const SERVICES: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];

message! {
    /// NodePrepareResourcesRequest and NodeUnprepareResourcesRequest.
    pub(super) struct ClaimsRequest {
        1 => claims: Vec<Claim>,
    }

    pub(super) struct Claim {
        1 => namespace: String,
        2 => uid: String,
        3 => name: String,
    }

    /// NodePrepareResourcesResponse, a map by the claim's uid.
    pub(super) struct PrepareResponse {
        1 => claims: Vec<PrepareEntry>,
    }

    pub(super) struct PrepareEntry {
        1 => uid: String,
        2 => result: Option<PrepareResult>,
    }

    pub(super) struct PrepareResult {
        1 => devices: Vec<Device>,
        2 => error: String,
    }

    pub(super) struct Device {
        /// Empty: for all requests of the claim.
        1 => request_names: Vec<String>,
        2 => pool_name: String,
        3 => device_name: String,
        4 => cdi_device_ids: Vec<String>,
        5 => share_id: String,
    }

    /// NodeUnprepareResourcesResponse.
    pub(super) struct UnprepareResponse {
        1 => claims: Vec<UnprepareEntry>,
    }

    pub(super) struct UnprepareEntry {
        1 => uid: String,
        2 => result: Option<UnprepareResult>,
    }

    pub(super) struct UnprepareResult {
        1 => error: String,
    }

    pub(super) struct Empty {}

    /// NodeWatchResourcesResponse of the `DRAResourceHealth` service: all devices of the driver.
    pub(super) struct HealthResponse {
        1 => devices: Vec<DeviceHealth>,
    }

    pub(super) struct DeviceHealth {
        1 => device: Option<DeviceIdentifier>,
        /// 0: unknown, 1: healthy, 2: unhealthy.
        2 => health: i32,
        4 => timeout_seconds: i64,
        5 => message: String,
    }

    pub(super) struct DeviceIdentifier {
        1 => pool_name: String,
        2 => device_name: String,
    }
}
