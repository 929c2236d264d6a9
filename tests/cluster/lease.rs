//! The node lease.

use serde_json::{Value, json};

use super::joined::{Joined, LEASE, LEASES, NODE};
use crate::fake_api::world::Network;

/// A lease of four seconds, renewed each second.
const SHORT: &str = "nodeLeaseDurationSeconds: 4\n";

#[test]
fn lease_is_created_once_and_renewed_with_small_patches() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    let node = joined.wait_until_ready();
    joined.api.wait_for_requests("patch", LEASE, 4);
    let lease = joined.api.get(LEASE).unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "node-a");
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 4);
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": node["metadata"]["uid"] });
    assert_eq!(lease["metadata"]["ownerReferences"], json!([owner]));
    assert_eq!(lease["metadata"].get("managedFields"), None);
    let requests = joined.api.requests_of("patch", LEASE);
    let sizes: Vec<usize> = requests.iter().map(|request| request.body.len()).collect();
    assert_eq!(sizes[1..4], [52; 3]);
    assert_eq!(joined.api.count("create", LEASES), 1);
    assert_eq!(joined.api.count("update", LEASE), 0);
    let times: Vec<Value> = requests.iter().map(|request| request.json()["spec"]["renewTime"].clone()).collect();
    assert!(times.is_sorted_by(|one, next| one.as_str() < next.as_str()), "{times:?}");
}

#[test]
fn existing_lease_is_taken_over() {
    let mut joined = Joined::new();
    let later = "2999-01-01T00:00:00.000000Z";
    joined.api.create(&json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "node-a", "namespace": "kube-node-lease" },
        "spec": { "holderIdentity": "somebody", "leaseDurationSeconds": 40, "renewTime": later },
    }));
    joined.start(SHORT, &[]);
    let lease =
        joined.api.wait(LEASE, "the lease to be the node's", |lease| lease["spec"]["holderIdentity"] == "node-a");
    // A clock behind the stored renew time must not make the node look dead.
    assert!(lease["spec"]["renewTime"].as_str().unwrap() > later, "{lease}");
    assert_eq!(joined.api.count("create", LEASES), 0);
    joined.api.wait(LEASE, "its owner to be known", |lease| !lease["metadata"]["ownerReferences"].is_null());
}

#[test]
fn deleted_lease_is_created_again() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.api.wait_for_requests("patch", LEASE, 1);
    joined.api.delete(LEASE);
    joined.api.wait(LEASE, "the lease to be there again", |lease| lease["spec"]["holderIdentity"] == "node-a");
    assert!(joined.api.get(NODE).is_some());
}

#[test]
fn after_an_outage_the_lease_is_renewed_and_nothing_restarts() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    joined.api.wait_for_requests("patch", LEASE, 2);
    joined.api.set_network(Network::Refused);
    joined.node.wait_until("the agent misses the server", |_| joined.node.log().contains("failed to renew node lease"));
    let before = joined.api.get(LEASE).unwrap()["spec"]["renewTime"].clone();
    joined.api.set_network(Network::Open);
    joined.api.wait(LEASE, "a renewal", |lease| lease["spec"]["renewTime"] != before);
    assert!(joined.node.says_that_the_runtime_is_ready());
}

/// Bytes with TLS, without TCP overhead. A day of renewals every ten seconds has 8640 of these.
#[test]
fn renewal_costs_a_few_hundred_bytes() {
    const RENEWALS: usize = 5;

    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    joined.wait_until_ready();
    // By the fifth renewal the agent has sent everything that it sends once.
    joined.api.wait_for_requests("patch", LEASE, 5);
    let asked = joined.api.requests().len();
    let (received, sent) = joined.api.traffic();
    joined.api.wait_for_requests("patch", LEASE, 5 + RENEWALS);
    let (received_then, sent_then) = joined.api.traffic();
    let others = joined.api.requests().iter().skip(asked).filter(|request| !request.is("patch", LEASE)).count();
    assert_eq!(others, 0);
    let of_one = |bytes: u64| bytes / u64::try_from(RENEWALS).unwrap();
    let (request, answer) = (of_one(received_then - received), of_one(sent_then - sent));
    println!("a renewal: {request} bytes of request, {answer} of answer");
    // The fake server has no protobuf, and one more response may have been in flight.
    assert!(request < 250 && answer < 800, "{request} bytes of request, {answer} of answer");
}
