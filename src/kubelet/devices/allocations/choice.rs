//! Chooses devices for a container, near the preferred NUMA nodes. Pure.
//!
//! `devicesToAllocate` and pkg/kubelet/cm/devicemanager/topology_hints.go.

use std::collections::VecDeque;

use super::{
    Device, DeviceAllocation, DeviceAllocations, InsufficientDevices, Resource, in_order, requested_devices, selectors,
};
use crate::kubelet::resource_managers::{self, Hints, Nodes};
use crate::types::api::{Container, DeviceSelectors, Pod, PodUid};
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

/// Devices of ended init containers, by resource.
type Left = SortedMap<String, SortedSet<String>>;

/// The choice for the containers of a pod, one after another: what is known after those before.
#[derive(Debug, Default)]
pub(in crate::kubelet::devices) struct DeviceChoice {
    left: Left,
    facts: Option<PodFacts>,
    /// Free devices by resource, collected for the first container that needs some.
    free: SortedMap<String, FreeDevices>,
}

/// What the choice for each container needs of the whole pod.
#[derive(Debug)]
struct PodFacts {
    selectors: DeviceSelectors,
    /// The containers that keep their devices.
    staying: SortedSet<String>,
    /// The resources of all allocations on the node.
    allocated: SortedSet<String>,
}

/// Free devices that the pod accepts, by their NUMA nodes, in the order of their ids.
#[derive(Debug, Default)]
struct FreeDevices {
    groups: Vec<(Nodes, VecDeque<String>)>,
    count: usize,
}

impl FreeDevices {
    fn add(&mut self, nodes: Nodes, id: &str) {
        self.count += 1;
        match self.groups.iter_mut().find(|(other, _)| *other == nodes) {
            Some((_, group)) => group.push_back(id.to_owned()),
            None => self.groups.push((nodes, VecDeque::from([id.to_owned()]))),
        }
    }

