//! CSIDriver objects. Pure.

use std::time::Duration;

use serde_json::Value;

/// The fields of a `storage.k8s.io/v1` CSIDriver that a node uses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CsiDriver {
    pub(crate) attach_required: bool,
    pub(crate) pod_info_on_mount: bool,
    pub(crate) group_policy: FsGroupPolicy,
    /// `Persistent`, `Ephemeral`.
    pub(crate) lifecycle_modes: Vec<String>,
    /// Audience, and lifetime in seconds.
    pub(crate) token_requests: Vec<(String, i64)>,
    pub(crate) tokens_in_secrets: bool,
    pub(crate) requires_republish: bool,
    /// `seLinuxMount`: volumes can be mounted with `-o context`.
    pub(crate) selinux_mount: bool,
    /// How often the driver's volume limit is updated.
    pub(crate) allocatable_period: Option<Duration>,
}

/// Who sets the volume's group to the pod's fsGroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FsGroupPolicy {
    /// The kubelet, for every volume.
    File,
    None,
    /// The kubelet, for ReadWriteOnce volumes with a file system type.
    ReadWriteOnceWithFsType,
}

/// Default token lifetime of the API.
const DEFAULT_CSI_TOKEN_SECONDS: i64 = 3600;
/// The smallest period that the API accepts, in seconds.
const MIN_UPDATE_PERIOD_SECONDS: u64 = 10;

impl CsiDriver {
    pub(crate) fn read(object: &Value) -> Self {
        let spec = |key: &str| object.pointer("/spec").and_then(|spec| spec.get(key));
        let flag = |key: &str| spec(key).and_then(Value::as_bool);
        let list = |key: &str| spec(key).and_then(Value::as_array).into_iter().flatten();
        let modes: Vec<String> = list("volumeLifecycleModes").filter_map(Value::as_str).map(str::to_owned).collect();
        let token = |request: &Value| {
            let audience = request.get("audience").and_then(Value::as_str).unwrap_or_default().to_owned();
            (audience, request.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_CSI_TOKEN_SECONDS))
        };
        let period = spec("nodeAllocatableUpdatePeriodSeconds").and_then(Value::as_u64).filter(|seconds| *seconds > 0);
        Self {
            attach_required: flag("attachRequired").unwrap_or(true),
            pod_info_on_mount: flag("podInfoOnMount").unwrap_or(false),
            group_policy: match spec("fsGroupPolicy").and_then(Value::as_str) {
                Some("File") => FsGroupPolicy::File,
                Some("None") => FsGroupPolicy::None,
                _ => FsGroupPolicy::ReadWriteOnceWithFsType,
            },
            lifecycle_modes: if modes.is_empty() { vec!["Persistent".to_owned()] } else { modes },
            token_requests: list("tokenRequests").map(token).collect(),
            tokens_in_secrets: flag("serviceAccountTokenInSecrets").unwrap_or(false),
            requires_republish: flag("requiresRepublish").unwrap_or(false),
            selinux_mount: flag("seLinuxMount").unwrap_or(false),
            allocatable_period: period.map(|seconds| Duration::from_secs(seconds.max(MIN_UPDATE_PERIOD_SECONDS))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_fields_have_the_apis_defaults() {
        let driver = CsiDriver::read(&json!({"spec": {}}));
        assert!(driver.attach_required && !driver.pod_info_on_mount && !driver.requires_republish);
        assert!(!driver.selinux_mount && CsiDriver::read(&json!({"spec": {"seLinuxMount": true}})).selinux_mount);
        assert_eq!(driver.group_policy, FsGroupPolicy::ReadWriteOnceWithFsType);
        assert_eq!(driver.allocatable_period, None);
        assert_eq!((driver.lifecycle_modes, driver.token_requests), (vec!["Persistent".to_owned()], Vec::new()));
    }

    #[test]
    fn fields_are_read() {
        let driver = CsiDriver::read(&json!({"spec": {
            "attachRequired": false, "podInfoOnMount": true, "fsGroupPolicy": "None", "requiresRepublish": true,
            "volumeLifecycleModes": ["Ephemeral"],
            "tokenRequests": [{"audience": "a", "expirationSeconds": 600}, {"audience": ""}],
        }}));
        assert!(!driver.attach_required && driver.pod_info_on_mount && driver.requires_republish);
        assert_eq!(
            (driver.group_policy, &*driver.lifecycle_modes),
            (FsGroupPolicy::None, &["Ephemeral".to_owned()][..])
        );
        let period = |seconds: i64| {
            CsiDriver::read(&json!({"spec": {"nodeAllocatableUpdatePeriodSeconds": seconds}})).allocatable_period
        };
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!([60, 1, 0, -1].map(period), [seconds(60), seconds(10), None, None]);
        assert_eq!(driver.token_requests, [("a".to_owned(), 600), (String::new(), 3600)]);
    }
}
