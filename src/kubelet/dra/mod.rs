//! Dynamic resource allocation: claims of pods are prepared by DRA drivers before the pod's sandbox is created, and
//! unprepared when the last pod that uses them has stopped.
//!
//! Claims are recorded in `dra_manager_state`, in upstream's format, before a driver is called for them.

mod checkpoint;
mod claim_info;
mod device_files;
mod device_slices;
mod drivers;
mod error;
mod health;
mod plugin;
mod prepare;
mod running_calls;
mod slice_publisher;
mod slices;
mod unprepare;
mod v1;

use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;

use async_channel::Sender;

use crate::kubelet::devices::Devices;
use crate::platform::host::changed_file::ChangedFile;
use crate::platform::host::{directories, file};
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::state::objects::Objects;
use crate::state::pods::{AllocatedDevice, AllocatedDevices, SyncEvent};
use crate::types::api::{Container, Pod, PodUid};
use crate::types::owned::View;
use crate::types::sorted::{SortedMap, SortedSet};

use claim_info::{ClaimInfo, ClaimInfoCache, ClaimName, PreparedDevice};
use drivers::RegisteredPlugin;
use health::HealthCache;
use running_calls::RunningCalls;

pub(crate) use error::DraError;
pub(crate) use slice_publisher::SlicePublisher;
pub(crate) use slices::SliceCleaner;

/// Upstream's name of the checkpoint file.
const DRA_CHECKPOINT_FILE: &str = "dra_manager_state";
const MAX_DRA_CHECKPOINT_BYTES: u64 = 16 << 20;

pub(crate) struct DraManager {
    /// Device files of this node, which claims may allocate.
    devices: Rc<Devices>,
    cache: RefCell<ClaimInfoCache>,
    /// The instances of each driver, the newest last.
    drivers: RefCell<SortedMap<String, Vec<RegisteredPlugin>>>,
    health: RefCell<HealthCache>,
    /// Of all drivers.
    calls: Rc<RunningCalls>,
    /// Claims that are being unprepared: no pod may join them.
    leaving: RefCell<SortedSet<ClaimName>>,
    /// Ended pods whose claims are being unprepared.
    reclaimed: RefCell<SortedMap<PodUid, rt::Task<()>>>,
    /// Writes the checkpoint again after the pod whose claims were released in a failed write has gone.
    rewriting: RefCell<Option<rt::Task<()>>>,
    /// Notified when drivers register, connect or leave.
    changed: Signal,
    /// The checkpoint, and the lock of its writer.
    file: ChangedFile,
    write_lock: rt::Semaphore,
    /// The checkpoint could not be read yet, and must not be overwritten.
    is_unread: Cell<bool>,
    /// The checkpoint was corrupt: the claims of known pods count as prepared.
    is_lost: Cell<bool>,
    /// The sync loop's inbox.
    inbox: Sender<SyncEvent>,
}

/// A device of a container, for the pod resources API.
pub(crate) struct ClaimedDevice {
    pub(crate) driver: String,
    pub(crate) pool: String,
    pub(crate) device: String,
    pub(crate) share_id: Option<String>,
    pub(crate) cdi_ids: Vec<String>,
}

impl DraManager {
    /// Loads the checkpoint of an earlier process.
    pub(crate) async fn open(root: &Path, devices: Rc<Devices>, inbox: Sender<SyncEvent>) -> Rc<Self> {
        let manager = Rc::new(Self {
            devices,
            cache: RefCell::default(),
            drivers: RefCell::default(),
            health: RefCell::default(),
            calls: Rc::default(),
            leaving: RefCell::default(),
            reclaimed: RefCell::default(),
            rewriting: RefCell::default(),
            changed: Signal::default(),
            file: ChangedFile::new(
                root.join(DRA_CHECKPOINT_FILE),
                MAX_DRA_CHECKPOINT_BYTES,
                checkpoint::write(&ClaimInfoCache::default()),
            ),
            write_lock: rt::Semaphore::new(1),
            is_unread: Cell::new(true),
            is_lost: Cell::new(false),
            inbox,
        });
        if let Err(error) = manager.read().await {
            log!(error, "failed to read the DRA checkpoint", file = manager.file.path().display(), error = error);
        }
        manager
    }

