//! The devices and their allocations. Pure: time is an argument.
//!
//! Follows upstream (pkg/kubelet/cm/devicemanager/manager.go), with the exceptions listed in
//! docs/differences-from-upstream.md.

mod allocation_list;
mod choice;

use std::time::{Duration, Instant};

use super::device_name::device_name;
use super::v1beta1::{self, ContainerAllocateResponse, DevicePluginOptions, HEALTHY};
use crate::kubelet::resource_managers::Nodes;
use crate::state::objects::is_backed_by_claim;
use crate::state::pods::{AllocatedDevice, AllocatedDevices, DeviceHealth};
use crate::types::api::{
    Container, DeviceAttributes, DeviceSelectors, Format, Pod, PodUid, Quantity, ResourceList, annotations,
    is_extended_resource,
};
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

#[derive(Debug, Default)]
pub(super) struct DeviceAllocations {
    resources: SortedMap<String, Resource>,
    /// Allocated and chosen devices of each container.
    pub(super) entries: AllocationList,
    /// Preferred NUMA nodes by pod and container.
    near: SortedMap<(PodUid, String), Nodes>,
    /// Resources that no longer exist: reported with a capacity of zero.
    gone: SortedSet<String>,
    registrations: u64,
    /// Device files that ResourceClaims allocate, by [`device_name`], with the claim.
    claimed: SortedMap<String, String>,
    /// The checkpoint could not be read yet, so any pod may have devices.
    pub(super) is_unread: bool,
}

/// The devices of one resource and their plugin.
#[derive(Debug, Default)]
struct Resource {
    devices: SortedMap<String, Device>,
    /// Distinguishes a plugin from the previous one of the same resource.
    registration: Registration,
    options: DevicePluginOptions,
    /// When the plugin stopped; the resource is removed after a grace period.
    stopped: Option<Instant>,
    /// The current plugin has sent its device list.
    is_told: bool,
    /// Device files matched by a rule of this node; any device is as good as another.
    is_local: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Device {
    is_healthy: bool,
    /// NUMA nodes of the device.
    nodes: Vec<i64>,
    /// Only of device files.
    attributes: DeviceAttributes,
}

/// A device file that a rule found.
pub(super) struct DeviceFile {
    pub(super) path: String,
    pub(super) attributes: DeviceAttributes,
}

pub(super) use allocation_list::AllocationList;
pub(super) use choice::DeviceChoice;

/// Number of a plugin registration; each new one of a resource is different.
pub(super) type Registration = u64;

/// Devices of one resource allocated to a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DeviceAllocation {
    pub(super) pod: PodUid,
    pub(super) container: String,
    pub(super) resource: String,
    /// By NUMA node; devices without NUMA nodes are under -1.
    pub(super) ids: SortedMap<i64, Vec<String>>,
    /// `None`: chosen, but Allocate was not called yet.
    pub(super) response: Option<ContainerAllocateResponse>,
    /// This process has seen the devices, or the running container that uses them.
    pub(super) is_confirmed: bool,
}

/// A device, and the pod and container that have it.
pub(super) struct ListedDevice<'a> {
    pub(super) resource: &'a str,
    pub(super) id: &'a str,
    pub(super) is_healthy: bool,
    pub(super) attributes: &'a DeviceAttributes,
    pub(super) holder: Option<(&'a PodUid, &'a str)>,
    /// The ResourceClaim that allocates it.
    pub(super) claim: Option<&'a str>,
}

/// Why devices cannot be allocated, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InsufficientDevices(pub(crate) String);

const WITHOUT_NUMA_NODE: i64 = -1;
/// How long a resource stays after its plugin has stopped (`endpointStopGracePeriod`).
const ENDPOINT_STOP_GRACE: Duration = Duration::from_secs(5 * 60);

