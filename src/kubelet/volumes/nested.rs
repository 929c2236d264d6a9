//! Mount points of other mounts inside volumes. Pure.
//!
//! In a read-only volume the runtime cannot create them.

use std::path::{Component, Path, PathBuf};

use crate::types::api::{Container, PodSpec};
use crate::types::sorted::{SortOnce, SortedMap};

/// For each volume, the paths inside it where a container of the pod mounts something else.
///
/// Of several mounts at one place the last one hides the others, so it alone gets the mount points.
pub(super) fn nested_mount_points(spec: &PodSpec) -> SortedMap<&str, Vec<PathBuf>> {
    let mut mount_points: Vec<(&str, PathBuf)> = Vec::new();
    for container in spec.all_containers() {
        in_container(container, &mut mount_points);
    }
    mount_points.sort_once();
    mount_points.dedup();
    let mut of_volumes: Vec<(&str, Vec<PathBuf>)> = Vec::new();
    for (volume, path) in mount_points {
        match of_volumes.last_mut() {
            Some((last, paths)) if *last == volume => paths.push(path),
            Some(_) | None => of_volumes.push((volume, vec![path])),
        }
    }
    of_volumes.into_iter().collect()
}

fn in_container<'a>(container: &'a Container, mount_points: &mut Vec<(&'a str, PathBuf)>) {
    let mut mounts: Vec<(PathBuf, &str)> =
        container.volume_mounts.iter().map(|mount| (cleaned(&mount.mount_path), mount.name.as_str())).collect();
    mounts.sort_once_by(|(a, _), (b, _)| a.cmp(b));
    // In this order a directory comes directly before everything inside it.
    let mut around: Vec<&(PathBuf, &str)> = Vec::new();
    for mount in &mounts {
        while around.last().is_some_and(|(outer, _)| !mount.0.starts_with(outer) || mount.0 == *outer) {
            around.pop();
        }
        let inside = around.last().and_then(|(outer, volume)| Some((*volume, mount.0.strip_prefix(outer).ok()?)));
        mount_points.extend(inside.map(|(volume, path)| (volume, path.to_owned())));
        around.push(mount);
    }
}

/// Normalizes the path; it cannot leave the container's root.
fn cleaned(path: &str) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => cleaned.push(part),
            Component::ParentDir => drop(cleaned.pop()),
            Component::CurDir | Component::Prefix(_) | Component::RootDir => {}
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::api::decode;

    #[track_caller]
    fn check(mounts: &[(&str, &str)], expected: &[&str]) {
        let mounts: Vec<_> = mounts.iter().map(|(name, path)| json!({"name": name, "mountPath": path})).collect();
        let spec = json!({"containers": [{"name": "c", "volumeMounts": mounts}]});
        let spec = decode(spec).unwrap().value;
        let found = nested_mount_points(&spec).get("v").cloned().unwrap_or_default();
        assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn only_direct_mount_points_are_listed() {
        check(&[("v", "/a"), ("w", "/b")], &[]);
        check(&[("v", "/a"), ("w", "/a/b"), ("x", "/a/b/c"), ("y", "/ab")], &["b"]);
        check(&[("w", "/a/b/c"), ("v", "a/"), ("x", "/a/./d/../e"), ("v", "/z")], &["b/c", "e"]);
        check(&[("w", "/a"), ("v", "/a/b")], &[]);
        check(&[("v", "/a"), ("w", "/a/../../x")], &[]);
        check(&[("v", "/a"), ("v", "/a/b")], &["b"]);
        check(&[("v", "/a"), ("w", "/a/b"), ("x", "/a-b"), ("y", "/a/c")], &["b", "c"]);
        check(&[("v", "/"), ("w", "/a/b"), ("x", "/a/b/c"), ("y", "/d")], &["a/b", "d"]);
    }

    #[test]
    fn hidden_mounts_get_no_mount_points() {
        check(&[("v", "/a"), ("w", "/a/"), ("x", "/a/b")], &[]);
        check(&[("w", "/a/"), ("v", "/a"), ("x", "/a/b"), ("y", "/a/b/")], &["b"]);
    }
}
