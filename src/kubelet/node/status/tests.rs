//! Statuses of small nodes, and that of a node recorded from the upstream kubelet.

use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::kubelet::node::profile::tests::profile;
use crate::kubelet::node::{Machine, NodeInfo, NodeSettings};
use crate::platform::config::{self, Request};
use crate::state::pods::{NodePressures, RuntimeState};
use crate::types::api::{Node, NodeFeatures, NodeRuntimeHandler, decode, encode};

fn healthy() -> RuntimeHealth {
    let mut health = RuntimeHealth::default();
    let (name, version) = ("containerd".to_owned(), "1.6.20".to_owned());
    let state = RuntimeState { name, version, ready: true, network_ready: true, ..RuntimeState::default() };
    health.note(state, Instant::now());
    health
}

static NO_DEVICES: [ResourceList; 2] = [ResourceList::new(), ResourceList::new()];

fn sight(runtime: &RuntimeHealth) -> NodeObservation<'_> {
    NodeObservation {
        board: None,
        volumes_in_use: &[],
        devices: &NO_DEVICES,
        pressures: &[],
        runtime,
        addresses: &[],
        images: &[],
        shuts_down: false,
        now: Time::from_unix_nanos(5_000_000_000),
        instant: Instant::now(),
    }
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn shown(addresses: &[NodeAddress]) -> Vec<&str> {
    addresses.iter().map(|address| address.address.as_str()).collect()
}

/// Differences between the recorded node and the one built here, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("/metadata/annotations/node.alpha.kubernetes.io~1ttl", "a controller's"),
    ("/metadata/creationTimestamp", "the API server's"),
    ("/metadata/resourceVersion", "the API server's"),
    ("/metadata/uid", "the API server's"),
    ("/status/nodeInfo/kubeletVersion", "differs by kubelet"),
];

#[test]
fn status_matches_the_recorded_node() {
    let tests = format!("{}/tests/data", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(format!("{tests}/upstream-1.36/node.json")).unwrap();
    let recorded = decode::<Node>(serde_json::from_str(&text).unwrap()).unwrap();
    assert_eq!(recorded.unknown, [""; 0]);
    let recorded = recorded.value;
    let settings = format!("--config={tests}/config/configz-1.36.json");
    let line = ["--hostname-override=node1".to_owned(), "--node-ip=10.77.0.1".to_owned(), settings];
    let Ok(Request::Run(config, _)) = config::load(&line) else { panic!("the settings of the recording") };
    let facts = NodeInfo {
        cpus: 2,
        memory_bytes: 24_684_092 << 10,
        storage_bytes: 264_212_084 << 10,
        huge_pages: vec![(2 << 20, 0), (1 << 30, 0)],
        ..NodeInfo::default()
    };
    let info = &recorded.status.node_info;
    let machine = Machine {
        machine_id: info.machine_id.clone(),
        system_uuid: info.system_uuid.clone(),
        boot_id: info.boot_id.clone(),
        kernel_version: info.kernel_version.clone(),
        os_image: info.os_image.clone(),
        architecture: "amd64",
    };
    let profile = NodeProfile::new(&config, &facts, &machine, &NodeSettings::new(&config, &facts));
    let (health, now) = (healthy(), recorded.status.conditions[0].last_heartbeat_time.unwrap());
    let sight = NodeObservation { images: &recorded.status.images, now, ..sight(&health) };
    let made = encode(&profile.node(profile.status(&sight, &NodeStatus::default())));
    let (mut left, mut right) = (made.clone(), encode(&recorded));
    for (place, _) in EXCEPTIONS.iter().rev() {
        assert_ne!(made.pointer(place), encode(&recorded).pointer(place), "{place} is no exception");
        remove(&mut right, place);
        if !place.starts_with("/status/declaredFeatures") {
            remove(&mut left, place);
        }
    }
    assert_eq!(left, right);
}

/// Removes what a JSON pointer points at, if it exists.
fn remove(value: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent) {
        Some(Value::Object(fields)) => drop(fields.remove(&name.replace("~1", "/"))),
        Some(Value::Array(items)) => drop(items.remove(name.parse().unwrap())),
        _ => {}
    }
}

