//! The health that a DRA driver reports, in the statuses of pods.

use serde_json::{Value, json};

use super::dra::{all, claiming};
use super::joined::{Joined, condition};
use super::pods::WEB;
use crate::dra_driver::{Driver, Version};

impl Joined {
    /// Waits for the health of the two devices of claim `c`.
    #[track_caller]
    fn wait_for_claim_health(&self, what: &str, card: &Value, link: &Value) {
        let device = |name: &str, health: &Value| {
            let mut device = json!({"resourceID": format!("example.com/gpu=c-{name}")});
            for (key, value) in health.as_object().unwrap() {
                device[key] = value.clone();
            }
            device
        };
        let resources = json!([device("card", card), device("link", link)]);
        let expected = json!([{"name": "claim:card", "resources": resources}]);
        self.api.wait(WEB, what, |pod| pod["status"]["containerStatuses"][0]["allocatedResourcesStatus"] == expected);
    }
}

#[test]
fn health_of_a_drivers_devices_is_in_the_pods_status() {
    let mut joined = Joined::new();
    joined.start(super::dra::SHORT, &[]);
    joined.wait_until_ready();
    let mut driver = Driver::unstarted(&joined.plugin_registry(), Version::V1);
    driver.report_health(&[("card", 1, ""), ("link", 1, "")]);
    driver.come_back();
    driver.wait_until_registered();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    let (healthy, unknown) = (json!({"health": "Healthy"}), json!({"health": "Unknown"}));
    joined.wait_for_claim_health("healthy devices", &healthy, &healthy);

    driver.report_health(&[("card", 2, "87 °C"), ("link", 1, "")]);
    let hot = json!({"health": "Unhealthy", "message": "87 °C"});
    joined.wait_for_claim_health("an unhealthy device", &hot, &healthy);

    driver.kill();
    joined.wait_for_claim_health("unknown health without the driver", &unknown, &unknown);
    driver.report_health(&[("card", 1, ""), ("link", 2, "no carrier")]);
    driver.come_back();
    let down = json!({"health": "Unhealthy", "message": "no carrier"});
    joined.wait_for_claim_health("the health that the new process reports", &healthy, &down);
    assert_eq!(joined.running().len(), 1, "health ends no pod");
}

#[test]
fn health_is_unknown_after_a_driver_died_and_left_its_socket() {
    let mut joined = Joined::new();
    joined.start(super::dra::SHORT, &[]);
    joined.wait_until_ready();
    let mut driver = Driver::unstarted(&joined.plugin_registry(), Version::V1Beta1);
    driver.report_health(&[("card", 1, ""), ("link", 1, "")]);
    driver.come_back();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    let healthy = json!({"health": "Healthy"});
    joined.wait_for_claim_health("healthy devices", &healthy, &healthy);
    // The process dies and its socket file stays.
    driver.end_process();
    let unknown = json!({"health": "Unknown"});
    joined.wait_for_claim_health("unknown health without the driver", &unknown, &unknown);
    driver.come_back();
    joined.wait_for_claim_health("the health that the new process reports", &healthy, &healthy);
}

/// A node with these feature gates and a pod whose card is too hot.
fn with_hot_card(gates: &str) -> (Joined, Driver) {
    let mut joined = Joined::new();
    joined.start(&format!("{}featureGates: {{{gates}}}\n", super::dra::SHORT), &[]);
    joined.wait_until_ready();
    let mut driver = Driver::unstarted(&joined.plugin_registry(), Version::V1);
    driver.report_health(&[("card", 2, "87 °C"), ("link", 1, "")]);
    driver.come_back();
    driver.wait_until_registered();
    joined.create_resource_claim("c", None);
    joined.create_claiming(&claiming("web", "c", &all()), "c", &[]);
    (joined, driver)
}

#[test]
fn messages_of_devices_follow_their_gate() {
    let (joined, _driver) = with_hot_card("ResourceHealthStatusMessage: false");
    let (unhealthy, healthy) = (json!({"health": "Unhealthy"}), json!({"health": "Healthy"}));
    joined.wait_for_claim_health("an unhealthy device without a message", &unhealthy, &healthy);
}

#[test]
fn health_of_devices_follows_its_gate() {
    let (joined, _driver) = with_hot_card("ResourceHealthStatus: false, ResourceHealthStatusMessage: false");
    let pod = joined.api.wait(WEB, "the pod to be ready", |pod| condition(pod, "Ready")["status"] == "True");
    assert_eq!(pod["status"]["containerStatuses"][0].get("allocatedResourcesStatus"), None);
}
