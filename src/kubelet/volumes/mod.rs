//! Pod directories and volume mounts.
//!
//! No mount state is stored: it is read from the kernel when needed. Set-up and tear-down are idempotent.

mod atomic_writer;
mod claim_directory;
mod claim_quota;
mod csi;
mod empty_dir;
mod env_file;
mod env_values;
mod error;
mod fs_group;
mod host_path;
mod local;
mod mounts;
mod nested;
mod nfs;
mod node_program;
mod ownership;
mod payload;
mod plan;
mod progress;
mod selinux_mount;
mod sub_path;
mod teardown;
#[cfg(test)]
mod tests;
mod update_lock;
mod volume_uses;

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::kubelet::csi::{
    Csi, CsiError, CsiVolume, FsGroupPending, Phase, PodTerminating, SetUpError, UnattachedVolume,
};
use crate::kubelet::node::NodeSettings;
use crate::platform::cri::v1::{Device, Mount};
use crate::platform::host::directories;
use crate::platform::host::selinux;
use crate::platform::rt;
use crate::state::objects::Objects;
use crate::state::pods::{PodDirs, UpdateLock};
use crate::types::api::{Container, EnvVarSource, FileKeySelector, HostPathType, Pod, PodUid};
use crate::types::sorted::SortedMap;
use error::Problem;
use mounts::{MountInputs, PreparedVolume};
use plan::{Files, Plan, PlannedVolume, Source};
use progress::Progress;
use volume_uses::VolumeUses;

pub(crate) use env_values::FileValue;
pub use env_values::check_env_file;
#[cfg(test)]
pub(crate) use error::EnvFileError;
pub(crate) use error::{Error, MountProblem, PATH_MAX};
pub(crate) use teardown::{find_pods, remove, tear_down};

/// How long the file system of an update lock may take.
const UPDATE_LOCK_DEADLINE: Duration = Duration::from_secs(5);

/// Inputs of the set-up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetUpInputs<'a> {
    pub(crate) dirs: &'a PodDirs,
    pub(crate) node: &'a NodeSettings,
    pub(crate) objects: &'a Objects,
}

/// The volumes of a pod after their set-up.
#[derive(Debug)]
pub(crate) struct PodVolumes {
    uid: PodUid,
    /// By their names.
    prepared: SortedMap<String, PreparedVolume>,
    /// Parent directory of subpath bind mounts.
    subpaths: PathBuf,
    /// Errors that keep no volume from the pod: files with their previous content, claims without their limit.
    pub(crate) stale_errors: Vec<Error>,
    /// Groups of PersistentVolumes that the pod does not have itself.
    pub(crate) groups: Vec<i64>,
}

/// The outcome of a refresh.
#[derive(Debug)]
pub(crate) struct Refreshed {
    /// Every volume has its new content, or keeps its previous one because the new one is unknown.
    pub(crate) all_refreshed: bool,
    pub(crate) errors: Vec<Error>,
}

/// Checks the node affinity of the pod's PersistentVolumes, before they are mounted.
pub(crate) fn check_node_affinity(pod: &Pod, objects: &Objects) -> Result<(), Error> {
    plan::check_node_affinity(pod, objects)
}

