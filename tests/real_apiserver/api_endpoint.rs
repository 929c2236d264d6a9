//! The API endpoint of the node, used by kubectl, curl and components of a node with a ServiceAccount's token.

mod coredns;
mod flannel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::control_plane::Assets;
use super::node::{NODE_NAME, Process, STAY};
use super::pods::run;

const SERVICES: &str = "/api/v1/services?labelSelector=app";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A node with the endpoint for this ServiceAccount.
fn cluster_for(assets: Assets, account: &str) -> Cluster {
    let mut cluster = Cluster::new(assets);
    let file = cluster.node.folder().join("coracle.yaml");
    let config = format!("apiEndpoint: {{listen: \"127.0.0.1:6440\", serviceAccounts: [{account}]}}\n");
    fs::write(&file, config).unwrap();
    cluster.node.add_arguments(&["--coracle-config", file.to_str().unwrap()]);
    cluster.node.start_agent();
    cluster.wait_until_ready();
    cluster
}

/// The same with a ServiceAccount that may read what kube-proxy reads.
fn cluster(assets: Assets) -> Cluster {
    let cluster = cluster_for(assets, "kube-system/proxy");
    for account in ["proxy", "other"] {
        cluster.kubectl(&["--namespace=kube-system", "create", "serviceaccount", account]);
        let of = format!("--serviceaccount=kube-system:{account}");
        cluster.kubectl(&["create", "clusterrolebinding", account, "--clusterrole=system:node-proxier", &of]);
    }
    cluster
}

/// Creates a ServiceAccount with a ClusterRole of its own. Returns a token of it.
fn create_account(cluster: &Cluster, namespace: &str, account: &str, rules: &Value) -> String {
    let role = json!({"name": account});
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account});
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": role, "rules": rules}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": role,
            "roleRef": reference,
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]}),
    ] {
        cluster.apply(&object);
    }
    cluster.kubectl(&["--namespace", namespace, "create", "token", account]).trim().to_owned()
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

fn endpoint_of(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true}})
}

fn endpoint_of_pod(address: &str, node: &str, pod: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": node, "targetRef": {"kind": "Pod", "namespace": "default", "name": pod}})
}

/// Serves the Service `web` with these endpoints.
fn give_endpoints(cluster: &Cluster, endpoints: &[Value]) {
    give_service(cluster, "web", &json!({"ports": [{"port": 80, "targetPort": 8080}]}), endpoints);
}

fn give_service(cluster: &Cluster, name: &str, spec: &Value, endpoints: &[Value]) {
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    }));
    cluster.apply(&json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{name}-1"), "namespace": "default",
            "labels": {"kubernetes.io/service-name": name}},
        "ports": [{"port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
    }));
}

/// A pod of this node, which is ready. Returns its address.
fn run_pod(cluster: &Cluster, name: &str) -> String {
    run(cluster, name, STAY);
    cluster.wait_until_pod_is_ready(name)["status"]["podIP"].as_str().unwrap().to_owned()
}

/// The board starts again without the server. An agent that was not stopped loses what it has not written.
fn reboot_without_the_server(cluster: &mut Cluster, component: Process) {
    cluster.plane.stop();
    drop(component);
    cluster.node.cut_power();
    cluster.node.enclosure().run(&["iptables", "-t", "nat", "-F"]);
    cluster.node.start_containerd();
    cluster.node.start_agent();
}

fn start_kube_proxy(cluster: &Cluster, program: &Path, token: &str) -> Process {
    let log = cluster.node.folder().join("kube-proxy.log");
    let arguments = [
        &*format!("--kubeconfig={}", kubeconfig(cluster, token).display()),
        &format!("--hostname-override={NODE_NAME}"),
        "--proxy-mode=iptables",
        "--iptables-min-sync-period=100ms",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
        "--healthz-bind-address=127.0.0.1:10256",
    ];
    cluster.node.enclosure().start(program, &arguments, &log)
}

fn leads_to(cluster: &Cluster, address: &str) -> bool {
    let rules = cluster.node.enclosure().run(&["iptables-save", "-t", "nat"]);
    rules.contains(&format!("--to-destination {address}:8080"))
}

#[track_caller]
fn wait_for_rules(cluster: &Cluster, address: &str, former: &str) {
    let what = format!("the rules of the service to lead to {address}, not to {former}");
    cluster.wait(&what, || (leads_to(cluster, address) && !leads_to(cluster, former)).then_some(()));
}

