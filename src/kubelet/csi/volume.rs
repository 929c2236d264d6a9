//! Stages, publishes, unpublishes and unstages a volume.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use serde_json::Value;

use super::drivers::{Driver, method};
use super::error::{CallError, CsiError, MissingObject, Phase, SetUpError, UnmountFailure};
use super::v1::{
    AccessMode, Empty, MountVolume, NodePublishVolumeRequest, NodeStageVolumeRequest, SINGLE_NODE_MULTI_WRITER,
    STAGE_UNSTAGE_VOLUME, UndoRequest, VOLUME_MOUNT_GROUP, VolumeCapability,
};
use super::vol_data::{self, VolData};
use super::{Csi, paths};
use crate::platform::host::directories;
use crate::platform::host::mounts::{mounted_at, unmount_below};
use crate::platform::host::remove_tree::remove_tree;
use crate::platform::rt::{self, Semaphore, SemaphoreGuardArc};
use crate::protocol::protobuf::encode;
use crate::protocol::sha256::sha256;
use crate::state::objects::{ObjectKey, attachment_name, unique_name};
use crate::types::sorted::SortedMap;

type StringMap = SortedMap<String, String>;

/// Completes when the pod is terminating.
pub(crate) type PodTerminating = Pin<Box<dyn Future<Output = ()>>>;

/// The lock of a volume, which is released with the last clone.
pub(super) type VolumeTurn = Rc<SemaphoreGuardArc>;

/// A call to a driver.
pub(super) type DriverCall = Pin<Box<dyn Future<Output = Result<(), CallError>>>>;

/// The SELinux label of a volume's mount.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MountLabel {
    /// The label among the mount options; `None`: the runtime labels the files.
    pub(crate) label: Option<String>,
    /// The node mounts the volume once, so all pods that use it must have this label.
    pub(crate) is_for_all: bool,
}

/// A volume as one pod uses it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CsiVolume {
    /// Name of the PersistentVolume, or of the volume in the pod spec.
    pub(crate) name: String,
    pub(crate) driver: String,
    pub(crate) handle: String,
    /// An ephemeral inline volume.
    pub(crate) is_ephemeral: bool,
    pub(crate) fs_type: String,
    pub(crate) mount_options: Vec<String>,
    pub(crate) label: MountLabel,
    /// The first of the volume's access modes, in Kubernetes' terms.
    pub(crate) access_mode: String,
    pub(crate) read_only: bool,
    pub(crate) attributes: StringMap,
    /// Pod info and tokens that are added to the volume context of NodePublishVolume.
    pub(crate) pod_attributes: StringMap,
    pub(crate) stage_secrets: StringMap,
    pub(crate) publish_secrets: StringMap,
    /// The pod's fsGroup.
    pub(crate) group: Option<u32>,
    /// The publish context of the attachment; `None` if the volume needs no attachment.
    pub(crate) attachment: Option<StringMap>,
    /// `volumeMode: Block`.
    pub(crate) is_block: bool,
    /// Namespace and name of the claim.
    pub(crate) claim: Option<(String, String)>,
    pub(crate) expand_secret: Option<ObjectKey>,
    /// Path in the pod's directory, see [`super::paths`].
    pub(crate) host_path: PathBuf,
    pub(crate) missing: Option<MissingObject>,
}

/// Whether the kubelet must still set the volume's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FsGroupPending(pub(crate) bool);

/// The handle of an inline volume (`makeVolumeHandle`).
pub(crate) fn handle_of_inline(pod_uid: &str, volume: &str) -> String {
    ["csi-", &sha256([pod_uid, volume].concat().as_bytes())].concat()
}

impl CsiVolume {
    /// The target path of NodePublishVolume.
    pub(crate) fn target(&self) -> PathBuf {
        paths::target(&self.host_path)
    }
}

