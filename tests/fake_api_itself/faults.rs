//! Scripted faults.

use std::io;
use std::time::{Duration, Instant};

use serde_json::json;

use super::client::Client;
use super::{WEB, config_map, pod, start};
use crate::fake_api::faults::WatchFault;
use crate::fake_api::world::Network;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[test]
fn request_is_refused_as_often_as_scripted() {
    let api = start();
    let mut client = Client::admin(&api);
    api.on("list", "/api/v1/pods").answer(503).times(1);
    api.on("GET", "/api/v1/*").answer(429).header("Retry-After", "7").skip(1).times(1);
    assert_eq!(client.get("/api/v1/pods").status, 503);
    assert_eq!(client.get("/api/v1/nodes").status, 200);
    let answer = client.get("/api/v1/nodes");
    assert_eq!((answer.status, answer.header("retry-after")), (429, "7"));
    assert_eq!(client.get("/api/v1/pods").status, 200);
    let statuses: Vec<_> = api.requests_of("list", "*").iter().map(|request| request.status.unwrap()).collect();
    assert_eq!(statuses, [503, 200, 429, 200]);
}

#[test]
fn fault_can_target_an_object_or_user_and_be_cleared() {
    let api = start();
    let mut client = Client::admin(&api);
    api.on("create", CONFIG_MAPS).about("\"unlucky\"").answer(500).body(&json!({ "no": "status" }));
    api.on("*", "*").of_user("somebody").answer(401);
    assert_eq!(client.post(CONFIG_MAPS, &config_map("lucky", "1")).status, 201);
    assert_eq!(client.post(CONFIG_MAPS, &config_map("unlucky", "1")).json(), json!({ "no": "status" }));
    api.clear_faults_on("create", CONFIG_MAPS);
    assert_eq!(client.post(CONFIG_MAPS, &config_map("unlucky", "1")).status, 201);
    api.on("get", "*").answer(410);
    api.clear_faults();
    assert_eq!(client.get(WEB).status, 404);
}

#[test]
fn connections_are_cut_before_and_after_the_effect() {
    let api = start();
    api.on("create", CONFIG_MAPS).about("\"a\"").cut();
    api.on("create", CONFIG_MAPS).about("\"b\"").cut_after_effect();
    api.on("create", CONFIG_MAPS).about("\"c\"").cut_in_answer();
    for (name, is_done) in [("a", false), ("b", true), ("c", true)] {
        let mut client = Client::admin(&api);
        let body = config_map(name, "1").to_string();
        assert!(client.ask("POST", CONFIG_MAPS, &[], body.as_bytes()).is_err());
        assert_eq!(api.get(&format!("{CONFIG_MAPS}/{name}")).is_some(), is_done, "{name}");
    }
}

#[test]
fn response_can_be_late_missing_or_slow() {
    let api = start();
    api.create(&config_map("a", "1"));
    let path = format!("{CONFIG_MAPS}/a");
    let mut client = Client::admin(&api);
    let begun = Instant::now();
    api.on("get", &path).delay(Duration::from_millis(30)).times(1);
    api.on("get", &path).drip(50, Duration::from_millis(1)).times(1);
    assert_eq!(client.get(&path).json()["data"]["key"], "1");
    assert!(begun.elapsed() >= Duration::from_millis(30));

    for fault in ["hang", "hang after effect", "stall"] {
        let on = api.on("get", &path).times(1);
        drop(match fault {
            "hang" => on.hang(),
            "stall" => on.stall_in_answer(),
            _ => on.hang_after_effect(),
        });
        let mut client = Client::admin(&api);
        let asked = api.count("get", &path);
        client.send("GET", &path, &[], b"").unwrap();
        api.wait_for_requests("get", &path, asked + 1);
        if fault == "stall" {
            client.head().unwrap();
        }
        drop(client);
        api.wait_for("the client to be let go", |world| {
            world.connections.iter().filter(|open| open.is_open).count() == 1
        });
    }
}