/// Creates the directories of `pod` and sets up the volumes that its containers mount. Stops when the pod `ends`. The
/// plan is made before the first await, because the objects are borrowed.
pub(crate) fn set_up(
    pod: &Pod,
    inputs: SetUpInputs<'_>,
    csi: &Rc<Csi>,
    mut ends: PodTerminating,
) -> impl Future<Output = Result<PodVolumes, Error>> + use<> {
    let plan = Plan::new(pod, inputs);
    let csi = Rc::clone(csi);
    let subpaths = inputs.dirs.subpaths(&pod.metadata.uid);
    let uid = pod.metadata.uid.clone();
    let selinux = inputs.node.selinux;
    async move {
        let plan = plan?;
        let mut places: Vec<PreparedVolume> = plan.volumes.iter().map(|planned| planned.prepared(selinux)).collect();
        let may_hang = plan.volumes.iter().any(PlannedVolume::reads_host_path);
        let work = move || carry_out(&plan).map(|kept| (plan, kept));
        let (plan, mut kept) = rt::blocking_for(uid.as_str(), work).await?;
        let plan = match may_hang {
            true => {
                let work = move || set_up_host_paths(&plan).map(|kept| (plan, kept));
                let (plan, unlimited) = unless_pod_ends(rt::slow_for(uid.as_str(), work), &mut ends).await?;
                kept.extend(unlimited);
                plan
            }
            false => plan,
        };
        csi.wait_for_attachment(&uid, unattached(&plan));
        for planned in &plan.volumes {
            let failed = |problem| Error::SetUp { volume: planned.name.clone(), problem };
            match &planned.source {
                Source::Local(volume) => local::set_up(volume, &mut ends).await.map_err(failed)?,
                Source::Nfs(volume) => {
                    nfs::set_up(uid.as_str(), volume, Path::new(nfs::PROGRAM)).await.map_err(failed)?;
                }
                Source::Csi(volume) => publish(&csi, &uid, volume, &mut ends).await?,
                Source::Claim { .. }
                | Source::Device { .. }
                | Source::EmptyDir(_)
                | Source::Files(_)
                | Source::HostPath { .. }
                | Source::Image => {}
            }
        }
        if selinux {
            let labelled = async {
                label_mounts(&uid, &plan, &mut places).await;
                Ok(())
            };
            unless_pod_ends(labelled, &mut ends).await?;
        }
        let groups = plan.groups;
        let places = plan.volumes.into_iter().map(|planned| planned.name).zip(places).collect();
        Ok(PodVolumes { uid, prepared: places, subpaths, stale_errors: kept, groups })
    }
}

/// Takes the update lock on the file at `path` in a volume of a running pod, unless the application holds it. An error is
/// one line.
pub(crate) fn take_update_lock(
    pod: &Pod,
    volume: &str,
    path: &str,
    inputs: SetUpInputs<'_>,
) -> impl Future<Output = Result<UpdateLock, String>> + use<> {
    let root = plan::writable_directory(pod, volume, inputs);
    let (uid, name, path) = (pod.metadata.uid.clone(), [volume, "/", path].concat(), PathBuf::from(path));
    async move {
        let Some(root) = root else { return Err(format!("{name}: the pod has no such volume that it can write")) };
        let taken = rt::inquire_for(uid.as_str(), move || update_lock::take(&root, &path));
        match rt::deadline(UPDATE_LOCK_DEADLINE, taken).await {
            Ok(taken) => taken.map_err(|error| format!("{name}: {error}")),
            Err(_) => Err(format!("{name}: the file system does not answer")),
        }
    }
}

/// The persistent CSI volumes of a running pod that `is_driver_wanted` names.
pub(crate) fn of_drivers(
    pod: &Pod,
    inputs: SetUpInputs<'_>,
    is_driver_wanted: &dyn Fn(&str) -> bool,
) -> Vec<CsiVolume> {
    plan::of_drivers(pod, inputs, is_driver_wanted).into_iter().map(|csi| csi.volume).collect()
}

/// CSI volumes that must be attached before they can be set up.
fn unattached(plan: &Plan) -> Vec<UnattachedVolume> {
    let unattached = |planned: &PlannedVolume| {
        let Source::Csi(csi) = &planned.source else { return None };
        let missing = csi.volume.missing.as_ref()?;
        (missing.phase() == Phase::WaitForAttach).then(|| UnattachedVolume {
            name: planned.name.clone(),
            driver: csi.volume.driver.clone(),
            handle: csi.volume.handle.clone(),
            may_be_refused: csi.may_be_refused,
        })
    };
    plan.volumes.iter().filter_map(unattached).collect()
}