impl Csi {
    /// Stages and publishes the volume as far as needed.
    ///
    /// A terminating pod does not wait for a call in progress; the tear-down waits for it and undoes it.
    pub(crate) async fn set_up(
        &self,
        volume: &CsiVolume,
        ends: &mut PodTerminating,
    ) -> Result<FsGroupPending, SetUpError> {
        let CsiVolume { driver: name, handle, .. } = volume;
        let target = volume.target();
        let failed = |error| CsiError::during("kubernetes.io/csi")(error).in_phase(Phase::SetUp);
        let is_published = is_published(volume).await.map_err(failed)?;
        let owned = |by: &Driver| by.can(VOLUME_MOUNT_GROUP) || self.owned.borrow().contains(&target);
        if self.is_done(&target, is_published) {
            // It is published, even if its driver is not registered now, or hangs in a later call for the volume.
            return Ok(FsGroupPending(self.driver(name).is_ok_and(|driver| !owned(&driver))));
        }
        let ended = async {
            (&mut *ends).await;
            None
        };
        let turn = match rt::either(ended, async { Some(self.volume_turn(name, handle).await) }).await {
            Some(turn) => turn,
            None => return Err(CsiError::PodEnds.in_phase(Phase::SetUp)),
        };
        if let Some(missing) = &volume.missing {
            return Err(CsiError::Missing(missing.clone()).in_phase(missing.phase()));
        }
        let driver = self.driver(name).map_err(|error| {
            let (phase, doing) = match volume.is_ephemeral {
                true => (Phase::SetUp, "kubernetes.io/csi: mounter.SetUpAt failed to get CSI client"),
                false => {
                    let doing = "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient";
                    (Phase::MountDevice, doing)
                }
            };
            CsiError::during(doing)(error).in_phase(phase)
        })?;
        self.owned.borrow_mut().remove(&target);
        let data = VolData { driver: name.clone(), handle: handle.clone(), is_ephemeral: volume.is_ephemeral };
        let staged_at = self.staged_at(volume, &driver);
        let attachment = attachment_name(name, handle, &self.node_name);
        let of_pod = vol_data::of_pod(&data, &volume.name, &self.node_name, &attachment);
        let MountLabel { label, is_for_all } = volume.label.clone();
        let (of_pod, of_staged) =
            [of_pod, vol_data::of_staged(&data)].map(|data| vol_data::with_label(data, label.as_deref())).into();
        let is_of_one_pod = volume.access_mode == "ReadWriteOncePod";
        let (volume_path, staged) = (volume.host_path.clone(), staged_at.clone());
        let pod = paths::pod_uid(&volume.host_path);
        let prepared = rt::blocking_for(pod.as_str(), move || {
            let elsewhere = |is_other: &dyn Fn(&Path) -> bool| {
                vol_data::is_used_elsewhere(&volume_path, &data, is_other)
                    .map_err(CsiError::io(FIND_USERS, &volume_path))
            };
            if is_of_one_pod && elsewhere(&|_| true)? {
                return Err(CsiError::InUse);
            }
            if is_for_all && elsewhere(&|other| vol_data::label_at(other) != label)? {
                return Err(CsiError::OtherLabel { handle: data.handle.clone() });
            }
            prepare(&volume_path, &of_pod, staged.as_deref(), &of_staged)
        });
        prepared.await.map_err(|error| match error {
            // The driver is not asked.
            CsiError::InUse | CsiError::OtherLabel { .. } => error.in_phase(Phase::SetUp),
            error => failed(error),
        })?;
        // Before the first call: the node reports the volume as in use, so that no controller detaches it.
        match volume.attachment {
            Some(_) => drop(self.present.borrow_mut().insert(volume.host_path.clone(), unique_name(name, handle))),
            None => drop(self.present.borrow_mut().remove(&volume.host_path)),
        }
        if let Some(staged) = staged_at {
            // Whether a block volume is staged is known only to the driver.
            let is_there = !volume.is_block && is_mounted(pod.as_str(), staged.clone()).await.map_err(failed)?;
            let request = NodeStageVolumeRequest {
                volume_id: handle.clone(),
                publish_context: volume.attachment.clone().unwrap_or_default(),
                staging_target_path: staged.display().to_string(),
                volume_capability: Some(capability(volume, &driver)),
                secrets: volume.stage_secrets.clone(),
                volume_context: volume.attributes.clone(),
            };
            if !self.is_done(&staged, is_there) {
                let made = self.make(&driver, method!("NodeStageVolume"), encode(&request), &staged, &turn);
                unless_pod_terminates(made, ends).await.map_err(|error| error.in_phase(Phase::MountDevice))?;
            }
        }
        let request = self.publish_request(volume, &driver);
        let made = self.make(&driver, method!("NodePublishVolume"), request, &target, &turn);
        unless_pod_terminates(made, ends).await.map_err(|error| error.in_phase(Phase::SetUp))?;
        let grown = async {
            self.expand_before_use(volume, &turn).await;
            Ok(())
        };
        unless_pod_terminates(grown, ends).await.map_err(|error| error.in_phase(Phase::SetUp))?;
        Ok(FsGroupPending(!owned(&driver)))
    }