#[test]
fn transition_times_change_only_with_the_status() {
    let (profile, health) = (profile(|_, _| {}), healthy());
    let mut server = profile.status(&sight(&health), &NodeStatus::default());
    assert!(server.conditions.iter().all(|c| c.last_transition_time == c.last_heartbeat_time));
    server.conditions[0].status = "True".into();
    let later = Time::from_unix_nanos(9_000_000_000);
    let mut pressures = NodePressures::default();
    pressures.set(&[Pressure::Disk].into(), "n", later);
    let pressures: Vec<_> = pressures.conditions().collect();
    let status = profile.status(&NodeObservation { now: later, pressures: &pressures, ..sight(&health) }, &server);
    let shown: Vec<_> = status
        .conditions
        .iter()
        .map(|c| {
            (c.kind.as_ref(), c.status.as_ref(), c.reason.as_str(), c.last_transition_time.unwrap().unix_seconds())
        })
        .collect();
    let expected = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", 9),
        ("DiskPressure", "True", "KubeletHasDiskPressure", 9),
        ("PIDPressure", "False", "KubeletHasSufficientPID", 5),
        ("Ready", "True", "KubeletReady", 5),
    ];
    assert_eq!(shown, expected);
    assert!(status.conditions.iter().all(|c| c.last_heartbeat_time == Some(later)));
}

#[test]
fn pressure_before_a_restart_stays_until_the_first_check() {
    let (profile, health) = (profile(|_, _| {}), healthy());
    let mut server = profile.status(&sight(&health), &NodeStatus::default());
    server.conditions[1].status = "True".into();
    let status = profile.status(&sight(&health), &server);
    assert_eq!(status.conditions[1].status, "True");
}

#[test]
fn ready_message_lists_every_fault() {
    let ready = |sight: &NodeObservation<'_>, storage: u64| {
        let profile = profile(|_, facts| facts.storage_bytes = storage);
        let condition = profile.status(sight, &NodeStatus::default()).conditions.pop().unwrap();
        assert_eq!(condition.kind, READY);
        (condition.reason.as_str().to_owned(), condition.message)
    };
    let health = healthy();
    let not = |message: &str| ("KubeletNotReady".to_owned(), message.to_owned());
    let shutting_down = NodeObservation { shuts_down: true, ..sight(&health) };
    assert_eq!(ready(&shutting_down, 1), not("node is shutting down"));
    let missing = "missing node capacity for resources: ephemeral-storage";
    assert_eq!(ready(&sight(&health), 0), not(missing));
    assert_eq!(ready(&shutting_down, 0), not(&format!("[node is shutting down, {missing}]")));
    let nobody = RuntimeHealth::default();
    let unknown = "[container runtime status check may not have completed yet, network state unknown]";
    assert_eq!(ready(&sight(&nobody), 1), not(unknown));
}

#[test]
fn address_is_the_configured_one_or_the_default_routes() {
    let health = healthy();
    let addresses = |name: &str, given: &[&str], seen: &[&str], server: &[NodeAddress]| {
        let profile = profile(|config, _| {
            config.node.name = name.to_owned();
            config.node.ips = ips(given);
        });
        let server = NodeStatus { addresses: server.to_vec(), ..NodeStatus::default() };
        let seen = ips(seen);
        profile.status(&NodeObservation { addresses: &seen, ..sight(&health) }, &server).addresses
    };
    let both = ["10.0.0.1", "2001:db8::1"];
    assert_eq!(shown(&addresses("n", &["10.9.9.9"], &both, &[])), ["10.9.9.9", "n"]);
    assert_eq!(shown(&addresses("n", &["::9", "10.9.9.9"], &both, &[])), ["::9", "10.9.9.9", "n"]);
    assert_eq!(shown(&addresses("n", &[], &both, &[])), ["10.0.0.1", "n"]);
    assert_eq!(shown(&addresses("n", &["::"], &both, &[])), ["2001:db8::1", "n"]);
    assert_eq!(shown(&addresses("n", &["0.0.0.0"], &both[1..], &[])), ["2001:db8::1", "n"]);
    assert_eq!(shown(&addresses("10.0.0.7", &[], &both, &[])), ["10.0.0.7", "10.0.0.7"]);
    let before = addresses("n", &[], &both, &[]);
    assert_eq!(shown(&addresses("n", &[], &[], &before)), ["10.0.0.1", "n"], "no route for a while");
    assert_eq!(shown(&addresses("n", &[], &[], &[])), ["n"]);
}

#[test]
fn cloud_provider_addresses_are_kept() {
    let health = healthy();
    let addresses = |given: &[&str], server: &[NodeAddress]| {
        let profile = profile(|config, _| {
            config.node.ips = ips(given);
            config.cluster.reporting.external_cloud = true;
        });
        let server = NodeStatus { addresses: server.to_vec(), ..NodeStatus::default() };
        let seen = ips(&["10.0.0.1"]);
        profile.status(&NodeObservation { addresses: &seen, ..sight(&health) }, &server).addresses
    };
    assert_eq!(shown(&addresses(&[], &[])), ["n"]);
    assert_eq!(shown(&addresses(&["0.0.0.0"], &[])), ["10.0.0.1", "n"]);
    let clouds = [NodeAddress { kind: "ExternalIP".into(), address: "1.2.3.4".to_owned() }];
    assert_eq!(shown(&addresses(&["10.9.9.9"], &clouds)), ["1.2.3.4"]);
}