impl DeviceAllocations {
    /// Loads the checkpoint of an earlier process. Its plugins have the grace period to register again.
    pub(super) fn restore(&mut self, entries: Vec<DeviceAllocation>, resources: Vec<String>, now: Instant) {
        for name in resources {
            self.resources.insert(name, Resource { stopped: Some(now), ..Resource::default() });
        }
        for entry in entries {
            // A later entry for the same container and resource replaces an earlier one.
            self.entries.push(entry);
        }
    }

    /// Loads a checkpoint after pods have been allocated devices: the pods keep them, and conflicting entries are
    /// dropped.
    pub(super) fn merge(&mut self, entries: Vec<DeviceAllocation>, resources: Vec<String>, now: Instant) {
        for name in resources {
            self.resources.entry(name).or_insert_with(|| Resource { stopped: Some(now), ..Resource::default() });
        }
        for entry in entries {
            let ids: SortedSet<&String> = entry.ids().collect();
            let is_same = |other: &DeviceAllocation| {
                let shares = other.resource == entry.resource && other.ids().any(|id| ids.contains(id));
                shares || other.is_same_place(&entry)
            };
            if !self.entries.iter().any(is_same) {
                self.entries.push(entry);
            }
        }
    }

    /// Adds the devices of an existing container without a checkpoint entry. True if anything changed.
    pub(super) fn adopt(&mut self, allocation: DeviceAllocation, now: Instant) -> bool {
        if self.current(&allocation).is_some() {
            return false;
        }
        let stopped = || Resource { stopped: Some(now), ..Resource::default() };
        self.resources.entry(allocation.resource.clone()).or_insert_with(stopped);
        self.entries.push(allocation);
        true
    }

    pub(super) fn registered(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.resources.iter().map(|(name, resource)| (name.as_str(), resource.healthy().collect()))
    }

    /// A plugin has registered. The previous plugin's devices stay until the first list.
    pub(super) fn register(&mut self, name: &str, options: DevicePluginOptions) -> Registration {
        self.registrations += 1;
        let resource = self.resources.entry(name.to_owned()).or_default();
        resource.registration = self.registrations;
        resource.options = options;
        resource.stopped = None;
        resource.is_told = false;
        self.gone.remove(name);
        self.registrations
    }

    /// Adds a resource defined by a rule of the node.
    pub(super) fn add_local(&mut self, name: &str) {
        self.register(name, DevicePluginOptions::default());
        if let Some(resource) = self.resources.get_mut(name) {
            resource.is_local = true;
        }
    }

    /// Sets the devices of a rule. True if they changed.
    pub(super) fn set_rule_devices(&mut self, name: &str, files: Vec<DeviceFile>) -> bool {
        let Some(resource) = self.resources.get_mut(name) else { return false };
        let devices = files
            .into_iter()
            .map(|file| (file.path, Device { is_healthy: true, nodes: Vec::new(), attributes: file.attributes }));
        let devices: SortedMap<String, Device> = devices.collect();
        let is_same = resource.devices == devices;
        resource.devices = devices;
        !std::mem::replace(&mut resource.is_told, true) || !is_same
    }

    /// Sets the device list of a plugin. True if it changed.
    pub(super) fn set_devices(
        &mut self,
        name: &str,
        registration: Registration,
        devices: Vec<v1beta1::Device>,
    ) -> bool {
        let Some(resource) = self.resources.get_mut(name).filter(|entry| entry.registration == registration) else {
            return false;
        };
        let devices = devices.into_iter().map(|device| {
            let nodes = device.topology.into_iter().flat_map(|topology| topology.nodes).map(|node| node.id);
            let is_healthy = device.health == HEALTHY;
            (device.id, Device { is_healthy, nodes: nodes.collect(), attributes: DeviceAttributes::new() })
        });
        let devices: SortedMap<String, Device> = devices.collect();
        let is_same = devices == resource.devices;
        resource.devices = devices;
        !std::mem::replace(&mut resource.is_told, true) || !is_same
    }

