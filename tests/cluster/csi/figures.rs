//! Volume statistics from CSI drivers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{SHORT, claiming, with_device};
use crate::cluster::door::{Place, get_plain};
use crate::cluster::joined::Joined;
use crate::cluster::pods::{mounted, pod};
use crate::csi_driver::{Call, Driver, GET_VOLUME_STATS, NAME, STAGE_UNSTAGE_VOLUME};

impl Joined {
    /// A node with a mounted volume and an open stats endpoint, and the endpoint's address.
    fn with_figures(volume: &Value) -> (Self, SocketAddr) {
        let (mut joined, place) = (Self::new(), Place::new());
        joined.start(&format!("{SHORT}{}readOnlyPort: 10255\n", place.configuration()), &[]);
        joined.wait_until_ready();
        let modes = json!(["Persistent", "Ephemeral"]);
        joined.create_driver(&json!({"attachRequired": false, "volumeLifecycleModes": modes}));
        joined.create_volume_of(volume, &json!({}));
        (joined, SocketAddr::new(place.ip(), 10255))
    }
}

/// The volume statistics of `web`.
#[track_caller]
fn volumes_of_web(door: SocketAddr) -> Vec<Value> {
    let (status, page) = get_plain(door, "/stats/summary");
    assert_eq!(status, 200, "{page}");
    let summary: Value = serde_json::from_str(&page).unwrap();
    let pods = summary["pods"].as_array().unwrap();
    let web = pods.iter().find(|pod| pod["podRef"]["name"] == "web").expect("the pod is told of");
    web["volume"].as_array().cloned().unwrap_or_default()
}

#[test]
fn driver_statistics_are_fetched_on_demand_and_cached_for_a_minute() {
    let (joined, door) = Joined::with_figures(&json!({}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME, GET_VOLUME_STATS]);
    let volumes = [
        json!({"name": "v", "persistentVolumeClaim": {"claimName": "data"}}),
        json!({"name": "own", "csi": {"driver": NAME}}),
        json!({"name": "idle", "csi": {"driver": NAME}}),
    ];
    let mut spec = mounted(&volumes[0]);
    spec["volumes"] = json!(volumes);
    let mount = json!({"name": "own", "mountPath": "/own"});
    spec["containers"][0]["volumeMounts"].as_array_mut().unwrap().push(mount);
    joined.api.create(&pod("web", &spec));
    joined.wait_until_web_is_ready();
    assert!(!driver.names().contains(&"usage"), "nobody has asked");
    joined.node.wait_until("both volumes are told of", |_| volumes_of_web(door).len() == 2);
    let told = volumes_of_web(door);
    let figures = [
        ("capacityBytes", 1u64 << 50),
        ("availableBytes", 600),
        ("usedBytes", 400),
        ("inodes", 100),
        ("inodesFree", 60),
        ("inodesUsed", 40),
    ];
    for (volume, (name, claim)) in
        told.iter().zip([("v", json!({"name": "data", "namespace": "default"})), ("own", Value::Null)])
    {
        assert_eq!((&volume["name"], &volume["pvcRef"]), (&json!(name), &claim), "{volume}");
        assert!(figures.iter().all(|(key, value)| volume[key] == *value), "{volume}");
    }
    let (_, page) = get_plain(door, "/metrics");
    let labels = "{namespace=\"default\",persistentvolumeclaim=\"data\"}";
    for (name, value) in [
        ("capacity_bytes", 1u64 << 50),
        ("available_bytes", 600),
        ("used_bytes", 400),
        ("inodes", 100),
        ("inodes_free", 60),
        ("inodes_used", 40),
    ] {
        let line = format!("kubelet_volume_stats_{name}{labels} {value}\n");
        assert_eq!(page.matches(&line).count(), 1, "{line}: {page}");
    }
    let calls = driver.calls();
    let asked: Vec<_> =
        calls.iter().filter_map(|call| if let Call::Usage(asked) = call { Some(asked) } else { None }).collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert!(asked.iter().any(|asked| asked.volume_id == "vol-1"), "{asked:?}");
    joined.delete_web(&driver);
}

#[test]
fn hung_and_incapable_drivers_delay_no_statistics() {
    let (joined, door) = Joined::with_figures(&json!({}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME, GET_VOLUME_STATS]);
    driver.hang("NodeGetVolumeStats");
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    let asked = Instant::now();
    assert_eq!(volumes_of_web(door), [json!(null); 0]);
    driver.wait_for_call("usage", 1);
    for _ in 0..5 {
        assert_eq!(volumes_of_web(door), [json!(null); 0]);
        assert_eq!(get_plain(door, "/metrics").0, 200);
    }
    // A driver call may take two minutes.
    assert!(asked.elapsed() < Duration::from_secs(60), "{:?}", asked.elapsed());
    assert_eq!(driver.names(), ["stage", "publish", "usage"]);
    joined.delete_web(&driver);
    drop(driver);

    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    assert_eq!(volumes_of_web(door), [json!(null); 0]);
    assert_eq!(driver.names(), ["stage", "publish"]);
    joined.delete_web(&driver);
}

#[test]
fn statistics_of_block_volumes_come_from_the_driver_too() {
    let (joined, door) = Joined::with_figures(&json!({"volumeMode": "Block"}));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME, GET_VOLUME_STATS]);
    joined.api.create(&with_device("web", false));
    joined.wait_until_web_is_ready();
    joined.node.wait_until("the device is told of", |_| volumes_of_web(door).len() == 1);
    let told = volumes_of_web(door).remove(0);
    assert_eq!((&told["pvcRef"]["name"], &told["capacityBytes"]), (&json!("data"), &json!(1u64 << 50)), "{told}");
    joined.delete_web(&driver);
}
