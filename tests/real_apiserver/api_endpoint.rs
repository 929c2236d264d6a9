//! The API endpoint of the node, used by kubectl and curl with a ServiceAccount's token.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::control_plane::Assets;
use super::node::NODE_NAME;

const SERVICES: &str = "/api/v1/services?labelSelector=app";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A node with the endpoint, and a ServiceAccount that may read what kube-proxy reads.
fn cluster(assets: Assets) -> Cluster {
    let mut cluster = Cluster::new(assets);
    let file = cluster.node.folder().join("coracle.yaml");
    fs::write(&file, "apiEndpoint: {listen: \"127.0.0.1:6440\", serviceAccounts: [kube-system/proxy]}\n").unwrap();
    cluster.node.add_arguments(&["--coracle-config", file.to_str().unwrap()]);
    cluster.node.start_agent();
    cluster.wait_until_ready();
    for account in ["proxy", "other"] {
        cluster.kubectl(&["--namespace=kube-system", "create", "serviceaccount", account]);
        let of = format!("--serviceaccount=kube-system:{account}");
        cluster.kubectl(&["create", "clusterrolebinding", account, "--clusterrole=system:node-proxier", &of]);
    }
    cluster
}

fn token(cluster: &Cluster, account: &str) -> String {
    cluster.kubectl(&["--namespace=kube-system", "create", "token", account]).trim().to_owned()
}

/// A kubeconfig of the endpoint.
fn kubeconfig(cluster: &Cluster, token: &str) -> PathBuf {
    let folder = cluster.node.folder();
    let kubeconfig = folder.join("endpoint.conf");
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {{server: 'https://127.0.0.1:6440', \
         certificate-authority: {}}}\nusers:\n- name: u\n  user: {{token: {token}}}\ncontexts:\n- name: x\n  context: \
         {{cluster: c, user: u}}\ncurrent-context: x\n",
        folder.join("pods/pki/api-endpoint.crt").display()
    );
    fs::write(&kubeconfig, text).unwrap();
    kubeconfig
}

fn kubectl(cluster: &Cluster, token: &str, arguments: &[&str]) -> Output {
    let kubeconfig = kubeconfig(cluster, token);
    cluster.plane.kubectl_command(&cluster.node, &kubeconfig, arguments).output().unwrap()
}

/// A request as a component would send it; its output goes to `file`.
fn curl(cluster: &Cluster, token: &str, accept: &str, path: &str, file: &str) -> Child {
    let folder = cluster.node.folder();
    let mut command = cluster.node.enclosure().command("curl");
    command.args(["--silent", "--show-error", "--no-buffer", "--write-out", "\n%{http_code}\n"]);
    command.arg("--cacert").arg(folder.join("pods/pki/api-endpoint.crt"));
    command.args(["--header", &format!("Authorization: Bearer {token}"), "--header", &format!("Accept: {accept}")]);
    command.arg(format!("https://127.0.0.1:6440{path}"));
    command.stdout(fs::File::create(folder.join(file)).unwrap()).stderr(Stdio::null()).spawn().unwrap()
}

fn output(cluster: &Cluster, file: &str) -> String {
    String::from_utf8_lossy(&fs::read(cluster.node.folder().join(file)).unwrap()).into_owned()
}

fn read(cluster: &Cluster, token: &str, accept: &str, path: &str) -> String {
    curl(cluster, token, accept, path, "answer").wait().unwrap();
    output(cluster, "answer")
}