    pub(super) fn publish_request(&self, volume: &CsiVolume, driver: &Driver) -> Vec<u8> {
        let mut attributes = volume.attributes.clone();
        attributes.extend(volume.pod_attributes.iter().map(|(key, value)| (key.clone(), value.clone())));
        let staged_at = self.staged_at(volume, driver);
        encode(&NodePublishVolumeRequest {
            volume_id: volume.handle.clone(),
            publish_context: volume.attachment.clone().unwrap_or_default(),
            staging_target_path: staged_at.map_or_else(String::new, |path| path.display().to_string()),
            target_path: volume.target().display().to_string(),
            volume_capability: Some(capability(volume, driver)),
            readonly: volume.read_only,
            secrets: volume.publish_secrets.clone(),
            volume_context: attributes,
        })
    }

    /// Records that the volume's group has been set.
    pub(crate) fn record_group(&self, target: &Path) {
        self.owned.borrow_mut().insert(target.to_owned());
    }

    /// Unpublishes the volumes of the pod with this directory, and unstages those that no other pod uses. The files
    /// that are needed for this are removed last, so that it can be repeated after an interruption.
    pub(crate) async fn tear_down(&self, pod: &Path) -> Result<(), UnmountFailure> {
        self.end_attachment_wait(pod);
        self.end_expansion(pod);
        self.end_republish(pod);
        let directory = pod.to_owned();
        let uid = pod.file_name().unwrap_or_default().to_string_lossy();
        let volumes_of_pod = rt::blocking_for(&uid, move || {
            let volumes = vol_data::volumes_of(&directory).map_err(CsiError::io("look for volumes in", &directory))?;
            let read = |volume_path: PathBuf| {
                let data = vol_data::of_place(&volume_path)
                    .map_err(CsiError::io("read the vol_data.json of", &volume_path))?;
                Ok((data, volume_path))
            };
            volumes.into_iter().map(read).collect::<Result<Vec<_>, CsiError>>()
        });
        let failed = |volume: &Path, error| UnmountFailure { volume: volume.to_owned(), error };
        let volumes_of_pod = volumes_of_pod.await.map_err(|error| failed(pod, error))?;
        let mut outcome = Ok(());
        for (data, path) in volumes_of_pod {
            let done = match &data {
                Some(data) => self.unpublish_and_unstage(data, &path, &uid).await,
                // The data file is missing, so the mount is removed with the rest of the pod.
                None => {
                    let volume_path = path.clone();
                    rt::slow_for(&uid, move || remove_unwritten(&volume_path)).await
                }
            };
            if let Err(error) = done {
                outcome = Err(failed(&path, error));
            }
        }
        outcome
    }

    async fn unpublish_and_unstage(&self, data: &VolData, volume_path: &Path, uid: &str) -> Result<(), CsiError> {
        let turn = self.volume_turn(&data.driver, &data.handle).await;
        let driver = self.driver(&data.driver)?;
        let target = paths::target(volume_path);
        let request = UndoRequest { volume_id: data.handle.clone(), path: target.display().to_string() };
        self.make(&driver, method!("NodeUnpublishVolume"), encode(&request), &target, &turn).await?;
        let staged = match paths::is_device(volume_path) {
            true => paths::staged_device(volume_path),
            false => self.staging(&data.driver, &data.handle).join(GLOBAL_MOUNT_DIRECTORY),
        };
        let (volume_dir, of, at_stage) = (volume_path.to_owned(), data.clone(), staged.clone());
        let is_last = rt::blocking_for(uid, move || is_left_alone(&volume_dir, &of, &at_stage)).await?;
        if is_last && driver.can(STAGE_UNSTAGE_VOLUME) {
            let request = UndoRequest { volume_id: data.handle.clone(), path: staged.display().to_string() };
            self.make(&driver, method!("NodeUnstageVolume"), encode(&request), &staged, &turn).await?;
        }
        let volume_dir = volume_path.to_owned();
        // A file system mounted inside may hang.
        rt::slow_for(uid, move || {
            if is_last {
                remove_staged(&volume_dir, &staged)?;
            }
            remove_tree(&volume_dir).map_err(CsiError::io(REMOVE, &volume_dir))
        })
        .await?;
        // Only now may a controller detach the volume.
        self.present.borrow_mut().remove(volume_path);
        self.owned.borrow_mut().remove(&target);
        Ok(())
    }

