//! Which devices there are, and to whom they have been given. Pure: the moment is an argument.
//!
//! As upstream decides it (pkg/kubelet/cm/devicemanager/manager.go), but for what ARCHITECTURE.md tells of.

mod choice;

use std::time::{Duration, Instant};

use super::v1beta1::{self, ContainerAllocateResponse, DevicePluginOptions, HEALTHY};
use crate::kubelet::resource_managers::Nodes;
use crate::state::pods::AllocatedDevices;
use crate::types::api::{Container, Format, Pod, PodUid, Quantity, ResourceList, is_extended_resource};
use crate::types::sorted::{SortedMap, SortedSet};

#[derive(Debug, Default)]
pub(super) struct DeviceAllocations {
    resources: SortedMap<String, Resource>,
    /// What each container has, or is about to get.
    pub(super) given: Vec<Given>,
    /// The NUMA nodes that a container's devices are to be near to, by pod and container.
    near: Vec<(PodUid, String, Nodes)>,
    /// Resources that were there once: the cluster is told that there are none.
    gone: SortedSet<String>,
    registrations: u64,
    /// The checkpoint could not be read yet: a pod may have had any device.
    pub(super) is_unread: bool,
}

/// All devices of one kind, and who tells of them.
#[derive(Debug, Default)]
struct Resource {
    devices: SortedMap<String, Device>,
    /// Tells one plugin of this resource from the one before.
    registration: Registration,
    options: DevicePluginOptions,
    /// Nobody has told of them since; what remains is forgotten after a while.
    stopped: Option<Instant>,
    /// Whoever tells of them now has done so.
    is_told: bool,
    /// They are by a rule of this node: one does as well as another.
    is_local: bool,
}

#[derive(Debug)]
struct Device {
    is_healthy: bool,
    /// The NUMA nodes that it is near to.
    nodes: Vec<i64>,
}

pub(super) use choice::Left;

/// One plugin's time; a later one of the same resource has another.
pub(super) type Registration = u64;

/// Devices of one resource that a container has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Given {
    pub(super) pod: PodUid,
    pub(super) container: String,
    pub(super) resource: String,
    /// By NUMA node; those that are near to none are under -1.
    pub(super) ids: SortedMap<i64, Vec<String>>,
    /// `None`: chosen, and the plugin has not been told yet.
    pub(super) response: Option<ContainerAllocateResponse>,
    /// This process has seen that they are there, or that the container runs with them.
    pub(super) is_confirmed: bool,
}

/// Why a pod does not get what it asks for: upstream's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lacks(pub(crate) String);

const WITHOUT_NODE: i64 = -1;
/// So long resources stay without a plugin (`endpointStopGracePeriod`).
const GRACE: Duration = Duration::from_secs(5 * 60);

impl DeviceAllocations {
    /// What an earlier process has written down. Plugins that registered then have so long to come back.
    pub(super) fn restore(&mut self, given: Vec<Given>, resources: Vec<String>, now: Instant) {
        for name in resources {
            self.resources.insert(name, Resource { stopped: Some(now), ..Resource::default() });
        }
        for one in given {
            // Of two entries about one place the later counts, as of two keys.
            self.given.retain(|other| !one.is_of(&other.pod, &other.container, &other.resource));
            self.given.push(one);
        }
    }

    /// The same when pods have got devices since: they keep them, and an entry about one of these devices is left out.
    pub(super) fn merge(&mut self, given: Vec<Given>, resources: Vec<String>, now: Instant) {
        for name in resources {
            self.resources.entry(name).or_insert_with(|| Resource { stopped: Some(now), ..Resource::default() });
        }
        for one in given {
            let is_same = |other: &Given| {
                let shares = other.resource == one.resource && other.ids().any(|id| one.ids().any(|own| own == id));
                shares || other.is_same_place(&one)
            };
            if !self.given.iter().any(is_same) {
                self.given.push(one);
            }
        }
    }

    /// A container that is there has this, though nothing was written down of it. True if that is news.
    pub(super) fn learn(&mut self, one: Given, now: Instant) -> bool {
        if self.given.iter().any(|other| other.is_same_place(&one)) {
            return false;
        }
        let stopped = || Resource { stopped: Some(now), ..Resource::default() };
        self.resources.entry(one.resource.clone()).or_insert_with(stopped);
        self.given.push(one);
        true
    }

    pub(super) fn registered(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        self.resources.iter().map(|(name, resource)| (name.as_str(), resource.healthy().collect()))
    }

    /// A plugin has come. Its devices are those of the one before until it tells of its own.
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

