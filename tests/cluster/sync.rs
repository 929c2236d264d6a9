//! Sync modes: polls, windows and on request, and their traffic.

use std::cell::Cell;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::joined::{Joined, LEASE, LEASES, NODES, STATUS};
use super::pods::{PODS, WEB, is_ready, mounted, pod};
use crate::fake_api::request_log::Request;
use crate::fake_api::world::Network;

const SHORT: &str = "crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";

impl Joined {
    /// Starts the agent with this sync configuration.
    fn start_syncing(&mut self, sync: &str) {
        self.start_syncing_with(sync, "");
    }

    /// Adds further lines of kubelet configuration.
    fn start_syncing_with(&mut self, sync: &str, more: &str) {
        let file = self.node.folder().join("coracle.yaml");
        fs::write(&file, format!("sync:\n{sync}")).unwrap();
        let file = file.to_str().unwrap().to_owned();
        self.start(&format!("{SHORT}{more}"), &["--coracle-config", &file]);
        self.node.wait_until("the agent answers", |_| self.node.ask(&["status"]).is_some());
    }

    /// The output of `coracle sync --wait`.
    #[track_caller]
    fn sync(&self) -> String {
        self.node.ask(&["sync", "--wait"]).expect("an exchange that goes well")
    }

    fn sync_state(&self) -> Value {
        self.node.status()["sync"].clone()
    }

    fn bytes(&self) -> u64 {
        let (received, sent) = self.api.traffic();
        received + sent
    }

    #[track_caller]
    fn wait_for_containers(&self, count: usize) {
        self.node.wait_until(&format!("{count} containers run"), |_| self.running().len() == count);
    }
}

fn map(value: &str) -> Value {
    let metadata = json!({"name": "m", "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": value}})
}

#[test]
fn manual_mode_sends_nothing_until_sync_is_requested() {
    let mut joined = Joined::new();
    joined.api.create(&map("one"));
    joined.api.create(&pod("web", &mounted(&json!({"name": "v", "configMap": {"name": "m"}}))));
    joined.start_syncing("  mode: manual\n");
    // The agent has queued events and sends none.
    joined.node.wait_until("events wait", |_| joined.sync_state()["pendingEvents"].as_u64() > Some(0));
    assert_eq!((joined.bytes(), joined.api.connections_so_far()), (0, 0));
    let said = joined.sync();
    for part in ["leases: ", "node status: 2", "pods and what they need: ", "events: "] {
        assert!(said.contains(part), "{said}");
    }
    // The pod has arrived with the objects it needs.
    joined.wait_for_containers(1);
    assert_eq!(joined.volume_file("kubernetes.io~configmap", "k").as_deref(), Some("one"));
    let (bytes, state) = (joined.bytes(), joined.sync_state());
    assert_eq!(joined.api.connections_so_far(), 1);
    joined.node.fake.exit("main", 1);
    joined.node.wait_until("its restart waits to be told", |_| joined.sync_state()["pendingStatuses"] == 1);
    joined.wait_for_containers(1);
    joined.api.update(&map("two"));
    joined.api.create(&pod("other", &json!({})));
    // Longer than any automatic delay: leases are renewed every ten seconds here.
    std::thread::sleep(Duration::from_secs(11));
    assert_eq!((joined.bytes(), joined.api.connections_so_far(), joined.running().len()), (bytes, 1, 1));
    let restarts = || joined.api.get(WEB).unwrap()["status"]["containerStatuses"][0]["restartCount"].clone();
    assert_eq!(restarts(), 0);
    assert_eq!(state["bytesToday"].as_u64(), Some(bytes));
    let said = joined.sync();
    assert!(said.contains("pod statuses: ") && !said.contains("without success"), "{said}");
    assert_eq!((restarts(), is_ready(&joined.api.get(WEB).unwrap())), (json!(1), true));
    joined.wait_for_containers(2);
    joined.wait_for_file("kubernetes.io~configmap", "k", "two");
    // Everything was listed once, and watches resumed afterwards.
    assert_eq!([PODS, NODES, "/api/v1/namespaces/default/configmaps"].map(|path| joined.lists(path)), [1, 1, 1]);
    assert_eq!(joined.api.connections_so_far(), 2);
    joined.sync();
    let told = joined.sync_state();
    assert_eq!((&told["pendingStatuses"], &told["pendingEvents"]), (&json!(0), &json!(0)), "{told}");
}

