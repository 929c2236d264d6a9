//! Container mounts as CRI messages. Pure.

use std::path::{Component, Path, PathBuf};

use super::error::{Error, MAX_EXPANDED_PATHS_BYTES, MountProblem};
use crate::platform::cri::v1::{self, ImageSpec, Mount};
use crate::types::api::{self, Container, RecursiveReadOnlyMode, VolumeMount};
use crate::types::sorted::SortedMap;

/// A volume after its set-up.
#[derive(Debug, PartialEq)]
pub(super) struct PreparedVolume {
    /// Path on the host; `None` for an image volume, which the runtime mounts.
    pub(super) path: Option<PathBuf>,
    /// Overrides the mount's own setting.
    pub(super) read_only: bool,
    pub(super) is_device: bool,
    /// The runtime gives its files the container's SELinux label.
    pub(super) relabel: bool,
}

/// A subpath that is bound to a separate target, so that symlinks in the volume cannot redirect the mount.
#[derive(Debug, PartialEq)]
pub(super) struct Part {
    pub(super) volume: String,
    pub(super) container: String,
    /// The volume's path on the host.
    pub(super) root: PathBuf,
    /// Relative to the root.
    pub(super) path: String,
    pub(super) target: PathBuf,
}

pub(super) struct MountInputs<'a> {
    /// By the names of the volumes.
    pub(super) prepared: &'a SortedMap<String, PreparedVolume>,
    /// Parent directory of subpath bind mounts.
    pub(super) subpaths: &'a Path,
    /// The runtime supports recursive read-only mounts.
    pub(super) recursive_read_only: bool,
    /// Replaces the variables in a path.
    pub(super) expand: &'a dyn Fn(&str) -> Result<String, MountProblem>,
}

/// The mounts of `container`, and the subpaths to bind before.
///
/// A mount of an image volume has an empty [`ImageSpec`], which is filled in after the image is pulled.
pub(super) fn container_mounts(
    container: &Container,
    inputs: &MountInputs<'_>,
) -> Result<(Vec<Mount>, Vec<Part>), Error> {
    let mut parts = Vec::new();
    let mut mounts = Vec::with_capacity(container.volume_mounts.len());
    let mut room = MAX_EXPANDED_PATHS_BYTES;
    for (index, mount) in container.volume_mounts.iter().enumerate() {
        let prepared_volume = inputs.prepared.get(&mount.name);
        let prepared_volume = prepared_volume
            .ok_or_else(|| Error::NoSuchVolume { volume: mount.name.clone(), container: container.name.clone() })?;
        let sub_path = sub_path(mount, inputs.expand, &mut room).map_err(Error::Mount)?;
        let mut made = Mount {
            container_path: absolute(&mount.mount_path),
            readonly: mount.read_only || prepared_volume.read_only,
            recursive_read_only: recursive_read_only(mount, inputs.recursive_read_only).map_err(Error::Mount)?,
            selinux_relabel: prepared_volume.relabel,
            propagation: propagation(mount),
            ..Mount::default()
        };
        match &prepared_volume.path {
            None => {
                made.image = Some(ImageSpec::default());
                made.image_sub_path = sub_path;
            }
            Some(root) if sub_path.is_empty() => made.host_path = root.to_string_lossy().into_owned(),
            Some(root) => {
                // The index distinguishes several subpaths of one volume.
                let target = inputs.subpaths.join(&mount.name).join(&container.name).join(index.to_string());
                made.host_path = target.to_string_lossy().into_owned();
                let (volume, container) = (mount.name.clone(), container.name.clone());
                parts.push(Part { volume, container, root: root.clone(), path: sub_path, target });
            }
        }
        mounts.push(made);
    }
    Ok((mounts, parts))
}

/// The container's block devices in the order of its spec.
pub(super) fn container_devices(
    container: &Container,
    prepared: &SortedMap<String, PreparedVolume>,
) -> Result<Vec<v1::Device>, Error> {
    let devices = container.volume_devices.iter().map(|device| {
        let prepared_device = prepared.get(&device.name).filter(|mapped| mapped.is_device);
        let Some(PreparedVolume { path: Some(path), read_only, .. }) = prepared_device else {
            let (volume, container) = (device.name.clone(), container.name.clone());
            return Err(Error::NoSuchDevice { volume, container });
        };
        Ok(v1::Device {
            container_path: device.device_path.clone(),
            host_path: path.to_string_lossy().into_owned(),
            permissions: if *read_only { "r" } else { "mrw" }.to_owned(),
        })
    });
    devices.collect()
}

