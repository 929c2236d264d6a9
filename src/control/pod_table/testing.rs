//! A pod table for tests of the parts, with a runtime that does not answer.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;

use crate::control::pod_sources::merge::Sources;
use crate::control::pod_table::{PodInputs, PodTable};
use crate::control::pod_workers::{self, PodWorkers};
use crate::kubelet::container_manager::ContainerManager;
use crate::kubelet::csi::Csi;
use crate::kubelet::devices::Devices;
use crate::kubelet::dra::DraManager;
use crate::kubelet::images::Images;
use crate::kubelet::kuberuntime::{PodRuntime, WorkViews, golden};
use crate::platform::config::Config;
use crate::platform::cri::{ImageService, RuntimeService};
use crate::platform::rpc::Client;
use crate::platform::rt;
use crate::state::objects::Objects;
use crate::state::pods::{EventRing, ObservedPod, Relist, SyncEvent};
use crate::types::api::Pod;
use crate::types::owned::Owned;

pub(crate) struct Node {
    pub(crate) pods: PodTable,
    pub(crate) devices: Rc<Devices>,
    pub(crate) csi: Rc<Csi>,
    pub(crate) dra: Rc<DraManager>,
    pub(crate) groups: Rc<ContainerManager>,
    /// The events that the table recorded.
    pub(crate) ring: Rc<RefCell<EventRing>>,
    pub(crate) inbox: async_channel::Sender<SyncEvent>,
    #[expect(dead_code, reason = "the inbox stays open")]
    events: Receiver<SyncEvent>,
}

impl Node {
    /// Simulates a relist that lists these pods without their containers.
    pub(crate) fn list(&mut self, unseen: Vec<ObservedPod>) {
        let ticket = self.pods.observed().begin();
        self.pods.take_relist(Relist { pods: Vec::new(), unseen, ticket });
    }
}

/// Runs the test on a node without pods.
pub(crate) fn with_node(test: impl FnOnce(Node) + Send + 'static) {
    let run = rt::simulate(1, |_| async move { test(node().await) });
    assert_eq!(run, Ok(()));
}

async fn node() -> Node {
    let (inbox, events) = async_channel::bounded(100);
    let config = Config::default();
    let client = Client::new("/nowhere");
    let cri = RuntimeService::new(client.clone(), Duration::from_secs(1));
    let images = Images::new(ImageService::new(client, Duration::from_secs(1)), &config, inbox.clone());
    let runtime = Rc::new(PodRuntime::new(cri, images, golden::node(), inbox.clone()));
    let groups = Rc::new(ContainerManager::new(Path::new("/nowhere"), None));
    let devices = Devices::open(Path::new("/nowhere"), Vec::new(), inbox.clone()).await;
    let csi = Csi::new(Path::new("/nowhere"), "n", inbox.clone(), None);
    let dra = DraManager::open(Path::new("/nowhere"), Rc::clone(&devices), inbox.clone()).await;
    let (objects, observed) = (Owned::<Objects>::default(), Owned::default());
    let of_workers = pod_workers::Dependencies {
        runtime: Rc::clone(&runtime),
        groups: Rc::clone(&groups),
        devices: Rc::clone(&devices),
        csi: Rc::clone(&csi),
        dra: Rc::clone(&dra),
        views: WorkViews {
            objects: objects.view(),
            host_names: Owned::default().view(),
            observed: observed.view(),
            placements: Owned::default().view(),
        },
        inbox: inbox.clone(),
    };
    let workers = PodWorkers::new(of_workers, pod_workers::RestartBackoff::new(Duration::from_secs(300)));
    let of_pods = PodInputs { sources: Sources::new(&[]), observed, objects: objects.view() };
    let mut pods = PodTable::new(&config, runtime, workers, of_pods, inbox.clone());
    let ring: Rc<RefCell<EventRing>> = Rc::default();
    pods.set_events(Rc::clone(&ring), None);
    Node { pods, devices, csi, dra, groups, ring, inbox, events }
}

pub(crate) fn pod(uid: &str) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.uid = uid.into();
    pod.metadata.name = uid.to_owned();
    pod.metadata.namespace = "default".to_owned();
    Arc::new(pod)
}