/// The token would expire before the next exchange if exchanges came hourly.
#[test]
fn half_expired_token_is_replaced_at_the_next_exchange() {
    let mut joined = Joined::new();
    joined.api.set_token_lifetime(Some(Duration::from_secs(30)));
    let account = json!({"name": "default", "namespace": "default"});
    joined.api.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}));
    let mut spec =
        mounted(&json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}));
    spec["serviceAccountName"] = json!("default");
    joined.api.create(&pod("web", &spec));
    joined.start_syncing("  mode: manual\n");
    joined.sync();
    joined.wait_for_containers(1);
    let token = || joined.volume_file("kubernetes.io~projected", "token").unwrap();
    let (first, had) = (token(), Instant::now());
    joined.sync();
    assert_eq!(token(), first);
    // Half of the token's lifetime.
    std::thread::sleep(Duration::from_secs(16).saturating_sub(had.elapsed()));
    joined.sync();
    joined.node.wait_until("the token is another", |_| token() != first);
}

/// Lease, node status, pods to run, pod statuses, events: the most important first.
#[test]
fn exchange_runs_in_order() {
    let mut joined = Joined::new();
    joined.start_syncing_with("  mode: manual\n", "syncFrequency: 1s\n");
    joined.sync();
    for name in ["one", "two"] {
        joined.api.create(&pod(name, &json!({})));
    }
    joined.sync();
    joined.wait_for_containers(2);
    joined.node.fake.exit("one/main", 1);
    joined.node.fake.exit("two/main", 1);
    joined.node.wait_until("both wait to be told", |_| joined.sync_state()["pendingStatuses"] == 2);
    // The node status has a change to report.
    joined.node.fake.set_network_ready(false);
    joined.node.wait_until("the network is not ready", |_| joined.node.status()["runtime"]["networkReady"] == false);
    let before = joined.api.requests().len();
    joined.sync();
    let requests: Vec<Request> = joined.api.requests().split_off(before);
    let rank = |request: &Request| match request {
        request if request.is("patch", LEASE) => 0,
        request if request.is("patch", STATUS) || request.path == NODES => 1,
        request if request.verb == "watch" || request.verb == "list" => 2,
        request if request.is("patch", "*/status") => 3,
        request if request.is("*", "*/events*") => 4,
        request => panic!("{} {}", request.verb, request.path),
    };
    let ranks: Vec<i32> = requests.iter().map(rank).collect();
    assert!(ranks.is_sorted(), "{ranks:?}");
    assert!((0..5).all(|rank| ranks.contains(&rank)), "{ranks:?}");
}

#[test]
fn polling_applies_changes_and_connects_once_per_poll() {
    let mut joined = Joined::new();
    joined.start_syncing("  mode: poll\n  every: 2s\n");
    joined.wait_until_ready();
    joined.api.wait(LEASE, "a lease", |lease| lease["spec"]["leaseDurationSeconds"] == 40);
    joined.api.create(&pod("web", &json!({})));
    joined.wait_for_containers(1);
    joined.wait_until_web_is_ready();
    joined.api.delete(WEB);
    joined.api.wait_gone(WEB);
    joined.wait_for_containers(0);
    assert_eq!([joined.lists(PODS), joined.lists(NODES), joined.api.count("create", LEASES)], [1, 1, 1]);
    // During an outage polls fail.
    joined.api.set_network(Network::Refused);
    joined.node.wait_until("a poll has failed", |_| joined.sync_state()["last"]["message"] != "");
    let page = joined.node.ask(&["status"]).unwrap();
    assert!(page.contains("Sync:     poll every 2s; last heard "), "{page}");
    joined.api.create(&pod("web", &json!({})));
    joined.api.set_network(Network::Open);
    joined.wait_until_web_is_ready();
    assert_eq!(joined.lists(PODS), 1);
}

#[test]
fn watch_mode_has_no_exchange_to_request() {
    let mut joined = Joined::with_web(&json!({}));
    let said = joined.sync();
    assert_eq!(said, "nothing to do: in mode watch changes are exchanged immediately\n");
    assert_eq!(joined.sync_state()["mode"], "watch");
    assert_eq!(joined.api.connections_so_far(), 1);
    joined.node.kill_agent();
}

