//! The methods: decode the request, change the world, encode the answer.

use std::sync::Arc;

use coracle::platform::cri::v1::*;
use coracle::protocol::grpc::{Code, Status};
use coracle::protocol::http2::StreamId;
use coracle::protocol::protobuf::{Message, decode, encode};

use super::connection::Wire;
use super::{Shared, World, containers};

pub(super) type Answer = Result<Vec<u8>, Status>;

/// Executes a call. Returns its answer, unless a thread sends the answers later.
pub(super) fn answer(shared: &Shared, wire: &Arc<Wire>, id: StreamId, method: &str, request: &[u8]) -> Option<Answer> {
    if method == "GetContainerEvents" && shared.change(|world| world.events.is_some()) {
        wire.begin(id);
        let wire = Arc::downgrade(wire);
        let tell = move |event: &[u8]| wire.upgrade().map(|wire| wire.message(id, event.to_vec())).is_some();
        shared.change(|world| world.events.get_or_insert_default().push(Box::new(tell)));
        return None;
    }
    if method == "StopContainer" {
        let stopped = read(request).and_then(|request| containers::stop(shared, &request));
        return Some(stopped.map(|()| encode(&StopContainerResponse {})));
    }
    Some(shared.change(|world| unary(world, method, request)))
}

/// Executes a unary call.
pub(super) fn unary(world: &mut World, method: &str, request: &[u8]) -> Answer {
    let answer = sandbox_call(world, method, request);
    let answer = answer.or_else(|| container_call(world, method, request));
    let answer = answer.or_else(|| other_call(world, method, request));
    answer.unwrap_or_else(|| {
        let message = format!("unknown method {method} for service runtime.v1.RuntimeService");
        Err(Status::new(Code::Unimplemented, message))
    })
}

fn sandbox_call(world: &mut World, method: &str, request: &[u8]) -> Option<Answer> {
    Some(match method {
        "RunPodSandbox" => with(request, |request| {
            world.run_sandbox(request).map(|pod_sandbox_id| RunPodSandboxResponse { pod_sandbox_id })
        }),
        "StopPodSandbox" => with(request, |request: StopPodSandboxRequest| {
            world.stop_sandbox(&request.pod_sandbox_id).map(|()| StopPodSandboxResponse {})
        }),
        "RemovePodSandbox" => with(request, |request: RemovePodSandboxRequest| {
            world.remove_sandbox(&request.pod_sandbox_id);
            Ok(RemovePodSandboxResponse {})
        }),
        "PodSandboxStatus" => with(request, |request| world.sandbox_status(&request)),
        "ListPodSandbox" => with(request, |request: ListPodSandboxRequest| {
            Ok(ListPodSandboxResponse { items: world.list_sandboxes(request.filter.as_ref()) })
        }),
        "UpdatePodSandboxResources" => {
            with(request, |_: UpdatePodSandboxResourcesRequest| Ok(UpdatePodSandboxResourcesResponse {}))
        }
        "PortForward" => with(request, |request: PortForwardRequest| {
            Ok(PortForwardResponse { url: url("portforward", &request.pod_sandbox_id) })
        }),
        _ => return None,
    })
}

fn container_call(world: &mut World, method: &str, request: &[u8]) -> Option<Answer> {
    Some(match method {
        "CreateContainer" => with(request, |request| {
            world.create_container(request).map(|container_id| CreateContainerResponse { container_id })
        }),
        "StartContainer" => with(request, |request: StartContainerRequest| {
            world.start_container(&request.container_id).map(|()| StartContainerResponse {})
        }),
        "RemoveContainer" => with(request, |request: RemoveContainerRequest| {
            world.remove_container(&request.container_id);
            Ok(RemoveContainerResponse {})
        }),
        "ContainerStatus" => with(request, |request| world.container_status(&request)),
        "ListContainers" => with(request, |request: ListContainersRequest| {
            Ok(ListContainersResponse { containers: world.list_containers(request.filter.as_ref()) })
        }),
        "UpdateContainerResources" => with(request, |request: UpdateContainerResourcesRequest| {
            let id = world.container(&request.container_id)?.id.clone();
            let updated = world.containers.iter_mut().find(|container| container.id == id);
            if let Some(linux) = updated.and_then(|container| container.config.linux.as_mut()) {
                let present = linux.resources.get_or_insert_default();
                change_resources(present, request.linux.unwrap_or_default());
            }
            Ok(UpdateContainerResourcesResponse {})
        }),
        "ReopenContainerLog" => with(request, |request: ReopenContainerLogRequest| {
            world.running_container(&request.container_id).map(|_| ReopenContainerLogResponse {})
        }),
        "ExecSync" => with(request, |request: ExecSyncRequest| {
            world.running_container(&request.container_id).map(|_| cut_output(&world.exec))
        }),
        "Exec" => with(request, |request: ExecRequest| {
            world.running_container(&request.container_id).map(|one| ExecResponse { url: url("exec", &one.id) })
        }),
        "Attach" => with(request, |request: AttachRequest| {
            world.running_container(&request.container_id).map(|one| AttachResponse { url: url("attach", &one.id) })
        }),
        "ContainerStats" => with(request, |request: ContainerStatsRequest| {
            let attributes = Some(world.container(&request.container_id)?.attributes());
            Ok(ContainerStatsResponse { stats: Some(ContainerStats { attributes, ..world.stats.clone() }) })
        }),
        "ListContainerStats" => with(request, |request: ListContainerStatsRequest| {
            let ContainerStatsFilter { id, pod_sandbox_id, label_selector } = request.filter.unwrap_or_default();
            let filter = ContainerFilter { id, pod_sandbox_id, label_selector, state: None };
            let listed = world.list_containers(Some(&filter));
            let attributes = listed.iter().filter_map(|one| Some(world.container(&one.id).ok()?.attributes()));
            let stats = attributes.map(|one| ContainerStats { attributes: Some(one), ..world.stats.clone() });
            Ok(ListContainerStatsResponse { stats: stats.collect() })
        }),
        _ => return None,
    })
}

