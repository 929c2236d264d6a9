//! Connections that break, stall or crawl, and servers that send partial responses or have a wrong clock.

use std::time::{Duration, Instant};

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::joined::{Joined, LEASE, NODES};
use super::pods::{PODS, WEB, is_ready, mounted, pod};
use crate::fake_api::faults::WatchFault;
use crate::fake_api::request_log::Request;
use crate::fake_api::world::{Network, WatchOrder};

const SHORT: &str = "nodeLeaseDurationSeconds: 4\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(value: &str) -> Value {
    let metadata = json!({"name": "m", "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}})
}

/// A pod that mounts a config map.
fn with_map(mut joined: Joined) -> Joined {
    joined.api.create(&map("one"));
    joined.start(SHORT, &[]);
    joined.api.create(&pod("web", &mounted(&json!({"name": "v", "configMap": {"name": "m"}}))));
    joined.wait_until_web_is_ready();
    joined
}

impl Joined {
    #[track_caller]
    fn wait_for_the_map(&self, content: &str) {
        self.wait_for_file("kubernetes.io~configmap", "k", content);
    }

    /// The container exits and restarts during the outage.
    fn restart_web(&self) {
        let before = self.running();
        self.node.fake.exit("main", 1);
        self.node.wait_until("the container was started again", |_| {
            let running = self.running();
            running.len() == 1 && running != before
        });
    }

    #[track_caller]
    fn wait_until_the_restart_is_told(&self) {
        self.wait_until_the_restart_is_told_within(Duration::from_secs(20));
    }

    #[track_caller]
    fn wait_until_the_restart_is_told_within(&self, longest: Duration) {
        let told = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(pod);
        self.api.wait_within(longest, WEB, "the restart to be told", told);
    }
}

#[test]
fn expired_watches_are_listed_once_each() {
    let joined = with_map(Joined::new());
    let before = joined.running();
    joined.api.compact();
    joined.api.order_watches("*", &WatchOrder::Expire);
    joined.api.wait_for("all watches to begin anew", |world| {
        let wholly = |request: &&Request| request.parameter("sendInitialEvents").is_some();
        let anew = |path: &&str| world.requests_of("watch", path).filter(wholly).count() >= 2;
        // Objects of tenants are listed first, as the first watch would have bookmarks.
        [PODS, NODES].iter().all(anew) && world.requests_of("list", MAPS).count() >= 2
    });
    joined.api.update(&map("two"));
    joined.wait_for_the_map("two");
    joined.api.create(&pod("other", &json!({})));
    joined.api.wait("/api/v1/namespaces/default/pods/other", "another pod to be ready", is_ready);
    assert!(before.iter().all(|id| joined.running().contains(id)));
    assert_eq!([PODS, NODES, MAPS].map(|path| joined.lists(path)), [2, 2, 2]);
}

/// Longer than every time limit of these settings: a renewal may take a second, and retries have backed off.
#[test]
fn partition_restarts_and_lists_nothing_and_is_reported_afterwards() {
    for network in [Network::Blackhole, Network::Refused, Network::HungUp] {
        let joined = with_map(Joined::new());
        joined.api.set_network(network);
        let begun = Instant::now();
        joined.restart_web();
        let during = joined.running();
        // Nothing can be waited for: no time limit of these settings is as long.
        std::thread::sleep(Duration::from_secs(3).saturating_sub(begun.elapsed()));
        joined.api.update(&map("two"));
        joined.api.set_network(Network::Open);
        joined.wait_until_the_restart_is_told();
        joined.wait_for_the_map("two");
        let renewals = joined.api.count("patch", LEASE);
        joined.api.wait_for_requests("patch", LEASE, renewals + 1);
        assert_eq!(joined.running(), during);
        assert_eq!([PODS, MAPS].map(|path| joined.lists(path)), [1, 1], "{network:?}");
        // Only a list tells whether the node was deleted meanwhile.
        joined.api.wait_for("the node to be read again", |world| {
            let wholly = |request: &&Request| request.parameter("sendInitialEvents").is_some();
            world.requests_of("watch", NODES).filter(wholly).count() > 1
        });
    }
}

/// Six seconds of absence suffice: the node status follows within twelve, and the rest within twelve more.
#[test]
fn after_an_absence_reports_keep_their_order_unless_sync_is_requested() {
    let first = |request: &Request, verb: &str, path: &str| request.is(verb, path);
    for hurried in ["never", "before", "after"] {
        let joined = with_map(Joined::new());
        joined.api.set_network(Network::Refused);
        joined.restart_web();
        // The absence itself: its length decides how far the reports spread.
        std::thread::sleep(Duration::from_secs(6));
        if hurried == "before" {
            assert!(joined.node.ask(&["sync"]).is_some());
        }
        let before = joined.api.look(|world| world.requests.len());
        joined.api.set_network(Network::Open);
        joined.api.wait_for("the lease to be renewed", |world| {
            world.requests.iter().skip(before).any(|request| first(request, "patch", LEASE))
        });
        let back = Instant::now();
        if hurried == "after" {
            assert!(joined.node.ask(&["sync"]).is_some());
        }
        // A busy machine lengthens the absence, and both delays may double.
        joined.wait_until_the_restart_is_told_within(Duration::from_secs(240));
        let waited = back.elapsed();
        let requests = joined.api.look(|world| world.requests[before..].to_vec());
        let place = |verb: &str, path: &str| requests.iter().position(|request| first(request, verb, path));
        assert_eq!(place("patch", LEASE), Some(0), "{requests:#?}");
        let (pods, status) = (place("watch", PODS).unwrap(), place("patch", &format!("{WEB}/status")).unwrap());
        assert!(pods < status, "{requests:#?}");
        if let Some(event) = place("create", "*/events") {
            assert!(status < event, "{requests:#?}");
        }
        if hurried != "never" {
            assert!(waited < Duration::from_secs(10), "{hurried}: {waited:?}");
        }
    }
}

#[test]
fn very_slow_connection_is_tolerated() {
    let joined = Joined::new();
    let pause = Duration::from_micros(500);
    joined.api.on("watch", "*").watch(WatchFault::Drip { bytes: 1, pause });
    joined.api.on("*", "*").drip(1, pause);
    let joined = with_map(joined);
    let before = joined.running();
    joined.api.update(&map("two"));
    joined.wait_for_the_map("two");
    assert_eq!((joined.running(), joined.api.connections_so_far()), (before, 1));
    assert_eq!([PODS, NODES, MAPS].map(|path| joined.lists(path)), [1, 1, 1]);
    joined.api.clear_faults();
}

#[test]
fn truncated_responses_are_neither_used_nor_taken_as_refusals() {
    let joined = Joined::new();
    let api = &joined.api;
    api.on("create", NODES).cut_in_answer().times(1);
    api.on("create", "*/events").malformed().times(1);
    api.on("watch", PODS).watch(WatchFault::CutInEvent(0)).times(1);
    api.on("watch", MAPS).watch(WatchFault::CutInEvent(0)).times(1);
    let status = format!("{WEB}/status");
    api.on("patch", &status).cut_in_answer().times(1);
    api.on("patch", &status).reset_in_answer().times(1);
    api.on("patch", &status).malformed().times(1);
    api.on("patch", LEASE).stall_in_answer().times(1);
    api.on("patch", LEASE).malformed().times(1);
    let joined = with_map(joined);
    joined.wait_until_ready();
    let before = joined.running();
    joined.restart_web();
    joined.wait_until_the_restart_is_told();
    joined.api.update(&map("two"));
    joined.wait_for_the_map("two");
    let renewals = joined.api.count("patch", LEASE);
    joined.api.wait_for_requests("patch", LEASE, renewals + 2);
    assert_ne!(joined.running(), before);
    assert_eq!(joined.node.fake.look(|world| world.calls_of("CreateContainer")), 2);
    assert_eq!(joined.api.list(NODES).len(), 1);
}

#[test]
fn wrong_server_clock_ends_nothing_early_and_keeps_nothing_too_long() {
    for ahead in [SignedDuration::from_hours(24), SignedDuration::from_hours(-24)] {
        let mut joined = Joined::new();
        joined.api.set_clock_ahead(ahead);
        joined.start(SHORT, &[]);
        let account = json!({"name": "default", "namespace": "default"});
        joined.api.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}));
        let sources = json!([{"serviceAccountToken": {"path": "token"}}]);
        let mut spec = mounted(&json!({"name": "v", "projected": {"sources": sources}}));
        spec["serviceAccountName"] = json!("default");
        // The pod has not run for an hour, although its start time suggests it.
        spec["activeDeadlineSeconds"] = json!(3600);
        spec["terminationGracePeriodSeconds"] = json!(1);
        joined.api.create(&pod("web", &spec));
        joined.wait_until_web_is_ready();
        let before = joined.running();
        let renewals = joined.api.count("patch", LEASE);
        joined.api.wait_for_requests("patch", LEASE, renewals + 3);
        assert_eq!(joined.running(), before);
        assert_eq!(joined.api.count("create", "/api/v1/namespaces/default/serviceaccounts/default/token"), 1);
        assert_eq!([PODS, NODES].map(|path| joined.lists(path)), [1, 1]);
        joined.api.delete(WEB);
        joined.api.wait_gone(WEB);
        joined.node.wait_until_nothing_is_left();
    }
}
