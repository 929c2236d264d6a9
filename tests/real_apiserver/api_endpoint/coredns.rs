//! CoreDNS, with the endpoint in place of the API server.

use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Cluster, Process, create_account, endpoint_of_pod, give_endpoints, give_service, kubeconfig, run_pod};
use super::{cluster_for, next_address, reboot_without_the_server};
use crate::containerd::node::NODE_NAME;
use crate::real_apiserver::control_plane::Assets;
use crate::wait::wait;

/// From the readiness of a pod to its name.
const MAX_ANSWER_DELAY: Duration = Duration::from_secs(10);

/// What `system:coredns` of kubeadm has.
fn rules() -> Value {
    json!([
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ])
}

/// As kubeadm has it, with a kubeconfig and the names of pods, and without what leads to other servers.
fn start_coredns(cluster: &Cluster, program: &Path, token: &str) -> Process {
    let folder = cluster.node.folder();
    let corefile = folder.join("Corefile");
    let text = format!(
        ".:53 {{
            errors
            health
            ready
            kubernetes cluster.local in-addr.arpa ip6.arpa {{
                kubeconfig {}
                pods insecure
                endpoint_pod_names
                ttl 30
            }}
            cache 30 {{
                disable success cluster.local
                disable denial cluster.local
            }}
            reload
            loadbalance
        }}\n",
        kubeconfig(cluster, token).display()
    );
    fs::write(&corefile, text).unwrap();
    let arguments = ["-conf", corefile.to_str().unwrap()];
    cluster.node.enclosure().start(program, &arguments, &folder.join("coredns.log"))
}

fn give_peers(cluster: &Cluster, endpoints: &[Value]) {
    let headless = json!({"clusterIP": "None", "ports": [{"port": 8080}]});
    give_service(cluster, "peers", &headless, endpoints);
}

/// Waits for CoreDNS to be ready, and for the names of the Services and of the pod to lead there and back.
#[track_caller]
fn wait_for_names(cluster: &Cluster, cluster_ip: &str, address: &str, elsewhere: &str) {
    let a = |name: &str| lookup(cluster, &format!("{name}.default.svc.cluster.local"), RecordKind::A);
    let mut peers = vec![address.to_owned(), elsewhere.to_owned()];
    peers.sort();
    let expected = [vec![cluster_ip.to_owned()], peers, vec![address.to_owned()], vec![]];
    wait(|| {
        let names = [a("web")?, a("peers")?, a("web.peers")?, a("nothing")?];
        if names == expected { Ok(()) } else { Err(format!("names answer {names:?}, expected {expected:?}")) }
    });
    // CoreDNS caches reverse names, also that there is none.
    let reversed: Vec<&str> = address.rsplit('.').collect();
    let pod = lookup(cluster, &format!("{}.in-addr.arpa", reversed.join(".")), RecordKind::Ptr);
    assert_eq!(pod, Ok(vec!["web.peers.default.svc.cluster.local".to_owned()]));
    let mut ready = cluster.node.enclosure().command("curl");
    let ready = ready.args(["--silent", "--show-error", "http://127.0.0.1:8181/ready"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ready.stdout), "OK");
}

#[test]
fn coredns_answers_names_after_a_reboot_without_the_server() {
    let test = "coredns_answers_names_after_a_reboot_without_the_server";
    let Some(assets) = Assets::find(test, &["coredns"]) else { return };
    let program = assets.program("coredns");
    let mut cluster = cluster_for(assets, "kube-system/coredns");
    let token = create_account(&cluster, "kube-system", "coredns", &rules());
    let first = run_pod(&cluster, "web");
    let elsewhere = endpoint_of_pod("10.1.2.3", "elsewhere", "other");
    give_endpoints(&cluster, &[]);
    give_peers(&cluster, &[endpoint_of_pod(&first, NODE_NAME, "web"), elsewhere]);
    let cluster_ip = cluster.get(&["service", "web"])["spec"]["clusterIP"].as_str().unwrap().to_owned();
    let coredns = start_coredns(&cluster, &program, &token);
    wait_for_names(&cluster, &cluster_ip, &first, "10.1.2.3");

    // The power is cut after the ten seconds in which changes are collected. CoreDNS starts before the pod, which gets
    // another address.
    wait(|| {
        let records = stored_lists(&cluster);
        if records >= LISTS { Ok(()) } else { Err(format!("{records} of {LISTS} lists are stored")) }
    });
    reboot_without_the_server(&mut cluster, coredns);
    let _coredns = start_coredns(&cluster, &program, &token);
    let second = next_address(&cluster, &first);
    let ready = Instant::now();
    wait_for_names(&cluster, &cluster_ip, &second, "10.1.2.3");
    let delay = ready.elapsed();
    let figure = format!("names lead to the pod {:.1} s after it is ready (10 s)", delay.as_secs_f32());
    let _ = writeln!(std::io::stderr(), "{figure}");
    assert!(delay < MAX_ANSWER_DELAY, "{delay:?}");
    assert_eq!(lookup(&cluster, "kubernetes.default.svc.cluster.local", RecordKind::A).map(|found| found.len()), Ok(1));

    // The server is back, and says something else.
    cluster.plane.start_again(&cluster.node);
    let [own, other] = [("10.1.2.5", NODE_NAME, "web"), ("10.1.2.6", "elsewhere", "other")];
    give_peers(&cluster, &[own, other].map(|(address, node, pod)| endpoint_of_pod(address, node, pod)));
    wait_for_names(&cluster, &cluster_ip, "10.1.2.5", "10.1.2.6");
}