#[test]
fn kube_proxy_serves_cluster_ips_after_a_reboot_without_the_server() {
    let test = "kube_proxy_serves_cluster_ips_after_a_reboot_without_the_server";
    let Some(assets) = Assets::find(test, &["kube-proxy"]) else { return };
    let program = assets.program("kube-proxy");
    let mut cluster = cluster(assets);
    let token = token(&cluster, "proxy");
    let give = |cluster: &Cluster, address: &str| give_endpoints(cluster, &[endpoint_of(address)]);

    give(&cluster, "10.1.2.3");
    let proxy = start_kube_proxy(&cluster, &program, &token);
    wait_for_rules(&cluster, "10.1.2.3", "none");
    give(&cluster, "10.1.2.4");
    wait_for_rules(&cluster, "10.1.2.4", "10.1.2.3");

    // The board is cut off and starts again.
    cluster.plane.stop();
    drop(proxy);
    cluster.node.stop_agent(Signal::SIGTERM);
    cluster.node.enclosure().run(&["iptables", "-t", "nat", "-F"]);
    assert!(!leads_to(&cluster, "10.1.2.4"));
    cluster.node.start_agent();
    let _proxy = start_kube_proxy(&cluster, &program, &token);
    wait_for_rules(&cluster, "10.1.2.4", "10.1.2.3");

    // The server is back, and says something else.
    cluster.plane.start_again(&cluster.node);
    give(&cluster, "10.1.2.5");
    wait_for_rules(&cluster, "10.1.2.5", "10.1.2.4");
}

#[test]
fn restored_server_replaces_cached_objects() {
    let test = "restored_server_replaces_cached_objects";
    let Some(assets) = Assets::find(test, &["kube-proxy"]) else { return };
    let program = assets.program("kube-proxy");
    let mut cluster = cluster(assets);
    let token = token(&cluster, "proxy");
    let give = |cluster: &Cluster, address: &str| give_endpoints(cluster, &[endpoint_of(address)]);
    give(&cluster, "10.1.2.3");
    let proxy = start_kube_proxy(&cluster, &program, &token);
    wait_for_rules(&cluster, "10.1.2.3", "none");

    // The cached slices are newer than those of the restored server.
    cluster.plane.back_up(&cluster.node);
    give(&cluster, "10.1.2.4");
    wait_for_rules(&cluster, "10.1.2.4", "10.1.2.3");
    // A kube-proxy that runs on may watch from the lost version for ever: the server accepts it, and says nothing.
    drop(proxy);
    cluster.plane.restore(&cluster.node);
    let proxy = start_kube_proxy(&cluster, &program, &token);
    wait_for_rules(&cluster, "10.1.2.3", "10.1.2.4");
    drop(proxy);
    cluster.node.stop_agent(Signal::SIGTERM);

    // Without the server, the endpoint answers with the slices of the restored server.
    cluster.plane.stop();
    cluster.node.enclosure().run(&["iptables", "-t", "nat", "-F"]);
    cluster.node.start_agent();
    let _proxy = start_kube_proxy(&cluster, &program, &token);
    wait_for_rules(&cluster, "10.1.2.3", "10.1.2.4");
}

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

/// The slice of the Service as a component reads it in JSON, and the version of the list.
fn read_slice(cluster: &Cluster, token: &str) -> Option<(Value, String)> {
    let answer = read(cluster, token, "application/json", SLICES);
    let mut list: Value = serde_json::from_str(answer.rsplit_once("\n200\n")?.0).unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let slices = list["items"].as_array_mut().unwrap();
    let index = slices.iter().position(|slice| slice["metadata"]["name"] == "web-1").unwrap();
    Some((slices.swap_remove(index), version))
}

fn read_nodes(cluster: &Cluster, token: &str) -> Value {
    let answer = read(cluster, token, "application/json", "/api/v1/nodes");
    serde_json::from_str::<Value>(answer.rsplit_once("\n200\n").unwrap().0).unwrap()["items"].take()
}

/// Waits for the pod to be ready at another address.
fn next_address(cluster: &Cluster, former: &str) -> String {
    cluster.wait("the pod to have a new address", || {
        let pods = cluster.node.pods();
        let pod = pods.0.iter().find(|pod| pod.name() == "web" && pod.is_ready() && pod.ip() != former)?;
        Some(pod.ip().to_owned())
    })
}

