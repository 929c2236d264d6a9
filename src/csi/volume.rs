//! The calls for one volume: stage, publish; unpublish, unstage.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;

use super::Csi;
use super::drivers::{Driver, method};
use super::v1::{
    AccessMode, Empty, MountVolume, NodePublishVolumeRequest, NodeStageVolumeRequest, SINGLE_NODE_MULTI_WRITER,
    STAGE_UNSTAGE_VOLUME, UndoRequest, VOLUME_MOUNT_GROUP, VolumeCapability,
};
use super::vol_data::{self, VolData};
use crate::host::directories;
use crate::host::mounts::{mounted_at, unmount_below};
use crate::host::remove_tree::remove_tree;
use crate::objects::{attachment_name, unique_name};
use crate::rt::{self, Semaphore};
use crate::sorted::SortedMap;
use crate::wire::protobuf::encode;
use crate::wire::sha256::sha256;

type Texts = SortedMap<String, String>;

/// Is over when the pod ends.
pub(crate) type Ends = Pin<Box<dyn Future<Output = ()>>>;

/// A volume as one pod wants it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CsiVolume {
    /// Of the PersistentVolume, or of the volume in the pod's spec.
    pub(crate) name: String,
    pub(crate) driver: String,
    pub(crate) handle: String,
    /// It begins and ends with the pod.
    pub(crate) is_ephemeral: bool,
    pub(crate) fs_type: String,
    pub(crate) mount_options: Vec<String>,
    /// The first of those that the volume has, as Kubernetes calls it.
    pub(crate) access_mode: String,
    pub(crate) read_only: bool,
    pub(crate) attributes: Texts,
    /// What is told beside that when it is published.
    pub(crate) pod_attributes: Texts,
    pub(crate) stage_secrets: Texts,
    pub(crate) publish_secrets: Texts,
    /// The pod's group.
    pub(crate) group: Option<u32>,
    /// How it is attached to the node, for one that has to be.
    pub(crate) attachment: Option<Texts>,
    /// Where it is in the pod: `.../mount`.
    pub(crate) target: PathBuf,
    /// What cannot be told yet, without which it cannot be brought: one line.
    pub(crate) missing: Option<(Phase, String)>,
}

/// What was being done, as upstream calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    WaitForAttach,
    MountDevice,
    SetUp,
}

/// Whether the node has still to see to it that the volume belongs to the pod's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnershipIsDue(pub(crate) bool);

/// A volume that could not be taken away: which one, and why.
#[derive(Debug)]
pub(crate) struct Unmounted {
    pub(crate) volume: PathBuf,
    pub(crate) why: String,
}

/// The handle of a volume that is in a pod's spec itself (`makeVolumeHandle`).
pub(crate) fn handle_of_inline(pod_uid: &str, volume: &str) -> String {
    ["csi-", &sha256([pod_uid, volume].concat().as_bytes())].concat()
}

