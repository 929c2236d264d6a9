//! The pod resources API (podresources v1, and the list of v1alpha1): devices, CPUs and memory of pods, for monitoring.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use crate::kubelet::devices::Devices;
use crate::kubelet::dra::{ClaimedDevice, DraManager};
use crate::kubelet::resource_managers::Allocatable;
use crate::platform::host::directories;
use crate::platform::rpc::{Reply, Request, Server, handler};
use crate::platform::rt;
use crate::protocol::grpc::{Code, Status};
use crate::protocol::protobuf::{decode, encode, message, put_message};
use crate::state::pods::{MemoryBlock, Placements};
use crate::types::api::{Container, Pod, PodUid};
use crate::types::cpu_set::CpuSet;
use crate::types::metrics::{self, Count};
use crate::types::owned::View;
use crate::types::sorted::SortedMap;
use crate::types::time::TokenBucket;

message! {
    struct PodResources {
        1 => name: String,
        2 => namespace: String,
        3 => containers: Vec<ContainerResources>,
        4 => cpu_ids: Vec<i64>,
        5 => memory: Vec<ContainerMemory>,
    }

    struct ContainerResources {
        1 => name: String,
        2 => devices: Vec<ContainerDevices>,
        3 => cpu_ids: Vec<i64>,
        4 => memory: Vec<ContainerMemory>,
        5 => dynamic_resources: Vec<DynamicResource>,
    }

    /// The devices of a ResourceClaim.
    struct DynamicResource {
        2 => claim_name: String,
        3 => claim_namespace: String,
        4 => claim_resources: Vec<ClaimResource>,
    }

    struct ClaimResource {
        1 => cdi_devices: Vec<CdiDevice>,
        2 => driver_name: String,
        3 => pool_name: String,
        4 => device_name: String,
        5 => share_id: String,
    }

    struct CdiDevice {
        1 => name: String,
    }

    struct ContainerMemory {
        1 => memory_type: String,
        2 => size: u64,
        3 => topology: Option<Topology>,
    }

    /// Devices with the same NUMA node.
    struct ContainerDevices {
        1 => resource_name: String,
        2 => device_ids: Vec<String>,
        3 => topology: Option<Topology>,
    }

    struct Topology {
        1 => nodes: Vec<NumaNode>,
    }

    struct NumaNode {
        1 => id: i64,
    }

    struct AllocatableResources {
        1 => devices: Vec<ContainerDevices>,
        2 => cpu_ids: Vec<i64>,
        3 => memory: Vec<ContainerMemory>,
    }

    struct GetPodResourcesRequest {
        1 => pod_name: String,
        2 => pod_namespace: String,
    }
}

/// A pod that is wanted or ends.
pub(crate) struct ListedPod {
    /// On the node.
    pub(crate) uid: PodUid,
    pub(crate) pod: Arc<Pod>,
    /// It has a status, and has not ended.
    pub(crate) is_active: bool,
}

pub(crate) struct PodResourcesServer {
    /// The kubelet's root directory.
    pub(crate) root: PathBuf,
    pub(crate) devices: Rc<Devices>,
    pub(crate) dra: Rc<DraManager>,
    pub(crate) pods: Box<dyn Fn() -> Vec<ListedPod>>,
    /// `List` returns the active pods only.
    pub(crate) lists_active: bool,
    /// CPUs and memory of containers.
    pub(crate) placements: View<Placements>,
    pub(crate) allocatable: Allocatable,
}

const POD_RESOURCES_LIST_METHOD: &str = "/v1.PodResourcesLister/List";
/// Of clients that are older than v1: lists all pods. The response is that of v1, whose newer fields they skip.
const LIST_ALPHA: &str = "/v1alpha1.PodResourcesLister/List";
const ALLOCATABLE: &str = "/v1.PodResourcesLister/GetAllocatableResources";
const GET: &str = "/v1.PodResourcesLister/Get";
/// Upstream's `DefaultPodResourcesQPS` and its burst: each call lists the devices of all pods.
const POD_RESOURCES_QPS: u32 = 100;
const POD_RESOURCES_BURST: u32 = 10;

