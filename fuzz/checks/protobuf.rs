//! CRI messages: decoded messages must round-trip. The first byte selects the message type.

use coracle::platform::cri::v1::*;
use coracle::protocol::protobuf::{Message, decode, encode};

pub(crate) fn check(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let messages = [
        stays::<ContainerEventResponse>,
        stays::<ContainerStatsResponse>,
        stays::<ContainerStatusResponse>,
        stays::<CreateContainerRequest>,
        stays::<ExecSyncResponse>,
        stays::<ImageFsInfoResponse>,
        stays::<ImageStatusResponse>,
        stays::<ListContainersResponse>,
        stays::<ListContainerStatsResponse>,
        stays::<ListImagesResponse>,
        stays::<ListPodSandboxResponse>,
        stays::<PodSandboxStatsResponse>,
        stays::<PodSandboxStatusResponse>,
        stays::<PullImageResponse>,
        stays::<RunPodSandboxRequest>,
        stays::<RuntimeConfigResponse>,
        stays::<StatusResponse>,
        stays::<UpdateContainerResourcesRequest>,
        stays::<VersionResponse>,
    ];
    if let Some(stays) = messages.get(usize::from(*choice) % messages.len()) {
        stays(bytes);
    }
}

fn stays<M: Message + Default>(bytes: &[u8]) {
    let Ok(message) = decode::<M>(bytes) else { return };
    let written = encode(&message);
    let again: M = decode(&written).expect("encoded message decodes");
    // Compares bytes and not messages: a number may be NaN.
    assert_eq!(encode(&again), written);
}