    /// The plugin has stopped: its devices become unhealthy and cannot be allocated.
    pub(super) fn stop(&mut self, name: &str, registration: Registration, now: Instant) -> bool {
        let Some(resource) = self.resources.get_mut(name).filter(|entry| entry.registration == registration) else {
            return false;
        };
        for device in resource.devices.values_mut() {
            device.is_healthy = false;
        }
        resource.stopped = Some(now);
        true
    }

    /// Removes resources whose plugin has not come back. True if there were any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let gone: Vec<String> = self.expiring().filter(|(_, at)| *at <= now).map(|(name, _)| name.to_owned()).collect();
        for name in &gone {
            self.resources.remove(name);
            self.gone.insert(name.clone());
        }
        !gone.is_empty()
    }

    /// When the next resource is removed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.expiring().map(|(_, at)| at).min()
    }

    fn expiring(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.resources
            .iter()
            .filter_map(|(name, resource)| Some((name.as_str(), resource.stopped? + ENDPOINT_STOP_GRACE)))
    }

    /// Capacity and allocatable.
    pub(super) fn amounts(&self) -> [ResourceList; 2] {
        let amount = |count: usize| Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi);
        let mut lists = [ResourceList::new(), ResourceList::new()];
        let [capacity, allocatable] = &mut lists;
        for name in &self.gone {
            capacity.insert(name, Quantity::ZERO);
            allocatable.insert(name, Quantity::ZERO);
        }
        for (name, resource) in &self.resources {
            capacity.insert(name, amount(resource.devices.len()));
            allocatable.insert(name, amount(resource.healthy().filter(|id| !self.is_claimed(resource, id)).count()));
        }
        lists
    }

    /// Releases the devices of pods that are gone. True if there were any.
    pub(super) fn keep_only(&mut self, stays: impl Fn(&PodUid) -> bool) -> bool {
        self.near.retain(|(pod, _), _| stays(pod));
        self.entries.retain(|allocation| stays(&allocation.pod))
    }

    /// Whether the pod requests a known device resource, or has devices.
    pub(super) fn concerns(&self, pod: &Pod) -> bool {
        in_order(pod)
            .flat_map(|(container, _)| requested_devices(pod, container))
            .any(|(name, _)| self.is_known(name) || pod.is_static())
    }

    pub(super) fn is_known(&self, resource: &str) -> bool {
        self.is_unread
            || self.resources.contains_key(resource)
            || self.entries.iter().any(|allocation| allocation.resource == resource)
    }

    /// Chooses devices for all containers of the pod without any. `runs`: running containers, which need no check.
    /// Chooses nothing if the devices do not suffice for all.
    pub(super) fn reserve(&mut self, pod: &Pod, runs: impl Fn(&str) -> bool) -> Result<(), InsufficientDevices> {
        let chosen = self.choose(pod, runs);
        if chosen.is_err() {
            self.release(&pod.metadata.uid);
        }
        chosen
    }

    /// Releases devices that were chosen for the pod but not allocated.
    pub(super) fn release(&mut self, pod: &PodUid) {
        self.entries.retain(|allocation| allocation.pod != *pod || allocation.response.is_some());
    }

    /// All devices, and who has them.
    pub(super) fn listed(&self) -> impl Iterator<Item = ListedDevice<'_>> {
        self.resources.iter().flat_map(move |(name, resource)| {
            let holders = self.holders(name);
            resource.devices.iter().map(move |(id, device)| {
                let holder = holders.get(id.as_str()).map(|held| (&held.pod, held.container.as_str()));
                let (is_healthy, attributes) = (device.is_healthy, &device.attributes);
                let claim = match self.is_claimed(resource, id) {
                    true => self.claimed.get(&device_name(id)).map(String::as_str),
                    false => None,
                };
                ListedDevice { resource: name, id, is_healthy, attributes, holder, claim }
            })
        })
    }

    /// The allocated devices of a resource; the first allocation of each.
    fn holders(&self, name: &str) -> SortedMap<&str, &DeviceAllocation> {
        let of_kind = self.entries.iter().rev().filter(|allocation| allocation.resource == name);
        of_kind.flat_map(|held| held.ids.values().flatten().map(move |id| (id.as_str(), held))).collect()
    }

    /// Healthy and not allocated.
    fn available<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let holders = self.holders(name);
        let resource = self.resources.get(name);
        let is_claimed = move |id: &str| resource.is_some_and(|resource| self.is_claimed(resource, id));
        let healthy = resource.into_iter().flat_map(Resource::healthy);
        healthy.filter(move |id| !holders.contains_key(*id) && !is_claimed(id))
    }

    fn is_claimed(&self, resource: &Resource, id: &str) -> bool {
        resource.is_local && !self.claimed.is_empty() && self.claimed.contains_key(&device_name(id))
    }

    /// Sets the device files that claims allocate. True if they changed.
    pub(super) fn set_claimed(&mut self, claimed: SortedMap<String, String>) -> bool {
        let is_new = self.claimed != claimed;
        self.claimed = claimed;
        is_new
    }

    /// The device files of all rules, and who has them.
    pub(super) fn local(&self) -> impl Iterator<Item = ListedDevice<'_>> {
        self.listed()
            .filter(move |device| self.resources.get(device.resource).is_some_and(|resource| resource.is_local))
    }

    fn give(&self, pod: &PodUid, container: &str, name: &str, chosen: Vec<String>) -> DeviceAllocation {
        let ids = self.by_node(name, chosen.into_iter());
        DeviceAllocation {
            pod: pod.clone(),
            container: container.to_owned(),
            resource: name.to_owned(),
            ids,
            response: None,
            is_confirmed: true,
        }
    }

    fn by_node(&self, name: &str, chosen: impl Iterator<Item = String>) -> SortedMap<i64, Vec<String>> {
        let mut ids: SortedMap<i64, Vec<String>> = SortedMap::new();
        let devices = self.resources.get(name).map(|resource| &resource.devices);
        for id in chosen {
            let nodes = devices.and_then(|devices| devices.get(&id)).map_or(&[][..], |device| &device.nodes);
            for node in if nodes.is_empty() { &[WITHOUT_NUMA_NODE] } else { nodes } {
                ids.entry(*node).or_default().push(id.clone());
            }
        }
        ids
    }

    /// All healthy devices, by resource and NUMA node.
    pub(super) fn healthy(&self) -> impl Iterator<Item = (&str, SortedMap<i64, Vec<String>>)> {
        let ids = |name: &String, resource: &Resource| self.by_node(name, resource.healthy().map(str::to_owned));
        self.resources.iter().map(move |(name, resource)| (name.as_str(), ids(name, resource)))
    }

    /// The pod's chosen devices for which Allocate was not called.
    pub(super) fn unallocated(&self, pod: &PodUid) -> Vec<DeviceAllocation> {
        self.entries
            .iter()
            .filter(|allocation| allocation.pod == *pod && allocation.response.is_none())
            .cloned()
            .collect()
    }

    /// Records the Allocate response. False if the devices were released meanwhile.
    pub(super) fn set_response(&mut self, allocation: &DeviceAllocation, response: ContainerAllocateResponse) -> bool {
        let DeviceAllocation { pod, container, resource, .. } = allocation;
        let allocated = self.entries.of_mut(pod, container, resource).filter(|entry| entry.ids == allocation.ids);
        allocated.map(|allocated| allocated.response = Some(response)).is_some()
    }

    /// The current state of these devices, which may have changed meanwhile.
    pub(super) fn current(&self, allocation: &DeviceAllocation) -> Option<&DeviceAllocation> {
        self.entries.of(&allocation.pod, &allocation.container, &allocation.resource)
    }

    pub(super) fn of_container<'a>(
        &'a self,
        pod: &'a PodUid,
        container: &'a str,
    ) -> impl Iterator<Item = &'a DeviceAllocation> {
        self.entries.of_container(pod, container)
    }

    pub(super) fn options(&self, resource: &str) -> Option<(&DevicePluginOptions, bool)> {
        self.resources.get(resource).map(|resource| (&resource.options, resource.stopped.is_none()))
    }

    /// The devices of the pod's containers and their health.
    pub(super) fn shown(&self, pod: &PodUid) -> Vec<AllocatedDevices> {
        let of_pod = self.entries.iter().filter(|allocation| allocation.pod == *pod);
        let shown = |allocation: &DeviceAllocation| {
            let resource = self.resources.get(&allocation.resource);
            let health = |id: &String| {
                let is_healthy = match resource.and_then(|resource| resource.devices.get(id)) {
                    Some(device) => device.is_healthy,
                    // Before the first list, health is assumed; a device missing from the list is gone.
                    None => resource.is_none_or(|resource| !resource.is_told),
                };
                if is_healthy { DeviceHealth::Healthy } else { DeviceHealth::Unhealthy }
            };
            let device = |id: &String| AllocatedDevice { id: id.clone(), health: health(id), message: String::new() };
            AllocatedDevices {
                container: allocation.container.clone(),
                resource: allocation.resource.clone(),
                devices: allocation.ids().map(device).collect(),
            }
        };
        let mut shown: Vec<AllocatedDevices> = of_pod.map(shown).collect();
        shown.sort_once_by(|one, other| (&one.container, &one.resource).cmp(&(&other.container, &other.resource)));
        shown
    }
}

