//! What the configurations of a pod's containers need of the whole pod, computed once a pod. Pure.

use std::cell::OnceCell;

use super::pod_requests::{List, of_containers, pod_level};
use crate::kubelet::image_credentials::PullSecrets;
use crate::state::objects::Objects;
use crate::types::api::{
    Container, ImageVolumeSource, MEMORY, Pod, PodSpec, QosClass, Quantity, Volume, VolumeSource, qos_class,
};
use crate::types::sorted::SortedMap;

/// A container's position in the spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ContainerIndex {
    Init(usize),
    Main(usize),
    Ephemeral(usize),
}

impl ContainerIndex {
    pub(crate) fn of(self, pod: &Pod) -> Option<&Container> {
        match self {
            Self::Init(index) => pod.spec.init_containers.get(index),
            Self::Main(index) => pod.spec.containers.get(index),
            Self::Ephemeral(index) => pod.spec.ephemeral_containers.get(index),
        }
    }
}

/// Makes the work for all containers of a pod grow with their number, not with its square.
#[derive(Debug)]
pub(crate) struct PodIndex<'a> {
    pub(crate) pod: &'a Pod,
    class: OnceCell<QosClass>,
    memory: OnceCell<MemoryRequests>,
    /// Position of each container among all.
    container_indices: OnceCell<SortedMap<String, ContainerIndex>>,
    /// Position of each among all volumes.
    image_volumes: OnceCell<SortedMap<String, usize>>,
    pull_secrets: OnceCell<PullSecrets>,
}

/// Memory requests, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryRequests {
    /// The smallest one of a main container.
    pub(super) least: i64,
    /// The part of each container of the pod-level request beyond the containers'.
    pub(super) share: i64,
}

impl<'a> PodIndex<'a> {
    pub(crate) fn new(pod: &'a Pod) -> Self {
        Self {
            pod,
            class: OnceCell::new(),
            memory: OnceCell::new(),
            container_indices: OnceCell::new(),
            image_volumes: OnceCell::new(),
            pull_secrets: OnceCell::new(),
        }
    }

    pub(super) fn class(&self) -> QosClass {
        *self.class.get_or_init(|| qos_class(self.pod))
    }

    pub(super) fn memory(&self) -> MemoryRequests {
        let spec = &self.pod.spec;
        *self.memory.get_or_init(|| MemoryRequests {
            least: spec.containers.iter().map(memory_request).min().unwrap_or(0),
            share: unclaimed_share(spec),
        })
    }

    pub(super) fn container(&self, name: &str) -> Option<&'a Container> {
        let indices = self.container_indices.get_or_init(|| {
            let PodSpec { init_containers, containers, ephemeral_containers, .. } = &self.pod.spec;
            let init = init_containers.iter().zip((0..).map(ContainerIndex::Init));
            let main = containers.iter().zip((0..).map(ContainerIndex::Main));
            let ephemeral = ephemeral_containers.iter().zip((0..).map(ContainerIndex::Ephemeral));
            init.chain(main).chain(ephemeral).map(|(container, index)| (container.name.clone(), index)).collect()
        });
        indices.get(name)?.of(self.pod)
    }

    pub(super) fn image_volume(&self, name: &str) -> Option<&'a ImageVolumeSource> {
        let volumes = &self.pod.spec.volumes;
        let positions = self.image_volumes.get_or_init(|| {
            let images = volumes.iter().enumerate().filter(|(_, volume)| image_of(volume).is_some());
            images.map(|(position, volume)| (volume.name.clone(), position)).collect()
        });
        image_of(volumes.get(*positions.get(name)?)?)
    }

    /// Those of the first call: a Secret that changes later counts in the next sync.
    pub(super) fn pull_secrets(&self, objects: &Objects) -> PullSecrets {
        self.pull_secrets.get_or_init(|| PullSecrets::of(self.pod, objects)).clone()
    }
}

fn image_of(volume: &Volume) -> Option<&ImageVolumeSource> {
    if let VolumeSource::Image(source) = &volume.source { Some(source) } else { None }
}

pub(super) fn memory_request(container: &Container) -> i64 {
    container.resources.request(MEMORY).map_or(0, Quantity::value)
}

/// The pod-level request beyond its containers', split equally among them.
fn unclaimed_share(spec: &PodSpec) -> i64 {
    let Some(pod_request) = pod_level(spec).and_then(|pod| pod.request(MEMORY)) else { return 0 };
    let claimed = of_containers(spec, List::Requests, MEMORY).map_or(0, Quantity::value);
    let containers = i64::try_from(spec.containers.len() + spec.init_containers.len()).unwrap_or(i64::MAX);
    pod_request.value().saturating_sub(claimed) / containers.max(1)
}
