use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::kubelet::kuberuntime::golden;
use crate::state::objects::{Content, ObjectEvent, SourceObject};
use crate::state::pods::PodDirs;
use crate::types::api::annotations::CONFIG_SOURCE;
use crate::types::api::{ConfigMap, Time, VolumeClaim, decode};

const GIB: u64 = 1 << 30;

fn dirs() -> PodDirs {
    PodDirs::new(Path::new("/k"), Path::new("/logs"))
}

fn plan(pod: &Pod) -> Result<Plan, Error> {
    let node = golden::node_with_memory(GIB);
    Plan::new(pod, SetUpInputs { dirs: &dirs(), node: &node, objects: &Objects::default() })
}

fn pod(containers: Value, volume: Value) -> Pod {
    let spec = json!({"containers": containers, "volumes": [volume]});
    let meta = json!({"name": "web", "namespace": "ns", "uid": "u1"});
    decode(json!({"metadata": meta, "spec": spec})).unwrap().value
}

fn using(volume: Value) -> Pod {
    pod(json!([{"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]), volume)
}

#[track_caller]
fn check_medium(resources: Value, medium: Value, expected: Medium) {
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    let containers = json!([{"name": "main", "volumeMounts": mounts, "resources": resources}]);
    let plan = plan(&pod(containers, json!({"name": "v", "emptyDir": medium}))).unwrap();
    match &plan.volumes[0].source {
        Source::EmptyDir(directory) => assert_eq!(directory.medium, expected),
        other => panic!("{other:?}"),
    }
}

#[test]
fn pod_has_its_directories_and_logs() {
    let plan = plan(&using(json!({"name": "v", "hostPath": {"path": "/x"}}))).unwrap();
    let private = ["/k/pods", "/k/pods/u1", "/k/pods/u1/volumes", "/k/pods/u1/plugins"];
    assert_eq!(plan.private, private.map(PathBuf::from));
    assert_eq!(plan.logs, [PathBuf::from("/logs/ns_web_u1/main")]);
    assert_eq!(plan.volumes[0].host_path(), Some("/x".into()));
}

#[test]
fn memory_medium_is_limited_by_volume_pod_and_node() {
    let memory = |size| Medium::Memory { size: Some(size) };
    check_medium(json!({}), json!({"medium": "Memory"}), memory(GIB));
    check_medium(json!({}), json!({"medium": "Memory", "sizeLimit": "16Mi"}), memory(16 << 20));
    let limited = json!({"limits": {"memory": "8Mi"}});
    check_medium(limited.clone(), json!({"medium": "Memory", "sizeLimit": "16Mi"}), memory(8 << 20));
    check_medium(limited, json!({"medium": "Memory"}), memory(8 << 20));
    check_medium(json!({}), json!({"medium": "Memory", "sizeLimit": "8Gi"}), memory(GIB));
    check_medium(json!({}), json!({}), Medium::Disk);
}

#[test]
fn huge_page_size_is_from_the_medium_or_the_requests() {
    let two = Medium::HugePages { page_size: 2 << 20 };
    check_medium(json!({}), json!({"medium": "HugePages-2Mi"}), two);
    let request = json!({"requests": {"hugepages-1Gi": "2Gi"}});
    check_medium(request, json!({"medium": "HugePages"}), Medium::HugePages { page_size: GIB });
    let error = plan(&using(json!({"name": "v", "emptyDir": {"medium": "HugePages"}})));
    assert!(matches!(error, Err(Error::SetUp { problem: Problem::HugePageSize, .. })));
}

#[test]
fn unused_invalid_volume_is_ignored() {
    for volume in [json!({"name": "v", "hostPath": {"path": "/a/../b"}}), json!({"name": "v", "iscsi": {}})] {
        assert!(plan(&using(volume.clone())).is_err());
        let unused = pod(json!([{"name": "main"}]), volume);
        assert!(plan(&unused).unwrap().volumes.is_empty());
    }
}

#[test]
fn unknown_type_fails_in_upstreams_words() {
    let error = plan(&using(json!({"name": "v", "newKind": {}}))).unwrap_err();
    let text = crate::types::error::ErrorChain(&error).to_string();
    assert_eq!(text, "MountVolume.SetUp failed for volume \"v\" : no volume plugin matched");
}

#[test]
fn unsupported_type_is_named_with_its_volume() {
    let error = plan(&using(json!({"name": "v", "iscsi": {}}))).unwrap_err();
    let text = crate::types::error::ErrorChain(&error).to_string();
    assert_eq!(text, "MountVolume.SetUp failed for volume \"v\" : volumes of the kind iscsi are not supported");
}

#[test]
fn unknown_medium_is_named_in_upstreams_words() {
    let error = plan(&using(json!({"name": "v", "emptyDir": {"medium": "memory"}}))).unwrap_err();
    let text = crate::types::error::ErrorChain(&error).to_string();
    assert_eq!(text, "MountVolume.SetUp failed for volume \"v\" : unknown storage medium \"memory\"");
}

#[test]
fn written_volumes_have_upstreams_paths() {
    let memory = Medium::Memory { size: Some(GIB) };
    for (source, plugin, medium) in [
        (json!({"configMap": {"name": "c"}}), "configmap", Medium::Disk),
        (json!({"downwardAPI": {}}), "downward-api", memory.clone()),
        (json!({"projected": {"sources": []}}), "projected", memory.clone()),
        (json!({"secret": {"secretName": "s"}}), "secret", memory),
    ] {
        let mut volume = source;
        volume["name"] = "v".into();
        let mut pod = using(volume);
        pod.spec.security_context = decode(json!({"fsGroup": 2000})).unwrap().value;
        let plan = plan(&pod).unwrap();
        let Source::Files(files) = &plan.volumes[0].source else { panic!("{plan:?}") };
        let expected = EmptyDir {
            path: format!("/k/pods/u1/volumes/kubernetes.io~{plugin}/v").into(),
            marker: "/k/pods/u1/plugins/kubernetes.io~empty-dir/wrapped_v".into(),
            medium,
            group: Some(2000),
        };
        assert_eq!(files.directory, expected);
        assert!(plan.volumes[0].read_only());
    }
}

#[test]
fn nfs_device_is_server_and_path() {
    let device = |server: &str| {
        let pod = using(json!({"name": "v", "nfs": {"server": server, "path": "/export", "readOnly": true}}));
        let plan = plan(&pod).unwrap();
        let Source::Nfs(nfs) = &plan.volumes[0].source else { panic!("{plan:?}") };
        assert_eq!(nfs.path, Path::new("/k/pods/u1/volumes/kubernetes.io~nfs/v"));
        (nfs.device.clone(), plan.volumes[0].read_only())
    };
    assert_eq!(device("server"), ("server:/export".to_owned(), true));
    assert_eq!(device("192.0.2.1"), ("192.0.2.1:/export".to_owned(), true));
    assert_eq!(device("2001:db8::1"), ("[2001:db8::1]:/export".to_owned(), true));
}

fn bind(objects: &mut Objects, claim: &str, spec: &Value) {
    bind_annotated(objects, claim, spec, &json!({}));
}

fn bind_annotated(objects: &mut Objects, claim: &str, spec: &Value, annotations: &Value) {
    let metadata = json!({"name": format!("pv-{claim}"), "annotations": annotations});
    let volume = PersistentVolume::read(&json!({"metadata": metadata, "spec": spec}));
    let content = Content::Volume(Box::new(volume.unwrap()));
    let topic = Topic::Claim { namespace: "ns".to_owned(), name: claim.to_owned(), owner: None };
    assert!(objects.on_event(ObjectEvent::Received(topic, Some(content))).is_some());
}

#[test]
fn block_device_is_writable_unless_read_only() {
    let mut objects = Objects::default();
    bind(&mut objects, "disk", &json!({"local": {"path": "/dev/sdb"}, "volumeMode": "Block"}));
    let node = golden::node_with_memory(GIB);
    for read_only in [false, true] {
        let claim = json!({"claimName": "disk", "readOnly": read_only});
        let containers = json!([{"name": "main", "volumeDevices": [{"name": "v", "devicePath": "/dev/disk"}]}]);
        let pod = pod(containers, json!({"name": "v", "persistentVolumeClaim": claim}));
        let plan = Plan::new(&pod, SetUpInputs { dirs: &dirs(), node: &node, objects: &objects }).unwrap();
        let volume = &plan.volumes[0];
        assert_eq!((volume.is_device(), volume.read_only()), (true, read_only));
    }
}

#[test]
fn only_used_claims_of_the_given_drivers_are_listed() {
    let names = ["meant", "other", "local", "unbound", "idle"];
    let claim = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let mut volumes: Vec<Value> = names.iter().map(claim).collect();
    // This secret does not exist, which must not affect the others.
    volumes.push(json!({"name": "secret", "secret": {"secretName": "s"}}));
    volumes.push(json!({"name": "inline", "csi": {"driver": "meant"}}));
    let used = ["meant", "other", "local", "unbound", "secret", "inline"];
    let mounts: Vec<Value> = used.iter().map(|name| json!({"name": name, "mountPath": name})).collect();
    let spec = json!({"containers": [{"name": "main", "volumeMounts": mounts}], "volumes": volumes});
    let meta = json!({"name": "web", "namespace": "ns", "uid": "u1"});
    let pod: Pod = decode(json!({"metadata": meta, "spec": spec})).unwrap().value;
    let mut objects = Objects::default();
    let driver = |driver: &str| json!({"csi": {"driver": driver, "volumeHandle": "h"}});
    let local = json!({"local": {"path": "/mnt"}});
    for (name, spec) in
        [("meant", driver("meant")), ("other", driver("other")), ("local", local), ("idle", driver("meant"))]
    {
        bind(&mut objects, name, &spec);
    }
    let node = golden::node_with_memory(GIB);
    let with = SetUpInputs { dirs: &dirs(), node: &node, objects: &objects };
    let found = of_drivers(&pod, with, &|driver| driver == "meant");
    let found: Vec<&str> = found.iter().map(|csi| csi.volume.name.as_str()).collect();
    assert_eq!(found, ["pv-meant"]);
}

#[test]
fn files_of_a_pods_volumes_have_a_bound_together() {
    let meta = json!({"namespace": "ns", "name": "cm"});
    let map: ConfigMap =
        decode(json!({"metadata": meta, "data": {"k": "x".repeat((1 << 20) - (2 << 10))}})).unwrap().value;
    let since = Time::from_timestamp(crate::types::timestamp::Timestamp::UNIX_EPOCH);
    let mut objects = Objects::default();
    objects.replace(&[SourceObject { object: Arc::new(map.into()), origin: "".into(), since }]);
    let node = golden::node_with_memory(GIB);
    let problems = |files: usize| {
        let items: Vec<Value> = (0..files).map(|number| json!({"key": "k", "path": format!("f{number}")})).collect();
        let source = json!({"name": "cm", "items": items});
        let volumes = ["v", "w"].map(|name| json!({"name": name, "configMap": source}));
        let mounts = ["v", "w"].map(|name| json!({"name": name, "mountPath": format!("/{name}")}));
        let mut pod = using(json!({"name": "v", "emptyDir": {}}));
        pod.spec = decode(json!({"containers": [{"name": "main", "volumeMounts": mounts}], "volumes": volumes}))
            .unwrap()
            .value;
        let plan = Plan::new(&pod, SetUpInputs { dirs: &dirs(), node: &node, objects: &objects }).unwrap();
        let of = |planned: &PlannedVolume| match &planned.source {
            Source::Files(Files { payload, .. }) => payload.as_ref().err().map(ToString::to_string),
            other => panic!("{other:?}"),
        };
        plan.volumes.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(problems(32), [None, None]);
    let message = "the files of the pod's volumes take more than 67108864 bytes".to_owned();
    assert_eq!(problems(33), [None, Some(message)]);
}

fn claiming(claim: &str, read_only: bool) -> Pod {
    using(json!({"name": "v", "persistentVolumeClaim": {"claimName": claim, "readOnly": read_only}}))
}

#[test]
fn nfs_volume_has_the_options_of_its_object_and_the_claims_read_only() {
    let mut objects = Objects::default();
    let nfs = json!({"server": "s", "path": "/p", "readOnly": true});
    bind(&mut objects, "nfs", &json!({"nfs": nfs, "mountOptions": ["soft", "nfsvers=4.2", "soft"]}));
    let node = golden::node_with_memory(GIB);
    for (read_only, options) in [(false, vec!["nfsvers=4.2", "soft"]), (true, vec!["nfsvers=4.2", "ro", "soft"])] {
        let pod = claiming("nfs", read_only);
        let plan = Plan::new(&pod, SetUpInputs { dirs: &dirs(), node: &node, objects: &objects }).unwrap();
        let Source::Nfs(nfs) = &plan.volumes[0].source else { panic!("{plan:?}") };
        assert_eq!((nfs.read_only, nfs.options.iter().map(String::as_str).collect()), (read_only, options));
    }
}

#[test]
fn host_path_volume_with_mount_options_is_refused() {
    let mut objects = Objects::default();
    bind(&mut objects, "host", &json!({"hostPath": {"path": "/h"}, "mountOptions": ["ro"]}));
    let node = golden::node_with_memory(GIB);
    let with = SetUpInputs { dirs: &dirs(), node: &node, objects: &objects };
    let error = Plan::new(&claiming("host", false), with).unwrap_err();
    let text = "MountVolume.MountOptionSupport check failed for volume \"v\" : \
                mount options are not supported for this volume type";
    assert_eq!(crate::types::error::ErrorChain(&error).to_string(), text);
}

#[test]
fn group_of_a_volume_is_added_unless_the_pod_has_it() {
    let mut objects = Objects::default();
    let annotated = json!({"pv.beta.kubernetes.io/gid": "1234"});
    bind_annotated(&mut objects, "gid", &json!({"nfs": {"server": "s", "path": "/p"}}), &annotated);
    let node = golden::node_with_memory(GIB);
    for (own, expected) in [(json!([5]), vec![1234]), (json!([5, 1234]), vec![])] {
        let mut pod = claiming("gid", false);
        pod.spec.security_context = decode(json!({"supplementalGroups": own})).unwrap().value;
        let plan = Plan::new(&pod, SetUpInputs { dirs: &dirs(), node: &node, objects: &objects }).unwrap();
        assert_eq!(plan.groups, expected);
    }
}

#[test]
fn volume_of_another_node_is_refused_once_the_labels_are_known() {
    let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]});
    let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
    for (spec, expected) in [
        (json!({"local": {"path": "/mnt/d"}, "nodeAffinity": affinity}), "MountVolume.NodeAffinity"),
        (
            json!({"local": {"path": "/dev/d"}, "nodeAffinity": affinity, "volumeMode": "Block"}),
            "MapVolume.NodeAffinity",
        ),
    ] {
        let mut objects = Objects::default();
        bind(&mut objects, "local", &spec);
        let mut check = |label: Option<&str>| {
            if let Some(label) = label {
                objects.set_node_labels([("disk", label.to_owned())].into_iter().collect());
            }
            let checked = check_node_affinity(&claiming("local", false), &objects);
            checked.map_err(|error| crate::types::error::ErrorChain(&error).to_string())
        };
        assert_eq!(check(None), Ok(()));
        let error = format!("{expected} check failed for volume \"v\" : no matching NodeSelectorTerms");
        assert_eq!(check(Some("hdd")), Err(error));
        assert_eq!(check(Some("ssd")), Ok(()));
    }
}

#[test]
fn claim_of_a_static_pod_is_a_directory_of_the_node() {
    let mut pod = using(json!({"name": "v", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}}));
    pod.metadata.annotations.insert(CONFIG_SOURCE, "file".to_owned());
    let node = golden::node_with_memory(GIB);
    let mut objects = Objects::default();
    let planned = |objects: &Objects| Plan::new(&pod, SetUpInputs { dirs: &dirs(), node: &node, objects });
    let missing = planned(&objects).unwrap_err();
    assert!(
        crate::types::error::ErrorChain(&missing).to_string().contains("persistentvolumeclaim \"data\" not found"),
        "{missing:?}"
    );
    let claim: VolumeClaim = decode(json!({
        "metadata": {"name": "data", "namespace": "ns", "uid": "c1"},
        "spec": {"resources": {"requests": {"storage": "1Ki"}}},
    }))
    .unwrap()
    .value;
    let since = Time::from_unix_nanos(0);
    objects.replace(&[SourceObject { object: Arc::new(claim.into()), origin: "/m/a.yaml".into(), since }]);
    let plan = planned(&objects).unwrap();
    let volume = &plan.volumes[0];
    assert_eq!(volume.host_path(), Some("/opt/local-path-provisioner/pvc-c1_ns_data".into()));
    assert!(matches!(volume.source, Source::Claim { bytes: 1024, read_only: true, .. }) && volume.read_only());
}
