//! Devices requested as limits of extended resources: from device plugins, and from rules of this node.
//!
//! [`Devices`] is the handle. At admission the sync loop chooses devices from known state, without a call. Later the
//! pod worker allocates them, which may take as long as the plugin takes.

mod allocate;
mod allocations;
#[cfg(test)]
mod allocations_tests;
mod attributes;
mod checkpoint;
mod checkpoint_file;
#[cfg(test)]
mod checkpoint_tests;
mod device_files;
mod device_name;
mod error;
mod numa_allocation;
mod plugins;
pub mod v1beta1;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use crate::platform::config::DeviceRule;
use crate::platform::host::changed_file::ChangedFile;
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::state::pods::{AllocatedDevices, SyncEvent};
use crate::types::api::{DeviceAttributes, Pod, PodUid, ResourceList};
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

use allocations::DeviceAllocations;
use plugins::Plugin;

pub(crate) use allocations::InsufficientDevices;
pub(crate) use device_name::device_name;
pub(crate) use error::DeviceError;

/// First and longest delay before a failed checkpoint write is retried.
const FIRST_CHECKPOINT_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_CHECKPOINT_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The devices and their allocations.
pub(crate) struct Devices {
    allocations: RefCell<DeviceAllocations>,
    /// The plugin of each resource.
    plugins: RefCell<SortedMap<String, Plugin>>,
    /// Resources that need no plugin.
    rules: Vec<DeviceRule>,
    /// Directory of the sockets and the checkpoint.
    directory: PathBuf,
    /// The sync loop's inbox.
    inbox: Sender<SyncEvent>,
    /// Notified when the allocations change.
    changed: Signal,
    /// The checkpoint, and the lock of its writer.
    file: ChangedFile,
    write_lock: rt::Semaphore,
    /// A checkpoint existed at the start.
    is_known_node: bool,
}

/// A device of a plugin or a rule.
pub(crate) struct DeviceRecord {
    pub(crate) resource: String,
    pub(crate) id: String,
    pub(crate) is_healthy: bool,
    /// Only of device files.
    pub(crate) attributes: DeviceAttributes,
    /// The pod and container that have it.
    pub(crate) holder: Option<(PodUid, String)>,
    /// The ResourceClaim that allocates it.
    pub(crate) claim: Option<String>,
}

/// A device file in a container.
pub(crate) struct ContainerFile {
    pub(crate) path: String,
    pub(crate) permissions: String,
}

impl From<allocations::ListedDevice<'_>> for DeviceRecord {
    fn from(device: allocations::ListedDevice<'_>) -> Self {
        Self {
            resource: device.resource.to_owned(),
            id: device.id.to_owned(),
            is_healthy: device.is_healthy,
            attributes: device.attributes.clone(),
            holder: device.holder.map(|(pod, container)| (pod.clone(), container.to_owned())),
            claim: device.claim.map(str::to_owned),
        }
    }
}

impl Devices {
    /// Loads the checkpoint of an earlier process.
    pub(crate) async fn open(root: &Path, rules: Vec<DeviceRule>, inbox: Sender<SyncEvent>) -> Rc<Self> {
        let directory = root.join("device-plugins");
        let mut allocations = DeviceAllocations::default();
        let empty = checkpoint::write(&allocations, checkpoint::ListedIds::Healthy);
        let read = checkpoint_file::read(directory.join(checkpoint_file::DEVICE_CHECKPOINT_FILE)).await;
        let is_unread = read.is_err();
        if let Err(error) = &read {
            log!(error, "failed to read the device checkpoint", directory = directory.display(), error = error);
        }
        allocations.is_unread = is_unread;
        let checkpoint = read.unwrap_or_default();
        // An unreadable checkpoint also means that the node is known.
        let is_known_node = checkpoint.is_some() || is_unread;
        let mut written = empty;
        if let Some((text, kept)) = checkpoint {
            if !kept.is_damaged {
                written = text;
            }
            allocations.restore(kept.entries, kept.resources, rt::now());
        }
        for rule in &rules {
            allocations.add_local(&rule.resource);
        }
        let devices = Rc::new(Self {
            allocations: RefCell::new(allocations),
            plugins: RefCell::default(),
            rules,
            file: ChangedFile::new(
                directory.join(checkpoint_file::DEVICE_CHECKPOINT_FILE),
                checkpoint_file::MAX_DEVICE_CHECKPOINT_BYTES,
                written,
            ),
            directory,
            inbox,
            changed: Signal::default(),
            write_lock: rt::Semaphore::new(1),
            is_known_node,
        });
        // Before the first admission.
        devices.update_rule_devices().await;
        devices
    }

