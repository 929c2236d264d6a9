//! Secrets that are sealed to the board, in containers.

use std::fs;
use std::process::Command;

use super::node::{Manifest, Node, STAY, coracle};

#[test]
fn pod_reads_a_secret_that_was_sealed_with_the_public_key_alone() {
    let mut node = Node::start();
    let key = node.ask(&["seal"]).expect("the board has a key");
    let plain = node.folder().join("secret.yaml");
    fs::write(&plain, "apiVersion: v1\nkind: Secret\nmetadata: {name: db}\nstringData: {password: hidden-words}\n")
        .unwrap();
    let seal = ["seal", "--to", key.trim(), "-f", plain.to_str().unwrap()];
    let sealed = Command::new(coracle()).args(seal).output().unwrap();
    let sealed = String::from_utf8(sealed.stdout).unwrap();
    assert!(sealed.contains("coracle.dev/sealed-for") && !sealed.contains("hidden"), "{sealed}");

    let script = format!("echo read $PASSWORD and $(cat /secret/password); {STAY}");
    let container = "env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}], \
                     volumeMounts: [{name: secret, mountPath: /secret}]";
    let pod = Manifest::new("client").container_with("main", &script, container).text();
    let pod = format!("{}  volumes: [{{name: secret, secret: {{secretName: db}}}}]\n", pod);
    node.write_manifest("client", &format!("{pod}---\n{sealed}"));
    node.wait_for_output("client", "main", "read hidden-words and hidden-words");
    assert_eq!(node.source_errors(), "");

    // The key is the same after a restart of the agent; a value in another Secret is refused and the pod keeps its own.
    node.kill_agent();
    node.start_agent();
    assert_eq!(node.ask(&["seal"]).as_deref(), Some(&*key));
    let moved = sealed.replace("name: db", "name: other");
    node.write_manifest("moved", &moved);
    node.wait_until("client still runs", |pods| pods.has("client", |pod| pod.is_ready()));
    super::node::wait_for("the error", super::node::PATIENCE, || {
        node.source_errors().contains("data.password: cannot be opened").then_some(())
    });
}
