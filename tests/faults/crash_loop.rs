//! Crash loops: their status and back-off.

use std::fs;
use std::time::{Duration, Instant};

use super::node::{Manifest, Node};
use crate::wait::wait_for;

#[test]
fn second_exit_backs_off_with_upstreams_reason() {
    let mut node = Node::new();
    node.configure("");
    node.apply(&Manifest::new("web").container("main", "").container("side", ""));
    node.start_agent();
    node.wait_until_ready("web");
    node.fake.exit("web-node-a/main", 3);
    node.wait_until("the first restart is at once", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    node.fake.exit("web-node-a/main", 4);
    let ended = Instant::now();
    let pods = node.wait_until("the container backs off", |pods| {
        pods.has("web", |pod| pod.container("main").is_waiting_for("CrashLoopBackOff"))
    });
    let pod = pods.get("web").unwrap();
    let message = format!("back-off 10s restarting failed container=main pod=web-node-a_default({})", pod.uid());
    assert_eq!(pod.container("main").waiting_message(), message);
    assert_eq!((pod.container("main").restarts(), pod.container("main").last_exit_code()), (1, Some(4)));
    assert_eq!((pod.phase(), pod.is_ready()), ("Running", false));
    assert!(pod.container("side").is_running());

    node.wait_until("the container runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 2)
    });
    let waited = ended.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(13)).contains(&waited), "the container waited {waited:?}");
}

#[test]
fn crash_loop_costs_few_calls() {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    let before = node.fake.calls().len();
    for restarts in 1..=4 {
        node.fake.exit("web-node-a/main", 1);
        node.fake.wait_for("the container to run again", |world| {
            super::node::Seen::of(world, "web").is_exactly(&[("main", restarts)])
        });
    }
    // Relist the exit, start the next instance, relist it, remove the oldest instance, relist that.
    let calls = node.fake.calls().split_off(before);
    assert!(calls.len() <= 4 * 15, "{}: {calls:?}", calls.len());
    let pods = node.pods();
    let logs = node.folder().join("pods/pods").join(pods.get("web").unwrap().uid()).join("containers/main");
    let kept = || {
        let mut names: Vec<_> = fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    wait_for("the termination messages of removed instances to go", || kept() == ["3.log", "4.log"]);
}
