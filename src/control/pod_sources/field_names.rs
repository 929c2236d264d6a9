//! Names of fields that people write in manifests, to suggest the one that was meant. Pure.

use crate::platform::config::nearest;
use crate::types::sorted::SortOnce;

/// The field that may be meant by the last name of `path`.
pub(super) fn nearest_field(path: &str) -> Option<&'static str> {
    let name = path.rsplit('.').next().unwrap_or(path);
    let fields = || MANIFEST_FIELDS.iter().copied();
    // Letters that changed places count as two mistakes, which is too many in a short name.
    let swapped = || fields().find(|field| letters(field) == letters(name));
    nearest(name, fields()).or_else(swapped).filter(|meant| *meant != name)
}

fn letters(name: &str) -> Vec<char> {
    let mut letters: Vec<char> = name.chars().collect();
    letters.sort_once();
    letters
}

const MANIFEST_FIELDS: [&str; 90] = [
    "activeDeadlineSeconds",
    "add",
    "affinity",
    "allowPrivilegeEscalation",
    "annotations",
    "apiVersion",
    "args",
    "capabilities",
    "command",
    "concurrencyPolicy",
    "configMap",
    "configMapKeyRef",
    "configMapRef",
    "containerPort",
    "containers",
    "data",
    "defaultMode",
    "dnsConfig",
    "dnsPolicy",
    "drop",
    "emptyDir",
    "enableServiceLinks",
    "env",
    "envFrom",
    "exec",
    "failureThreshold",
    "fieldPath",
    "fieldRef",
    "fsGroup",
    "grpc",
    "hostAliases",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPath",
    "hostPort",
    "hostname",
    "httpGet",
    "image",
    "imagePullPolicy",
    "imagePullSecrets",
    "initContainers",
    "initialDelaySeconds",
    "items",
    "kind",
    "labels",
    "lifecycle",
    "limits",
    "livenessProbe",
    "metadata",
    "mountPath",
    "mountPropagation",
    "name",
    "namespace",
    "nodeName",
    "nodeSelector",
    "periodSeconds",
    "ports",
    "postStart",
    "preStop",
    "priority",
    "priorityClassName",
    "privileged",
    "protocol",
    "readOnly",
    "readOnlyRootFilesystem",
    "readinessProbe",
    "requests",
    "resources",
    "restartPolicy",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "secret",
    "secretKeyRef",
    "secretName",
    "secretRef",
    "securityContext",
    "serviceAccountName",
    "spec",
    "startupProbe",
    "stdin",
    "subPath",
    "terminationGracePeriodSeconds",
    "timeZone",
    "timeoutSeconds",
    "tolerations",
    "valueFrom",
    "volumeMounts",
    "volumes",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::fields::{Step, fields_of};
    use crate::types::api::{ConfigMap, CronJob, Pod, Secret};

    #[test]
    fn names_are_fields_of_manifests() {
        let fields =
            [fields_of::<Pod>(), fields_of::<ConfigMap>(), fields_of::<Secret>(), fields_of::<CronJob>()].concat();
        let known: Vec<&String> = fields
            .iter()
            .filter_map(|field| match field.path.last() {
                Some(Step::Key(key)) => Some(key),
                _ => None,
            })
            .collect();
        for name in MANIFEST_FIELDS.iter().filter(|name| !["apiVersion", "kind"].contains(name)) {
            assert!(known.iter().any(|key| key == name), "{name}");
        }
    }

    #[test]
    fn mistyped_name_has_a_suggestion() {
        assert_eq!(nearest_field("spec.hostNetwrok"), Some("hostNetwork"));
        assert_eq!(nearest_field("spec.containers[0].imagePullpolicy"), Some("imagePullPolicy"));
        assert_eq!(nearest_field("metadata.lables"), Some("labels"));
        assert_eq!(nearest_field("spec.timezone"), Some("timeZone"));
        assert_eq!(nearest_field("spec.replicas"), None);
        // A known field in the wrong place.
        assert_eq!(nearest_field("spec.image"), None);
    }
}
