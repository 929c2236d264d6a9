//! Chooses devices for a container, near the preferred NUMA nodes. Pure.
//!
//! `devicesToAllocate` and pkg/kubelet/cm/devicemanager/topology_hints.go.

use super::{
    Device, DeviceAllocation, DeviceAllocations, InsufficientDevices, Resource, in_order, requested_devices, selectors,
};
use crate::kubelet::resource_managers::{self, Hints, Nodes};
use crate::types::api::{Container, DeviceSelectors, Pod, PodUid};
use crate::types::sorted::{SortedMap, SortedSet};

/// Devices of ended init containers, by resource.
pub(in crate::kubelet::devices) type Left = SortedMap<String, SortedSet<String>>;

/// Position of a device relative to the preferred nodes, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumaProximity {
    Near,
    Elsewhere,
    /// The device has no NUMA nodes, or none are preferred.
    Anywhere,
}

const IN_ORDER: [NumaProximity; 3] = [NumaProximity::Near, NumaProximity::Elsewhere, NumaProximity::Anywhere];

impl DeviceAllocations {
    /// Chooses devices for all containers of the pod without any.
    pub(super) fn choose(&mut self, pod: &Pod, runs: impl Fn(&str) -> bool) -> Result<(), InsufficientDevices> {
        let mut left = Left::new();
        in_order(pod).try_for_each(|(container, _)| self.choose_for(pod, container, &runs, &mut left))
    }

    /// Chooses for one container, after those before it.
    pub(in crate::kubelet::devices) fn choose_for(
        &mut self,
        pod: &Pod,
        container: &Container,
        runs: &dyn Fn(&str) -> bool,
        left: &mut Left,
    ) -> Result<(), InsufficientDevices> {
        let uid = &pod.metadata.uid;
        let selectors = selectors(pod)?;
        let stays = in_order(pod).any(|(other, stays)| stays && other.name == container.name);
        for (name, count) in requested_devices(pod, container) {
            if !self.is_known(name) {
                if pod.is_static() {
                    return Err(InsufficientDevices(format!("no device plugin has registered {name}")));
                }
                // A resource unknown to this node is accounted by the cluster.
                continue;
            }
            let left = left.entry(name.to_owned()).or_default();
            if self.is_given(uid, &container.name, name, count, runs)? {
                // It keeps its devices.
            } else if count > 0 && !runs(&container.name) {
                let ids = self.free(uid, container, (name, count), &selectors, left)?;
                let allocation = self.give(uid, &container.name, name, ids);
                self.entries.push(allocation);
            }
            let has = self.entries.iter().filter(|allocation| allocation.is_of(uid, &container.name, name));
            for id in has.flat_map(DeviceAllocation::ids) {
                if stays {
                    left.remove(id);
                } else {
                    left.insert(id.clone());
                }
            }
        }
        Ok(())
    }

    /// Sets the preferred NUMA nodes of the container.
    pub(in crate::kubelet::devices) fn prefer_nodes(&mut self, pod: &PodUid, container: &str, nodes: Nodes) {
        self.near.retain(|(other, name, _)| other != pod || name != container);
        self.near.push((pod.clone(), container.to_owned(), nodes));
    }

    /// The topology hints for each resource of the container, or of the pod as a whole (`GetTopologyHints` and
    /// `GetPodTopologyHints`). A pod that may wait for devices gets no empty hints.
    pub(in crate::kubelet::devices) fn hints(
        &self,
        all: Nodes,
        pod: &Pod,
        container: Option<&Container>,
        left: &Left,
        may_wait: bool,
    ) -> Vec<Hints> {
        let amounts =
            container.map_or_else(|| most_at_once(pod), |container| requested_devices(pod, container).collect());
        let none = SortedSet::new();
        let mut found = Vec::new();
        for (name, count) in amounts.into_iter().filter(|(_, count)| *count > 0) {
            let Some(resource) = self.resources.get(name).filter(|resource| resource.has_nodes()) else { continue };
            let is_its = |allocation: &&DeviceAllocation| {
                allocation.pod == pod.metadata.uid
                    && allocation.resource == name
                    && container.is_none_or(|container| container.name == allocation.container)
            };
            let its = self.entries.iter().filter(is_its).flat_map(|held| held.ids.values().flatten());
            let its: SortedSet<&str> = its.map(String::as_str).collect();
            let mut free: Vec<&str> = its.into_iter().collect();
            let has_any = !free.is_empty();
            let left = left.get(name).filter(|_| container.is_some() && !has_any).unwrap_or(&none);
            if !has_any {
                free.extend(self.available(name).filter(|id| !left.contains(*id)));
            }
            let total = free.len() + left.len();
            let is_enough = if has_any { total == count } else { total >= count };
            if is_enough {
                found.push(resource.hints(all, &free, left, count));
            } else if !may_wait {
                found.push(Hints::new());
            }
        }
        found
    }