impl Csi {
    /// Stages and publishes what is not yet.
    ///
    /// A pod that ends waits for no call: what it has begun is taken away.
    pub(crate) async fn set_up(&self, volume: &CsiVolume, ends: &mut Ends) -> Result<OwnershipIsDue, (Phase, String)> {
        let CsiVolume { driver: name, handle, .. } = volume;
        let turn = self.turn(name, handle);
        let ended = async {
            (&mut *ends).await;
            None
        };
        let _turn = match rt::either(ended, async { Some(turn.acquire().await) }).await {
            Some(turn) => turn,
            None => return Err((Phase::SetUp, ENDS.to_owned())),
        };
        let target = volume.target.clone();
        let failed = |error: io::Error| (Phase::SetUp, format!("kubernetes.io/csi: {error}"));
        let is_published = rt::blocking(move || mounted_at(&target)).await.map_err(failed)?;
        let owned = |by: &Driver| by.can(VOLUME_MOUNT_GROUP) || self.owned.borrow().contains(&volume.target);
        if self.is_done(&volume.target, is_published) {
            // It is the pod's, also while its driver is away.
            return Ok(OwnershipIsDue(self.driver(name).is_ok_and(|driver| !owned(&driver))));
        }
        if let Some(missing) = &volume.missing {
            return Err(missing.clone());
        }
        let driver = self.driver(name).map_err(|why| match volume.is_ephemeral {
            true => (Phase::SetUp, format!("kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: {why}")),
            false => {
                let what = "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient";
                (Phase::MountDevice, format!("{what}: {why}"))
            }
        })?;
        let context = volume.attachment.clone().unwrap_or_default();
        let place = volume.target.parent().unwrap_or(&volume.target).to_owned();
        match volume.attachment {
            Some(_) => drop(self.present.borrow_mut().insert(place, unique_name(name, handle))),
            None => drop(self.present.borrow_mut().remove(&place)),
        }
        self.owned.borrow_mut().remove(&volume.target);
        let data = VolData { driver: name.clone(), handle: handle.clone(), is_ephemeral: volume.is_ephemeral };
        let is_staged = !volume.is_ephemeral && driver.can(STAGE_UNSTAGE_VOLUME);
        let staging = self.staging(name, handle);
        let target = volume.target.clone();
        let attachment = attachment_name(name, handle, &self.node_name);
        let of_pod = vol_data::of_pod(&data, &volume.name, &self.node_name, &attachment);
        let is_of_one_pod = volume.access_mode == "ReadWriteOncePod";
        let prepared = rt::blocking(move || {
            let directory = target.parent().unwrap_or(&target);
            if is_of_one_pod && vol_data::is_used_elsewhere(pods_of(directory), directory, &data)? {
                return Ok(None);
            }
            // From here on the pod's end knows what to take away.
            if let Some(kind) = directory.parent() {
                directories::make_own(kind, 0o750)?;
            }
            directories::make_own(directory, 0o750)?;
            vol_data::write(directory, &of_pod)?;
            if is_staged {
                let global = staging.join(GLOBAL);
                directories::make_own(&staging, 0o750)?;
                directories::make_own(&global, 0o750)?;
                vol_data::write(&staging, &vol_data::of_staged(&data))?;
                return mounted_at(&global).map(Some);
            }
            Ok(Some(true))
        });
        let is_there = prepared.await.map_err(failed)?.ok_or_else(|| (Phase::SetUp, IN_USE.to_owned()))?;
        let global = self.staging(name, handle).join(GLOBAL);
        let staged_at = if is_staged { global.display().to_string() } else { String::new() };
        if is_staged && !self.is_done(&global, is_there) {
            let request = NodeStageVolumeRequest {
                volume_id: handle.clone(),
                publish_context: context.clone(),
                staging_target_path: staged_at.clone(),
                volume_capability: Some(capability(volume, &driver)),
                secrets: volume.stage_secrets.clone(),
                volume_context: volume.attributes.clone(),
            };
            let made = self.make(&driver, method!("NodeStageVolume"), encode(&request), &global);
            until(made, ends).await.map_err(|why| (Phase::MountDevice, why))?;
        }
        let mut attributes = volume.attributes.clone();
        attributes.extend(volume.pod_attributes.iter().map(|(key, value)| (key.clone(), value.clone())));
        let request = NodePublishVolumeRequest {
            volume_id: handle.clone(),
            publish_context: context,
            staging_target_path: staged_at,
            target_path: volume.target.display().to_string(),
            volume_capability: Some(capability(volume, &driver)),
            readonly: volume.read_only,
            secrets: volume.publish_secrets.clone(),
            volume_context: attributes,
        };
        let made = self.make(&driver, method!("NodePublishVolume"), encode(&request), &volume.target);
        until(made, ends).await.map_err(|why| (Phase::SetUp, why))?;
        Ok(OwnershipIsDue(!owned(&driver)))
    }

    /// The pod's group has the volume.
    pub(crate) fn given_to_group(&self, target: &Path) {
        self.owned.borrow_mut().insert(target.to_owned());
    }

    /// Unpublishes what the pod in this directory has, and unstages what no other pod has. What it needs of the disk is
    /// removed last, so that whatever ends this between two steps, it is done again.
    pub(crate) async fn tear_down(&self, pod: &Path) -> Result<(), Unmounted> {
        let directory = pod.to_owned();
        let found = rt::blocking(move || {
            let volumes = vol_data::volumes_of(&directory)?;
            io::Result::Ok(volumes.into_iter().map(|path| (vol_data::read(&path), path)).collect::<Vec<_>>())
        });
        let failed = |volume: &Path, why: String| Unmounted { volume: volume.to_owned(), why };
        let found = found.await.map_err(|error| failed(pod, error.to_string()))?;
        let mut outcome = Ok(());
        for (data, path) in found {
            let done = match &data {
                Some(data) => self.take_away(data, &path).await,
                // Nothing tells whose it is: the mount goes with the rest of the pod's.
                None => Ok(()),
            };
            if let Err(why) = done {
                outcome = Err(failed(&path, why));
            }
        }
        outcome
    }