    /// A call that changes `volume_path`, which is marked as doubtful until the call succeeds.
    async fn make(
        &self,
        driver: &Rc<Driver>,
        path: &'static str,
        request: Vec<u8>,
        volume_path: &Path,
        turn: &VolumeTurn,
    ) -> Result<(), CsiError> {
        self.doubtful.borrow_mut().insert(volume_path.to_owned());
        let (doubtful, driver, volume_path) = (Rc::clone(&self.doubtful), Rc::clone(driver), volume_path.to_owned());
        let call = async move {
            driver.call(path, request, &mut Empty::default()).await?;
            doubtful.borrow_mut().remove(&volume_path);
            Ok(())
        };
        Ok(self.run_to_end(turn, Box::pin(call)).await?)
    }

    /// Makes a call to a driver, which goes on if the caller is dropped and keeps the lock of its volume for as long: a
    /// driver may go on with a cancelled call, and gets one call for a volume at a time. As upstream, where operations
    /// are not cancelled either. The call ends by its own deadline.
    pub(super) async fn run_to_end(&self, turn: &VolumeTurn, call: DriverCall) -> Result<(), CallError> {
        let turn = Rc::clone(turn);
        let call = async move {
            let outcome = call.await;
            drop(turn);
            outcome
        };
        self.calls.run(Box::pin(call)).await
    }

    fn is_done(&self, path: &PathBuf, is_mounted: bool) -> bool {
        is_mounted && !self.doubtful.borrow().contains(path)
    }

    /// The staging path, if the driver stages volumes.
    pub(super) fn staged_at(&self, volume: &CsiVolume, driver: &Driver) -> Option<PathBuf> {
        let is_staged = !volume.is_ephemeral && driver.can(STAGE_UNSTAGE_VOLUME);
        is_staged.then(|| match volume.is_block {
            true => paths::staged_device(&volume.host_path),
            false => self.staging(&volume.driver, &volume.handle).join(GLOBAL_MOUNT_DIRECTORY),
        })
    }

    /// The staging directory of a mounted volume, which also has its data file.
    fn staging(&self, driver: &str, handle: &str) -> PathBuf {
        self.directory.join(driver).join(sha256(handle.as_bytes()))
    }

    /// Waits for the volume's lock.
    pub(super) fn volume_turn(&self, driver: &str, handle: &str) -> impl Future<Output = VolumeTurn> + use<> {
        let lock = self.volume_lock(driver, handle);
        async move { Rc::new(lock.acquire_arc().await) }
    }

    fn volume_lock(&self, driver: &str, handle: &str) -> Arc<Semaphore> {
        let mut turns = self.volume_locks.borrow_mut();
        turns.retain(|_, turn| turn.strong_count() > 0);
        let key = (driver.to_owned(), handle.to_owned());
        if let Some(turn) = turns.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(Semaphore::new(1));
        turns.insert(key, Arc::downgrade(&turn));
        turn
    }
}

async fn unless_pod_terminates(
    call: impl Future<Output = Result<(), CsiError>>,
    termination: &mut PodTerminating,
) -> Result<(), CsiError> {
    let ended = async {
        termination.await;
        Err(CsiError::PodEnds)
    };
    rt::either(ended, call).await
}

pub(super) fn capability(volume: &CsiVolume, driver: &Driver) -> VolumeCapability {
    let group = volume.group.filter(|_| driver.can(VOLUME_MOUNT_GROUP));
    let mount = || MountVolume {
        fs_type: volume.fs_type.clone(),
        mount_flags: volume.mount_options.clone(),
        volume_mount_group: group.map_or_else(String::new, |group| group.to_string()),
    };
    VolumeCapability {
        block: volume.is_block.then_some(Empty {}),
        mount: (!volume.is_block).then(mount),
        access_mode: Some(AccessMode { mode: access_mode(&volume.access_mode, driver.can(SINGLE_NODE_MULTI_WRITER)) }),
    }
}

