//! Device plugins, CSI and DRA drivers, and the pod resources socket, which lists the containers' devices, CPUs and memory.

use std::rc::Rc;

use super::cluster::Cluster;
use super::handles::Handles;
use crate::control::pod_table::PodRecords;
use crate::kubelet::csi::{Csi, CsiNodeRegistration};
use crate::kubelet::devices::Devices;
use crate::kubelet::dra::{DraManager, SliceCleaner, SlicePublisher};
use crate::kubelet::pod_resources::PodResourcesServer;
use crate::kubelet::resource_managers::{Allocatable, ResourceManagers};
use crate::platform::apiserver::Client;
use crate::platform::config::Gate;
use crate::platform::{plugin_manager, rt};
use crate::state::pods::Placements;
use crate::types::owned::View;

pub(super) struct Plugins {
    pub(super) devices: Rc<Devices>,
    pub(super) csi: Rc<Csi>,
    pub(super) dra: Rc<DraManager>,
    placements: View<Placements>,
    allocatable: Allocatable,
}

impl Plugins {
    pub(super) async fn open(handles: &Handles, cluster: Option<&Cluster>, managers: &ResourceManagers) -> Self {
        let (config, inbox) = (&handles.config, &handles.inbox);
        let client = cluster.map(|cluster| cluster.client.clone());
        let csi = Csi::new(&config.root_dir, &config.node.name, inbox.clone(), client);
        let devices = Devices::open(&config.root_dir, config.devices.clone(), inbox.clone()).await;
        let dra = DraManager::open(&config.root_dir, Rc::clone(&devices), inbox.clone()).await;
        csi.find_present(&config.root_dir.join("pods")).await;
        Self { devices, csi, dra, placements: managers.placements(), allocatable: managers.allocatable() }
    }

    /// `records`: the pods of the pod resources API. `client`: for the CSINode object and ResourceSlices.
    pub(super) fn spawn(
        self,
        handles: &Handles,
        records: View<PodRecords>,
        client: Option<Client>,
    ) -> Vec<rt::Task<()>> {
        let Self { devices, csi, dra, placements, allocatable } = self;
        let root = handles.config.root_dir.clone();
        let handlers = vec![devices.plugin_handler(), csi.plugin_handler(), dra.plugin_handler()];
        let mut tasks = vec![rt::spawn(plugin_manager::run(root.join("plugins_registry"), handlers))];
        if let Some(client) = client {
            let cleaner = SliceCleaner {
                client: client.clone(),
                manager: Rc::clone(&dra),
                node_name: handles.config.node.name.clone(),
                status_inputs: Rc::clone(&handles.status_inputs),
            };
            tasks.push(rt::spawn(cleaner.run()));
            let publisher = SlicePublisher {
                client: client.clone(),
                devices: Rc::clone(&devices),
                node_name: handles.config.node.name.clone(),
                status_inputs: Rc::clone(&handles.status_inputs),
            };
            tasks.push(rt::spawn(publisher.run()));
            let registration = CsiNodeRegistration { client, csi, status_inputs: Rc::clone(&handles.status_inputs) };
            tasks.push(rt::spawn(registration.run()));
        }
        let pods = Box::new(move || records.read().listed());
        let lists_active = handles.config.gates.is_on(Gate::KubeletPodResourcesListUseActivePods);
        let devices_of_pods = Rc::clone(&devices);
        let server =
            PodResourcesServer { root, devices: devices_of_pods, dra, pods, lists_active, placements, allocatable };
        tasks.push(rt::spawn(server.serve()));
        tasks.push(rt::spawn(devices.run()));
        tasks
    }
}
