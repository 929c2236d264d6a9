//! The devices of a pod that comes, chosen beside what else its containers get from NUMA nodes.

use super::Devices;
use super::allocations::{Lacks, Left};
use crate::kubelet::resource_managers::{Hints, Nodes, Provider, Refused, unexpected};
use crate::types::api::{Container, Pod};

pub(crate) struct Choosing<'a> {
    devices: &'a Devices,
    pod: &'a Pod,
    /// Its containers that run already.
    runs: &'a dyn Fn(&str) -> bool,
    /// Those of the machine.
    nodes: Nodes,
    /// Nothing is lost if there are not as many as it asks for.
    may_wait: bool,
    waits: bool,
    left: Left,
}

impl Devices {
    /// A pod of the node's own waits for devices that are not there, as nobody would make it again; and so does one that had
    /// devices before a reboot, when whoever tells of them may be a pod that has yet to start.
    pub(crate) fn choosing<'a>(&'a self, pod: &'a Pod, runs: &'a dyn Fn(&str) -> bool, nodes: Nodes) -> Choosing<'a> {
        let may_have_had = self.book.borrow().is_unread || !self.shown(&pod.metadata.uid).is_empty();
        let may_wait = pod.is_static() || may_have_had;
        Choosing { devices: self, pod, runs, nodes, may_wait, waits: false, left: Left::new() }
    }
}

impl Provider for Choosing<'_> {
    fn hints(&mut self, container: Option<&Container>) -> Vec<Hints> {
        self.devices.book.borrow().hints(self.nodes, self.pod, container, &self.left, self.may_wait)
    }

    fn allocate(&mut self, container: &Container, nodes: Option<Nodes>) -> Result<(), Refused> {
        let uid = &self.pod.metadata.uid;
        let mut book = self.devices.book.borrow_mut();
        if let Some(nodes) = nodes {
            book.bring_near(uid, &container.name, nodes);
        }
        if self.waits {
            return Ok(());
        }
        match book.choose_for(self.pod, container, self.runs, &mut self.left) {
            Ok(()) => {}
            Err(Lacks(why)) if !self.may_wait => return Err(unexpected(&why)),
            Err(_) => {
                book.give_up(uid);
                self.waits = true;
            }
        }
        Ok(())
    }
}