/// `VolumeCapability.AccessMode.Mode`. A driver with SINGLE_NODE_MULTI_WRITER gets the exact number of writers.
fn access_mode(mode: &str, tells_writers_apart: bool) -> i32 {
    match (mode, tells_writers_apart) {
        ("ReadOnlyMany", _) => 3,
        ("ReadWriteMany", _) => 5,
        ("ReadWriteOncePod", true) => 6,
        ("ReadWriteOnce", true) => 7,
        ("ReadWriteOnce" | "ReadWriteOncePod", false) => 1,
        _ => 0,
    }
}

/// Creates the directories that the driver expects, and writes the data files for the tear-down.
fn prepare(volume_path: &Path, of_pod: &Value, staged: Option<&Path>, of_staged: &Value) -> Result<(), CsiError> {
    let make = |path: &Path| directories::make_own(path, 0o750).map_err(CsiError::io("make", path));
    let data = paths::data(volume_path);
    let is_device = paths::is_device(volume_path);
    volume_path.parent().map_or(Ok(()), make)?;
    if is_device {
        // The tear-down finds the rest through this symlink.
        link(&paths::target(volume_path), volume_path).map_err(CsiError::io("link", volume_path))?;
    }
    make(&data)?;
    vol_data::write(&data, of_pod).map_err(CsiError::io(WRITE_VOL_DATA_ERROR, &data))?;
    if is_device {
        make(&paths::published(volume_path))?;
    }
    let Some(staged) = staged else { return Ok(()) };
    make(staged)?;
    match staged.parent().filter(|_| !is_device) {
        Some(beside) => vol_data::write(beside, of_staged).map_err(CsiError::io(WRITE_VOL_DATA_ERROR, beside)),
        None => Ok(()),
    }
}

/// Makes `path` a symlink to `target`, replacing anything there.
fn link(target: &Path, path: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|linked_path| linked_path == target) {
        return Ok(());
    }
    remove_tree(path)?;
    symlink(target, path)
}

/// Whether an unpublished volume may be staged and no other pod of the node uses it.
fn is_left_alone(path: &Path, data: &VolData, staged: &Path) -> Result<bool, CsiError> {
    if paths::is_device(path) {
        let target = paths::target(path);
        remove_tree(&target).map_err(CsiError::io(REMOVE, &target))?;
    } else {
        // Mounts that the driver has left behind.
        unmount_below(path).map_err(CsiError::io(UNMOUNT, path))?;
        if data.is_ephemeral || staged.parent().is_none_or(|beside| !beside.exists()) {
            return Ok(false);
        }
    }
    let is_used = vol_data::is_used_elsewhere(path, data, &|_| true);
    is_used.map(|is_used| !is_used).map_err(CsiError::io(FIND_USERS, paths::pods(path)))
}

/// Removes a block volume's directory if its data file was never completed: then no driver was called.
fn remove_unwritten(path: &Path) -> Result<(), CsiError> {
    if !paths::is_device(path) || vol_data::is_at(&paths::data(path)) {
        return Ok(());
    }
    let data_directory = paths::data_directory(path);
    remove_tree(&data_directory).map_err(CsiError::io(REMOVE, &data_directory))
}

/// Removes the files of an unstaged volume.
fn remove_staged(volume_path: &Path, staged: &Path) -> Result<(), CsiError> {
    let remove = |path: &Path| {
        unmount_below(path).map_err(CsiError::io(UNMOUNT, path))?;
        remove_tree(path).map_err(CsiError::io(REMOVE, path))
    };
    if paths::is_device(volume_path) {
        return [staged, &paths::published(volume_path), &paths::data_directory(volume_path)]
            .into_iter()
            .try_for_each(remove);
    }
    staged.parent().map_or(Ok(()), remove)
}

pub(super) async fn is_published(volume: &CsiVolume) -> Result<bool, CsiError> {
    let (target, pod) = (volume.target(), paths::pod_uid(&volume.host_path));
    if !volume.is_block {
        return is_mounted(pod.as_str(), target).await;
    }
    let is_device = move || fs::metadata(target).is_ok_and(|metadata| metadata.file_type().is_block_device());
    Ok(rt::blocking_for(pod.as_str(), is_device).await)
}

