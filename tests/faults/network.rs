//! The runtime's network is not ready.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use super::node::{Manifest, Node};

#[test]
fn only_host_network_pods_start_before_the_network_is_ready() {
    let mut node = Node::new();
    node.fake.set_network_ready(false);
    node.apply(&Manifest::new("inside").container("main", ""));
    node.apply(&Manifest::new("host").container("main", "").spec("hostNetwork: true"));
    node.start_agent();
    node.wait_until_ready("host");
    let pods = node.pods();
    let waits = pods.has("inside", |pod| pod.container("main").is_waiting_for("ContainerCreating"));
    assert!(waits, "{pods:#?}");
    assert_eq!(node.fake.sandboxes().len(), 1);

    node.fake.set_network_ready(true);
    node.wait_until_ready("inside");
}

#[test]
fn running_pods_survive_a_network_loss_and_their_containers_restart() {
    let mut node = Node::new();
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    let sandbox = node.seen("web").sandboxes;
    node.fake.set_network_ready(false);
    node.fake.cut_connections();
    node.wait_until("the network loss is known", |_| node.log().contains("container runtime is not ready"));
    node.fake.exit("web-node-a/main", 1);
    node.wait_until("the container runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    assert_eq!(node.seen("web").sandboxes, sandbox);
    // Removed pods terminate without a network.
    node.remove_manifest("web");
    node.wait_until_nothing_is_left();
}

#[test]
fn addresses_of_containers_are_in_the_order_of_those_of_the_node() {
    let mut node = Node::new();
    node.fake.set_dual_stack();
    let of_pod = |name, field| format!("{{name: {name}, valueFrom: {{fieldRef: {{fieldPath: {field}}}}}}}");
    let env = format!("env: [{}, {}]", of_pod("POD_IP", "status.podIP"), of_pod("POD_IPS", "status.podIPs"));
    node.apply(&Manifest::new("web").container_with("main", "", &env));
    node.start_agent_with(|command| {
        command.args(["--node-ip", "fd00:77::1,192.0.2.1"]);
    });
    node.wait_until_ready("web");
    let container = node.created_containers("web").remove(0);
    let value = |name| {
        let variable = container.envs.iter().find(|variable| variable.key == name);
        variable.map(|variable| String::from_utf8_lossy(&variable.value).into_owned()).unwrap_or_default()
    };
    assert_eq!([value("POD_IP"), value("POD_IPS")], ["fd00:88::2", "fd00:88::2,10.88.0.2"]);
}

/// Answers all requests at a port of 127.0.0.1. Returns the port, and the paths of the requests so far.
fn serve() -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let paths: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&paths);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap_or_default();
            noted.lock().unwrap().extend(line.split(' ').nth(1).map(str::to_owned));
            // The client may have gone.
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (port, paths)
}

#[test]
fn probes_and_hooks_use_the_pods_address_of_the_nodes_first_family() {
    let (port, paths) = serve();
    let asked = |path: &str| paths.lock().unwrap().iter().filter(|asked| *asked == path).count();
    let mut node = Node::new();
    // Nothing listens at the runtime's first address.
    node.fake.set_ips(|_| vec!["::1".to_owned(), "127.0.0.1".to_owned()]);
    let get = |path: &str| format!("{{httpGet: {{path: {path}, port: {port}}}}}");
    let fields = format!(
        "readinessProbe: {{httpGet: {{path: /ready, port: {port}}}, periodSeconds: 1}}, \
         livenessProbe: {{tcpSocket: {{port: {port}}}, periodSeconds: 1, failureThreshold: 1}}, \
         lifecycle: {{postStart: {}, preStop: {}}}",
        get("/started"),
        get("/stops")
    );
    node.apply(&Manifest::new("web").container_with("main", "", &fields).spec("terminationGracePeriodSeconds: 5"));
    node.start_agent_with(|command| {
        command.args(["--node-ip", "192.0.2.1,fd00:77::1"]);
    });
    node.wait_until_ready("web");
    assert_eq!((asked("/started"), asked("/ready") > 0), (1, true));
    // The next container starts in a sandbox that the runtime was asked about before.
    node.fake.exit("web-node-a/main", 1);
    node.wait_until("the container runs again", |pods| {
        pods.has("web", |pod| pod.is_ready() && pod.container("main").restarts() == 1)
    });
    assert_eq!(asked("/started"), 2);
    node.remove_manifest("web");
    node.wait_until_nothing_is_left();
    assert_eq!(asked("/stops"), 1);
}
