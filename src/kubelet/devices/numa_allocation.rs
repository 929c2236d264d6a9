//! Chooses the devices of an admitted pod together with its other NUMA resources.

use super::Devices;
use super::allocations::{DeviceChoice, InsufficientDevices};
use crate::kubelet::resource_managers::{AllocationRejection, Hints, Nodes, Provider, unexpected};
use crate::types::api::{Container, Pod};

pub(crate) struct DeviceSelection<'a> {
    devices: &'a Devices,
    pod: &'a Pod,
    /// Its running containers.
    runs: &'a dyn Fn(&str) -> bool,
    /// The machine's NUMA nodes.
    nodes: Nodes,
    /// The pod may wait for missing devices.
    may_wait: bool,
    waits: bool,
    choice: DeviceChoice,
}

impl Devices {
    /// Static pods wait for missing devices, because nothing would create them again. So do pods that had devices
    /// before a reboot: the device plugin may be a pod that has yet to start.
    pub(crate) fn choosing<'a>(
        &'a self,
        pod: &'a Pod,
        runs: &'a dyn Fn(&str) -> bool,
        nodes: Nodes,
    ) -> DeviceSelection<'a> {
        let may_have_had = self.allocations.borrow().is_unread || !self.shown(&pod.metadata.uid).is_empty();
        let may_wait = pod.is_static() || may_have_had;
        DeviceSelection { devices: self, pod, runs, nodes, may_wait, waits: false, choice: DeviceChoice::default() }
    }
}

impl Provider for DeviceSelection<'_> {
    fn hints(&mut self, container: Option<&Container>) -> Vec<Hints> {
        self.devices.allocations.borrow().hints(self.nodes, self.pod, container, &self.choice, self.may_wait)
    }

    fn allocate(&mut self, container: &Container, nodes: Option<Nodes>) -> Result<(), AllocationRejection> {
        let uid = &self.pod.metadata.uid;
        let mut allocations = self.devices.allocations.borrow_mut();
        if let Some(nodes) = nodes {
            allocations.prefer_nodes(uid, &container.name, nodes);
        }
        if self.waits {
            return Ok(());
        }
        match allocations.choose_for(self.pod, container, self.runs, &mut self.choice) {
            Ok(()) => {}
            Err(InsufficientDevices(why)) if !self.may_wait => return Err(unexpected(&why)),
            Err(_) => {
                allocations.release(uid);
                self.waits = true;
            }
        }
        Ok(())
    }
}
