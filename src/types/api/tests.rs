//! Round trips of pods that the upstream kubelet and API server wrote.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::*;

fn recorded_pods() -> Vec<(String, Value)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/upstream-1.36/pods");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|file| {
            let value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
            (file.file_stem().unwrap().to_string_lossy().into_owned(), value)
        })
        .collect()
}

#[test]
fn recorded_pods_round_trip() {
    let pods = recorded_pods();
    assert_eq!(pods.len(), 27);
    for (name, value) in pods {
        let pod = decode::<Pod>(value.clone()).unwrap();
        assert!(pod.unknown.is_empty(), "{name}: {:?}", pod.unknown);
        assert_eq!(encode(&pod.value), value, "{name}");
    }
}

#[test]
fn computed_qos_matches_recorded_status() {
    for (name, value) in recorded_pods() {
        let mut pod = decode::<Pod>(value).unwrap().value;
        let recorded = pod.status.qos_class.take();
        assert_eq!(Some(qos_class(&pod)), recorded, "{name}");
    }
}

#[test]
fn computed_totals_match_recorded_status() {
    for (name, value) in recorded_pods() {
        let pod = decode::<Pod>(value).unwrap().value;
        let recorded = pod.status.resources.clone().unwrap_or_default();
        let mut requests = pod_requests(&pod.spec);
        // The status has only CPU and memory.
        requests.remove(EPHEMERAL_STORAGE);
        let mut limits = pod_limits(&pod.spec);
        limits.remove(EPHEMERAL_STORAGE);
        // The limits in a status are those of running containers.
        if pod.status.phase.is_terminal() {
            limits = recorded.limits.clone();
        }
        assert_eq!((requests, limits), (recorded.requests, recorded.limits), "{name}");
    }
}

#[test]
fn static_pods_come_from_any_source_but_the_api_server() {
    let mut pod = Pod::default();
    assert!(!pod.is_static());
    pod.metadata.annotations.insert(annotations::CONFIG_SOURCE, "api".to_owned());
    assert!(!pod.is_static() && !pod.is_critical());
    pod.metadata.annotations.insert(annotations::CONFIG_SOURCE, "file".to_owned());
    assert!(pod.is_static() && pod.is_critical());
    assert!(pod.is_spared(false) && !pod.is_spared(true));
    pod.spec.priority = Some(2_000_000_000);
    assert!(pod.is_spared(true));
    pod.metadata.name = "web".to_owned();
    pod.metadata.namespace = "default".to_owned();
    assert_eq!(pod.full_name(), "web_default");
}

#[test]
fn pod_stays_small_in_memory() {
    // A promise bounds the memory per pod at thirty pods.
    assert!(size_of::<Pod>() <= 1400, "{}", size_of::<Pod>());
    assert!(size_of::<Container>() <= 480, "{}", size_of::<Container>());
    assert!(size_of::<ContainerStatus>() <= 320, "{}", size_of::<ContainerStatus>());
    assert!(size_of::<Volume>() <= 40, "{}", size_of::<Volume>());
}

/// Decodes a pod spec: `{"containers": [...], ...}`.
fn spec(value: Value) -> PodSpec {
    decode::<Pod>(json!({"spec": value})).unwrap().value.spec
}

/// A container with a CPU request and limit.
fn cpu(cpu: &str, limit: &str) -> Value {
    json!({"resources": {"requests": {"cpu": cpu}, "limits": {"cpu": limit}}})
}

#[track_caller]
fn check_totals(value: Value, requests: Value, limits: Value) {
    let spec = spec(value);
    assert_eq!((encode(&pod_requests(&spec)), encode(&pod_limits(&spec))), (requests, limits));
}

#[test]
fn pod_totals_are_the_peak_over_its_life() {
    let sidecar = |text: &str| {
        let mut container = cpu(text, text);
        container["restartPolicy"] = json!("Always");
        container
    };
    let main = json!([cpu("100m", "200m"), cpu("300m", "1")]);
    check_totals(json!({"containers": main}), json!({"cpu": "400m"}), json!({"cpu": "1200m"}));
    // Init containers run one at a time, before the main containers.
    check_totals(
        json!({"containers": main, "initContainers": [cpu("350m", "1"), cpu("100m", "2")]}),
        json!({"cpu": "400m"}),
        json!({"cpu": "2"}),
    );
    // A sidecar runs beside the main containers, and beside the init containers after it.
    check_totals(
        json!({"containers": main, "initContainers": [sidecar("50m")]}),
        json!({"cpu": "450m"}),
        json!({"cpu": "1250m"}),
    );
    check_totals(
        json!({"containers": main, "initContainers": [cpu("460m", "1"), sidecar("50m"), cpu("420m", "1"), sidecar("5m")]}),
        json!({"cpu": "470m"}),
        json!({"cpu": "1255m"}),
    );
}

#[test]
fn overhead_raises_requests_and_existing_limits() {
    check_totals(
        json!({"containers": [cpu("100m", "200m")], "overhead": {"cpu": "10m", "memory": "16Mi"}}),
        json!({"cpu": "110m", "memory": "16Mi"}),
        json!({"cpu": "210m"}),
    );
}

#[test]
fn pod_level_resources_replace_the_sum() {
    check_totals(
        json!({
            "containers": [cpu("100m", "200m")],
            "resources": {"requests": {"cpu": "1", "example.com/x": "3"}, "limits": {"memory": "1Gi"}},
            "overhead": {"cpu": "10m"},
        }),
        json!({"cpu": "1010m"}),
        json!({"cpu": "210m", "memory": "1Gi"}),
    );
}