    /// A resource of which a rule of the node tells.
    pub(super) fn add_local(&mut self, name: &str) {
        self.register(name, DevicePluginOptions::default());
        if let Some(resource) = self.resources.get_mut(name) {
            resource.is_local = true;
        }
    }

    /// The devices of a rule as they are now.
    pub(super) fn tell_local(&mut self, name: &str, devices: Vec<v1beta1::Device>) -> bool {
        let registration = self.resources.get(name).map(|resource| resource.registration);
        registration.is_some_and(|registration| self.tell(name, registration, devices))
    }

    /// A plugin tells of all of its devices. True if that is news.
    pub(super) fn tell(&mut self, name: &str, registration: Registration, devices: Vec<v1beta1::Device>) -> bool {
        let Some(resource) = self.resources.get_mut(name).filter(|one| one.registration == registration) else {
            return false;
        };
        let devices = devices.into_iter().map(|device| {
            let nodes = device.topology.into_iter().flat_map(|topology| topology.nodes).map(|node| node.id);
            (device.id, Device { is_healthy: device.health == HEALTHY, nodes: nodes.collect() })
        });
        let devices: SortedMap<String, Device> = devices.collect();
        let same = devices.len() == resource.devices.len()
            && devices.iter().zip(&resource.devices).all(|((id, new), (old_id, old))| {
                id == old_id && new.is_healthy == old.is_healthy && new.nodes == old.nodes
            });
        resource.devices = devices;
        !std::mem::replace(&mut resource.is_told, true) || !same
    }

    /// The plugin has gone: what it told of is still there, and can be given to nobody.
    pub(super) fn stop(&mut self, name: &str, registration: Registration, now: Instant) -> bool {
        let Some(resource) = self.resources.get_mut(name).filter(|one| one.registration == registration) else {
            return false;
        };
        for device in resource.devices.values_mut() {
            device.is_healthy = false;
        }
        resource.stopped = Some(now);
        true
    }