#[test]
fn held_request_waits_for_its_release() {
    let api = start();
    let mut client = Client::admin(&api);
    api.on("create", CONFIG_MAPS).hold().times(1);
    client.send("POST", CONFIG_MAPS, &[], config_map("a", "1").to_string().as_bytes()).unwrap();
    api.wait_for_requests("create", CONFIG_MAPS, 1);
    assert_eq!(api.get(&format!("{CONFIG_MAPS}/a")), None);
    // The request may not have arrived yet.
    api.wait_for("the request to be held", |world| world.is_held());
    api.release();
    assert_eq!(client.head().unwrap().0, 201);
}

#[test]
fn responses_can_be_invalid_json_or_invalid_http() {
    let api = start();
    api.create(&config_map("a", "1"));
    let path = format!("{CONFIG_MAPS}/a");
    let mut client = Client::admin(&api);
    api.on("get", &path).malformed().times(1);
    let answer = client.get(&path);
    assert!(answer.status == 200 && serde_json::from_slice::<serde_json::Value>(&answer.body).is_err());
    api.on("get", &path).speak(b"SSH-2.0-OpenSSH_9.2\r\n\r\n").times(1);
    client.send("GET", &path, &[], b"").unwrap();
    // No status, and no header follows.
    assert_eq!(client.head().unwrap(), (0, Vec::new()));
}

#[test]
fn watch_can_fail_in_every_way() {
    let api = start();
    for name in ["a", "b"] {
        api.create(&config_map(name, "1"));
    }
    let path = "/api/v1/configmaps?watch=true";
    let watch = |fault: WatchFault| {
        api.on("watch", "/api/v1/configmaps").watch(fault).times(1);
        let mut client = Client::admin(&api);
        client.watch(path);
        client
    };
    let name = |client: &mut Client| client.event().unwrap().1["metadata"]["name"].as_str().unwrap().to_owned();

    let mut client = watch(WatchFault::Duplicate);
    assert_eq!([name(&mut client), name(&mut client), name(&mut client)], ["a", "a", "b"]);
    let mut client = watch(WatchFault::Reorder);
    assert_eq!([name(&mut client), name(&mut client)], ["b", "a"]);
    let mut client = watch(WatchFault::Garbage { after: 1, bytes: b"{\"type\":".to_vec() });
    assert_eq!(name(&mut client), "a");
    assert_eq!(client.chunk().unwrap().unwrap(), b"{\"type\":");
    assert_eq!(name(&mut client), "b");
    let mut client = watch(WatchFault::EndAfter(1));
    assert_eq!((name(&mut client), client.event().is_none()), ("a".to_owned(), true));
    let mut client = watch(WatchFault::CutAfter(1));
    assert_eq!((name(&mut client), client.chunk().is_err()), ("a".to_owned(), true));
    let mut client = watch(WatchFault::CutInEvent(1));
    assert_eq!(name(&mut client), "a");
    assert!(!client.chunk().unwrap().unwrap().ends_with(b"\n") && client.chunk().is_err());
    let mut client = watch(WatchFault::StallAfter(1));
    assert_eq!(name(&mut client), "a");
    let _client = watch(WatchFault::Silent);
    // The watches that did not end are still open.
    api.wait_for_watches("/api/v1/configmaps", 5);
}

