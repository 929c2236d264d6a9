//! Mount points of other mounts inside a volume. Pure.
//!
//! In a read-only volume the runtime cannot create them.

use std::path::{Component, Path, PathBuf};

use crate::types::api::{Container, PodSpec};

/// Paths inside the volume `volume` where a container of the pod mounts something else.
pub(super) fn nested_mount_points(spec: &PodSpec, volume: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for container in spec.all_containers() {
        in_container(container, volume, &mut found);
    }
    found
}

fn in_container(container: &Container, volume: &str, found: &mut Vec<PathBuf>) {
    let mut all: Vec<PathBuf> = container.volume_mounts.iter().map(|mount| cleaned(&mount.mount_path)).collect();
    all.sort();
    for mount in container.volume_mounts.iter().filter(|mount| mount.name == volume) {
        let own = cleaned(&mount.mount_path);
        let mut last: Option<&Path> = None;
        for other in all.iter().filter(|other| **other != own) {
            let Ok(below) = other.strip_prefix(&own) else { continue };
            // Inside the previous mount point, so not directly in this volume.
            if last.is_some_and(|last| other.starts_with(last)) {
                continue;
            }
            last = Some(other);
            if !found.iter().any(|known| known == below) {
                found.push(below.to_owned());
            }
        }
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
        assert_eq!(nested_mount_points(&spec, "v"), expected.iter().map(PathBuf::from).collect::<Vec<_>>());
    }

    #[test]
    fn only_direct_mount_points_are_listed() {
        check(&[("v", "/a"), ("w", "/b")], &[]);
        check(&[("v", "/a"), ("w", "/a/b"), ("x", "/a/b/c"), ("y", "/ab")], &["b"]);
        check(&[("w", "/a/b/c"), ("v", "a/"), ("x", "/a/./d/../e"), ("v", "/z")], &["b/c", "e"]);
        check(&[("w", "/a"), ("v", "/a/b")], &[]);
        check(&[("v", "/a"), ("w", "/a/../../x")], &[]);
        check(&[("v", "/a"), ("v", "/a/b")], &["b"]);
    }
}