    /// The first device of this proximity.
    fn take(&mut self, preferred_nodes: Option<Nodes>, wanted: NumaProximity) -> Option<String> {
        let groups =
            self.groups.iter_mut().filter(|(group_nodes, _)| proximity(preferred_nodes, *group_nodes) == wanted);
        let (_, group) = groups
            .filter(|(_, group)| !group.is_empty())
            .min_by(|(_, first_group), (_, second_group)| first_group.front().cmp(&second_group.front()))?;
        self.count -= 1;
        group.pop_front()
    }
}

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
        let mut choice = DeviceChoice::default();
        in_order(pod).try_for_each(|(container, _)| self.choose_for(pod, container, &runs, &mut choice))
    }

    /// Chooses for one container, after those before it.
    pub(in crate::kubelet::devices) fn choose_for(
        &mut self,
        pod: &Pod,
        container: &Container,
        runs: &dyn Fn(&str) -> bool,
        choice: &mut DeviceChoice,
    ) -> Result<(), InsufficientDevices> {
        let facts = match choice.facts.take() {
            Some(facts) => facts,
            None => self.facts(pod)?,
        };
        let chosen = self.choose_with(&facts, pod, container, runs, choice);
        choice.facts = Some(facts);
        chosen
    }

    fn facts(&self, pod: &Pod) -> Result<PodFacts, InsufficientDevices> {
        let staying = in_order(pod).filter(|(_, stays)| *stays).map(|(container, _)| container.name.clone());
        Ok(PodFacts {
            selectors: selectors(pod)?,
            staying: staying.collect(),
            allocated: self.entries.iter().map(|allocation| allocation.resource.clone()).collect(),
        })
    }

    fn choose_with(
        &mut self,
        facts: &PodFacts,
        pod: &Pod,
        container: &Container,
        runs: &dyn Fn(&str) -> bool,
        choice: &mut DeviceChoice,
    ) -> Result<(), InsufficientDevices> {
        let uid = &pod.metadata.uid;
        let stays = facts.staying.contains(&container.name);
        for (name, count) in requested_devices(pod, container) {
            let is_known = self.is_unread || self.resources.contains_key(name) || facts.allocated.contains(name);
            if !is_known {
                if pod.is_static() {
                    return Err(InsufficientDevices(format!("no device plugin has registered {name}")));
                }
                // A resource unknown to this node is accounted by the cluster.
                continue;
            }
            if self.is_given(uid, &container.name, name, count, choice, runs)? {
                // It keeps its devices.
            } else if count > 0 && !runs(&container.name) {
                let ids = self.free(uid, container, (name, count), &facts.selectors, choice)?;
                let allocation = self.give(uid, &container.name, name, ids);
                self.entries.push(allocation);
            }
            let selectable = choice.left.entry(name.to_owned()).or_default();
            let has = self.entries.of(uid, &container.name, name).into_iter();
            for id in has.flat_map(DeviceAllocation::ids) {
                if stays {
                    selectable.remove(id);
                } else {
                    selectable.insert(id.clone());
                }
            }
        }
        Ok(())
    }

    /// Sets the preferred NUMA nodes of the container.
    pub(in crate::kubelet::devices) fn prefer_nodes(&mut self, pod: &PodUid, container: &str, nodes: Nodes) {
        self.near.insert((pod.clone(), container.to_owned()), nodes);
    }

    /// The topology hints for each resource of the container, or of the pod as a whole (`GetTopologyHints` and
    /// `GetPodTopologyHints`). A pod that may wait for devices gets no empty hints.
    pub(in crate::kubelet::devices) fn hints(
        &self,
        all_nodes: Nodes,
        pod: &Pod,
        container: Option<&Container>,
        choice: &DeviceChoice,
        may_wait: bool,
    ) -> Vec<Hints> {
        let amounts =
            container.map_or_else(|| most_at_once(pod), |container| requested_devices(pod, container).collect());
        let none = SortedSet::new();
        let mut hints_by_resource = Vec::new();
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
            let left = choice.left.get(name).filter(|_| container.is_some() && !has_any).unwrap_or(&none);
            if !has_any {
                free.extend(self.available(name).filter(|id| !left.contains(*id)));
            }
            let total = free.len() + left.len();
            let is_enough = if has_any { total == count } else { total >= count };
            if is_enough {
                hints_by_resource.push(resource.hints(all_nodes, &free, left, count));
            } else if !may_wait {
                hints_by_resource.push(Hints::new());
            }
        }
        hints_by_resource
    }

    /// Whether the container already has its devices and can keep them.
    fn is_given(
        &mut self,
        uid: &PodUid,
        container: &str,
        name: &str,
        count: usize,
        choice: &mut DeviceChoice,
        runs: impl Fn(&str) -> bool,
    ) -> Result<bool, InsufficientDevices> {
        let Some(allocation) = self.entries.of_mut(uid, container, name) else {
            return Ok(false);
        };
        let lost =
            |resource: &Resource| resource.is_local && resource.is_told && !allocation.ids().all(|id| resource.has(id));
        if !runs(container) && self.resources.get(name).is_some_and(lost) {
            self.entries.retain(|allocation| !allocation.is_of(uid, container, name));
            // Some of its devices are free now.
            choice.free.remove(name);
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
        choice: &mut DeviceChoice,
    ) -> Result<Vec<String>, InsufficientDevices> {
        let resource = self.resources.get(name).ok_or_else(|| unregistered(name))?;
        if resource.healthy().next().is_none() {
            return Err(none_healthy(name));
        }
        let is_accepted =
            |id: &str| resource.devices.get(id).is_some_and(|device| selectors.accept(name, &device.attributes));
        let left = choice.left.get(name).into_iter().flat_map(SortedSet::iter);
        let mut ids: Vec<String> = left.take(count).cloned().collect();
        let free = choice.free.entry(name.to_owned()).or_insert_with(|| {
            let mut free = FreeDevices::default();
            let accepted = self.available(name).filter(|id| is_accepted(id));
            accepted.for_each(|id| free.add(resource.nodes_of(id), id));
            free
        });
        let (needed, preferred_nodes) = (count - ids.len(), self.preferred_nodes(pod, &container.name));
        if free.count < needed {
            return Err(InsufficientDevices(format!(
                "requested number of devices unavailable for {name}. Requested: {needed}, Available: {}{}",
                free.count,
                if selectors.resources().any(|resource| resource == name) { " (as the pod selects)" } else { "" }
            )));
        }
        for numa_proximity in IN_ORDER {
            let at_proximity = std::iter::from_fn(|| free.take(preferred_nodes, numa_proximity));
            ids.extend(at_proximity.take(count - ids.len()));
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
        if !resource.options.get_preferred_allocation_available {
            return None;
        }
        let allocated_ids: Vec<&String> = allocation.ids().collect();
        let others = |other: &&DeviceAllocation| {
            let is_kind = other.pod == allocation.pod && other.resource == allocation.resource;
            is_kind && other.container != allocation.container
        };
        let reused: SortedSet<&String> = self.entries.iter().filter(others).flat_map(DeviceAllocation::ids).collect();
        let mut kept: Vec<String> =
            allocated_ids.iter().filter(|id| reused.contains(**id)).map(|id| (*id).clone()).collect();
        let needed = allocated_ids.len() - kept.len();
        let free = self.available(&allocation.resource).map(str::to_owned);
        let free = free.chain(allocated_ids.iter().filter(|id| !reused.contains(**id)).map(|id| (*id).clone()));
        let preferred_nodes = self.preferred_nodes(&allocation.pod, &allocation.container);
        let is_near = |id: &String| resource.proximity(preferred_nodes, id) == NumaProximity::Near;
        let (aligned, others): (Vec<String>, Vec<String>) = free.partition(is_near);
        let mut available_ids = kept.clone();
        if needed < aligned.len() {
            available_ids.extend(aligned);
        } else {
            // All of them, so that the topology manager's decision holds.
            available_ids.extend(others);
            available_ids.extend_from_slice(&aligned);
            kept.extend(aligned);
        }
        available_ids.sort_once();
        let has_choice = kept.len() < allocated_ids.len() && allocated_ids.len() < available_ids.len();
        has_choice.then_some((available_ids, kept))
    }

    /// Applies the plugin's preference as far as the devices are available; the rest stays as chosen.
    pub(in crate::kubelet::devices) fn prefer(&mut self, allocation: &DeviceAllocation, preferred: &[String]) {
        let Some((available_ids, kept)) = self.choice(allocation) else { return };
        let Some(resource) = self.resources.get(&allocation.resource) else { return };
        let preferred_nodes = self.preferred_nodes(&allocation.pod, &allocation.container);
        let candidate_ids: Vec<&String> = allocation.ids().chain(&available_ids).collect();
        let in_order = IN_ORDER.iter().flat_map(|numa_proximity| {
            candidate_ids.iter().copied().filter(move |id| resource.proximity(preferred_nodes, id) == *numa_proximity)
        });
        let count = allocation.ids().count();
        let mut ids = kept;
        // The plugin's answer may be long: each id is looked up once.
        let kept: SortedSet<String> = ids.iter().cloned().collect();
        let mut taken: Vec<bool> = available_ids.iter().map(|id| kept.contains(id)).collect();
        for id in preferred.iter().chain(in_order) {
            if ids.len() >= count {
                break;
            }
            let index = available_ids.binary_search(id).ok().and_then(|index| taken.get_mut(index));
            if index.is_some_and(|taken| !std::mem::replace(taken, true)) {
                ids.push(id.clone());
            }
        }
        let changed_allocation = self.give(&allocation.pod, &allocation.container, &allocation.resource, ids);
        let DeviceAllocation { pod, container, resource, .. } = allocation;
        let current = self.entries.of_mut(pod, container, resource);
        if let Some(entry) = current.filter(|current| current.response.is_none()) {
            *entry = changed_allocation;
        }
    }

    fn preferred_nodes(&self, pod: &PodUid, container: &str) -> Option<Nodes> {
        self.near.get(&(pod.clone(), container.to_owned())).copied()
    }
}

impl Resource {
    /// Whether any device has a NUMA node.
    fn has_nodes(&self) -> bool {
        self.devices.values().any(|device| !device.nodes.is_empty())
    }

    fn proximity(&self, preferred_nodes: Option<Nodes>, id: &str) -> NumaProximity {
        proximity(preferred_nodes, self.nodes_of(id))
    }

    fn nodes_of(&self, id: &str) -> Nodes {
        self.devices.get(id).map(Device::near).unwrap_or_default()
    }

    /// The node sets for `count` devices out of `free`, including all of `left` (`generateDeviceTopologyHints`).
    fn hints(&self, all_nodes: Nodes, free: &[&str], left: &SortedSet<String>, count: usize) -> Hints {
        let could = |nodes| self.devices.values().filter(|device| device.near().overlaps(nodes)).count() >= count;
        let can = |nodes| {
            let left = left.iter().map(|id| self.nodes_of(id)).filter(|device_nodes| *device_nodes != Nodes::default());
            let free = free.iter().filter(|id| self.nodes_of(id).overlaps(nodes)).count();
            left.clone().all(|device_nodes| device_nodes.overlaps(nodes)) && left.count() + free >= count
        };
        resource_managers::hints(all_nodes, &could, &can)
    }
}

fn proximity(preferred_nodes: Option<Nodes>, device_nodes: Nodes) -> NumaProximity {
    match preferred_nodes {
        Some(nodes) if device_nodes.overlaps(nodes) => NumaProximity::Near,
        Some(_) if device_nodes != Nodes::default() => NumaProximity::Elsewhere,
        _ => NumaProximity::Anywhere,
    }
}

impl Device {
    fn near(&self) -> Nodes {
        self.nodes.iter().filter_map(|node| u32::try_from(*node).ok()).collect()
    }
}

/// The pod's maximum use of each resource at any time (`getPodDeviceRequest`).
fn most_at_once(pod: &Pod) -> Vec<(&str, usize)> {
    let names = in_order(pod).flat_map(|(container, _)| requested_devices(pod, container));
    let mut uses: SortedMap<&str, (usize, usize)> = names.map(|(name, _)| (name, (0, 0))).collect();
    for (container, stays) in in_order(pod) {
        for (name, count) in requested_devices(pod, container) {
            let Some((most, staying)) = uses.get_mut(name) else { continue };
            let now = staying.saturating_add(count);
            *most = now.max(*most);
            if stays {
                *staying = now;
            }
        }
    }
    uses.into_iter().map(|(name, (most, _))| (name, most)).collect()
}

fn unregistered(name: &str) -> InsufficientDevices {
    InsufficientDevices(format!("cannot allocate unregistered device {name}"))
}

fn none_healthy(name: &str) -> InsufficientDevices {
    InsufficientDevices(format!("no healthy devices present; cannot allocate unhealthy devices {name}"))
}