async fn publish(csi: &Csi, pod: &PodUid, planned: &csi::Csi, ends: &mut PodTerminating) -> Result<(), Error> {
    let volume = &planned.volume;
    let is_due = csi.set_up(volume, ends).await.map_err(|failure| failed(volume, failure))?;
    if let Some(group) = volume.group.filter(|_| planned.gives_to_group && is_due == FsGroupPending(true)) {
        let target = volume.target();
        let on_mismatch = planned.on_mismatch;
        let progress = Arc::new(Progress::default());
        let work = {
            let progress = Arc::clone(&progress);
            move || ownership::set_ownership(&target, group, on_mismatch, &progress)
        };
        let ended = async {
            ends.await;
            progress.give_up();
            Err(io::Error::other("the pod is terminating"))
        };
        let changed = rt::either(ended, rt::slow_for(pod.as_str(), work)).await;
        let failure = |source| SetUpError {
            phase: Phase::SetUp,
            error: CsiError::FsGroup { handle: volume.handle.clone(), source },
        };
        changed.map_err(|error| failed(volume, failure(error)))?;
        csi.record_group(&volume.target());
    }
    Ok(())
}

fn failed(volume: &CsiVolume, failure: SetUpError) -> Error {
    let SetUpError { phase, error: source } = failure;
    Error::Csi { phase, volume: volume.name.clone(), is_block: volume.is_block, source }
}

/// Updates the files of ConfigMap, Secret, projected and downward API volumes, and has CSI volumes published again. A
/// volume that fails does not keep the others from their update.
pub(crate) fn refresh(pod: &Pod, inputs: SetUpInputs<'_>, csi: &Rc<Csi>) -> impl Future<Output = Refreshed> + use<> {
    let planned_volumes: Vec<_> = plan::planned_volumes(pod, &VolumeUses::of(&pod.spec), inputs).collect();
    let csi = Rc::clone(csi);
    let uid = pod.metadata.uid.clone();
    async move {
        let (refreshed, republished) = rt::blocking_for(uid.as_str(), move || write_files(planned_volumes)).await;
        for volume in republished {
            csi.republish(volume);
        }
        refreshed
    }
}

/// Writes the new content of the file volumes. Returns also the CSI volumes to publish again.
fn write_files(planned_volumes: Vec<Result<PlannedVolume, Error>>) -> (Refreshed, Vec<CsiVolume>) {
    let mut refreshed = Refreshed { all_refreshed: true, errors: Vec::new() };
    let mut republished = Vec::new();
    for planned in planned_volumes {
        let written = planned.and_then(|PlannedVolume { name, source }| match source {
            Source::Files(files) => set_up_files(&files, &name),
            Source::Csi(planned) => {
                republished.extend(planned.is_republished.then_some(planned.volume));
                Ok(None)
            }
            Source::Claim { .. }
            | Source::Device { .. }
            | Source::EmptyDir(_)
            | Source::HostPath { .. }
            | Source::Image
            | Source::Local(_)
            | Source::Nfs(_) => Ok(None),
        });
        refreshed.all_refreshed &= written.is_ok();
        refreshed.errors.extend(written.unwrap_or_else(Some));
    }
    (refreshed, republished)
}

impl PodVolumes {
    /// All volumes of a pod, as if they were set up.
    #[cfg(test)]
    pub(crate) fn of_pod(pod: &Pod) -> Self {
        let prepared =
            || PreparedVolume { path: Some("/v".into()), read_only: false, is_device: false, relabel: false };
        let prepared = pod.spec.volumes.iter().map(|volume| (volume.name.clone(), prepared())).collect();
        let uid = pod.metadata.uid.clone();
        Self { uid, prepared, subpaths: "/s".into(), stale_errors: Vec::new(), groups: Vec::new() }
    }