    /// Whether the container already has its devices and can keep them.
    fn is_given(
        &mut self,
        uid: &PodUid,
        container: &str,
        name: &str,
        count: usize,
        runs: impl Fn(&str) -> bool,
    ) -> Result<bool, InsufficientDevices> {
        let Some(allocation) = self.entries.iter_mut().find(|allocation| allocation.is_of(uid, container, name)) else {
            return Ok(false);
        };
        let lost =
            |resource: &Resource| resource.is_local && resource.is_told && !allocation.ids().all(|id| resource.has(id));
        if !runs(container) && self.resources.get(name).is_some_and(lost) {
            self.entries.retain(|allocation| !allocation.is_of(uid, container, name));
            return Ok(false);
        }
        let has = allocation.ids().count();
        if has != count {
            return Err(InsufficientDevices(format!(
                "pod {:?} container {container:?} changed request for resource {name:?} from {has} to {count}",
                uid.as_str()
            )));
        }
        if !allocation.is_confirmed && !runs(container) {
            let resource = self.resources.get(name).ok_or_else(|| unregistered(name))?;
            if resource.healthy().next().is_none() {
                return Err(none_healthy(name));
            }
            if !allocation.ids().all(|id| resource.has(id)) {
                return Err(InsufficientDevices(format!(
                    "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {name}"
                )));
            }
        }
        allocation.is_confirmed = true;
        Ok(true)
    }

    /// `count` free devices, of those in `left` first.
    fn free(
        &self,
        pod: &PodUid,
        container: &Container,
        (name, count): (&str, usize),
        selectors: &DeviceSelectors,
        left: &SortedSet<String>,
    ) -> Result<Vec<String>, InsufficientDevices> {
        let resource = self.resources.get(name).ok_or_else(|| unregistered(name))?;
        if resource.healthy().next().is_none() {
            return Err(none_healthy(name));
        }
        let is_accepted =
            |id: &str| resource.devices.get(id).is_some_and(|device| selectors.accept(name, &device.attributes));
        let mut ids: Vec<String> = left.iter().take(count).cloned().collect();
        let needed = count - ids.len();
        let available = self.available(name).filter(|id| !left.contains(*id) && is_accepted(id));
        let available: Vec<&str> = available.collect();
        let near = self.near(pod, &container.name);
        if available.len() < needed {
            return Err(InsufficientDevices(format!(
                "requested number of devices unavailable for {name}. Requested: {needed}, Available: {}{}",
                available.len(),
                if selectors.resources().any(|resource| resource == name) { " (as the pod selects)" } else { "" }
            )));
        }
        for place in IN_ORDER {
            let there = available.iter().filter(|id| resource.place(near, id) == place);
            ids.extend(there.take(count - ids.len()).map(|id| (*id).to_owned()));
        }
        Ok(ids)
    }

    /// The available devices for GetPreferredAllocation, and those that must be included because the pod has them.
    /// `None` if the plugin does not support the call, or there is no choice.
    pub(in crate::kubelet::devices) fn choice(
        &self,
        allocation: &DeviceAllocation,
    ) -> Option<(Vec<String>, Vec<String>)> {
        let resource = self.resources.get(&allocation.resource)?;
        let own: Vec<&String> = allocation.ids().collect();
        let others = |other: &&DeviceAllocation| {
            let is_kind = other.pod == allocation.pod && other.resource == allocation.resource;
            is_kind && other.container != allocation.container
        };
        let reused: SortedSet<&String> = self.entries.iter().filter(others).flat_map(DeviceAllocation::ids).collect();
        let mut kept: Vec<String> = own.iter().filter(|id| reused.contains(**id)).map(|id| (*id).clone()).collect();
        let needed = own.len() - kept.len();
        let free = self.available(&allocation.resource).map(str::to_owned);
        let free = free.chain(own.iter().filter(|id| !reused.contains(**id)).map(|id| (*id).clone()));
        let near = self.near(&allocation.pod, &allocation.container);
        let is_near = |id: &String| resource.place(near, id) == NumaProximity::Near;
        let (aligned, others): (Vec<String>, Vec<String>) = free.partition(is_near);
        let mut all = kept.clone();
        if needed < aligned.len() {
            all.extend(aligned);
        } else {
            // All of them, so that the topology manager's decision holds.
            all.extend(others);
            all.extend_from_slice(&aligned);
            kept.extend(aligned);
        }
        all.sort();
        let has_choice = kept.len() < own.len() && own.len() < all.len();
        (resource.options.get_preferred_allocation_available && has_choice).then_some((all, kept))
    }