#[test]
fn kube_proxy_follows_pods_of_the_node_without_the_server_and_the_server_after_it() {
    let test = "kube_proxy_follows_pods_of_the_node_without_the_server_and_the_server_after_it";
    let Some(assets) = Assets::find(test, &["kube-proxy"]) else { return };
    let program = assets.program("kube-proxy");
    let mut cluster = cluster(assets);
    let token = token(&cluster, "proxy");
    let first = run_pod(&cluster, "web");
    let elsewhere = endpoint_of_pod("10.1.2.3", "elsewhere", "web");
    let gone = endpoint_of_pod("10.1.2.4", NODE_NAME, "gone");
    give_endpoints(&cluster, &[endpoint_of_pod(&first, NODE_NAME, "web"), gone, elsewhere.clone()]);
    let proxy = start_kube_proxy(&cluster, &program, &token);
    wait_for_rules(&cluster, &first, "none");
    let (server, server_version) = read_slice(&cluster, &token).unwrap();
    assert!(leads_to(&cluster, "10.1.2.3") && leads_to(&cluster, "10.1.2.4"));
    let nodes = read_nodes(&cluster, &token);

    // After the reboot the pod has another address.
    cluster.node.stop_agent(Signal::SIGTERM);
    reboot_without_the_server(&mut cluster, proxy);
    let second = next_address(&cluster, &first);
    let _proxy = start_kube_proxy(&cluster, &program, &token);
    wait_for_rules(&cluster, &second, &first);
    assert!(leads_to(&cluster, "10.1.2.3") && !leads_to(&cluster, "10.1.2.4"));

    // Only these fields differ from what the server said.
    let (mut corrected, version) = read_slice(&cluster, &token).unwrap();
    assert_eq!(corrected["metadata"]["resourceVersion"], version);
    corrected["metadata"]["resourceVersion"] = server["metadata"]["resourceVersion"].clone();
    let fields = corrected.as_object_mut().unwrap();
    assert_eq!((fields.remove("kind"), fields.remove("apiVersion")).0, Some("EndpointSlice".into()));
    let mut expected = server.clone();
    expected["endpoints"] = json!([endpoint_of_pod(&second, NODE_NAME, "web"), elsewhere]);
    assert_eq!(corrected, expected);
    // The node itself is as before, so that nothing of it is corrected.
    cluster.wait("the Node to be as the server said", || (read_nodes(&cluster, &token) == nodes).then_some(()));

    // A change while components watch.
    let watch = |version: &str| format!("{SLICES}?watch=true&resourceVersion={version}");
    let mut watches = Vec::new();
    for (version, file) in [(&server_version, "of-server"), (&version, "of-node")] {
        watches.push(curl(&cluster, &token, "application/json", &watch(version), file));
    }
    cluster.wait("the first event", || output(&cluster, "of-server").contains(&second).then_some(()));
    assert_eq!(output(&cluster, "of-node"), "", "it has that already");
    let ids =
        cluster.node.ctr_command(&["containers", "list", "--quiet", "labels.\"io.cri-containerd.kind\"==sandbox"]);
    for id in String::from_utf8(output_of(ids)).unwrap().lines() {
        output_of(cluster.node.ctr_command(&["tasks", "kill", "--signal", "SIGKILL", id]));
    }
    let third = next_address(&cluster, &second);
    wait_for_rules(&cluster, &third, &second);
    for file in ["of-server", "of-node"] {
        cluster.wait("the event", || output(&cluster, file).contains(&third).then_some(()));
    }
    let (_, version) = read_slice(&cluster, &token).unwrap();

    // The server is back with its own word: nobody may watch on from what it never said.
    cluster.plane.start_again(&cluster.node);
    for mut watch in watches {
        watch.wait().unwrap();
    }
    wait_for_rules(&cluster, &first, &third);
    assert!(leads_to(&cluster, "10.1.2.3") && leads_to(&cluster, "10.1.2.4"));
    let list = format!("{SLICES}?resourceVersion={version}");
    for path in [watch(&version), list] {
        let answer = read(&cluster, &token, "application/json", &path);
        assert!(answer.ends_with("\n410\n") && answer.contains("\"Expired\""), "{answer}");
    }
    assert_eq!(read_slice(&cluster, &token).unwrap().0, server);
}

fn output_of(mut command: Command) -> Vec<u8> {
    command.output().unwrap().stdout
}
