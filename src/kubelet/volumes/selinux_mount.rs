//! The SELinux label that a volume is mounted with, so that the runtime need not label its files one by one. Pure.
//!
//! `GetMountSELinuxLabel` in pkg/volume/util/selinux.go, with the feature gates of 1.37: volumes whose CSI driver has
//! `seLinuxMount`, unless the pod has `seLinuxChangePolicy: Recursive`.

use super::error::Problem;
use crate::state::objects::{CsiDriver, PersistentVolume};
use crate::types::api::{Container, Pod, SeLinuxOptions};
use crate::types::sorted::SortedSet;

/// The label, or `None` if the volume is mounted without one. The volume comes with the containers that mount it.
/// `file_label`: the policy's label of containers' files.
pub(super) fn mount_label(
    pod: &Pod,
    (volume, mounting): (&str, &[&Container]),
    bound: &PersistentVolume,
    driver: Option<&CsiDriver>,
    file_label: Option<&str>,
) -> Result<Option<String>, Problem> {
    let Some(file_label) = file_label.filter(|_| !bound.is_block) else { return Ok(None) };
    let policy = pod.spec.security_context.as_ref().and_then(|context| context.se_linux_change_policy.as_deref());
    let has_label = policy != Some(RECURSIVE) && driver.is_some_and(|driver| driver.selinux_mount);
    if !has_label && !bound.access_modes.iter().map(String::as_str).eq([ONE_POD]) {
        return Ok(None);
    }
    let users = mounting.iter().filter_map(|user| options(pod, user));
    let labels: SortedSet<String> = users.map(|options| label(file_label, options)).collect();
    if labels.len() > 1 {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let why = format!("multiple SELinux labels found: {}", labels.join(","));
        return Err(Problem::Claim { name: volume.to_owned(), why });
    }
    Ok(labels.into_iter().next().filter(|label| has_label && !label.is_empty()))
}

/// The mount option. The quotes keep commas of the level.
pub(super) fn mount_option(label: &str) -> String {
    format!("context=\"{label}\"")
}

const ONE_POD: &str = "ReadWriteOncePod";
const RECURSIVE: &str = "Recursive";

/// The container's options, or those of its pod.
fn options<'a>(pod: &'a Pod, container: &'a Container) -> Option<&'a SeLinuxOptions> {
    let of_container = container.security_context.as_ref().and_then(|context| context.se_linux_options.as_deref());
    of_container.or_else(|| pod.spec.security_context.as_ref()?.se_linux_options.as_deref())
}

/// The label of files for processes with these options: the policy's, with the user and the level of the options. Empty
/// without a level: the runtime will choose one.
fn label(file_label: &str, options: &SeLinuxOptions) -> String {
    let mut parts = file_label.splitn(4, ':');
    let mut part = || parts.next().unwrap_or_default();
    let (user, role, kind) = (part(), part(), part());
    if options.level.is_empty() {
        return String::new();
    }
    let user = if options.user.is_empty() { user } else { &options.user };
    [user, role, kind, &options.level].join(":")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::volume_uses::VolumeUses;
    use super::*;
    use crate::types::api::decode;

    const FILES: &str = "system_u:object_r:container_file_t:s0";

    /// The label of volume `v`, or the error, on a node with SELinux.
    fn label_of(spec: &Value, modes: &[&str], driver: bool) -> Result<Option<String>, String> {
        let meta = json!({"name": "web", "namespace": "ns", "uid": "u1"});
        let pod: Pod = decode(json!({"metadata": meta, "spec": spec})).unwrap().value;
        let spec = json!({"csi": {"driver": "d", "volumeHandle": "h"}, "accessModes": modes});
        let bound = PersistentVolume::read(&json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap();
        let driver = CsiDriver::read(&json!({"spec": {"seLinuxMount": driver}}));
        let uses = VolumeUses::of(&pod.spec);
        let volume = ("v", uses.mounting("v"));
        assert_eq!(mount_label(&pod, volume, &bound, Some(&driver), None).unwrap(), None, "without SELinux");
        mount_label(&pod, volume, &bound, Some(&driver), Some(FILES)).map_err(|problem| problem.to_string())
    }

    fn pod(options: &Value, policy: Option<&str>) -> Value {
        json!({
            "securityContext": {"seLinuxOptions": options, "seLinuxChangePolicy": policy},
            "containers": [{"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        })
    }

    #[test]
    fn volume_of_any_access_mode_is_mounted_with_the_pods_label() {
        let level = json!({"level": "s0:c1,c2"});
        let expected = Ok(Some("system_u:object_r:container_file_t:s0:c1,c2".to_owned()));
        for policy in [None, Some("MountOption")] {
            for modes in [&["ReadWriteOncePod"][..], &["ReadWriteOnce"], &["ReadOnlyMany", "ReadWriteMany"], &[]] {
                assert_eq!(label_of(&pod(&level, policy), modes, true), expected, "{modes:?}");
            }
        }
        // The type and role of a process are not those of a file.
        let all = json!({"user": "staff_u", "role": "r", "type": "spc_t", "level": "s0"});
        let expected = Ok(Some("staff_u:object_r:container_file_t:s0".to_owned()));
        assert_eq!(label_of(&pod(&all, None), &["ReadWriteOncePod"], true), expected);
        assert_eq!(mount_option("a:b:c:s0:c1,c2"), r#"context="a:b:c:s0:c1,c2""#);
    }

    #[test]
    fn other_volumes_are_mounted_without_a_label() {
        let level = json!({"level": "s0:c1,c2"});
        assert_eq!(label_of(&pod(&level, Some("Recursive")), &["ReadWriteOncePod"], true), Ok(None));
        assert_eq!(label_of(&pod(&level, None), &["ReadWriteOncePod"], false), Ok(None), "the driver cannot");
        for options in [json!({}), json!({"type": "spc_t"}), Value::Null] {
            assert_eq!(label_of(&pod(&options, None), &["ReadWriteOncePod"], true), Ok(None));
        }
    }

    #[test]
    fn containers_with_different_labels_cannot_share_a_volume_of_one_pod() {
        let container = |name: &str, level: &str, volume: &str| {
            let mounts = json!([{"name": volume, "mountPath": "/v"}]);
            json!({"name": name, "volumeMounts": mounts, "securityContext": {"seLinuxOptions": {"level": level}}})
        };
        let shares = json!({"containers": [container("a", "s0:c1", "v"), container("b", "s0:c2", "v")]});
        let why = label_of(&shares, &["ReadWriteOncePod"], true).unwrap_err();
        let labels = "system_u:object_r:container_file_t:s0:c1,system_u:object_r:container_file_t:s0:c2";
        assert!(why.contains(&format!("multiple SELinux labels found: {labels}")), "{why}");
        let apart = json!({"containers": [container("a", "s0:c1", "v"), container("b", "s0:c2", "other")]});
        assert!(label_of(&apart, &["ReadWriteOncePod"], true).unwrap().is_some());
        assert!(label_of(&shares, &["ReadWriteMany"], true).is_err());
        assert_eq!(label_of(&shares, &["ReadWriteMany"], false), Ok(None), "the runtime labels its files");
    }
}