    /// The mounts of `container` in the order of its spec; binds subpaths, until the pod `ends`. `expand` replaces the
    /// variables in a path.
    pub(crate) fn container_mounts(
        &self,
        container: &Container,
        expand: &dyn Fn(&str) -> Result<String, MountProblem>,
        recursive_read_only: bool,
        ends: PodTerminating,
    ) -> impl Future<Output = Result<Vec<Mount>, Error>> + use<> {
        let inputs = MountInputs { prepared: &self.prepared, subpaths: &self.subpaths, recursive_read_only, expand };
        let planned = mounts::container_mounts(container, &inputs);
        let uid = self.uid.clone();
        async move {
            let (mounts, parts) = planned?;
            if !parts.is_empty() {
                let progress = Arc::new(Progress::default());
                let bound = {
                    let progress = Arc::clone(&progress);
                    rt::slow_for(uid.as_str(), move || {
                        parts.iter().try_for_each(|part| sub_path::bind(part, &progress))
                    })
                };
                let ended = async {
                    ends.await;
                    progress.gives_up().await;
                    Err(Error::PodEnds)
                };
                rt::either(ended, bound).await?;
            }
            Ok(mounts)
        }
    }

    /// The block devices of `container`.
    pub(crate) fn container_devices(&self, container: &Container) -> Result<Vec<Device>, Error> {
        mounts::container_devices(container, &self.prepared)
    }

    /// The values of the environment variables that come from files, in the order of the spec.
    pub(crate) fn file_values(&self, container: &Container) -> impl Future<Output = Vec<FileValue>> + use<> {
        let sources = container.env.iter().filter_map(|variable| match &variable.value_from?.source {
            EnvVarSource::FileKey(key) if variable.value.is_empty() => Some(key),
            EnvVarSource::ConfigMapKey(_)
            | EnvVarSource::Field(_)
            | EnvVarSource::FileKey(_)
            | EnvVarSource::ResourceField(_)
            | EnvVarSource::SecretKey(_) => None,
        });
        let volume_path = |volume: &str| self.prepared.get(volume)?.path.clone();
        let keys: Vec<(Option<PathBuf>, FileKeySelector)> =
            sources.map(|key| (volume_path(&key.volume_name), key.clone())).collect();
        let uid = self.uid.clone();
        async move {
            if keys.is_empty() {
                return Vec::new();
            }
            rt::blocking_for(uid.as_str(), move || env_values::file_values(keys)).await
        }
    }
}

impl PlannedVolume {
    /// Whether its set-up accesses a host path, whose file system may hang.
    fn reads_host_path(&self) -> bool {
        match &self.source {
            Source::Claim { .. } | Source::Device { .. } => true,
            Source::HostPath { kind, .. } => *kind != HostPathType::Unset,
            Source::Csi(_)
            | Source::EmptyDir(_)
            | Source::Files(_)
            | Source::Image
            | Source::Local(_)
            | Source::Nfs(_) => false,
        }
    }

    /// Whether the runtime relabels its files, as upstream's attributes `Managed` and `SELinuxRelabel`. For a CSI
    /// volume this depends on its file system, after the set-up.
    fn relabels(&self) -> bool {
        match &self.source {
            Source::EmptyDir(_) | Source::Files(_) => true,
            Source::Local(local) => !local.read_only,
            Source::Claim { read_only, .. } => !read_only,
            Source::Csi(_) | Source::Device { .. } | Source::HostPath { .. } | Source::Image | Source::Nfs(_) => false,
        }
    }

    fn prepared(&self, selinux: bool) -> PreparedVolume {
        let path = self.host_path();
        let relabel = selinux && self.relabels();
        PreparedVolume { path, read_only: self.read_only(), is_device: self.is_device(), relabel }
    }
}

