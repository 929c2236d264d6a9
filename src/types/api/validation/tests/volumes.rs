//! Volumes, their sources, and where containers mount them.

use super::*;

/// Asserts the errors of a pod whose only volume `v` has this source; the paths are relative to the volume.
#[track_caller]
fn check_source(source: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<String> = wanted.iter().map(|wanted| ["spec.volumes[0].", wanted.as_ref()].concat()).collect();
    check_spec(with(source), &wanted);
}

#[track_caller]
fn passes(source: Value) {
    passes_spec(with(source));
}

fn with(mut source: Value) -> Value {
    source["name"] = json!("v");
    // Service account tokens need an account.
    json!({"volumes": [source], "serviceAccountName": "a"})
}

#[test]
fn volume_names_are_unique() {
    passes_spec(json!({"volumes": [{"name": "a"}, {"name": "b", "emptyDir": {}}]}));
    check_spec(
        json!({"volumes": [{}, {"name": "a.b"}, {"name": "c"}, {"name": "c"}]}),
        &[
            "spec.volumes[0].name: required".to_owned(),
            format!("spec.volumes[1].name: \"a.b\": {DNS_LABEL}"),
            "spec.volumes[3].name: \"c\": duplicate".to_owned(),
        ],
    );
}

#[test]
fn local_volumes_need_their_fields() {
    passes(json!({"emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}));
    check_source(json!({"emptyDir": {"sizeLimit": -1}}), &["emptyDir.sizeLimit: \"-1\": must not be negative"]);
    check_source(
        json!({"emptyDir": {"medium": "memory"}}),
        &["emptyDir.medium: \"memory\": must be \"\", \"Memory\", \"HugePages\" or \"HugePages-<size>\""],
    );
    passes(json!({"hostPath": {"path": "/a..b/c", "type": "Directory"}}));
    check_source(json!({"hostPath": {}}), &["hostPath.path: required"]);
    check_source(json!({"hostPath": {"path": "/a/../b"}}), &["hostPath.path: \"/a/../b\": must not contain '..'"]);
    passes(json!({"image": {"reference": "r.example/a:1"}}));
    passes(json!({"image": {}}));
}

#[test]
fn projection_without_a_source_is_accepted() {
    passes(json!({"projected": {"sources": [{}, {"secret": null}]}}));
}

#[test]
fn network_and_csi_volumes_need_their_fields() {
    passes(json!({"nfs": {"server": "s", "path": "/p"}}));
    check_source(json!({"nfs": {}}), &["nfs.server: required", "nfs.path: required"]);
    check_source(json!({"nfs": {"server": "s", "path": "p"}}), &["nfs.path: \"p\": must be an absolute path"]);
    passes(json!({"persistentVolumeClaim": {"claimName": "c"}}));
    check_source(json!({"persistentVolumeClaim": {}}), &["persistentVolumeClaim.claimName: required"]);
    passes(json!({"ephemeral": {"volumeClaimTemplate": {}}}));
    check_source(json!({"ephemeral": {}}), &["ephemeral.volumeClaimTemplate: required"]);
    check(
        json!({
            "metadata": {"name": "p".repeat(253)},
            "spec": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
        }),
        &[format!("spec.volumes[0].ephemeral: \"{}-v\": {DNS_SUBDOMAIN}", "p".repeat(253))],
    );
    passes(json!({"csi": {"driver": "Disk.example.com", "nodePublishSecretRef": {"name": "s"}}}));
    check_source(
        json!({"csi": {"nodePublishSecretRef": {}}}),
        &["csi.driver: required", "csi.nodePublishSecretRef.name: required"],
    );
    check_source(
        json!({"csi": {"driver": "a_b"}}),
        &["csi.driver: \"a_b\": must be a DNS subdomain, which may have upper case letters"],
    );
    let long = "a".repeat(64);
    check_source(json!({"csi": {"driver": long}}), &[format!("csi.driver: \"{long}\": must be at most 63 characters")]);
}

#[test]
fn network_disks_need_their_fields() {
    for iqn in ["iqn.2001-04.com.example:storage.disk1", "eui.02004567A425678D", "naa.62004567BA64678D0123456789ABCDEF"]
    {
        passes(json!({"iscsi": {"targetPortal": "h:3260", "iqn": iqn, "lun": 255}}));
    }
    for iqn in ["iqn.2001.com:d", "iqn.2001-04.com.example", "eui.1", "naa.1", "disk", "iqn.2001-04.com.example:a b"] {
        check_source(
            json!({"iscsi": {"targetPortal": "h", "iqn": iqn}}),
            &[format!(
                "iscsi.iqn: \"{iqn}\": must be an iSCSI name such as iqn.2001-04.com.example:disk, \
                 eui.<16 hex digits> or naa.<32 hex digits>"
            )],
        );
    }
    check_source(json!({"iscsi": {}}), &["iscsi.targetPortal: required", "iscsi.iqn: required"]);
    check_source(
        json!({"iscsi": {"targetPortal": "h", "iqn": "eui.02004567A425678D", "lun": 256, "chapAuthSession": true}}),
        &["iscsi.lun: 256: must be from 0 to 255", "iscsi.secretRef: required"],
    );

    passes(json!({"fc": {"targetWWNs": ["w"], "lun": 0}}));
    passes(json!({"fc": {"wwids": ["w"]}}));
    check_source(json!({"fc": {}}), &["fc: required: one of targetWWNs and wwids"]);
    check_source(
        json!({"fc": {"targetWWNs": ["w"], "wwids": ["w"]}}),
        &["fc: only one of targetWWNs and wwids may be given"],
    );
    check_source(json!({"fc": {"targetWWNs": ["w"]}}), &["fc.lun: required: targetWWNs are given"]);
    check_source(json!({"fc": {"targetWWNs": ["w"], "lun": -1}}), &["fc.lun: -1: must be from 0 to 255"]);

    passes(json!({"flexVolume": {"driver": "a/b", "options": {"example.com/k": "v", "notk8s.io": "w"}}}));
    check_source(json!({"flexVolume": {}}), &["flexVolume.driver: required"]);
    check_source(
        json!({"flexVolume": {"driver": "d", "options": {"a.K8s.io/x": "", "kubernetes.io": ""}}}),
        &["a.K8s.io/x", "kubernetes.io"]
            .map(|key| format!("flexVolume.options: \"{key}\": kubernetes.io and k8s.io are reserved")),
    );
    passes(json!({"gitRepo": {"repository": "r", "directory": "d"}}));
    check_source(
        json!({"gitRepo": {"directory": "../d"}}),
        &["gitRepo.repository: required", "gitRepo.directory: \"../d\": must not contain '..'"],
    );
    passes(json!({"rbd": {"monitors": ["m"], "image": "i"}}));
    check_source(json!({"rbd": {"monitors": []}}), &["rbd.monitors: required", "rbd.image: required"]);
}

#[test]
fn projected_paths_stay_in_the_volume() {
    for (field, name) in [("configMap", "name"), ("secret", "secretName")] {
        passes(json!({field: {name: "o", "defaultMode": 511, "items": [{"key": "k", "path": "a/b", "mode": 0}]}}));
        check_source(json!({field: {}}), &[format!("{field}.{name}: required")]);
        check_source(
            json!({field: {name: "o", "defaultMode": 512, "items": [{"mode": -1}]}}),
            &[
                format!("{field}.items[0].key: required"),
                format!("{field}.items[0].path: required"),
                format!("{field}.items[0].mode: -1: must be from 0 to 0777 (octal; 511)"),
                format!("{field}.defaultMode: 512: must be from 0 to 0777 (octal; 511)"),
            ],
        );
        let cases = [
            ("/a", "must be a relative path"),
            ("a/..", "must not contain '..'"),
            ("../a", "must not contain '..'"),
            ("..data", "must not begin with '..'"),
        ];
        for (path, wanted) in cases {
            check_source(
                json!({field: {name: "o", "items": [{"key": "k", "path": path}]}}),
                &[format!("{field}.items[0].path: \"{path}\": {wanted}")],
            );
        }
    }
}

#[test]
fn downward_api_files_have_one_source() {
    let items = |item: Value| json!({"downwardAPI": {"items": [item]}});
    for field in ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.labels['a']"] {
        passes(items(json!({"path": "p", "fieldRef": {"fieldPath": field}})));
    }
    passes(items(json!({"path": "p", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}})));
    check_source(
        items(json!({"path": "p", "fieldRef": {"fieldPath": "status.podIP"}})),
        &["downwardAPI.items[0].fieldRef.fieldPath: \"status.podIP\": must be metadata.annotations, metadata.labels, \
           metadata.name, metadata.namespace or metadata.uid"],
    );
    check_source(
        items(json!({"path": "p", "resourceFieldRef": {"resource": "limits.cpu"}})),
        &["downwardAPI.items[0].resourceFieldRef.containerName: required"],
    );
    check_source(
        items(json!({"mode": 512})),
        &[
            "downwardAPI.items[0].path: required",
            "downwardAPI.items[0].mode: 512: must be from 0 to 0777 (octal; 511)",
            "downwardAPI.items[0]: required: one of fieldRef and resourceFieldRef",
        ],
    );
    check_source(
        items(json!({
            "path": "p", "fieldRef": {"fieldPath": "metadata.name"}, "resourceFieldRef": {"resource": "limits.cpu"},
        })),
        &["downwardAPI.items[0]: only one of fieldRef and resourceFieldRef may be given"],
    );
    check_source(
        json!({"downwardAPI": {"defaultMode": -1}}),
        &["downwardAPI.defaultMode: -1: must be from 0 to 0777 (octal; 511)"],
    );
}

#[test]
fn projected_sources_have_distinct_paths() {
    let name = |path: &str| json!({"path": path, "fieldRef": {"fieldPath": "metadata.name"}});
    let sources = |sources: Value| json!({"projected": {"sources": sources}});
    passes(sources(json!([
        {"configMap": {"name": "c", "items": [{"key": "k", "path": "a"}]}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [name("b")]}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"clusterTrustBundle": {"name": "n", "path": "ca.crt"}},
    ])));
    check_source(
        sources(json!([
            {"configMap": {"items": [{"key": "k", "path": "a"}]}},
            {"downwardAPI": {"items": [name("a")]}},
            {"serviceAccountToken": {"path": "a"}},
        ])),
        &[
            "projected.sources[0].configMap.name: required",
            "projected.sources[1].downwardAPI.items[0].path: \"a\": duplicate",
            "projected.sources[2].serviceAccountToken.path: \"a\": duplicate",
        ],
    );
    for seconds in [599, (1_i64 << 32) + 1] {
        check_source(
            sources(json!([{"serviceAccountToken": {"path": "t", "expirationSeconds": seconds}}])),
            &[format!(
                "projected.sources[0].serviceAccountToken.expirationSeconds: {seconds}: must be from 600 to 4294967296"
            )],
        );
    }
    check_source(
        sources(json!([{"serviceAccountToken": {}}, {"clusterTrustBundle": {"path": "..a"}}])),
        &[
            "projected.sources[0].serviceAccountToken.path: required",
            "projected.sources[1].clusterTrustBundle.path: \"..a\": must not begin with '..'",
        ],
    );
    check_spec(
        json!({"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}),
        &["spec.volumes[0].projected.sources[0].serviceAccountToken: must not be set without serviceAccountName"],
    );
    check_source(
        json!({"projected": {"defaultMode": 512}}),
        &["projected.defaultMode: 512: must be from 0 to 0777 (octal; 511)"],
    );
}

/// Asserts the errors of a container with these mounts in a pod with the volumes `a` and `b`.
#[track_caller]
fn check_mounts(patch: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<String> = wanted.iter().map(|wanted| ["spec.containers[0].", wanted.as_ref()].concat()).collect();
    let mut spec = container(patch);
    spec["volumes"] = json!([
        {"name": "a"}, {"name": "b"}, {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "fresh", "ephemeral": {"volumeClaimTemplate": {}}},
    ]);
    check_spec(spec, &wanted);
}

#[track_caller]
fn passes_mounts(patch: Value) {
    check_mounts(patch, &[] as &[&str]);
}

#[test]
fn mounts_need_a_volume_and_a_unique_path() {
    passes_mounts(json!({"volumeMounts": [
        {"name": "a", "mountPath": "/a"}, {"name": "a", "mountPath": "/b", "subPath": "c/d..e"},
        {"name": "b", "mountPath": "c", "subPathExpr": "$(POD)/x"},
        // Names of devices by path contain colons.
        {"name": "b", "mountPath": "/dev/serial/by-path/pci-0000:01:00.0-port0"},
    ]}));
    check_mounts(
        json!({"volumeMounts": [{}, {"name": "z", "mountPath": "/a"}, {"name": "a", "mountPath": "/a"}]}),
        &[
            "volumeMounts[0].name: required",
            "volumeMounts[0].mountPath: required",
            "volumeMounts[1].name: \"z\": no volume has this name",
            "volumeMounts[2].mountPath: \"/a\": duplicate",
        ],
    );
}

#[test]
fn sub_paths_stay_in_the_volume() {
    for field in ["subPath", "subPathExpr"] {
        for (path, wanted) in [("/a", "must be a relative path"), ("a/../../b", "must not contain '..'")] {
            check_mounts(
                json!({"volumeMounts": [{"name": "a", "mountPath": "/a", field: path}]}),
                &[format!("volumeMounts[0].{field}: \"{path}\": {wanted}")],
            );
        }
    }
    check_mounts(
        json!({"volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "b", "subPathExpr": "c"}]}),
        &["volumeMounts[0].subPathExpr: must not be set when subPath is"],
    );
}

#[test]
fn bidirectional_propagation_needs_a_privileged_container() {
    let mounts = |propagation: &str| json!([{"name": "a", "mountPath": "/a", "mountPropagation": propagation}]);
    passes_mounts(json!({"volumeMounts": mounts("HostToContainer")}));
    passes_mounts(json!({"volumeMounts": mounts("Bidirectional"), "securityContext": {"privileged": true}}));
    check_mounts(
        json!({"volumeMounts": mounts("Bidirectional")}),
        &["volumeMounts[0].mountPropagation: \"Bidirectional\": only for a privileged container"],
    );
}

#[test]
fn recursive_read_only_needs_a_private_read_only_mount() {
    let mount = |patch: Value| {
        let mut mount = json!({"name": "a", "mountPath": "/a"});
        merge(&mut mount, patch);
        json!({"volumeMounts": [mount]})
    };
    passes_mounts(mount(json!({"recursiveReadOnly": "Disabled"})));
    passes_mounts(mount(json!({"recursiveReadOnly": "Enabled", "readOnly": true, "mountPropagation": "None"})));
    for mode in ["Enabled", "IfPossible"] {
        check_mounts(
            mount(json!({"recursiveReadOnly": mode, "mountPropagation": "HostToContainer"})),
            &[
                format!("volumeMounts[0].recursiveReadOnly: \"{mode}\": only when readOnly is true"),
                format!("volumeMounts[0].recursiveReadOnly: \"{mode}\": only when mountPropagation is \"None\""),
            ],
        );
    }
}

#[test]
fn block_devices_are_claims_and_not_mounted() {
    passes_mounts(json!({"volumeDevices": [
        {"name": "claim", "devicePath": "/dev/x"}, {"name": "fresh", "devicePath": "/dev/y"},
    ]}));
    check_mounts(
        json!({"volumeDevices": [
            {}, {"name": "z", "devicePath": "/dev/../x"}, {"name": "a", "devicePath": "/dev/a"},
        ]}),
        &[
            "volumeDevices[0].name: required",
            "volumeDevices[0].devicePath: required",
            "volumeDevices[1].name: \"z\": no volume has this name",
            "volumeDevices[1].devicePath: \"/dev/../x\": must not contain '..'",
            "volumeDevices[2].name: \"a\": must be a persistentVolumeClaim or an ephemeral volume",
        ],
    );
    check_mounts(
        json!({
            "volumeMounts": [{"name": "claim", "mountPath": "/x"}],
            "volumeDevices": [
                {"name": "claim", "devicePath": "/x"}, {"name": "fresh", "devicePath": "/y"},
                {"name": "fresh", "devicePath": "/y"},
            ],
        }),
        &[
            "volumeDevices[0].name: \"claim\": duplicate",
            "volumeDevices[0].devicePath: \"/x\": duplicate",
            "volumeDevices[2].name: \"fresh\": duplicate",
            "volumeDevices[2].devicePath: \"/y\": duplicate",
        ],
    );
}