fn other_call(world: &mut World, method: &str, request: &[u8]) -> Option<Answer> {
    Some(match method {
        "Version" => with(request, |_: VersionRequest| {
            Ok(VersionResponse {
                version: "0.1.0".to_owned(),
                runtime_name: world.name.to_owned(),
                runtime_version: "1.6.20".to_owned(),
                runtime_api_version: "v1".to_owned(),
            })
        }),
        "Status" => with(request, |request: StatusRequest| Ok(status(world, request.verbose))),
        "RuntimeConfig" => {
            let cgroup_driver = world.cgroup_driver?;
            let linux = Some(LinuxRuntimeConfiguration { cgroup_driver });
            Ok(encode(&RuntimeConfigResponse { linux }))
        }
        "UpdateRuntimeConfig" => Ok(encode(&UpdateRuntimeConfigResponse {})),
        "ListImages" => with(request, |request: ListImagesRequest| {
            Ok(ListImagesResponse { images: world.images.list(request.filter.as_ref()) })
        }),
        "ImageStatus" => with(request, |request: ImageStatusRequest| {
            let image = world.images.find(&request.image.unwrap_or_default().image).cloned();
            Ok(ImageStatusResponse { image, ..ImageStatusResponse::default() })
        }),
        "PullImage" => with(request, |request: PullImageRequest| {
            let pulled = world.images.pull(&request.image.unwrap_or_default().image);
            pulled.map(|image_ref| PullImageResponse { image_ref })
        }),
        "RemoveImage" => with(request, |request: RemoveImageRequest| {
            world.images.remove(&request.image.unwrap_or_default().image);
            Ok(RemoveImageResponse {})
        }),
        "ImageFsInfo" => with(request, |_: ImageFsInfoRequest| {
            let usage = FilesystemUsage {
                timestamp: 1,
                fs_id: Some(FilesystemIdentifier { mountpoint: "/".to_owned() }),
                used_bytes: Some(2_011_136),
                inodes_used: Some(14),
            };
            Ok(ImageFsInfoResponse { image_filesystems: vec![usage], ..ImageFsInfoResponse::default() })
        }),
        _ => return None,
    })
}

fn status(world: &World, verbose: bool) -> StatusResponse {
    let condition = |name: &str, status: bool| RuntimeCondition {
        r#type: name.to_owned(),
        status,
        reason: if status { String::new() } else { "NetworkPluginNotReady".to_owned() },
        message: String::new(),
    };
    let conditions = vec![condition("RuntimeReady", true), condition("NetworkReady", world.network_ready)];
    let runtime_handlers = world.handlers.clone();
    let status = Some(RuntimeStatus { conditions });
    let mut answer = StatusResponse { status, runtime_handlers, ..StatusResponse::default() };
    if verbose {
        answer.info.insert("config".to_owned(), "{}".to_owned());
    }
    answer
}

fn with<Request: Message + Default, Response: Message>(
    request: &[u8],
    act: impl FnOnce(Request) -> Result<Response, Status>,
) -> Answer {
    act(read(request)?).map(|response| encode(&response))
}

fn read<M: Message + Default>(request: &[u8]) -> Result<M, Status> {
    decode(request).map_err(|error| Status::new(Code::Internal, error.to_string()))
}

/// containerd keeps this much of each output of a command, and drops the rest.
const MAX_OUTPUT_BYTES: usize = 16 << 20;

fn cut_output(output: &ExecSyncResponse) -> ExecSyncResponse {
    let cut = |bytes: &[u8]| bytes.iter().take(MAX_OUTPUT_BYTES).copied().collect();
    ExecSyncResponse { exit_code: output.exit_code, stdout: cut(&output.stdout), stderr: cut(&output.stderr) }
}

fn url(kind: &str, id: &str) -> String {
    format!("http://127.0.0.1:1/{kind}/{id}")
}

/// Takes what the update names: zero and empty mean "as it is", as for containerd and CRI-O.
fn change_resources(present: &mut LinuxContainerResources, update: LinuxContainerResources) {
    let change = |present: &mut i64, update| *present = if update == 0 { *present } else { update };
    change(&mut present.cpu_period, update.cpu_period);
    change(&mut present.cpu_quota, update.cpu_quota);
    change(&mut present.cpu_shares, update.cpu_shares);
    change(&mut present.memory_limit_in_bytes, update.memory_limit_in_bytes);
    change(&mut present.oom_score_adj, update.oom_score_adj);
    change(&mut present.memory_swap_limit_in_bytes, update.memory_swap_limit_in_bytes);
    let change = |present: &mut String, update: String| {
        if !update.is_empty() {
            *present = update;
        }
    };
    change(&mut present.cpuset_cpus, update.cpuset_cpus);
    change(&mut present.cpuset_mems, update.cpuset_mems);
    if !update.hugepage_limits.is_empty() {
        present.hugepage_limits = update.hugepage_limits;
    }
    present.unified.extend(update.unified);
}
