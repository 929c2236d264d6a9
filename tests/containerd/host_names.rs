//! Pods of a node without a cluster find each other by name.

use std::fs;
use std::time::Duration;

use super::node::{BUSYBOX, Node, wait_for};

/// A Service `web` and its pod `server`, which serves `answer`.
fn served(answer: &str) -> String {
    let script = format!("echo {answer} >/tmp/index.html && exec httpd -f -p 80 -h /tmp");
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n\
         spec: {{selector: {{app: web}}, ports: [{{port: 80, targetPort: 8080}}]}}\n---\n\
         apiVersion: v1\nkind: Pod\nmetadata: {{name: server, labels: {{app: web}}}}\n\
         spec:\n  terminationGracePeriodSeconds: 1\n  containers:\n    \
         - {{name: httpd, image: '{BUSYBOX}', command: [sh, -c, '{script}']}}\n"
    )
}

fn asking(name: &str, network: &str) -> String {
    let script = "while sleep 0.3; do wget -qO- http://web/; wget -qO- http://server.default/; done";
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n\
         spec:\n  terminationGracePeriodSeconds: 1\n  {network}\n  containers:\n    \
         - {{name: ask, image: '{BUSYBOX}', command: [sh, -c, '{script}']}}\n"
    )
}

fn hosts_file(node: &Node, pod: &str) -> String {
    let uid = node.pods().get(pod).unwrap().uid().to_owned();
    fs::read_to_string(node.pod_folder(&uid).join("etc-hosts")).unwrap()
}

#[test]
fn names_lead_to_pods_and_follow_their_addresses() {
    let node = Node::start();
    node.write_manifest("client", &asking("client", "hostNetwork: false"));
    node.write_manifest("outside", &asking("outside", "hostNetwork: true"));
    node.write_manifest("server", &served("first"));
    node.wait_for_output("client", "ask", "first");
    node.wait_for_output("outside", "ask", "first");
    let before = node.pods().get("server").unwrap().ip().to_owned();
    assert!(node.source_errors().contains("clients reach the pods themselves, at targetPort 8080, not at 80"));

    node.write_manifest("server", &served("second"));
    node.wait_for_output("client", "ask", "second");
    node.wait_for_output("outside", "ask", "second");
    let now = node.pods().get("server").unwrap().ip().to_owned();
    let line = |ip: &str| format!("\n{ip}\tweb\tweb.default\tweb.default.svc\n");
    let hosts = hosts_file(&node, "client");
    assert!(hosts.contains(&line(&now)) && (before == now || !hosts.contains(&line(&before))), "{hosts}");

    node.remove_manifest("server");
    wait_for("the names to go", Duration::from_secs(20), || {
        let hosts = hosts_file(&node, "client");
        (!hosts.contains("\tweb") && !hosts.contains("\tserver")).then_some(())
    });
}