fn names(list: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(list).unwrap();
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn shown(done: &Output) -> String {
    String::from_utf8_lossy(&[&*done.stdout, &*done.stderr].concat()).into_owned()
}

fn create_service(cluster: &Cluster, name: &str) {
    cluster.kubectl(&["create", "service", "clusterip", name, "--tcp=80"]);
}

#[test]
fn components_read_through_the_endpoint_with_and_without_the_server() {
    let test = "components_read_through_the_endpoint_with_and_without_the_server";
    let Some(assets) = Assets::find(test, &[]) else { return };
    let mut cluster = cluster(assets);
    let (proxy, unused, other) = (token(&cluster, "proxy"), token(&cluster, "proxy"), token(&cluster, "other"));
    create_service(&cluster, "one");
    let list = ["get", "services", "--output=json", "--selector=app"];

    // With the server: lists, a watch after a list, a watch with initial events, and the server's refusals.
    let first = kubectl(&cluster, &proxy, &list);
    assert_eq!(names(&shown(&first)), ["one"]);
    assert!(shown(&kubectl(&cluster, &other, &list)).contains("\"one\""));
    assert!(shown(&kubectl(&cluster, &proxy, &["get", "secrets"])).contains("orbidden"));
    assert!(shown(&kubectl(&cluster, "made.up.token", &list)).contains("Unauthorized"));
    let json = read(&cluster, &proxy, "application/json", SERVICES);
    let version = serde_json::from_str::<Value>(json.rsplit_once("\n200").unwrap().0).unwrap();
    let version = version["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let watch = format!("{SERVICES}&watch=true&allowWatchBookmarks=true&resourceVersion={version}");
    let mut json_watch = curl(&cluster, &proxy, "application/json", &watch, "watch.json");
    let initial = format!(
        "{SERVICES}&watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion="
    );
    let mut protobuf_watch = curl(&cluster, &proxy, &format!("{PROTOBUF};type=watch,{PROTOBUF}"), &initial, "watch.pb");
    cluster.wait("the initial events", || output(&cluster, "watch.pb").contains("initial-events-end").then_some(()));
    create_service(&cluster, "two");
    cluster.kubectl(&["delete", "service", "one"]);
    for file in ["watch.json", "watch.pb"] {
        cluster.wait("the events", || output(&cluster, file).contains("DELETED").then_some(()));
    }

    // Without it.
    cluster.plane.stop();
    for child in [&mut json_watch, &mut protobuf_watch] {
        child.wait().unwrap();
    }
    let offline = |cluster: &Cluster| {
        cluster.wait("an answer from memory", || {
            let read = read(cluster, &proxy, "application/json", "/api/v1/services?labelSelector=app");
            read.ends_with("\n200\n").then_some(read)
        });
        let both = read(cluster, &proxy, PROTOBUF, SERVICES);
        assert!(both.starts_with("k8s\0") && both.contains("\u{3}two") && !both.contains("\u{3}one"), "{both:?}");
        let done = read(cluster, &proxy, "application/json", SERVICES);
        assert_eq!(names(done.rsplit_once("\n200").unwrap().0), ["two"]);
        // A token that the server has not seen proves nothing, and another account has not read this.
        for refused in [&unused, &other, &"made.up.token".to_owned()] {
            assert!(read(cluster, refused, "application/json", SERVICES).ends_with("\n503\n"));
        }
        assert!(read(cluster, &proxy, "application/json", "/api/v1/secrets").ends_with("\n503\n"));
        assert!(read(cluster, &proxy, "application/json", &initial).ends_with("\n422\n"));
    };
    offline(&cluster);
    let denied = kubectl(&cluster, &proxy, &["create", "namespace", "lost", "--validate=false"]);
    assert!(!denied.status.success(), "{}", shown(&denied));

    // After a restart of the agent.
    cluster.node.stop_agent(Signal::SIGTERM);
    cluster.node.start_agent();
    offline(&cluster);
    let mut held = curl(&cluster, &proxy, "application/json", &watch, "held");

    // When the server is back, the watch ends, and the server answers.
    cluster.plane.start_again(&cluster.node);
    held.wait().unwrap();
    assert_eq!(output(&cluster, "held"), "\n200\n");
    create_service(&cluster, "three");
    cluster.wait("the server's list", || {
        let read = read(&cluster, &proxy, "application/json", SERVICES);
        (names(read.rsplit_once("\n200")?.0) == ["three", "two"]).then_some(())
    });
    assert_eq!(cluster.try_get(&["namespace", "lost"]), None);
}

/// Serves a Service whose one endpoint is `address`.
fn give_endpoint(cluster: &Cluster, address: &str) {
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"ports": [{"port": 80, "targetPort": 8080}]},
    }));
    cluster.apply(&json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}},
        "ports": [{"port": 8080, "protocol": "TCP"}], "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
    }));
}

#[test]
fn kube_proxy_serves_cluster_ips_after_a_reboot_without_the_server() {
    let test = "kube_proxy_serves_cluster_ips_after_a_reboot_without_the_server";
    let Some(assets) = Assets::find(test, &["kube-proxy"]) else { return };
    let program = assets.program("kube-proxy");
    let mut cluster = cluster(assets);
    let kubeconfig = kubeconfig(&cluster, &token(&cluster, "proxy"));
    let log = cluster.node.folder().join("kube-proxy.log");
    let node_name = format!("--hostname-override={NODE_NAME}");
    let of_kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let arguments = [
        &*of_kubeconfig,
        &node_name,
        "--proxy-mode=iptables",
        "--iptables-min-sync-period=100ms",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
        "--healthz-bind-address=127.0.0.1:10256",
    ];
    let start = |cluster: &Cluster| cluster.node.enclosure().start(&program, &arguments, &log);
    let rules = |cluster: &Cluster| cluster.node.enclosure().run(&["iptables-save", "-t", "nat"]);
    let leads_to = |cluster: &Cluster, address: &str| {
        let destination = format!("--to-destination {address}:8080");
        cluster.wait("the rules of the service", || rules(cluster).contains(&destination).then_some(()));
    };

    give_endpoint(&cluster, "10.1.2.3");
    let proxy = start(&cluster);
    leads_to(&cluster, "10.1.2.3");
    give_endpoint(&cluster, "10.1.2.4");
    leads_to(&cluster, "10.1.2.4");

    // The board is cut off and starts again.
    cluster.plane.stop();
    drop(proxy);
    cluster.node.stop_agent(Signal::SIGTERM);
    cluster.node.enclosure().run(&["iptables", "-t", "nat", "-F"]);
    assert!(!rules(&cluster).contains("10.1.2.4"));
    cluster.node.start_agent();
    let _proxy = start(&cluster);
    leads_to(&cluster, "10.1.2.4");
    assert!(!rules(&cluster).contains("10.1.2.3:"));

    // The server is back, and says something else.
    cluster.plane.start_again(&cluster.node);
    give_endpoint(&cluster, "10.1.2.5");
    leads_to(&cluster, "10.1.2.5");
    assert!(!rules(&cluster).contains("10.1.2.4:"));
}
