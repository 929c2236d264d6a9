//! Which devices there are, and to whom they have been given. Pure: the moment is an argument.
//!
//! As upstream decides it (pkg/kubelet/cm/devicemanager/manager.go), but for what ARCHITECTURE.md tells of.

use std::time::{Duration, Instant};

use super::v1beta1::{self, ContainerAllocateResponse, DevicePluginOptions, HEALTHY};
use crate::api::{Container, Format, Pod, PodUid, Quantity, ResourceList, is_extended_resource};
use crate::pods::GivenDevices;
use crate::sorted::{SortedMap, SortedSet};

#[derive(Debug, Default)]
pub(super) struct DeviceBook {
    resources: SortedMap<String, Resource>,
    /// What each container has, or is about to get.
    pub(super) given: Vec<Given>,
    /// Resources that were there once: the cluster is told that there are none.
    gone: SortedSet<String>,
    registrations: u64,
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

impl DeviceBook {
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
        self.given.len() != before
    }

    /// Whether the pod asks for any device that somebody has told of, or has one.
    pub(super) fn concerns(&self, pod: &Pod) -> bool {
        wanted(pod).any(|(_, _, name, _)| self.is_known(name) || pod.is_static())
    }

    pub(super) fn is_known(&self, resource: &str) -> bool {
        self.resources.contains_key(resource) || self.given.iter().any(|given| given.resource == resource)
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

    fn choose(&mut self, pod: &Pod, runs: impl Fn(&str) -> bool) -> Result<(), Lacks> {
        let uid = &pod.metadata.uid;
        // What init containers leave when they end.
        let mut left: SortedMap<String, SortedSet<String>> = SortedMap::new();
        for (container, stays, name, count) in wanted(pod) {
            if !self.is_known(name) {
                if pod.is_static() {
                    return Err(Lacks(format!("no device plugin has told of {name}")));
                }
                // What nobody on this node knows of is the cluster's to count.
                continue;
            }
            let left = left.entry(name.to_owned()).or_default();
            if self.is_given(uid, &container.name, name, count, &runs)? {
                // As it was.
            } else if count > 0 && !runs(&container.name) {
                let ids = self.free(name, count, left)?;
                let given = self.give(uid, &container.name, name, ids);
                self.given.push(given);
            }
            let has = self.given.iter().filter(|given| given.is_of(uid, &container.name, name));
            for id in has.flat_map(Given::ids) {
                if stays {
                    left.remove(id);
                } else {
                    left.insert(id.clone());
                }
            }
        }
        Ok(())
    }

    /// Whether the container has its devices already, and can go on with them.
    fn is_given(
        &mut self,
        uid: &PodUid,
        container: &str,
        name: &str,
        count: usize,
        runs: impl Fn(&str) -> bool,
    ) -> Result<bool, Lacks> {
        let Some(given) = self.given.iter_mut().find(|given| given.is_of(uid, container, name)) else {
            return Ok(false);
        };
        let lost =
            |resource: &Resource| resource.is_local && resource.is_told && !given.ids().all(|id| resource.has(id));
        if !runs(container) && self.resources.get(name).is_some_and(lost) {
            self.given.retain(|given| !given.is_of(uid, container, name));
            return Ok(false);
        }
        let has = given.ids().count();
        if has != count {
            return Err(Lacks(format!(
                "pod {:?} container {container:?} changed request for resource {name:?} from {has} to {count}",
                uid.as_str()
            )));
        }
        if !given.is_confirmed && !runs(container) {
            let resource = self.resources.get(name).ok_or_else(|| unregistered(name))?;
            if resource.healthy().next().is_none() {
                return Err(none_healthy(name));
            }
            if !given.ids().all(|id| resource.has(id)) {
                return Err(Lacks(format!(
                    "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {name}"
                )));
            }
        }
        given.is_confirmed = true;
        Ok(true)
    }

    /// So many devices that nobody has, but for those that were `left`, which come first.
    fn free(&self, name: &str, count: usize, left: &SortedSet<String>) -> Result<Vec<String>, Lacks> {
        let resource = self.resources.get(name).ok_or_else(|| unregistered(name))?;
        if resource.healthy().next().is_none() {
            return Err(none_healthy(name));
        }
        let mut ids: Vec<String> = left.iter().take(count).cloned().collect();
        let needed = count - ids.len();
        let available: Vec<&str> = self.available(name).filter(|id| !left.contains(*id)).collect();
        if available.len() < needed {
            return Err(Lacks(format!(
                "requested number of devices unavailable for {name}. Requested: {needed}, Available: {}",
                available.len()
            )));
        }
        ids.extend(available.into_iter().take(needed).map(str::to_owned));
        Ok(ids)
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

    /// What a plugin may prefer in place of what was chosen: all that is free beside it, and what has to be among it
    /// because the pod has it already. `None` if the plugin has no word in it, or there is no choice.
    pub(super) fn choice(&self, given: &Given) -> Option<(Vec<String>, Vec<String>)> {
        let resource = self.resources.get(&given.resource)?;
        let own: Vec<&String> = given.ids().collect();
        let others = |other: &&Given| {
            let is_kind = other.pod == given.pod && other.resource == given.resource;
            is_kind && other.container != given.container
        };
        let reused: SortedSet<&String> = self.given.iter().filter(others).flat_map(Given::ids).collect();
        let kept: Vec<String> = own.iter().filter(|id| reused.contains(**id)).map(|id| (*id).clone()).collect();
        let free = self.available(&given.resource).map(str::to_owned);
        let mut all: Vec<String> = free.chain(own.iter().map(|id| (*id).clone())).collect();
        all.sort();
        let has_choice = kept.len() < own.len() && own.len() < all.len();
        (resource.options.get_preferred_allocation_available && has_choice).then_some((all, kept))
    }

    /// The plugin would rather give these. As many of them as can be are given; the rest is as it was chosen.
    pub(super) fn prefer(&mut self, given: &Given, preferred: &[String]) {
        let Some((all, kept)) = self.choice(given) else { return };
        let count = given.ids().count();
        let mut ids = kept;
        for id in preferred.iter().chain(given.ids()).filter(|id| all.contains(*id)) {
            if ids.len() < count && !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        let anew = self.give(&given.pod, &given.container, &given.resource, ids);
        if let Some(place) = self.given.iter_mut().find(|one| one.is_same_place(given) && one.response.is_none()) {
            *place = anew;
        }
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
    pub(super) fn shown(&self, pod: &PodUid) -> Vec<GivenDevices> {
        let of_pod = self.given.iter().filter(|given| given.pod == *pod);
        let shown = |given: &Given| {
            let resource = self.resources.get(&given.resource);
            let health = |id: &String| match resource.and_then(|resource| resource.devices.get(id)) {
                Some(device) => device.is_healthy,
                // What nobody tells of yet is not known to be ill; what is told of no more is gone.
                None => resource.is_none_or(|resource| !resource.is_told),
            };
            GivenDevices {
                container: given.container.clone(),
                resource: given.resource.clone(),
                devices: given.ids().map(|id| (id.clone(), health(id))).collect(),
            }
        };
        let mut shown: Vec<GivenDevices> = of_pod.map(shown).collect();
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

/// Each limit of extended resources, in the order in which containers begin; false for what an init container gives back.
fn wanted(pod: &Pod) -> impl Iterator<Item = (&Container, bool, &str, usize)> {
    let init = pod.spec.init_containers.iter().map(|container| (container, container.is_sidecar()));
    let all = init.chain(pod.spec.containers.iter().map(|container| (container, true)));
    all.flat_map(|(container, stays)| {
        let limits = container.resources.limits.iter().filter(|(name, _)| is_extended_resource(name));
        limits.map(move |(name, count)| (container, stays, name, usize::try_from(count.value()).unwrap_or(0)))
    })
}

fn unregistered(name: &str) -> Lacks {
    Lacks(format!("cannot allocate unregistered device {name}"))
}

fn none_healthy(name: &str) -> Lacks {
    Lacks(format!("no healthy devices present; cannot allocate unhealthy devices {name}"))
}