#[test]
fn foreign_extended_resources_are_allocatable_and_stale_huge_pages_dropped() {
    let (profile, health) = (profile(|_, facts| facts.huge_pages = vec![(2 << 20, 4 << 20)]), healthy());
    let list = |given: &[(&str, &str)]| given.iter().map(|(k, v)| (*k, v.parse().unwrap())).collect::<ResourceList>();
    let server = NodeStatus {
        capacity: list(&[("cpu", "7"), ("example.com/gpu", "2"), ("hugepages-1Gi", "1Gi")]),
        allocatable: list(&[("example.com/gone", "1"), ("attachable-volumes-x", "3"), ("hugepages-1Gi", "1Gi")]),
        ..NodeStatus::default()
    };
    let text = |list: &ResourceList| encode(list);
    let status = profile.status(&sight(&health), &server);
    let capacity = json!({
        "cpu": "1", "ephemeral-storage": "1Gi", "example.com/gpu": "2", "hugepages-2Mi": "4Mi", "memory": "1Gi",
        "pods": "110",
    });
    assert_eq!(text(&status.capacity), capacity);
    let allocatable = json!({
        "attachable-volumes-x": "3", "cpu": "1", "ephemeral-storage": "966367640", "example.com/gpu": "2",
        "hugepages-2Mi": "4Mi", "memory": "920Mi", "pods": "110",
    });
    assert_eq!(text(&status.allocatable), allocatable);
    let status = profile.status_at_registration(&sight(&health), &server);
    let gpus = [&status.capacity, &status.allocatable].map(|list| list.get("example.com/gpu").unwrap().value());
    assert_eq!(gpus, [0, 0]);
}

#[test]
fn runtime_version_is_kept_until_the_runtime_reports() {
    let profile = profile(|_, _| {});
    let mut server = NodeStatus::default();
    server.node_info.container_runtime_version = "containerd://1".to_owned();
    server.runtime_handlers = vec![NodeRuntimeHandler { name: "runc".to_owned(), features: None }];
    server.features = Some(NodeFeatures { supplemental_groups_policy: Some(true) });
    let status = profile.status(&sight(&RuntimeHealth::default()), &server);
    assert_eq!((&status.runtime_handlers, &status.features), (&server.runtime_handlers, &server.features));
    assert_eq!(status.node_info.container_runtime_version, "containerd://1");
    let status = profile.status(&sight(&healthy()), &server);
    assert_eq!((status.runtime_handlers.len(), status.features), (0, None));
    assert_eq!(status.node_info.container_runtime_version, "containerd://1.6.20");
}

#[test]
fn conditions_of_the_board_precede_ready() {
    let (profile, health) = (profile(|_, _| {}), RuntimeHealth::default());
    let board = |holds, message: &str| BoardCondition {
        problem: BoardProblem::FlashWorn,
        holds,
        message: message.to_owned(),
        since: Time::from_unix_nanos(0),
    };
    let worn = [board(true, "mmcblk0 is worn; replace it")];
    let shown = |board: Option<&[BoardCondition]>, server: &NodeStatus| {
        profile.status(&NodeObservation { board, ..sight(&health) }, server)
    };
    let kinds = |status: &NodeStatus| status.conditions.iter().map(|one| one.kind.to_string()).collect::<Vec<_>>();
    let status = shown(Some(&worn), &NodeStatus::default());
    assert_eq!(kinds(&status), ["MemoryPressure", "DiskPressure", "PIDPressure", "FlashWorn", "Ready"]);
    let found = &status.conditions[3];
    assert_eq!((&*found.status, found.reason.as_str()), ("True", "FlashWorn"));
    assert_eq!((&*found.message, found.last_heartbeat_time), ("mmcblk0 is worn; replace it", Some(sight(&health).now)));
    // Before the first readings it stays; later, what cannot be read any more does not hold.
    assert_eq!(shown(None, &status).conditions[3].status, "True");
    let gone = &shown(Some(&[]), &status).conditions[3];
    assert_eq!((&*gone.status, gone.reason.as_str()), ("False", "NoFlashWorn"));
    assert_eq!(kinds(&shown(None, &NodeStatus::default())).len(), 4);
    // Another program, such as node-problem-detector, writes this one.
    let mut foreign = status.clone();
    foreign.conditions[3].reason = "WearMonitor".to_owned().into();
    assert_eq!(shown(Some(&[board(false, "fine")]), &foreign).conditions[3], foreign.conditions[3]);
}