    /// Forgets resources whose plugin has not come back. True if there were any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let gone: Vec<String> = self.expiring().filter(|(_, at)| *at <= now).map(|(name, _)| name.to_owned()).collect();
        for name in &gone {
            self.resources.remove(name);
            self.gone.insert(name.clone());
        }
        !gone.is_empty()
    }

    /// When the next resource is forgotten.
    pub(super) fn due(&self) -> Option<Instant> {
        self.expiring().map(|(_, at)| at).min()
    }

    fn expiring(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.resources.iter().filter_map(|(name, resource)| Some((name.as_str(), resource.stopped? + GRACE)))
    }

    /// What a node has, and what of it pods can get.
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
            allocatable.insert(name, amount(resource.healthy().count()));
        }
        lists
    }

    /// Takes back what pods have that are no more. True if there was anything.
    pub(super) fn keep_only(&mut self, stays: impl Fn(&PodUid) -> bool) -> bool {
        let before = self.given.len();
        self.given.retain(|given| stays(&given.pod));
        self.near.retain(|(pod, ..)| stays(pod));
        self.given.len() != before
    }

    /// Whether the pod asks for any device that somebody has told of, or has one.
    pub(super) fn concerns(&self, pod: &Pod) -> bool {
        in_order(pod)
            .flat_map(|(container, _)| asked(container))
            .any(|(name, _)| self.is_known(name) || pod.is_static())
    }

    pub(super) fn is_known(&self, resource: &str) -> bool {
        self.is_unread
            || self.resources.contains_key(resource)
            || self.given.iter().any(|given| given.resource == resource)
    }

    /// Chooses devices for all containers of the pod that have none. `runs` tells of containers that need not be seen to.
    /// Nothing is chosen if it does not do for all of them.
    pub(super) fn reserve(&mut self, pod: &Pod, runs: impl Fn(&str) -> bool) -> Result<(), Lacks> {
        let chosen = self.choose(pod, runs);
        if chosen.is_err() {
            self.give_up(&pod.metadata.uid);
        }
        chosen
    }

    /// The pod gets nothing more than it has: what was only chosen for it is free again.
    pub(super) fn give_up(&mut self, pod: &PodUid) {
        self.given.retain(|given| given.pod != *pod || given.response.is_some());
    }

    /// Healthy, and nobody's.
    fn available<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let taken = move |id: &str| {
            let mut of_kind = self.given.iter().filter(|given| given.resource == name);
            of_kind.any(|given| given.ids().any(|other| other == id))
        };
        self.resources.get(name).into_iter().flat_map(Resource::healthy).filter(move |id| !taken(id))
    }

    fn give(&self, pod: &PodUid, container: &str, name: &str, chosen: Vec<String>) -> Given {
        let ids = self.by_node(name, chosen.into_iter());
        Given {
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
            for node in if nodes.is_empty() { &[WITHOUT_NODE] } else { nodes } {
                ids.entry(*node).or_default().push(id.clone());
            }
        }
        ids
    }

    /// All that can be given or has been, by resource and by NUMA node.
    pub(super) fn healthy(&self) -> impl Iterator<Item = (&str, SortedMap<i64, Vec<String>>)> {
        let ids = |name: &String, resource: &Resource| self.by_node(name, resource.healthy().map(str::to_owned));
        self.resources.iter().map(move |(name, resource)| (name.as_str(), ids(name, resource)))
    }

    /// What the plugins have not been told of yet.
    pub(super) fn unanswered(&self, pod: &PodUid) -> Vec<Given> {
        self.given.iter().filter(|given| given.pod == *pod && given.response.is_none()).cloned().collect()
    }

    /// The plugin has said what comes with the devices. False if they have been taken back meanwhile.
    pub(super) fn answered(&mut self, given: &Given, response: ContainerAllocateResponse) -> bool {
        let place = self.given.iter_mut().find(|one| one.is_same_place(given) && one.ids == given.ids);
        place.map(|place| place.response = Some(response)).is_some()
    }

    /// The chosen devices as they are now: another process of choosing may have changed them.
    pub(super) fn current(&self, given: &Given) -> Option<&Given> {
        self.given.iter().find(|one| one.is_same_place(given))
    }

    pub(super) fn of_container<'a>(&'a self, pod: &'a PodUid, container: &'a str) -> impl Iterator<Item = &'a Given> {
        self.given.iter().filter(move |given| given.pod == *pod && given.container == container)
    }

    pub(super) fn options(&self, resource: &str) -> Option<(&DevicePluginOptions, bool)> {
        self.resources.get(resource).map(|resource| (&resource.options, resource.stopped.is_none()))
    }

    /// What the pod's containers have, and whether each of it is healthy.
    pub(super) fn shown(&self, pod: &PodUid) -> Vec<AllocatedDevices> {
        let of_pod = self.given.iter().filter(|given| given.pod == *pod);
        let shown = |given: &Given| {
            let resource = self.resources.get(&given.resource);
            let health = |id: &String| match resource.and_then(|resource| resource.devices.get(id)) {
                Some(device) => device.is_healthy,
                // What nobody tells of yet is not known to be ill; what is told of no more is gone.
                None => resource.is_none_or(|resource| !resource.is_told),
            };
            AllocatedDevices {
                container: given.container.clone(),
                resource: given.resource.clone(),
                devices: given.ids().map(|id| (id.clone(), health(id))).collect(),
            }
        };
        let mut shown: Vec<AllocatedDevices> = of_pod.map(shown).collect();
        shown.sort_by(|one, other| (&one.container, &one.resource).cmp(&(&other.container, &other.resource)));
        shown
    }
}

impl Given {
    fn is_of(&self, pod: &PodUid, container: &str, resource: &str) -> bool {
        self.pod == *pod && self.container == container && self.resource == resource
    }

    fn is_same_place(&self, other: &Self) -> bool {
        self.is_of(&other.pod, &other.container, &other.resource)
    }

    /// Each once, whatever it is near to, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = &String> {
        let ids: SortedSet<&String> = self.ids.values().flatten().collect();
        ids.into_iter()
    }
}

impl Resource {
    /// It is there, and healthy.
    fn has(&self, id: &str) -> bool {
        self.devices.get(id).is_some_and(|device| device.is_healthy)
    }

    fn healthy(&self) -> impl Iterator<Item = &str> {
        self.devices.iter().filter(|(_, device)| device.is_healthy).map(|(id, _)| id.as_str())
    }
}

/// The containers in the order in which they begin; false for one that ends before those after it begin.
fn in_order(pod: &Pod) -> impl Iterator<Item = (&Container, bool)> {
    let init = pod.spec.init_containers.iter().map(|container| (container, container.is_sidecar()));
    init.chain(pod.spec.containers.iter().map(|container| (container, true)))
}

/// Each limit of extended resources.
fn asked(container: &Container) -> impl Iterator<Item = (&str, usize)> {
    let limits = container.resources.limits.iter().filter(|(name, _)| is_extended_resource(name));
    limits.map(|(name, count)| (name, usize::try_from(count.value()).unwrap_or(0)))
}
