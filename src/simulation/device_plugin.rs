//! A device plugin. A container's device is in its environment.

use std::cell::RefCell;

use async_channel::Sender;

use super::container_runtime::ContainerRuntime;
use super::plugin::{Empty, Service};
use super::record::{Record, Rule};
use crate::platform::cri::v1;
use crate::platform::rpc::Reply;
use crate::protocol::grpc::{Code, Status};
use crate::protocol::protobuf::{decode, encode, message};
use crate::types::sorted::SortedMap;

pub(super) const RESOURCE: &str = "example.com/camera";
const VARIABLE: &str = "CAMERA";
/// More than the number of pods at any time, including ending ones.
const PLUGIN_DEVICES: usize = 64;

message! {
    struct Options {
        1 => pre_start_required: bool,
    }

    struct Devices {
        1 => devices: Vec<Device>,
    }

    struct Device {
        1 => id: String,
        2 => health: String,
    }

    struct AllocateRequest {
        1 => containers: Vec<Ids>,
    }

    struct Ids {
        1 => ids: Vec<String>,
    }

    struct AllocateResponse {
        1 => containers: Vec<Allocated>,
    }

    struct Allocated {
        1 => envs: SortedMap<String, String>,
    }
}

type Messages = Sender<Result<Vec<u8>, Status>>;

#[derive(Default)]
pub(super) struct Cameras {
    /// Open streams. They end with their connections.
    lists: RefCell<Vec<Messages>>,
}

impl Service for Cameras {
    const INFO: [&'static str; 3] = ["DevicePlugin", RESOURCE, "v1beta1"];

    fn handle(&self, method: &str, message: &[u8]) -> Result<Reply, Status> {
        match method {
            "GetDevicePluginOptions" => Ok(Reply::Message(encode(&Options { pre_start_required: true }))),
            "ListAndWatch" => {
                let (sender, receiver) = async_channel::bounded(1);
                let device = |number: usize| Device { id: format!("camera-{number}"), health: "Healthy".to_owned() };
                // The queue has room for one message.
                let _ = sender.try_send(Ok(encode(&Devices { devices: (0..PLUGIN_DEVICES).map(device).collect() })));
                let mut lists = self.lists.borrow_mut();
                lists.retain(|list| !list.is_closed());
                lists.push(sender);
                Ok(Reply::Stream(receiver))
            }
            "Allocate" => {
                let request: AllocateRequest = decode(message).unwrap_or_default();
                let allocated =
                    |ids: &Ids| Allocated { envs: std::iter::once((VARIABLE.to_owned(), ids.ids.join(","))).collect() };
                let containers = request.containers.iter().map(allocated).collect();
                Ok(Reply::Message(encode(&AllocateResponse { containers })))
            }
            "PreStartContainer" => Ok(Reply::Message(encode(&Empty {}))),
            other => Err(Status::new(Code::Unimplemented, other)),
        }
    }
}

/// The device of a container.
pub(super) fn device_of(config: &v1::ContainerConfig) -> Option<String> {
    let device = config.envs.iter().find(|env| env.key == VARIABLE)?;
    Some(String::from_utf8_lossy(&device.value).into_owned())
}

/// Checks that no two running containers have the same device.
pub(super) fn check(runtime: &ContainerRuntime, record: &Record) {
    let mut owners: Vec<(String, String)> = Vec::new();
    let survivors = runtime.survivors.borrow();
    runtime.look(|runtime| {
        let running = runtime.world.containers.iter().filter(|one| one.state == v1::ContainerState::Running);
        let survivors = survivors.iter().filter_map(|one| one.container.as_ref());
        for container in running.chain(survivors) {
            let Some(device) = device_of(&container.config) else { continue };
            let owner = container.config.labels.get("io.kubernetes.pod.name").cloned().unwrap_or_default();
            if let Some((_, other)) = owners.iter().find(|(taken, _)| *taken == device) {
                record.violated(Rule::DeviceOnce, format!("{device} belongs to {other} and to {owner}"));
            }
            owners.push((device, owner));
        }
    });
}