/// A writable CSI volume is relabelled if its file system has labels.
async fn label_mounts(uid: &PodUid, plan: &Plan, prepared: &mut [PreparedVolume]) {
    for (planned, prepared_volume) in plan.volumes.iter().zip(prepared) {
        let (Source::Csi(csi), Some(path)) = (&planned.source, prepared_volume.path.clone()) else { continue };
        if csi.volume.read_only || csi.volume.is_block {
            continue;
        }
        // Its file system may hang.
        prepared_volume.relabel = rt::slow_for(uid.as_str(), move || selinux::has_labels(&path)).await.unwrap_or(false);
    }
}

/// What waits for a file system that may hang. The work itself goes on, if it must.
async fn unless_pod_ends<T>(
    work: impl Future<Output = Result<T, Error>>,
    ends: &mut PodTerminating,
) -> Result<T, Error> {
    let ended = async {
        ends.await;
        Err(Error::PodEnds)
    };
    rt::either(ended, work).await
}

/// Creates what is below the pod's own directories.
fn carry_out(plan: &Plan) -> Result<Vec<Error>, Error> {
    let mut kept = Vec::new();
    for directory in &plan.private {
        directories::make_own(directory, 0o750).map_err(Error::io("create", directory))?;
    }
    for directory in &plan.logs {
        directories::make_own(directory, 0o755).map_err(Error::io("create", directory))?;
    }
    for volume in &plan.volumes {
        let done = match &volume.source {
            Source::EmptyDir(directory) => empty_dir::set_up(directory),
            Source::Files(files) => {
                kept.extend(set_up_files(files, &volume.name)?);
                continue;
            }
            Source::Claim { .. }
            | Source::Csi(_)
            | Source::Device { .. }
            | Source::HostPath { .. }
            | Source::Image
            | Source::Local(_)
            | Source::Nfs(_) => continue,
        };
        done.map_err(|problem| Error::SetUp { volume: volume.name.clone(), problem })?;
    }
    Ok(kept)
}

/// Checks or creates what is elsewhere on the node, whose file system may hang. Nothing of it is below the pod's own
/// directories: it may still be under way when they are removed.
fn set_up_host_paths(plan: &Plan) -> Result<Vec<Error>, Error> {
    let mut unlimited = Vec::new();
    for volume in &plan.volumes {
        let done = match &volume.source {
            Source::Claim { path, bytes, .. } => claim_directory::set_up(path, *bytes).map(|()| {
                // A node without the programs has run its pods until now: it is told, and they go on.
                let problem = claim_quota::set(path, *bytes).err();
                unlimited.extend(problem.map(|problem| Error::SetUp { volume: volume.name.clone(), problem }));
            }),
            Source::Device { path, .. } => host_path::check(path, HostPathType::BlockDevice),
            Source::HostPath { path, kind, .. } => host_path::check(path, *kind),
            Source::Csi(_)
            | Source::EmptyDir(_)
            | Source::Files(_)
            | Source::Image
            | Source::Local(_)
            | Source::Nfs(_) => continue,
        };
        done.map_err(|problem| Error::SetUp { volume: volume.name.clone(), problem })?;
    }
    Ok(unlimited)
}

/// If the new content is unknown, a volume that was set up before keeps its content, and the error is returned in
/// `Ok`.
fn set_up_files(files: &Files, volume: &str) -> Result<Option<Error>, Error> {
    let Files { directory, payload, mount_points } = files;
    let failed = |problem| Error::SetUp { volume: volume.to_owned(), problem };
    let payload = match payload {
        Ok(payload) => payload,
        Err(problem) => {
            let error = failed(Problem::Files(problem.clone()));
            return if atomic_writer::has_content(&directory.path) { Ok(Some(error)) } else { Err(error) };
        }
    };
    empty_dir::set_up(directory).map_err(failed)?;
    for point in mount_points {
        let point = directory.path.join(point);
        directories::make(&point, 0o755).map_err(Problem::io("create", &point)).map_err(failed)?;
    }
    atomic_writer::write(&directory.path, payload, directory.group).map_err(failed)?;
    Ok(None)
}
