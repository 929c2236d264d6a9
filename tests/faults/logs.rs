//! Container log rotation with a failing runtime.

use std::fs;

use coracle::protocol::grpc::Code;

use super::node::{Manifest, Node};
use crate::wait::wait_for;

#[test]
fn log_that_the_runtime_does_not_reopen_keeps_its_name() {
    let mut node = Node::new();
    node.configure("containerLogMaxSize: 1Ki\ncontainerLogMaxFiles: 2\n");
    node.fake.on("ReopenContainerLog").fail(Code::Unknown, "no space left on device").times(2);
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    let uid = node.pods().get("web").unwrap().uid().to_owned();
    let log = node.folder().join(format!("logs/default_web-node-a_{uid}/main/0.log"));
    wait_for("the runtime's log", || log.exists());
    fs::write(&log, "x".repeat(2000)).unwrap();
    node.fake.wait_for_calls("ReopenContainerLog", 3);
    let rotated = || {
        let names = fs::read_dir(log.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("0.log.")).count()
    };
    wait_for("the full file to keep its new name", || rotated() == 1 && !log.exists());
    let told = "failed to rotate log log=";
    let log = node.log();
    assert_eq!(log.matches(told).count(), 1, "{log}");
    assert!(log.contains("reopen the log in the runtime: ReopenContainerLog"), "{log}");
}