fn sub_path(
    mount: &VolumeMount,
    expand: &dyn Fn(&str) -> Result<String, MountProblem>,
    room: &mut usize,
) -> Result<String, MountProblem> {
    let path = if mount.sub_path_expr.is_empty() {
        mount.sub_path.clone()
    } else {
        let expanded = expand(&mount.sub_path_expr)?;
        *room = room.checked_sub(expanded.len()).ok_or(MountProblem::PathTooLong)?;
        expanded
    };
    let inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if Path::new(&path).components().all(inside) { Ok(path) } else { Err(MountProblem::BackSteps { path }) }
}

fn recursive_read_only(mount: &VolumeMount, supported: bool) -> Result<bool, MountProblem> {
    match mount.recursive_read_only {
        None | Some(RecursiveReadOnlyMode::Disabled) => Ok(false),
        Some(RecursiveReadOnlyMode::IfPossible) => Ok(supported),
        Some(RecursiveReadOnlyMode::Enabled) if supported => Ok(true),
        Some(RecursiveReadOnlyMode::Enabled) => Err(MountProblem::RecursiveReadOnly { volume: mount.name.clone() }),
    }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { ["/", path].concat() }
}

fn propagation(mount: &VolumeMount) -> v1::MountPropagation {
    match mount.mount_propagation {
        None | Some(api::MountPropagation::None) => v1::MountPropagation::Private,
        Some(api::MountPropagation::HostToContainer) => v1::MountPropagation::HostToContainer,
        Some(api::MountPropagation::Bidirectional) => v1::MountPropagation::Bidirectional,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::types::api::decode;

    /// The mounts with a runtime that supports all mount options, or none.
    fn mounts_on(able: bool, mount: Value) -> Result<(Vec<Mount>, Vec<Part>), Error> {
        all_mounts(able, &[mount])
    }

    fn all_mounts(able: bool, mounts: &[Value]) -> Result<(Vec<Mount>, Vec<Part>), Error> {
        let container = decode(json!({"name": "main", "volumeMounts": mounts})).unwrap().value;
        let place = |volume: &str, path: Option<&str>, read_only| {
            let path = path.map(PathBuf::from);
            let prepared = PreparedVolume { path, read_only, is_device: false, relabel: volume == "labelled" };
            (volume.to_owned(), prepared)
        };
        let places = [
            place("v", Some("/host/v"), false),
            place("ro", Some("/host/ro"), true),
            place("i", None, true),
            place("labelled", Some("/host/l"), false),
        ]
        .into();
        let expand = |text: &str| match text {
            "logs/$(NAME)" => Ok("logs/web".to_owned()),
            "$(UP)" => Ok("a/../..".to_owned()),
            "$(LONG)" => Ok("x".repeat(4000)),
            _ => Err(MountProblem::MissingValues { names: ["A", "B"].map(str::to_owned).into_iter().collect() }),
        };
        let subpaths = Path::new("/subpaths");
        container_mounts(
            &container,
            &MountInputs { prepared: &places, subpaths, recursive_read_only: able, expand: &expand },
        )
    }

    fn mounts(mount: Value) -> Result<(Vec<Mount>, Vec<Part>), Error> {
        mounts_on(false, mount)
    }

    #[test]
    fn mount_options_are_passed_on() {
        let (made, parts) = mounts(json!({"name": "v", "mountPath": "data", "readOnly": true,
            "mountPropagation": "HostToContainer", "recursiveReadOnly": "IfPossible"}))
        .unwrap();
        let expected = Mount {
            container_path: "/data".to_owned(),
            host_path: "/host/v".to_owned(),
            readonly: true,
            propagation: v1::MountPropagation::HostToContainer,
            ..Mount::default()
        };
        assert_eq!((made, parts), (vec![expected], Vec::new()));
    }

    #[test]
    fn read_only_volume_is_read_only_in_every_mount() {
        let (made, _) = mounts(json!({"name": "ro", "mountPath": "/data"})).unwrap();
        assert!(made[0].readonly);
    }

    #[test]
    fn every_mount_of_a_labelled_volume_is_relabelled() {
        let relabels = |mount: Value| mounts(mount).unwrap().0[0].selinux_relabel;
        assert!(relabels(json!({"name": "labelled", "mountPath": "/data"})));
        assert!(relabels(json!({"name": "labelled", "mountPath": "/data", "subPath": "a"})));
        assert!(!relabels(json!({"name": "v", "mountPath": "/data"})));
    }

    #[test]
    fn subpath_is_bound_below_the_pods_directory() {
        let (made, parts) = mounts(json!({"name": "v", "mountPath": "/data", "subPath": "a/./b"})).unwrap();
        assert_eq!(made[0].host_path, "/subpaths/v/main/0");
        assert_eq!((parts[0].root.as_path(), parts[0].path.as_str()), (Path::new("/host/v"), "a/./b"));
        let (_, parts) = mounts(json!({"name": "v", "mountPath": "/data", "subPathExpr": "logs/$(NAME)"})).unwrap();
        assert_eq!(parts[0].path, "logs/web");
    }

    #[test]
    fn image_volume_is_left_to_the_runtime() {
        let (made, parts) = mounts(json!({"name": "i", "mountPath": "/data", "subPath": "bin"})).unwrap();
        assert_eq!((made[0].host_path.as_str(), made[0].image_sub_path.as_str(), parts.len()), ("", "bin", 0));
        assert!(made[0].image.is_some() && made[0].readonly);
    }

    #[test]
    fn device_is_passed_with_its_permissions() {
        let container: Container = decode(json!({"name": "main", "volumeDevices": [
            {"name": "rw", "devicePath": "/dev/a"}, {"name": "ro", "devicePath": "/dev/b"},
        ]}))
        .unwrap()
        .value;
        let place = |volume: &str, read_only| {
            let path = Some(Path::new("/dev").join(volume));
            (volume.to_owned(), PreparedVolume { path, read_only, is_device: true, relabel: false })
        };
        let places = [place("ro", true), place("rw", false)].into();
        let device = |at: &str, on_host: &str, permissions: &str| v1::Device {
            container_path: at.to_owned(),
            host_path: on_host.to_owned(),
            permissions: permissions.to_owned(),
        };
        let expected = [device("/dev/a", "/dev/rw", "mrw"), device("/dev/b", "/dev/ro", "r")];
        assert_eq!(container_devices(&container, &places).unwrap(), expected);
        let error = container_devices(&container, &[place("ro", true)].into()).unwrap_err();
        assert_eq!(error.to_string(), "cannot find volume \"rw\" to pass into container \"main\"");
    }

    #[track_caller]
    fn check_error(mount: Value, expected: &str) {
        assert_eq!(mounts(mount).unwrap_err().to_string(), expected);
    }

    #[test]
    fn subpath_outside_of_the_volume_is_refused() {
        for path in ["..", "a/../b", "a/.."] {
            let expected = format!("unable to provision SubPath `{path}`: must not contain '..'");
            check_error(json!({"name": "v", "mountPath": "/data", "subPath": path}), &expected);
        }
        let absolute = json!({"name": "v", "mountPath": "/data", "subPath": "/etc"});
        check_error(absolute, "error SubPath `/etc` must not be an absolute path");
        let expanded = json!({"name": "v", "mountPath": "/data", "subPathExpr": "$(UP)"});
        check_error(expanded, "unable to provision SubPath `a/../..`: must not contain '..'");
    }

    #[test]
    fn expanded_subpaths_of_a_container_have_a_bound_together() {
        let long = json!({"name": "v", "mountPath": "/data", "subPathExpr": "$(LONG)"});
        let made = |count: usize| all_mounts(false, &vec![long.clone(); count]);
        assert_eq!(made(262).unwrap().1.len(), 262);
        assert_eq!(
            made(263).unwrap_err().to_string(),
            "a subPathExpr exceeds 4095 bytes with the values of its variables, or all of the container do 1048576",
        );
    }

    #[test]
    fn invalid_mount_is_named_in_the_error() {
        check_error(
            json!({"name": "w", "mountPath": "/data"}),
            "cannot find volume \"w\" to mount into container \"main\"",
        );
        check_error(json!({"name": "v", "mountPath": "/data", "subPathExpr": "$(X)"}), "missing value for A, B");
    }

    #[test]
    fn recursive_read_only_needs_runtime_support() {
        let mount = |mode: &str| json!({"name": "v", "mountPath": "/d", "readOnly": true, "recursiveReadOnly": mode});
        for (mode, able, expected) in [
            ("Enabled", true, true),
            ("IfPossible", true, true),
            ("IfPossible", false, false),
            ("Disabled", true, false),
        ] {
            let (made, _) = mounts_on(able, mount(mode)).unwrap();
            assert_eq!(made[0].recursive_read_only, expected, "{mode} {able}");
        }
        check_error(
            mount("Enabled"),
            "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but it is \
             not supported by the runtime",
        );
    }
}
