//! What a DRA driver and its claims cost.

use std::thread;
use std::time::Duration;

use serde_json::json;

use super::dra::{all, claiming};
use super::joined::Joined;
use super::pods::{WEB, is_ready, pod};
use crate::dra_driver::Driver;

const PODS: u64 = 10;
const QUIET: Duration = Duration::from_secs(10);

impl Joined {
    fn wait_until_ready_named(&self, name: &str) {
        self.api.wait(&WEB.replace("web", name), "the pod to be ready", is_ready);
    }

    /// The agent's resident memory in KiB once it rests.
    fn settled_memory(&self) -> u64 {
        // Memory is given back some time after the work, which no request shows.
        thread::sleep(Duration::from_secs(2));
        self.memory().1
    }

    /// Bytes that the agent sends to the API server while it rests.
    fn sent_at_rest(&self) -> u64 {
        let (before, _) = self.api.traffic();
        // What is measured is a span of time without work.
        thread::sleep(QUIET);
        self.api.traffic().0 - before
    }
}

#[test]
fn driver_costs_nothing_at_rest_and_a_claim_costs_little() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    joined.wait_until_ready();
    for number in 0..PODS {
        let name = format!("plain-{number}");
        joined.api.create(&pod(&name, &json!({})));
        joined.wait_until_ready_named(&name);
    }
    let (without, at_rest) = (joined.settled_memory(), joined.sent_at_rest());

    let driver = Driver::start(&joined.plugin_registry());
    driver.wait_until_registered();
    let with_driver = joined.settled_memory();
    for number in 0..PODS {
        let name = format!("claiming-{number}");
        joined.create_resource_claim(&name, None);
        joined.create_claiming(&claiming(&name, &name, &all()), &name, &[]);
        joined.wait_until_ready_named(&name);
    }
    let with_claims = joined.settled_memory();
    let calls = driver.prepared().len();
    let requests = || joined.api.requests().iter().filter(|request| request.path.contains("resourceclaims")).count();
    let before = requests();
    let sent = joined.sent_at_rest();
    let (driver_kib, claims_kib) = (with_driver.saturating_sub(without), with_claims.saturating_sub(with_driver));
    eprintln!(
        "a DRA driver: {driver_kib} KiB; {PODS} pods with claims: {claims_kib} KiB; sent in {QUIET:?} of rest: {at_rest} \
         bytes without, {sent} with"
    );
    assert_eq!((requests(), driver.prepared().len()), (before, calls), "at rest");
    assert!(driver_kib < 1024 && claims_kib < PODS * 200, "memory");
    assert!(sent < at_rest + 4096, "{sent} bytes instead of {at_rest}");
}