#[test]
fn pod_gets_an_event_when_its_token_expires_between_exchanges() {
    let mut joined = Joined::new();
    joined.api.set_token_lifetime(Some(Duration::from_secs(5)));
    let metadata = json!({"name": "default", "namespace": "default"});
    joined.api.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}));
    let sources = json!([{"serviceAccountToken": {"path": "token"}}]);
    let mut spec = mounted(&json!({"name": "v", "projected": {"sources": sources}}));
    spec["serviceAccountName"] = json!("default");
    joined.api.create(&pod("web", &spec));
    joined.start_syncing("  mode: manual\n");
    joined.sync();
    joined.wait_for_containers(1);
    let bytes = joined.bytes();
    let token = || joined.volume_file("kubernetes.io~projected", "token").unwrap();
    let first = token();
    joined.node.wait_until("the pod is told of it", |_| {
        joined.node.ask(&["events"]).is_some_and(|events| events.contains("TokenExpired"))
    });
    assert_eq!((joined.bytes(), token()), (bytes, first.clone()));
    joined.sync();
    joined.node.wait_until("there is another one", |_| token() != first);
}

/// Runs in a network namespace of its own.
#[test]
fn daily_window_opens_at_its_configured_time() {
    /// A window from `from` to `to` hours from now, in full minutes.
    fn window(from: i64, to: i64) -> String {
        let now = jiff::Timestamp::now();
        let time = |hours| (now + jiff::SignedDuration::from_hours(hours)).strftime("%H:%M").to_string();
        format!("  mode: windows\n  windows: [\"{}-{}\"]\n", time(from), time(to))
    }

    let mut joined = Joined::new();
    joined.start_syncing(&window(2, 4));
    joined.node.wait_until("events wait", |_| joined.sync_state()["pendingEvents"].as_u64() > Some(0));
    let state = joined.sync_state();
    let next = state["nextSeconds"].as_u64().unwrap();
    assert!((7080..=7200).contains(&next) && state["open"] == false, "{state}");
    assert_eq!(joined.bytes(), 0);
    joined.node.kill_agent();
    joined.start_syncing(&window(-2, 2));
    // The window would open later by itself.
    assert!(joined.node.ask(&["sync"]).is_some());
    joined.wait_until_ready();
    joined.api.create(&pod("web", &json!({})));
    joined.wait_until_web_is_ready();
    assert_eq!((joined.sync_state()["open"].clone(), joined.api.connections_so_far()), (json!(true), 1));
}

#[test]
fn window_follows_an_interface() {
    let in_network = || {
        use nix::mount::{MsFlags, mount};
        use nix::sched::{CloneFlags, unshare};

        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).unwrap();
        let (nothing, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
        mount(nothing, "/", nothing, private, nothing).unwrap();
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), nothing).unwrap();
        let ip = |line: &str| assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "{line}");
        ip("link set lo up");
        ip("link add wwan0 type veth peer name far");
        ip("link set far up");
        let mut joined = Joined::new();
        joined.start_syncing("  mode: windows\n  whileInterface: wwan0\n");
        joined.node.wait_until("events wait", |_| joined.sync_state()["pendingEvents"].as_u64() > Some(0));
        assert_eq!(joined.bytes(), 0);
        ip("link set wwan0 up");
        joined.wait_until_ready();
        joined.api.create(&pod("web", &json!({})));
        joined.wait_until_web_is_ready();
        assert_eq!((joined.sync_state()["open"].clone(), joined.api.connections_so_far()), (json!(true), 1));
        ip("link set wwan0 down");
        joined.node.wait_until("the window is shut", |_| joined.sync_state()["open"] == false);
        let bytes = joined.bytes();
        joined.api.create(&pod("other", &json!({})));
        // With an open connection the agent would see the pod at once.
        joined.node.wait_until_at_rest();
        assert_eq!((joined.bytes(), joined.running().len()), (bytes, 1));
        joined.sync();
        joined.wait_for_containers(2);
        joined.api.delete(WEB);
        ip("link set wwan0 up");
        joined.api.wait_gone(WEB);
        joined.wait_for_containers(1);
        assert_eq!((joined.lists(PODS), joined.api.connections_so_far()), (1, 3));
    };
    if let Err(failure) = std::thread::spawn(in_network).join() {
        std::panic::resume_unwind(failure);
    }
}