#[track_caller]
fn check_qos(value: Value, expected: QosClass) {
    let pod = Pod { spec: spec(value.clone()), ..Pod::default() };
    assert_eq!(qos_class(&pod), expected, "{value}");
}

#[test]
fn guaranteed_needs_limits_equal_to_requests() {
    let full = |cpu: &str, memory: &str| {
        let list = json!({"cpu": cpu, "memory": memory});
        json!({"resources": {"requests": list, "limits": list}})
    };
    let none = json!({"name": "x"});
    let zero = json!({"resources": {"requests": {"cpu": "0", "memory": "0"}}});
    check_qos(json!({"containers": [none]}), QosClass::BestEffort);
    check_qos(json!({"containers": [zero]}), QosClass::BestEffort);
    check_qos(json!({"containers": [{"resources": {"limits": {"example.com/x": "1"}}}]}), QosClass::BestEffort);
    check_qos(json!({"containers": [full("1", "1Gi"), full("100m", "1Mi")]}), QosClass::Guaranteed);
    check_qos(json!({"containers": [full("1", "1Gi"), none]}), QosClass::Burstable);
    check_qos(json!({"containers": [full("1", "1Gi")], "initContainers": [none]}), QosClass::Burstable);
    check_qos(json!({"containers": [full("1", "1Gi")], "ephemeralContainers": [none]}), QosClass::Guaranteed);
    check_qos(json!({"containers": [cpu("1", "1")]}), QosClass::Burstable);
    check_qos(
        json!({"containers": [{"resources": {
            "requests": {"cpu": "1", "memory": "1Gi"},
            "limits": {"cpu": "2", "memory": "1Gi"},
        }}]}),
        QosClass::Burstable,
    );
    check_qos(
        json!({"containers": [none], "resources": {
            "requests": {"cpu": "1", "memory": "1Gi"},
            "limits": {"cpu": "1000m", "memory": "1024Mi"},
        }}),
        QosClass::Guaranteed,
    );
    let told = PodStatus { qos_class: Some(QosClass::Guaranteed), ..PodStatus::default() };
    assert_eq!(qos_class(&Pod { status: told, ..Pod::default() }), QosClass::Guaranteed);
}

#[test]
fn reasons_round_trip() {
    let reason: Reason = decode(json!("CrashLoopBackOff")).unwrap().value;
    assert_eq!(reason, Reason::CRASH_LOOP_BACK_OFF);
    let reason: Reason = decode(json!("SomethingElse")).unwrap().value;
    assert_eq!(reason.as_str(), "SomethingElse");
}

#[test]
fn every_volume_source_is_written_under_its_own_key() {
    for key in VolumeSource::KEYS {
        let value = json!({"name": "v", *key: {}});
        let volume = decode::<Volume>(value).unwrap();
        assert!(volume.unknown.is_empty());
        assert_eq!(volume.value.source.key(), *key);
        assert!(encode(&volume.value)[key].is_object(), "{key}");
    }
    let unset = decode::<Volume>(json!({"name": "v"})).unwrap().value;
    assert_eq!(unset.source.key(), "emptyDir");
}

#[test]
fn volume_with_an_unknown_source_is_an_empty_dir_in_manifests_only() {
    for (volume, is_unknown) in [
        (json!({"name": "v", "newKind": {}}), true),
        (json!({"newKind": {}, "name": "v", "newField": 1, "emptyDir": {}}), false),
    ] {
        let mut pod = decode::<Pod>(json!({"spec": {"volumes": [volume]}})).unwrap().value;
        assert_eq!(pod.spec.volumes[0].source == VolumeSource::Unknown, is_unknown);
        defaults::apply(&mut pod);
        assert_eq!(pod.spec.volumes[0].source, VolumeSource::EmptyDir(Box::default()));
    }
    let two = json!({"name": "v", "newKind": {}, "emptyDir": {}, "secret": {}});
    assert!(decode::<Volume>(two).is_err());
}

#[test]
fn medium_is_read_and_written() {
    for (text, medium) in [
        ("", StorageMedium::Disk),
        ("Memory", StorageMedium::Memory),
        ("HugePages", StorageMedium::HugePages { page_size: None }),
        ("HugePages-2Mi", StorageMedium::HugePages { page_size: "2Mi".parse().ok() }),
        ("memory", StorageMedium::Unknown("memory".to_owned())),
        ("HugePages-x", StorageMedium::Unknown("HugePages-x".to_owned())),
    ] {
        assert_eq!(decode::<StorageMedium>(json!(text)).unwrap().value, medium);
        assert_eq!(encode(&medium), json!(text));
    }
}

#[test]
fn unknown_words_of_a_status_count_as_absent() {
    let conditions = ["true", "Yes", "True"].map(|status| json!({"type": "example.com/gate", "status": status}));
    let mounts = json!([{"name": "v", "recursiveReadOnly": "Odd"}]);
    let status = decode::<PodStatus>(json!({
        "phase": "Odd", "qosClass": "Odd", "conditions": conditions,
        "containerStatuses": [{"name": "c", "volumeMounts": mounts}],
    }));
    let status = status.unwrap().value;
    assert_eq!((status.phase, status.qos_class), (PodPhase::Pending, None));
    let statuses: Vec<ConditionStatus> = status.conditions.iter().map(|condition| condition.status).collect();
    assert_eq!(statuses, [ConditionStatus::Unknown, ConditionStatus::Unknown, ConditionStatus::True]);
    assert_eq!(encode(&status)["containerStatuses"][0]["volumeMounts"], mounts);
    assert!(decode::<PodStatus>(json!({"phase": 1})).is_err());
}
