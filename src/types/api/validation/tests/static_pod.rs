//! References of static pods.

use super::*;
use crate::types::api::validation::static_pod_api_references;

#[track_caller]
fn check_references(spec: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<&str> = wanted.iter().map(AsRef::as_ref).collect();
    assert_eq!(messages(&static_pod_api_references(&pod(json!({"spec": spec})))), wanted);
}

#[test]
fn update_lock_is_a_path_in_a_volume_of_the_pod() {
    let check = |annotations: Value, wanted: &[&str]| {
        let spec = json!({"volumes": [{"name": "state", "emptyDir": {}}]});
        let pod = pod(json!({"metadata": {"uid": "u", "annotations": annotations}, "spec": spec}));
        assert_eq!(messages(&validate_static_pod(&pod)), wanted);
    };
    let lock = "coracle.dev/update-lock";
    check(json!({lock: "state/a/b.lock", "coracle.dev/update-lock-limit": "30m", "coracle.dev/hold": "true"}), &[]);
    check(
        json!({lock: "data/lock"}),
        &[r#"metadata.annotations["coracle.dev/update-lock"]: the pod has no volume "data""#],
    );
    let path = "must be a volume of the pod and a path in it, as state/update.lock";
    for wrong in ["state", "state/", "/lock", "state/../x", "state/./x", "state//x"] {
        let wanted = format!(r#"metadata.annotations["coracle.dev/update-lock"]: {wrong:?}: {path}"#);
        check(json!({lock: wrong}), &[&wanted]);
    }
    let wanted = r#"metadata.annotations["coracle.dev/hold"]: "yes": must be "true" or "false""#;
    check(json!({"coracle.dev/hold": "yes"}), &[wanted]);
}

#[test]
fn uid_of_a_manifest_is_part_of_file_names() {
    let faults = |uid: &str| messages(&validate_static_pod(&pod(json!({"metadata": {"uid": uid}}))));
    let wanted = "must be at most 200 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit";
    for uid in ["plant/plc", "..", ".", "a b"] {
        assert_eq!(faults(uid), [format!("metadata.uid: {uid:?}: {wanted}")]);
    }
    assert_eq!(faults(&"u".repeat(300)).len(), 1, "the log directory is too long only for the uid");
    for uid in ["my_plc", "0f9b53e1-9d2f-4c36-a6c5-2f1d0b6cf0d6"] {
        assert_eq!(faults(uid), [] as [String; 0]);
    }
}

#[test]
fn static_pods_refer_to_no_api_objects() {
    let volumes = [
        (json!({"azureFile": {"secretName": "s", "shareName": "t"}}), "azureFile", "secrets"),
        (json!({"csi": {"driver": "d"}}), "csi", "csidrivers (via CSI volumes)"),
        (json!({"ephemeral": {}}), "ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        (json!({"glusterfs": {}}), "glusterfs", "endpoints (via glusterFS volumes)"),
        (json!({"iscsi": {"secretRef": {"name": "s"}}}), "iscsi.secretRef", "secrets"),
    ];
    for (mut volume, path, resource) in volumes {
        volume["name"] = json!("v");
        check_references(
            json!({"volumes": [volume]}),
            &[format!("spec.volumes[0].{path}: static pods may not reference {resource}")],
        );
    }
    let projections = [
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ];
    for (field, resource) in projections {
        check_references(
            json!({"volumes": [{"name": "v", "projected": {"sources": [{"downwardAPI": {}}, {field: {}}]}}]}),
            &[format!("spec.volumes[0].projected.sources[1].{field}: static pods may not reference {resource}")],
        );
    }
}

#[test]
fn static_pods_have_no_service_account_and_no_claims() {
    check_references(
        json!({
            "serviceAccountName": "a", "serviceAccount": "a", "resourceClaims": [{"name": "c"}],
        }),
        &[
            "spec.serviceAccountName: static pods may not reference serviceaccounts",
            "spec.serviceAccount: static pods may not reference serviceaccounts",
            "spec.resourceClaims: static pods may not reference resourceclaims",
        ],
    );
}

#[test]
fn references_to_local_objects_are_allowed() {
    let item = json!({"path": "n", "fieldRef": {"fieldPath": "metadata.name"}});
    let pod = pod(json!({"spec": {
        "imagePullSecrets": [{"name": "s"}],
        "containers": [{
            "name": "c", "image": "i",
            "env": [
                {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "n", "key": "k"}}},
                {"name": "C", "valueFrom": {"secretKeyRef": {"name": "n", "key": "k"}}},
            ],
            "envFrom": [{"configMapRef": {"name": "n"}}, {"secretRef": {"name": "n"}}],
        }],
        "volumes": [
            {"name": "a"},
            {"name": "b", "hostPath": {"path": "/x"}},
            {"name": "c", "downwardAPI": {"items": [item]}},
            {"name": "d", "projected": {"sources": [
                {"downwardAPI": {"items": [item]}}, {"configMap": {"name": "n"}}, {"secret": {"name": "n"}},
            ]}},
            {"name": "e", "image": {"reference": "r.example/x:1"}},
            {"name": "f", "nfs": {"server": "s", "path": "/p"}},
            {"name": "g", "iscsi": {"targetPortal": "h:3260", "iqn": "iqn.2001-04.com.example:disk", "lun": 0}},
            {"name": "h", "fc": {"wwids": ["w"]}},
            {"name": "i", "configMap": {"name": "n"}},
            {"name": "j", "secret": {"secretName": "n"}},
        ],
    }}));
    assert_eq!(validate_static_pod(&pod), []);
}

#[test]
fn static_pods_get_both_kinds_of_error() {
    let pod = pod(json!({"spec": {"serviceAccountName": "A", "volumes": [{"name": "b", "secret": {}}]}}));
    assert_eq!(
        messages(&validate_static_pod(&pod)),
        [
            "spec.volumes[0].secret.secretName: required".to_owned(),
            format!("spec.serviceAccountName: \"A\": {DNS_SUBDOMAIN}"),
            "spec.serviceAccountName: static pods may not reference serviceaccounts".to_owned(),
        ],
    );
}