    /// Applies the plugin's preference as far as the devices are available; the rest stays as chosen.
    pub(in crate::kubelet::devices) fn prefer(&mut self, allocation: &DeviceAllocation, preferred: &[String]) {
        let Some((all, kept)) = self.choice(allocation) else { return };
        let Some(resource) = self.resources.get(&allocation.resource) else { return };
        let near = self.near(&allocation.pod, &allocation.container);
        let own: Vec<&String> = allocation.ids().chain(&all).collect();
        let in_order =
            IN_ORDER.iter().flat_map(|place| own.iter().copied().filter(move |id| resource.place(near, id) == *place));
        let count = allocation.ids().count();
        let mut ids = kept;
        // The plugin's answer may be long: each id is looked up once.
        let kept: SortedSet<String> = ids.iter().cloned().collect();
        let mut taken: Vec<bool> = all.iter().map(|id| kept.contains(id)).collect();
        for id in preferred.iter().chain(in_order) {
            if ids.len() >= count {
                break;
            }
            let place = all.binary_search(id).ok().and_then(|place| taken.get_mut(place));
            if place.is_some_and(|taken| !std::mem::replace(taken, true)) {
                ids.push(id.clone());
            }
        }
        let anew = self.give(&allocation.pod, &allocation.container, &allocation.resource, ids);
        if let Some(place) = self.entries.iter_mut().find(|one| one.is_same_place(allocation) && one.response.is_none())
        {
            *place = anew;
        }
    }

    fn near(&self, pod: &PodUid, container: &str) -> Option<Nodes> {
        let mut known = self.near.iter().filter(|(other, name, _)| other == pod && name == container);
        known.next().map(|(.., nodes)| *nodes)
    }
}

impl Resource {
    /// Whether any device has a NUMA node.
    fn has_nodes(&self) -> bool {
        self.devices.values().any(|device| !device.nodes.is_empty())
    }

    fn place(&self, near: Option<Nodes>, id: &str) -> NumaProximity {
        let own = self.nodes_of(id);
        match near {
            Some(near) if own.overlaps(near) => NumaProximity::Near,
            Some(_) if own != Nodes::default() => NumaProximity::Elsewhere,
            _ => NumaProximity::Anywhere,
        }
    }

    fn nodes_of(&self, id: &str) -> Nodes {
        self.devices.get(id).map(Device::near).unwrap_or_default()
    }

    /// The node sets for `count` devices out of `free`, including all of `left` (`generateDeviceTopologyHints`).
    fn hints(&self, all: Nodes, free: &[&str], left: &SortedSet<String>, count: usize) -> Hints {
        let could = |nodes| self.devices.values().filter(|device| device.near().overlaps(nodes)).count() >= count;
        let can = |nodes| {
            let left = left.iter().map(|id| self.nodes_of(id)).filter(|own| *own != Nodes::default());
            let free = free.iter().filter(|id| self.nodes_of(id).overlaps(nodes)).count();
            left.clone().all(|own| own.overlaps(nodes)) && left.count() + free >= count
        };
        resource_managers::hints(all, &could, &can)
    }
}

impl Device {
    fn near(&self) -> Nodes {
        self.nodes.iter().filter_map(|node| u32::try_from(*node).ok()).collect()
    }
}

/// The pod's maximum use of each resource at any time (`getPodDeviceRequest`).
fn most_at_once(pod: &Pod) -> Vec<(&str, usize)> {
    let mut most: Vec<(&str, usize)> = Vec::new();
    let mut staying: Vec<(&str, usize)> = Vec::new();
    for (container, stays) in in_order(pod) {
        for (name, count) in requested_devices(pod, container) {
            let before: usize = staying.iter().filter(|(other, _)| *other == name).map(|(_, count)| count).sum();
            let now = before.saturating_add(count);
            match most.iter_mut().find(|(other, _)| *other == name) {
                Some((_, most)) => *most = now.max(*most),
                None => most.push((name, now)),
            }
            if stays {
                staying.push((name, count));
            }
        }
    }
    most
}

fn unregistered(name: &str) -> InsufficientDevices {
    InsufficientDevices(format!("cannot allocate unregistered device {name}"))
}

fn none_healthy(name: &str) -> InsufficientDevices {
    InsufficientDevices(format!("no healthy devices present; cannot allocate unhealthy devices {name}"))
}