    /// Reads the checkpoint once, before any claim is recorded: pods of this process may share those of the checkpoint.
    async fn read(&self) -> io::Result<()> {
        if !self.is_unread.get() {
            return Ok(());
        }
        let path = self.file.path().to_owned();
        let stored_claims = rt::blocking(move || {
            let bytes = match file::read_all(&path, MAX_DRA_CHECKPOINT_BYTES) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                bytes => bytes?,
            };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let cache = checkpoint::read(&text);
            if cache.is_none() {
                directories::set_aside(&path)?;
            }
            Ok::<_, io::Error>(Some((text, cache)))
        });
        let stored_claims = stored_claims.await?;
        // Another task may have read it meanwhile.
        if !self.is_unread.get() {
            return Ok(());
        }
        match stored_claims {
            Some((text, Some(kept))) => {
                *self.cache.borrow_mut() = kept;
                self.file.was_read(text);
            }
            Some((_, None)) => self.is_lost.set(true),
            None => {}
        }
        self.is_unread.set(false);
        self.claim_files();
        Ok(())
    }

    /// Returns when the checkpoint is on disk.
    async fn write(&self) -> Result<(), DraError> {
        let _turn = self.write_lock.acquire().await;
        self.read().await.map_err(DraError::Checkpoint)?;
        let text = checkpoint::write(&self.cache.borrow());
        self.file.write(text).await.map_err(DraError::Checkpoint)
    }

    /// After a lost checkpoint, the claims of all known pods count as prepared. Drivers accept repeated calls.
    fn rebuild(&self, objects: &View<Objects>) {
        if !self.is_lost.get() {
            return;
        }
        let (objects, mut cache) = (objects.read(), self.cache.borrow_mut());
        for (key, claim) in objects.resource_claims() {
            let name = (key.namespace.clone(), key.name.clone());
            let info = cache.claims.entry(name).or_insert_with(|| ClaimInfo::new(claim));
            if info.uid == claim.uid {
                info.pods.insert(key.pod.clone());
            }
        }
        drop(cache);
        self.claim_files();
    }

    /// The names of the CDI devices of a container.
    pub(crate) fn cdi_devices(&self, pod: &Pod, container: &Container) -> Result<Vec<String>, DraError> {
        let (mut names, mut seen) = (Vec::new(), SortedSet::new());
        for (_, claim, requests) in prepare::container_claims(pod, container)? {
            let cache = self.cache.borrow();
            let info = cache.claims.get(&claim).ok_or_else(|| {
                let (namespace, name) = claim.clone();
                DraError::Unprepared { name, namespace }
            })?;
            let devices = requests.iter().flat_map(|request| info.devices(request));
            for id in devices.flat_map(|(_, device)| &device.cdi_ids) {
                if seen.insert(id.clone()) {
                    names.push(id.clone());
                }
            }
        }
        Ok(names)
    }

    /// The devices of a container by claim, for the pod resources API.
    pub(crate) fn claimed(&self, pod: &Pod, container: &Container) -> Vec<(ClaimName, Vec<ClaimedDevice>)> {
        let cache = self.cache.borrow();
        let claims = prepare::container_claims(pod, container).unwrap_or_default();
        let of_claim = |(_, name, requests): (String, ClaimName, Vec<String>)| {
            let info = cache.claims.get(&name)?;
            let mut devices: Vec<(&str, &PreparedDevice)> = Vec::new();
            for claimed_device in requests.iter().flat_map(|request| info.devices(request)) {
                if !devices.contains(&claimed_device) {
                    devices.push(claimed_device);
                }
            }
            let devices = devices.into_iter().map(|(driver, claimed_device)| ClaimedDevice {
                driver: driver.to_owned(),
                pool: claimed_device.pool.clone(),
                device: claimed_device.device.clone(),
                share_id: claimed_device.share_id.clone(),
                cdi_ids: claimed_device.cdi_ids.clone(),
            });
            Some((name, devices.collect()))
        };
        claims.into_iter().filter_map(of_claim).collect()
    }

    /// The devices of the pod's containers and their health, as the pod's status lists them.
    pub(crate) fn shown(&self, pod: &Pod) -> Vec<AllocatedDevices> {
        if pod.spec.resource_claims.is_empty() {
            return Vec::new();
        }
        let (cache, health) = (self.cache.borrow(), self.health.borrow());
        let mut shown = Vec::new();
        for container in &pod.spec.containers {
            for claim in &container.resources.claims {
                let Some(info) = prepare::claim_of(pod, &claim.name).and_then(|name| cache.claims.get(&name)) else {
                    continue;
                };
                let mut devices: Vec<AllocatedDevice> = Vec::new();
                for (driver, device) in info.devices(&claim.request) {
                    let file_health = self.file_health(driver, &device.device).map(|health| (health, ""));
                    let (health, message) =
                        file_health.unwrap_or_else(|| health.of(driver, &device.pool, &device.device));
                    let fallback = || [driver, "/", &device.pool, "/", &device.device].concat();
                    let id = device.cdi_ids.first().cloned().unwrap_or_else(fallback);
                    if !devices.iter().any(|shown_device| shown_device.id == id) {
                        devices.push(AllocatedDevice { id, health, message: message.to_owned() });
                    }
                }
                let request = if claim.request.is_empty() { String::new() } else { ["/", &claim.request].concat() };
                let resource = ["claim:", &claim.name, &request].concat();
                if !devices.is_empty() {
                    shown.push(AllocatedDevices { container: container.name.clone(), resource, devices });
                }
            }
        }
        shown
    }

    /// Whether the pod waits for a driver or has prepared claims.
    pub(crate) fn concerns(&self, pod: &Pod) -> bool {
        !pod.spec.resource_claims.is_empty() || pod.status.extended_resource_claim_status.is_some()
    }

    /// Prepared claims by driver, and their total: a claim may use several drivers.
    pub(crate) fn in_use(&self) -> (SortedMap<String, u64>, u64) {
        self.cache.borrow().in_use()
    }
}