#[test]
fn exhausted_daily_budget_drops_events_first_and_leases_last() {
    const BUDGET: u64 = 512 << 10;

    let mut joined = Joined::new();
    let sync = format!("  lease: {{duration: 4s}}\n  bytesPerDay: {BUDGET}\n");
    joined.start_syncing(&sync);
    joined.wait_until_ready();
    joined.api.create(&pod("web", &json!({})));
    joined.wait_until_web_is_ready();
    let left_out = || joined.sync_state()["leftOut"].clone();
    assert_eq!(left_out(), json!([]));
    // Each change of the pod costs every watcher traffic. The budget leaves room for what follows.
    let number = Cell::new(0);
    joined.node.wait_until("events are left out", |_| {
        number.set(number.get() + 1);
        let note = format!("{}{}", number.get(), "x".repeat(4000));
        joined.api.patch(WEB, &json!({"metadata": {"annotations": {"note": note}}}));
        left_out() != json!([])
    });
    assert_eq!(left_out(), json!(["events"]));
    let events = || joined.api.look(|world| world.list("/api/v1/events").len());
    let before = events();
    joined.node.fake.exit("main", 1);
    let told = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(pod);
    joined.api.wait(WEB, "the restart to be told", told);
    assert_eq!(events(), before);
    assert!(joined.sync_state()["pendingEvents"].as_u64() > Some(0));
    let page = joined.node.ask(&["status"]).unwrap();
    assert!(page.contains(" of 524 kB, left out: events; "), "{page}");
    let metrics = joined.metrics();
    for line in [r#"coracle_sync_left_out{what="events"} 1"#, r#"coracle_sync_left_out{what="leases"} 0"#] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert_eq!(joined.node.log().matches("sync.bytesPerDay nearly used up, holding back traffic").count(), 1);
}

/// Each connection exchanges certificates, the most expensive traffic of all.
#[test]
fn reconnects_respect_the_daily_budget() {
    const BUDGET: u64 = 96 << 10;

    let mut joined = Joined::new();
    let sync = format!("  lease: {{duration: 4s}}\n  bytesPerDay: {BUDGET}\n");
    joined.start_syncing(&sync);
    joined.wait_until_ready();
    let cut = Cell::new(0);
    joined.node.wait_until("nothing is left", |_| {
        // Each connection is cut once.
        let made = joined.api.connections_so_far();
        if cut.replace(made) < made {
            joined.api.set_network(Network::HungUp);
            joined.api.set_network(Network::Open);
        }
        joined.sync_state()["leftOut"].as_array().is_some_and(|left_out| left_out.len() == 5)
    });
    // The last bytes of the connection may still be in flight.
    joined.node.wait_until_at_rest();
    let (bytes, connections) = (joined.bytes(), joined.api.connections_so_far());
    // As long as three renewals of the lease.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!((joined.bytes(), joined.api.connections_so_far()), (bytes, connections));
    println!("{bytes} bytes of {BUDGET} over {connections} connections");
    assert!(bytes <= BUDGET, "{bytes} bytes over {connections} connections");
    assert!(joined.sync_state()["bytesToday"].as_u64() <= Some(BUDGET));
    // A restarted agent gets no new budget.
    joined.node.kill_agent();
    joined.start_syncing(&sync);
    assert!(joined.sync_state()["bytesToday"].as_u64() > Some(BUDGET / 2));
    joined.node.wait_until_at_rest();
    assert!(joined.bytes() <= BUDGET, "{} bytes", joined.bytes());
}

/// Bytes with TLS and both certificates, without TCP overhead.
#[test]
fn unchanged_poll_costs_a_few_kilobytes() {
    const PODS_THERE: usize = 10;
    /// One poll every 15 minutes.
    const POLLS_A_DAY: u64 = 96;

    let mut joined = Joined::new();
    joined.api.create(&map("one"));
    for number in 0..PODS_THERE {
        joined.api.create(&pod(&format!("p{number}"), &mounted(&json!({"name": "v", "configMap": {"name": "m"}}))));
    }
    joined.start_syncing("  mode: manual\n");
    joined.sync();
    joined.wait_for_containers(PODS_THERE);
    // The pod statuses, and the server's updates caused by them.
    joined.sync();
    joined.sync();
    let before = joined.bytes();
    let said = joined.sync();
    let bytes = joined.bytes() - before;
    println!("a poll with {PODS_THERE} pods: {bytes} bytes, {} a day; {said}", bytes * POLLS_A_DAY);
    assert!(bytes * POLLS_A_DAY < 1_000_000, "{bytes} bytes: {said}");
}