/// [`mounted_at`], off the event loop.
async fn is_mounted(pod: &str, path: PathBuf) -> Result<bool, CsiError> {
    rt::blocking_for(pod, move || mounted_at(&path).map_err(CsiError::io("look for a mount at", &path))).await
}

const GLOBAL_MOUNT_DIRECTORY: &str = "globalmount";

/// Operations on a path, for errors.
const FIND_USERS: &str = "look for other pods that use the volume in";
const REMOVE: &str = "remove";
const UNMOUNT: &str = "unmount what is below";
const WRITE_VOL_DATA_ERROR: &str = "write the vol_data.json of";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn handles_are_upstreams() {
        assert_eq!(handle_of_inline("u-1", "v"), format!("csi-{}", sha256(b"u-1v")));
    }

    #[test]
    fn access_mode_is_exact_if_the_driver_supports_it() {
        for (mode, plain, exact) in
            [("ReadWriteOnce", 1, 7), ("ReadWriteOncePod", 1, 6), ("ReadOnlyMany", 3, 3), ("ReadWriteMany", 5, 5)]
        {
            assert_eq!((access_mode(mode, false), access_mode(mode, true)), (plain, exact), "{mode}");
        }
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("coracle-csi-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn vol_data() -> VolData {
        VolData { driver: "d".to_owned(), handle: "h".to_owned(), is_ephemeral: false }
    }

    #[test]
    fn interrupted_block_volume_is_found_by_the_tear_down() {
        let root = folder("device");
        let (pod, written) = (root.join("pods/u"), vol_data::of_pod(&vol_data(), "pv", "n", "a"));
        let volume_path = pod.join("volumeDevices/kubernetes.io~csi/pv");
        let (own, data) = (paths::data_directory(&volume_path), paths::data(&volume_path));
        // Makes writing the data file fail.
        fs::create_dir_all(data.join("vol_data.new")).unwrap();
        prepare(&volume_path, &written, None, &Value::Null).unwrap_err();
        assert_eq!(fs::read_link(&volume_path).unwrap(), paths::target(&volume_path));
        let csi = Csi::new(&root, "n", async_channel::bounded(1).0, None);
        rt::block_on(csi.tear_down(&pod)).unwrap();
        assert!(!own.exists());
        // A corrupt data file may be another pod's.
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join("vol_data.json"), "{").unwrap();
        rt::block_on(csi.tear_down(&pod)).unwrap();
        assert!(own.exists());
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn call_keeps_the_lock_of_its_volume_when_its_pod_ends() {
        let ended = rt::simulate(1, |_| async {
            let csi = Csi::new(Path::new("/nowhere"), "n", async_channel::bounded(1).0, None);
            let (begun, minute) = (rt::now(), Duration::from_secs(60));
            let turn = csi.volume_turn("d", "h").await;
            let call = async move {
                rt::sleep(minute).await;
                Ok(())
            };
            let call = async { Ok(csi.run_to_end(&turn, Box::pin(call)).await?) };
            let mut pod_ends: PodTerminating = Box::pin(rt::sleep(Duration::from_secs(1)));
            let ended = unless_pod_terminates(call, &mut pod_ends).await;
            assert!(matches!(ended, Err(CsiError::PodEnds)));
            drop(turn);
            drop(csi.volume_turn("d", "other").await);
            assert!(rt::elapsed(begun) < minute);
            drop(csi.volume_turn("d", "h").await);
            assert!(rt::elapsed(begun) >= minute);
        });
        assert_eq!(ended, Ok(()));
    }

    #[test]
    fn staged_volume_is_removed_with_its_last_pod() {
        let root = folder("staged");
        let volume_path = root.join("pods/u/volumes/kubernetes.io~csi/pv");
        let beside = root.join("staged");
        fs::create_dir_all(&volume_path).unwrap();
        let is_last = || is_left_alone(&volume_path, &vol_data(), &beside.join(GLOBAL_MOUNT_DIRECTORY)).unwrap();
        assert!(!is_last(), "nothing is staged");
        fs::create_dir(&beside).unwrap();
        assert!(is_last());
        let other = root.join("pods/other/volumes/kubernetes.io~csi/pv");
        fs::create_dir_all(&other).unwrap();
        vol_data::write(&other, &vol_data::of_pod(&vol_data(), "pv", "n", "a")).unwrap();
        assert!(!is_last());
        fs::remove_dir_all(&root).unwrap();
    }
}