#[test]
fn stopped_server_refuses_connections_and_returns_on_the_same_port() {
    let api = start();
    api.create(&pod("web", Some("n1")));
    let mut client = Client::admin(&api);
    client.watch("/api/v1/pods?watch=true");
    assert!(client.event().is_some());
    api.set_network(Network::Refused);
    assert!(client.chunk().is_err());
    assert_eq!(Client::connect(&api, None).err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
    api.set_network(Network::Open);
    assert_eq!(Client::admin(&api).get(WEB).status, 200);
}

#[test]
fn black_hole_responds_after_it_opens() {
    let api = start();
    api.create(&pod("web", Some("n1")));
    let mut client = Client::admin(&api);
    let mut watching = Client::admin(&api);
    watching.watch("/api/v1/pods?watch=true&resourceVersion=0");
    assert_eq!(watching.event().unwrap().0, "ADDED");
    assert_eq!(client.get(WEB).status, 200);
    api.set_network(Network::Blackhole);
    client.send("GET", WEB, &[], b"").unwrap();
    api.create(&pod("other", None));
    let connections = api.connections_so_far();
    let silent = std::net::TcpStream::connect(api.address()).unwrap();
    api.wait_for("it to be accepted", |world| world.connections.len() > connections);
    assert_eq!(api.count("get", WEB), 1);
    api.set_network(Network::Open);
    assert_eq!(client.head().unwrap().0, 200);
    assert_eq!(watching.event().unwrap().1["metadata"]["name"], "other");
    drop(silent);
}

#[test]
fn server_can_hang_up_on_every_connection_or_one() {
    let api = start();
    let mut client = Client::admin(&api);
    assert_eq!(client.get(WEB).status, 404);
    api.cut_connections();
    assert!(client.ask("GET", WEB, &[], b"").is_err());
    api.set_network(Network::HungUp);
    let mut client = Client::admin(&api);
    assert!(client.ask("GET", WEB, &[], b"").is_err());
    api.set_network(Network::Open);
    assert_eq!(Client::admin(&api).get(WEB).status, 404);
}

#[test]
fn restart_keeps_objects_and_drops_the_watch_history() {
    let api = start();
    let object = api.create(&pod("web", Some("n1")));
    api.create(&pod("other", None));
    api.restart();
    let mut client = Client::admin(&api);
    assert_eq!(client.get(WEB).json(), object);
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    client.watch(&format!("/api/v1/pods?watch=true&resourceVersion={version}"));
    assert_eq!(client.event().unwrap().1["code"], 410);
}

#[test]
fn restart_at_a_version_can_lower_versions() {
    let api = start();
    let before = api.create(&pod("web", Some("n1")));
    api.restart_at_version(20);
    let mut client = Client::admin(&api);
    let after = client.get(WEB).json();
    let version =
        |object: &serde_json::Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&after) < version(&before) && version(&after) > 20);
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
}

#[test]
fn restored_server_has_the_backups_objects_and_silent_newer_watches() {
    let api = start();
    api.create(&pod("web", Some("n1")));
    let backup = api.back_up();
    api.pass_versions(100);
    let late = api.create(&pod("late", Some("n1")));
    api.restart_with(&backup);
    assert!(api.get(WEB).is_some() && api.list("/api/v1/pods").len() == 1);
    let mut client = Client::admin(&api);
    let version = late["metadata"]["resourceVersion"].as_str().unwrap();
    client.watch(&format!("/api/v1/pods?watch=true&resourceVersion={version}"));
    api.wait_for_watches("/api/v1/pods", 1);
    api.create(&pod("unheard", Some("n1")));
    api.pass_versions(200);
    api.create(&pod("heard", Some("n1")));
    assert_eq!(client.event().unwrap().1["metadata"]["name"], "heard");
}

#[test]
fn watch_can_be_slow() {
    let api = start();
    let begun = Instant::now();
    api.on("watch", "/api/v1/pods").watch(WatchFault::Drip { bytes: 50, pause: Duration::from_millis(2) });
    let mut client = Client::admin(&api);
    client.watch("/api/v1/pods?watch=true");
    api.wait_for_watches("/api/v1/pods", 1);
    api.create(&pod("web", Some("n1")));
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let part = client.chunk().unwrap().unwrap();
        assert!(part.len() <= 50);
        line.extend(part);
    }
    assert!(String::from_utf8(line).unwrap().contains("web"));
    assert!(begun.elapsed() >= Duration::from_millis(20));
}

#[test]
fn dropping_the_server_ends_everything() {
    let api = start();
    let mut watching = Client::admin(&api);
    watching.watch("/api/v1/pods?watch=true");
    api.on("get", WEB).hang();
    let mut hanging = Client::admin(&api);
    hanging.send("GET", WEB, &[], b"").unwrap();
    api.wait_for_requests("get", WEB, 1);
    let shared = api.weak();
    drop(api);
    assert_eq!(shared.strong_count(), 0, "a thread is left");
    assert!(watching.chunk().is_err() && hanging.head().is_err());
}
