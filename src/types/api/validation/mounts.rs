//! Validates volume mounts and block devices of a container. Pure.

use super::faults::Faults;
use super::file_paths;
use super::scope::Scope;
use crate::types::api::decode::Path;
use crate::types::api::{Container, MountPropagation, RecursiveReadOnlyMode, VolumeDevice, VolumeMount, VolumeSource};
use crate::types::sorted::Seen;

const NO_VOLUME: &str = "no volume has this name";

pub(super) fn check(container: &Container, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    let privileged = container.security_context.as_ref().is_some_and(|context| context.privileged == Some(true));
    let mut paths = Seen::default();
    let mut mounted = Seen::default();
    let list = path.key("volumeMounts");
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let path = list.index(index);
        check_mount(mount, scope, &path, faults);
        if mount.mount_propagation == Some(MountPropagation::Bidirectional) && !privileged {
            let wanted = "only for a privileged container";
            faults.invalid(&path.key("mountPropagation"), MountPropagation::Bidirectional.as_str(), wanted);
        }
        if !mount.mount_path.is_empty() && !paths.insert(mount.mount_path.as_str()) {
            faults.duplicate(&path.key("mountPath"), &mount.mount_path);
        }
        mounted.insert(mount.name.as_str());
    }
    let list = path.key("volumeDevices");
    let mut devices = Seen::default();
    for (index, device) in container.volume_devices.iter().enumerate() {
        let path = list.index(index);
        check_device(device, scope, &path, faults);
        if !device.name.is_empty() && (mounted.contains(&device.name.as_str()) || !devices.insert(&device.name)) {
            faults.duplicate(&path.key("name"), &device.name);
        }
        if !device.device_path.is_empty() && !paths.insert(&device.device_path) {
            faults.duplicate(&path.key("devicePath"), &device.device_path);
        }
    }
}

fn check_mount(mount: &VolumeMount, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    if mount.name.is_empty() {
        faults.required(&path.key("name"));
    } else if !scope.volumes.contains_key(mount.name.as_str()) {
        faults.invalid(&path.key("name"), &mount.name, NO_VOLUME);
    }
    if mount.mount_path.is_empty() {
        faults.required(&path.key("mountPath"));
    }
    file_paths::descending(&mount.sub_path, &path.key("subPath"), faults);
    file_paths::descending(&mount.sub_path_expr, &path.key("subPathExpr"), faults);
    if !mount.sub_path.is_empty() && !mount.sub_path_expr.is_empty() {
        faults.forbidden(&path.key("subPathExpr"), "when subPath is");
    }
    match mount.recursive_read_only {
        None | Some(RecursiveReadOnlyMode::Disabled) => {}
        Some(mode @ (RecursiveReadOnlyMode::Enabled | RecursiveReadOnlyMode::IfPossible)) => {
            let path = path.key("recursiveReadOnly");
            if !mount.read_only {
                faults.invalid(&path, mode.as_str(), "only when readOnly is true");
            }
            if mount.mount_propagation.is_some_and(|propagation| propagation != MountPropagation::None) {
                faults.invalid(&path, mode.as_str(), "only when mountPropagation is \"None\"");
            }
        }
    }
}

fn check_device(device: &VolumeDevice, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    if device.name.is_empty() {
        faults.required(&path.key("name"));
    } else {
        match scope.volumes.get(device.name.as_str()) {
            None => faults.invalid(&path.key("name"), &device.name, NO_VOLUME),
            Some(VolumeSource::Ephemeral(_) | VolumeSource::PersistentVolumeClaim(_)) => {}
            Some(_) => {
                let wanted = "must be a persistentVolumeClaim or an ephemeral volume";
                faults.invalid(&path.key("name"), &device.name, wanted);
            }
        }
    }
    if device.device_path.is_empty() {
        faults.required(&path.key("devicePath"));
    } else {
        file_paths::without_backsteps(&device.device_path, &path.key("devicePath"), faults);
    }
}
