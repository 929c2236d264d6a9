//! CSI drivers and agents that crash, hang or fail: volumes are still mounted and unmounted.

use serde_json::json;

use super::{ALL_IN_ORDER, SHORT, claiming};
use crate::cluster::joined::Joined;
use crate::cluster::pods::{WEB, is_ready, pod};
use crate::csi_driver::{Driver, NAME, STAGE_UNSTAGE_VOLUME};
use crate::fake_api::world::Network;

const PUBLISH: [&str; 2] = ["NodeStageVolume", "NodePublishVolume"];
const UNPUBLISH: [&str; 2] = ["NodeUnpublishVolume", "NodeUnstageVolume"];

#[test]
fn pod_waits_for_its_driver_at_start_and_at_termination() {
    let joined = Joined::with_volume();
    joined.api.create(&claiming("web"));
    joined.wait_for_event(&format!(
        "MountVolume.MountDevice failed for volume \"disk\" : kubernetes.io/csi: attacher.MountDevice failed to create \
         newCsiDriverClient: driver name {NAME} not found in the list of registered CSI drivers"
    ));
    joined.api.create(&pod("beside", &json!({})));
    joined.api.wait("/api/v1/namespaces/default/pods/beside", "one without a volume to be ready", is_ready);
    let mut driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.wait_until_web_is_ready();
    joined.api.delete("/api/v1/namespaces/default/pods/beside");
    joined.api.wait_gone("/api/v1/namespaces/default/pods/beside");
    driver.kill();
    joined.api.delete(&format!("/apis/storage.k8s.io/v1/csidrivers/{NAME}"));
    let before = joined.running();
    joined.node.fake.exit("main", 1);
    joined.node.wait_until("its container runs again without the driver", |_| {
        joined.running().len() == 1 && joined.running() != before
    });
    joined.api.delete(WEB);
    joined.node.wait_until("it waits", |_| joined.node.log().contains("UnmountVolume.TearDown failed"));
    driver.come_back();
    joined.delete_web(&driver);
    assert_eq!(driver.names(), ALL_IN_ORDER);
}

#[test]
fn every_failed_driver_call_is_retried() {
    let joined = Joined::with_volume();
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    for method in PUBLISH {
        driver.fail(method);
    }
    joined.api.create(&claiming("web"));
    joined.wait_for_event(
        "MountVolume.MountDevice failed for volume \"disk\" : rpc error: code = Internal desc = no disk",
    );
    driver.mend();
    driver.babble("NodePublishVolume");
    joined.wait_for_event("MountVolume.SetUp failed for volume \"disk\" : ");
    driver.mend();
    // The driver has mounted the volume but has not answered.
    let publishes = || driver.names().iter().filter(|name| **name == "publish").count();
    let before = publishes();
    joined.wait_until_web_is_ready();
    assert!(publishes() > before, "{:?}", driver.names());
    for method in UNPUBLISH {
        driver.fail(method);
        joined.api.delete(WEB);
        let name = if method == UNPUBLISH[0] { "unpublish" } else { "unstage" };
        driver.wait_for_call(name, 1);
        assert!(joined.api.get(WEB).is_some(), "it has gone with {method}");
        driver.mend();
        if method == UNPUBLISH[0] {
            driver.fail(UNPUBLISH[1]);
        }
    }
    joined.delete_web(&driver);
}

#[test]
fn agent_killed_in_any_driver_call_resumes() {
    let mut joined = Joined::with_volume();
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    let restart = |joined: &mut Joined| {
        joined.node.kill_agent();
        joined.start(SHORT, &[]);
    };
    // Neither the first call nor the second is ever answered.
    let kill_in_both = |joined: &mut Joined, methods: [&'static str; 2], names: [&str; 2], begin: &dyn Fn(&Joined)| {
        driver.hang(methods[0]);
        begin(joined);
        driver.wait_for_call(names[0], 1);
        driver.mend();
        driver.hang(methods[1]);
        restart(joined);
        driver.wait_for_call(names[1], 1);
        driver.mend();
        restart(joined);
    };
    kill_in_both(&mut joined, PUBLISH, ["stage", "publish"], &|joined| drop(joined.api.create(&claiming("web"))));
    joined.wait_until_web_is_ready();
    restart(&mut joined);
    kill_in_both(&mut joined, UNPUBLISH, ["unpublish", "unstage"], &|joined| joined.api.delete(WEB));
    joined.delete_web(&driver);
}

#[test]
fn pod_with_a_volume_starts_after_an_offline_reboot() {
    let mut joined = Joined::with_volume();
    joined.api.create(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "default"},
        "data": {"password": "c2VzYW1l"},
    }));
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.api.create(&claiming("web"));
    joined.wait_until_web_is_ready();
    joined.wait_until_stored(&["pod/default/web/", "claim/default/data", &format!("csidriver/{NAME}")]);
    joined.api.set_network(Network::Refused);
    joined.reboot();
    drop(driver);
    joined.start(SHORT, &[]);
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    joined.wait_for_running(1);
    assert_eq!(driver.names(), ["stage", "publish"]);
}

#[test]
fn call_for_a_terminating_pod_ends_before_it_is_undone() {
    let joined = Joined::with_volume();
    let driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    for (method, name) in PUBLISH.into_iter().zip(["stage", "publish"]) {
        driver.let_wait(method);
        joined.api.create(&claiming("web"));
        driver.wait_for_call(name, 1);
        joined.delete_during_a_call(&driver);
    }
}

#[test]
fn driver_that_dies_in_any_call_is_called_again() {
    let joined = Joined::with_volume();
    let mut driver = Driver::start(&joined.registry(), &[STAGE_UNSTAGE_VOLUME]);
    let steps = PUBLISH.into_iter().chain(UNPUBLISH).zip(ALL_IN_ORDER);
    for (method, name) in steps {
        driver.hang(method);
        match name {
            "stage" => drop(joined.api.create(&claiming("web"))),
            "unpublish" => {
                joined.wait_until_web_is_ready();
                joined.api.delete(WEB);
            }
            _ => {}
        }
        driver.wait_for_call(name, 1);
        driver.kill();
        driver.mend();
        if name == "stage" {
            driver.hang(PUBLISH[1]);
        }
        if name == "unpublish" {
            driver.hang(UNPUBLISH[1]);
        }
        driver.come_back();
    }
    joined.api.wait_gone(WEB);
    driver.wait_until_all_is_given_back();
}