    async fn take_away(&self, data: &VolData, path: &Path) -> Result<(), String> {
        let turn = self.turn(&data.driver, &data.handle);
        let _turn = turn.acquire().await;
        let driver = self.driver(&data.driver)?;
        let target = path.join("mount");
        let request = UndoRequest { volume_id: data.handle.clone(), path: target.display().to_string() };
        self.make(&driver, method!("NodeUnpublishVolume"), encode(&request), &target).await?;
        let staging = self.staging(&data.driver, &data.handle);
        let (own, staged, of) = (path.to_owned(), staging.clone(), data.clone());
        let is_last = rt::blocking(move || {
            // Whatever the driver has left.
            unmount_below(&own)?;
            if of.is_ephemeral || vol_data::read(&staged).is_none() {
                return Ok(false);
            }
            vol_data::is_used_elsewhere(pods_of(&own), &own, &of).map(|is_used| !is_used)
        });
        let is_last = is_last.await.map_err(|error: io::Error| error.to_string())?;
        let global = staging.join(GLOBAL);
        if is_last && driver.can(STAGE_UNSTAGE_VOLUME) {
            let request = UndoRequest { volume_id: data.handle.clone(), path: global.display().to_string() };
            self.make(&driver, method!("NodeUnstageVolume"), encode(&request), &global).await?;
        }
        let own = path.to_owned();
        let removed = rt::blocking(move || {
            if is_last {
                unmount_below(&staging)?;
                // What a driver has put where it has mounted nothing is not ours to remove.
                let _ = fs::remove_dir(staging.join(GLOBAL));
                remove_tree(&staging)?;
            }
            remove_tree(&own)
        });
        removed.await.map_err(|error| error.to_string())?;
        self.present.borrow_mut().remove(path);
        self.owned.borrow_mut().remove(&target);
        Ok(())
    }

    /// One call that changes what is at `place`, which is in doubt until it has ended well.
    async fn make(&self, driver: &Driver, path: &'static str, request: Vec<u8>, place: &Path) -> Result<(), String> {
        self.doubtful.borrow_mut().insert(place.to_owned());
        driver.ask(path, request, &mut Empty::default()).await?;
        self.doubtful.borrow_mut().remove(place);
        Ok(())
    }

    fn is_done(&self, place: &PathBuf, is_mounted: bool) -> bool {
        is_mounted && !self.doubtful.borrow().contains(place)
    }

    /// Where a volume is staged, with what is written beside.
    fn staging(&self, driver: &str, handle: &str) -> PathBuf {
        self.directory.join(driver).join(sha256(handle.as_bytes()))
    }

    fn turn(&self, driver: &str, handle: &str) -> Rc<Semaphore> {
        let mut turns = self.turns.borrow_mut();
        turns.retain(|_, turn| turn.strong_count() > 0);
        let key = (driver.to_owned(), handle.to_owned());
        if let Some(turn) = turns.get(&key).and_then(std::rc::Weak::upgrade) {
            return turn;
        }
        let turn = Rc::new(Semaphore::new(1));
        turns.insert(key, Rc::downgrade(&turn));
        turn
    }
}

async fn until(made: impl Future<Output = Result<(), String>>, ends: &mut Ends) -> Result<(), String> {
    let ended = async {
        ends.await;
        Err(ENDS.to_owned())
    };
    rt::either(ended, made).await
}

fn capability(volume: &CsiVolume, driver: &Driver) -> VolumeCapability {
    let group = volume.group.filter(|_| driver.can(VOLUME_MOUNT_GROUP));
    VolumeCapability {
        mount: Some(MountVolume {
            fs_type: volume.fs_type.clone(),
            mount_flags: volume.mount_options.clone(),
            volume_mount_group: group.map_or_else(String::new, |group| group.to_string()),
        }),
        access_mode: Some(AccessMode { mode: access_mode(&volume.access_mode, driver.can(SINGLE_NODE_MULTI_WRITER)) }),
    }
}

/// `VolumeCapability.AccessMode.Mode`; a driver that tells writers on one node apart is told how many there may be.
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

const ENDS: &str = "the pod ends";
/// Where the directories of pods are, of which one has this volume: `pods/<uid>/volumes/kubernetes.io~csi/<name>`.
fn pods_of(volume: &Path) -> &Path {
    volume.ancestors().nth(4).unwrap_or(volume)
}

const GLOBAL: &str = "globalmount";
const IN_USE: &str = "volume uses the ReadWriteOncePod access mode and is already in use by another pod";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_upstreams() {
        assert_eq!(handle_of_inline("u-1", "v"), format!("csi-{}", sha256(b"u-1v")));
    }

    #[test]
    fn a_driver_is_told_how_many_writers_there_are_if_it_can_tell_them_apart() {
        for (mode, plain, exact) in
            [("ReadWriteOnce", 1, 7), ("ReadWriteOncePod", 1, 6), ("ReadOnlyMany", 3, 3), ("ReadWriteMany", 5, 5)]
        {
            assert_eq!((access_mode(mode, false), access_mode(mode, true)), (plain, exact), "{mode}");
        }
    }
}