    /// Serves device plugins and keeps the checkpoint up to date; never returns.
    pub(crate) async fn run(self: Rc<Self>) {
        let _registration = rt::spawn(plugins::serve(Rc::clone(&self)));
        let _nodes = rt::spawn(device_files::follow(Rc::clone(&self)));
        let mut retry = Backoff::new(FIRST_CHECKPOINT_RETRY_DELAY, MAX_CHECKPOINT_RETRY_DELAY);
        loop {
            let seen = self.changed.changes();
            self.allocations.borrow_mut().expire(rt::now());
            let again = match self.write().await {
                Ok(()) => {
                    retry.reset();
                    None
                }
                Err(error) => {
                    log!(error, "failed to write the device checkpoint", error = error);
                    rt::now().checked_add(retry.next_wait())
                }
            };
            // The receiver is gone only at shutdown.
            let _ = self.inbox.send(SyncEvent::DevicesChanged).await;
            let due = self.allocations.borrow().due().into_iter().chain(again).min();
            let late = async {
                match due {
                    Some(time) => rt::sleep_until(time).await,
                    None => std::future::pending().await,
                }
            };
            rt::either(self.changed.beyond(seen), late).await;
        }
    }

    /// Fails if the pod's conditions on devices cannot be fulfilled by any device: the pod must not start.
    pub(crate) fn check_selectors(&self, pod: &Pod) -> Result<(), InsufficientDevices> {
        allocations::selectors(pod).map(drop)
    }

    /// The healthy devices by resource and NUMA node.
    pub(crate) fn healthy(&self) -> Vec<(String, SortedMap<i64, Vec<String>>)> {
        self.allocations.borrow().healthy().map(|(name, ids)| (name.to_owned(), ids)).collect()
    }

    /// The allocated devices of a container by resource and NUMA node.
    pub(crate) fn of_container(&self, pod: &PodUid, container: &str) -> Vec<(String, SortedMap<i64, Vec<String>>)> {
        let allocations = self.allocations.borrow();
        // A choice without the plugin's response is not in use yet.
        let allocated = allocations.of_container(pod, container).filter(|allocation| allocation.response.is_some());
        allocated.map(|allocation| (allocation.resource.clone(), allocation.ids.clone())).collect()
    }

    /// All devices, and who has them.
    pub(crate) fn listed(&self) -> Vec<DeviceRecord> {
        let allocations = self.allocations.borrow();
        allocations.listed().map(DeviceRecord::from).collect()
    }

    /// The device files of this node's rules, sorted by resource and path.
    pub(crate) fn files(&self) -> Vec<DeviceRecord> {
        self.allocations.borrow().local().map(DeviceRecord::from).collect()
    }

    /// The device file of this name in ResourceSlices, if it exists.
    pub(crate) fn file(&self, name: &str) -> Option<DeviceRecord> {
        self.allocations.borrow().local().find(|device| device_name(device.id) == name).map(DeviceRecord::from)
    }

    /// How containers get the device file of this name.
    pub(crate) fn container_file(&self, name: &str) -> Option<ContainerFile> {
        let file = self.file(name)?;
        let rule = self.rules.iter().find(|rule| rule.resource == file.resource)?;
        Some(ContainerFile { path: file.id, permissions: rule.permissions.clone() })
    }

    /// Sets the names of the device files that claims allocate: no container gets them as a limit.
    pub(crate) fn set_claimed(&self, claimed: SortedMap<String, String>) {
        if self.allocations.borrow_mut().set_claimed(claimed) {
            self.changed.notify();
        }
    }

    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// Notified when devices or allocations change.
    pub(crate) fn changed(&self) -> &Signal {
        &self.changed
    }

    /// Capacity and allocatable.
    pub(crate) fn amounts(&self) -> [ResourceList; 2] {
        self.allocations.borrow().amounts()
    }

    /// Whether another kubelet, or an earlier process, had devices on this node.
    pub(crate) fn is_known_node(&self) -> bool {
        self.is_known_node
    }

    /// Whether a plugin or rule of this node has, or had, this resource.
    pub(crate) fn is_known(&self, resource: &str) -> bool {
        self.allocations.borrow().is_known(resource)
    }

    /// Whether the pod waits for devices or has any.
    pub(crate) fn concerns(&self, pod: &Pod) -> bool {
        self.allocations.borrow().concerns(pod)
    }

    /// Chooses the pod's devices. `runs`: its running containers.
    pub(crate) fn reserve(&self, pod: &Pod, runs: &dyn Fn(&str) -> bool) -> Result<(), InsufficientDevices> {
        self.allocations.borrow_mut().reserve(pod, runs)
    }

    /// Releases the chosen devices of a pod that will not start.
    pub(crate) fn release(&self, pod: &PodUid) {
        self.allocations.borrow_mut().release(pod);
    }

    /// Releases the devices of pods that are gone.
    pub(crate) fn keep_only(&self, stays: &dyn Fn(&PodUid) -> bool) {
        if self.allocations.borrow_mut().keep_only(stays) {
            self.changed.notify();
        }
    }

    /// Loads the devices from a container's annotation if they are not known otherwise.
    pub(crate) fn adopt(&self, pod: &PodUid, container: &str, written: &str) {
        for allocation in checkpoint::read_mark(pod, container, written) {
            let resource = allocation.resource.clone();
            if self.allocations.borrow_mut().adopt(allocation, rt::now()) {
                log!(
                    warn,
                    "device allocation recovered from container annotation",
                    container = container,
                    resource = resource
                );
                self.changed.notify();
            }
        }
    }

    /// The devices of the pod's containers.
    pub(crate) fn shown(&self, pod: &PodUid) -> Vec<AllocatedDevices> {
        self.allocations.borrow().shown(pod)
    }
}