impl PodResourcesServer {
    /// Serves requests; never returns.
    pub(crate) async fn serve(self) {
        let path = self.root.join("pod-resources/kubelet.sock");
        let socket = path.clone();
        let prepare = move || {
            directories::make(socket.parent().unwrap_or(&socket), 0o750)?;
            match fs::remove_file(&socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        };
        let limit = RefCell::new(TokenBucket::new(POD_RESOURCES_QPS, POD_RESOURCES_BURST, rt::now()));
        let response = handler(move |request: Request| {
            let admitted = limit.borrow_mut().as_mut().is_none_or(|limit| limit.take(rt::now()));
            let refused = || Err(Status::new(Code::ResourceExhausted, "rejected by rate limit"));
            std::future::ready(if admitted { self.counted(&request).map(Reply::Message) } else { refused() })
        });
        let server = Server::bind_prepared(&path, prepare).await;
        server.serve(response).await;
    }

    fn counted(&self, request: &Request) -> Result<Vec<u8>, Status> {
        let count = |what| metrics::count(what, &["v1"]);
        let response = self.respond(request);
        let method_count = match request.method.as_str() {
            LIST_ALPHA => {
                metrics::count(Count::PodResources, &["v1alpha1"]);
                return response;
            }
            POD_RESOURCES_LIST_METHOD => Count::PodResourcesList,
            ALLOCATABLE => Count::PodResourcesAllocatable,
            GET => Count::PodResourcesGet,
            _ => return response,
        };
        count(Count::PodResources);
        count(method_count);
        // The other requests cannot fail.
        if response.is_err() {
            count(Count::PodResourcesGetErrors);
        }
        response
    }

    fn respond(&self, request: &Request) -> Result<Vec<u8>, Status> {
        let mut out = Vec::new();
        match request.method.as_str() {
            POD_RESOURCES_LIST_METHOD | LIST_ALPHA => {
                let lists_all = !self.lists_active || request.method == LIST_ALPHA;
                for listed in (self.pods)().iter().filter(|listed| lists_all || listed.is_active) {
                    put_message(1, &self.of_pod(listed), &mut out);
                }
            }
            ALLOCATABLE => {
                let devices = self.devices.healthy().into_iter().flat_map(devices).collect();
                let Allocatable { cpus, memory: blocks } = &self.allocatable;
                out = encode(&AllocatableResources { devices, cpu_ids: ids(cpus), memory: memory(blocks.iter()) });
            }
            GET => {
                let request: GetPodResourcesRequest =
                    decode(&request.message).map_err(|error| Status::new(Code::Internal, error.to_string()))?;
                let GetPodResourcesRequest { pod_name: name, pod_namespace: namespace } = request;
                let pods = (self.pods)();
                let is_asked = |ListedPod { pod, .. }: &&ListedPod| {
                    pod.metadata.name == name && pod.metadata.namespace == namespace
                };
                // The first of the active ones, or else of the others.
                let found = pods.iter().filter(is_asked).min_by_key(|listed| !listed.is_active);
                let absent = || Status::new(Code::Unknown, format!("pod {name} in namespace {namespace} not found"));
                put_message(1, &self.of_pod(found.ok_or_else(absent)?), &mut out);
            }
            other => return Err(Status::new(Code::Unimplemented, format!("unknown method {other}"))),
        }
        Ok(out)
    }

    /// Only sidecars and main containers: resources of ended init containers have been given to others.
    fn of_pod(&self, ListedPod { uid, pod, .. }: &ListedPod) -> PodResources {
        let sidecars = pod.spec.init_containers.iter().filter(|container| container.is_sidecar());
        let placements = self.placements.read();
        let of_container = |container: &Container| ContainerResources {
            name: container.name.clone(),
            devices: self.devices.of_container(uid, &container.name).into_iter().flat_map(devices).collect(),
            cpu_ids: placements.own_cpus(uid, &container.name).map(ids).unwrap_or_default(),
            memory: memory(placements.memory_of(uid, &container.name)),
            dynamic_resources: self.dra.claimed(pod, container).into_iter().map(of_claim).collect(),
        };
        PodResources {
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            containers: sidecars.chain(&pod.spec.containers).map(of_container).collect(),
            cpu_ids: placements.exclusive.get(uid).map(|pod_cpus| ids(&pod_cpus.whole)).unwrap_or_default(),
            memory: memory(placements.pod_memory.get(uid).into_iter().flatten()),
        }
    }
}

fn of_claim(((namespace, name), devices): ((String, String), Vec<ClaimedDevice>)) -> DynamicResource {
    let resource = |device: ClaimedDevice| ClaimResource {
        cdi_devices: device.cdi_ids.into_iter().map(|name| CdiDevice { name }).collect(),
        driver_name: device.driver,
        pool_name: device.pool,
        device_name: device.device,
        share_id: device.share_id.unwrap_or_default(),
    };
    let claim_resources = devices.into_iter().map(resource).collect();
    DynamicResource { claim_name: name, claim_namespace: namespace, claim_resources }
}

/// One entry per device and NUMA node.
fn devices((resource, ids): (String, SortedMap<i64, Vec<String>>)) -> Vec<ContainerDevices> {
    let entry = |node: i64, id: String| ContainerDevices {
        resource_name: resource.clone(),
        device_ids: vec![id],
        topology: (node >= 0).then(|| near([node])),
    };
    ids.into_iter().flat_map(|(node, ids)| ids.into_iter().map(move |id| entry(node, id))).collect()
}

fn ids(cpus: &CpuSet) -> Vec<i64> {
    cpus.iter().map(i64::from).collect()
}

fn memory<'a>(blocks: impl Iterator<Item = &'a MemoryBlock>) -> Vec<ContainerMemory> {
    let entry = |block: &MemoryBlock| ContainerMemory {
        memory_type: block.kind.clone(),
        size: block.size,
        topology: Some(near(ids(&block.nodes))),
    };
    blocks.map(entry).collect()
}

fn near(nodes: impl IntoIterator<Item = i64>) -> Topology {
    Topology { nodes: nodes.into_iter().map(|id| NumaNode { id }).collect() }
}