/// Services, EndpointSlices and namespaces.
const LISTS: usize = 3;

/// Number of lists of CoreDNS on the disk.
fn stored_lists(cluster: &Cluster) -> usize {
    let journal = cluster.node.folder().join("pods/coracle/offline/api-endpoint/journal");
    // The journal may begin later.
    let journal = fs::read_to_string(journal).unwrap_or_default();
    let records = journal.lines().filter(|line| line.contains("read/kube-system%2Fcoredns/"));
    records.filter(|line| !line.contains("coredns/tokens")).count()
}

#[derive(Clone, Copy)]
enum RecordKind {
    A = 1,
    Ptr = 12,
}

/// The records of a name, sorted; none if it does not exist. The error says what came instead of an answer.
fn lookup(cluster: &Cluster, name: &str, kind: RecordKind) -> Result<Vec<String>, String> {
    let reply = cluster.node.enclosure().on_network(|| -> std::io::Result<Vec<u8>> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.connect("127.0.0.1:53")?;
        socket.send(&question(name, kind))?;
        let mut reply = vec![0; 1500];
        let length = socket.recv(&mut reply)?;
        reply.truncate(length);
        Ok(reply)
    });
    let reply = reply.map_err(|error| format!("no answer for {name}: {error}"))?;
    match reply[3] & 0xf {
        0 => {
            let mut records = records(&reply, kind);
            records.sort();
            Ok(records)
        }
        NAME_ERROR => Ok(Vec::new()),
        code => Err(format!("response code {code} for {name}")),
    }
}

const NAME_ERROR: u8 = 3;

fn question(name: &str, kind: RecordKind) -> Vec<u8> {
    let mut message = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend_from_slice(label.as_bytes());
    }
    message.extend([0, 0, kind as u8, 0, 1]);
    message
}

/// The records of this kind in the answer section.
fn records(reply: &[u8], kind: RecordKind) -> Vec<String> {
    let number = |at: usize| u16::from_be_bytes([reply[at], reply[at + 1]]);
    // The question has a kind and a class after its name.
    let mut at = name_at(reply, 12).1 + 4;
    let mut records = Vec::new();
    for _ in 0..number(6) {
        at = name_at(reply, at).1;
        let (found, data) = (number(at), at + 10);
        at = data + usize::from(number(at + 8));
        match kind {
            _ if found != kind as u16 => {}
            RecordKind::A => records.push(Ipv4Addr::from(*reply[data..].first_chunk::<4>().unwrap()).to_string()),
            RecordKind::Ptr => records.push(name_at(reply, data).0),
        }
    }
    records
}

/// A name, and where it ends.
fn name_at(reply: &[u8], mut at: usize) -> (String, usize) {
    let mut labels = Vec::new();
    loop {
        let length = usize::from(reply[at]);
        if length == 0 {
            return (labels.join("."), at + 1);
        }
        if length >= 0xc0 {
            // The rest of the name is elsewhere.
            let (rest, _) = name_at(reply, (length & 0x3f) << 8 | usize::from(reply[at + 1]));
            labels.push(rest);
            return (labels.join("."), at + 2);
        }
        labels.push(String::from_utf8_lossy(&reply[at + 1..=at + length]).into_owned());
        at += 1 + length;
    }
}