impl DeviceAllocation {
    fn is_of(&self, pod: &PodUid, container: &str, resource: &str) -> bool {
        self.pod == *pod && self.container == container && self.resource == resource
    }

    fn is_same_place(&self, other: &Self) -> bool {
        self.is_of(&other.pod, &other.container, &other.resource)
    }

    /// The device ids, sorted and without duplicates.
    pub(super) fn ids(&self) -> impl Iterator<Item = &String> {
        let ids: SortedSet<&String> = self.ids.values().flatten().collect();
        ids.into_iter()
    }
}

impl Resource {
    /// The device exists and is healthy.
    fn has(&self, id: &str) -> bool {
        self.devices.get(id).is_some_and(|device| device.is_healthy)
    }

    fn healthy(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().filter(|(_, device)| device.is_healthy).map(|(id, _)| id.as_str())
    }
}

/// The conditions on devices in the pod's annotation. The error is upstream's kind of message for a refused pod.
pub(super) fn selectors(pod: &Pod) -> Result<DeviceSelectors, InsufficientDevices> {
    let Some(text) = pod.metadata.annotations.get(annotations::DEVICE_SELECTORS) else {
        return Ok(DeviceSelectors::default());
    };
    let refused = |why: String| InsufficientDevices(format!("annotation {}: {why}", annotations::DEVICE_SELECTORS));
    let selectors = DeviceSelectors::parse(text).map_err(refused)?;
    let requested = in_order(pod).flat_map(|(container, _)| requested_devices(pod, container));
    let requested: SortedSet<&str> = requested.filter(|(_, count)| *count > 0).map(|(name, _)| name).collect();
    let stray = selectors.resources().find(|resource| !requested.contains(*resource)).map(str::to_owned);
    match stray {
        Some(resource) => Err(refused(format!("no container has a limit of {resource}"))),
        None => Ok(selectors),
    }
}

/// The containers in the order of their start; false for init containers that end before the next one starts.
fn in_order(pod: &Pod) -> impl Iterator<Item = (&Container, bool)> {
    let init = pod.spec.init_containers.iter().map(|container| (container, container.is_sidecar()));
    init.chain(pod.spec.containers.iter().map(|container| (container, true)))
}

/// The limits of extended resources that no claim serves.
fn requested_devices<'a>(pod: &'a Pod, container: &'a Container) -> impl Iterator<Item = (&'a str, usize)> {
    let is_requested = |name: &str| is_extended_resource(name) && !is_backed_by_claim(pod, &container.name, name);
    let limits = container.resources.limits.iter().filter(move |(name, _)| is_requested(name));
    limits.map(|(name, count)| (name, usize::try_from(count.value()).unwrap_or(0)))
}
