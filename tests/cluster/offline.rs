//! A node that starts without its API server runs its stored pods.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle::platform::cri::v1::ContainerState;
use jiff::SignedDuration;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::joined::{Joined, LEASE, NODE, condition};
use super::node::NODE_NAME;
use super::pods::{WEB, is_ready, mounted, pod};
use crate::fake_api::kubeconfig::Credentials;
use crate::fake_api::world::Network;
use crate::fake_api::{FakeApi, Options};

const SHORT: &str = "nodeLeaseDurationSeconds: 4\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n";
const PROJECTED: &str = "kubernetes.io~projected";

/// A pod that uses a config map, a secret, a token and service variables.
fn rich() -> Value {
    let sources = json!([
        {"configMap": {"name": "m"}}, {"secret": {"name": "s"}}, {"serviceAccountToken": {"path": "token"}}
    ]);
    let mut spec = mounted(&json!({"name": "v", "projected": {"sources": sources}}));
    spec["serviceAccountName"] = json!("default");
    spec["enableServiceLinks"] = json!(true);
    spec["nodeSelector"] = json!({"example.com/site": "harbour"});
    pod("web", &spec)
}

fn prepare(joined: &Joined) {
    let object = |kind: &str, name: &str, more: Value| {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}});
        for (key, value) in more.as_object().unwrap() {
            object[key] = value.clone();
        }
        joined.api.create(&object);
    };
    object("ServiceAccount", "default", json!({}));
    object("ConfigMap", "m", json!({"data": {"k": "one"}}));
    object("Secret", "s", json!({"type": "Opaque", "data": {"p": STANDARD.encode("hidden-value")}}));
    object("Service", "db", json!({"spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 5432}]}}));
    // Labels that only the API server knows.
    let labels = json!({"example.com/site": "harbour"});
    joined.api.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME, "labels": labels}}));
}

impl Joined {
    /// A node with a key for stored secrets.
    fn with_key() -> Self {
        let joined = Self::new();
        let folder = joined.node.folder().join("pods/coracle");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("store-key"), [7; 32]).unwrap();
        fs::set_permissions(folder.join("store-key"), fs::Permissions::from_mode(0o600)).unwrap();
        joined
    }

    fn journal(&self) -> String {
        let journal = fs::read(self.node.folder().join("pods/coracle/offline/journal")).unwrap_or_default();
        String::from_utf8_lossy(&journal).into_owned()
    }

    #[track_caller]
    pub(crate) fn wait_until_stored(&self, parts: &[&str]) {
        let what = format!("{parts:?} to be stored");
        self.node.wait_until(&what, |_| parts.iter().all(|part| self.journal().contains(part)));
    }

    fn end_agent(&mut self) {
        self.node.signal(Signal::SIGTERM);
        self.node.wait_for_the_agents_end();
    }

    /// Simulates a power cut: nothing runs any more, and memory is lost.
    pub(crate) fn reboot(&mut self) {
        self.node.kill_agent();
        for container in self.node.fake.containers() {
            if container.state == ContainerState::Running {
                self.node.fake.exit(&container.id, 255);
            }
        }
        let uids = fs::read_dir(self.node.folder().join("pods/pods")).unwrap();
        for uid in uids {
            let volumes = uid.unwrap().path().join("volumes");
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            for place in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
                if std::path::Path::new(place).starts_with(&volumes) {
                    nix::mount::umount2(place, nix::mount::MntFlags::MNT_DETACH).unwrap();
                }
            }
            let _ = fs::remove_dir_all(volumes);
        }
    }

    fn stored(&self) -> Value {
        self.node.status()["offline"].clone()
    }

    pub(crate) fn created(&self) -> usize {
        self.node.fake.look(|world| world.calls_of("CreateContainer"))
    }

    #[track_caller]
    pub(crate) fn wait_for_running(&self, count: usize) {
        self.node.wait_until(&format!("{count} containers run"), |_| self.running().len() == count);
    }
}

#[test]
fn pod_with_all_its_objects_starts_after_an_offline_reboot() {
    for network in [Network::Refused, Network::Blackhole] {
        // Without a configured key, the agent creates one.
        let mut joined = Joined::new();
        prepare(&joined);
        joined.start(SHORT, &[]);
        joined.api.create(&rich());
        let uid = joined.wait_until_web_is_ready()["metadata"]["uid"].as_str().unwrap().to_owned();
        let token = joined.volume_file(PROJECTED, "token").unwrap();
        let names =
            ["pod/default/web/", "configmap/default/m", "secret/default/s", "token/default/", "services/default"];
        joined.wait_until_stored(&names);
        joined.wait_until_stored(&["\"name\":\"node\""]);
        let journal = joined.journal();
        for secret in ["hidden-value", &STANDARD.encode("hidden-value"), &token, "managedFields"] {
            assert!(!journal.contains(secret), "{secret} is in the journal");
        }
        joined.api.set_network(network);
        joined.reboot();
        assert_eq!((joined.running().len(), joined.volume_file(PROJECTED, "k")), (0, None));
        joined.start(SHORT, &[]);
        joined.wait_for_running(1);
        let read = ["k", "p", "token"].map(|file| joined.volume_file(PROJECTED, file));
        assert_eq!(read, [Some("one".to_owned()), Some("hidden-value".to_owned()), Some(token)], "{network:?}");
        let container = joined.node.fake.containers().pop().unwrap();
        assert_eq!(container.attempt(), 1, "the count goes on");
        let host = container.config.envs.iter().find(|variable| variable.key == "DB_SERVICE_HOST");
        assert_eq!(host.map(|host| &host.value[..]), Some(&b"10.0.0.7"[..]));
        assert_eq!(container.config.labels.get("io.kubernetes.pod.uid").unwrap().as_str(), uid);
        assert_eq!(joined.stored()["inUse"], true);
        // The agent reports the pod, and nothing happens twice.
        let created = joined.created();
        joined.api.set_network(Network::Open);
        let told = |pod: &Value| is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1;
        joined.api.wait(WEB, "the restart to be told", told);
        joined.node.wait_until("the cluster counts again", |_| joined.stored()["inUse"] == false);
        assert_eq!((joined.created(), joined.running().len()), (created, 1));
    }
}

#[test]
fn expired_token_stays_in_use_and_the_pod_gets_an_event() {
    let mut joined = Joined::with_key();
    // By the node's clock the tokens are expired on arrival.
    joined.api.set_clock_ahead(SignedDuration::from_hours(-24));
    prepare(&joined);
    joined.start(SHORT, &[]);
    joined.api.create(&rich());
    joined.wait_until_web_is_ready();
    let token = joined.volume_file(PROJECTED, "token");
    joined.wait_until_stored(&["token/default/", "secret/default/s"]);
    joined.api.set_network(Network::Refused);
    joined.reboot();
    joined.start(SHORT, &[]);
    joined.wait_for_running(1);
    assert_eq!((joined.volume_file(PROJECTED, "token"), token.is_some()), (token, true));
    joined.node.wait_until("the pod is told of it", |_| {
        joined.node.ask(&["events"]).is_some_and(|events| events.contains("TokenExpired"))
    });
}

#[test]
fn without_a_key_no_secret_is_stored() {
    let mut joined = Joined::new();
    prepare(&joined);
    joined.start(SHORT, &["--offline-key-file="]);
    joined.api.create(&rich());
    joined.wait_until_web_is_ready();
    joined.wait_until_stored(&["pod/default/web/", "configmap/default/m", "services/default"]);
    joined.end_agent();
    assert!(!joined.node.folder().join("pods/coracle/store-key").exists());
    let journal = joined.journal();
    assert!(!journal.contains("\"secret/") && !journal.contains("\"token/"), "{journal}");
}

#[test]
fn agent_restarted_offline_touches_no_running_container() {
    let mut joined = Joined::with_web(&json!({}));
    joined.wait_until_stored(&["pod/default/web/"]);
    let (before, created) = (joined.running(), joined.created());
    joined.api.set_network(Network::Refused);
    for end in [Joined::end_agent, |joined: &mut Joined| joined.node.kill_agent()] {
        end(&mut joined);
        joined.start(SHORT, &[]);
        joined.node.wait_until("the pod is known", |_| joined.stored()["inUse"] == true);
        joined.node.wait_until("the pod is ready", |pods| pods.0.iter().any(|pod| pod.is_ready()));
        assert_eq!((joined.running(), joined.created()), (before.clone(), created));
    }
}

#[test]
fn changes_made_during_an_outage_are_applied_exactly() {
    let mut joined = Joined::new();
    joined.start(SHORT, &[]);
    let path = |name: &str| format!("/api/v1/namespaces/default/pods/{name}");
    for name in ["kept", "deleted", "changed"] {
        joined.api.create(&pod(name, &json!({"terminationGracePeriodSeconds": 7})));
        joined.api.wait(&path(name), "the pod to be ready", is_ready);
    }
    joined.wait_until_stored(&["pod/default/kept/", "pod/default/deleted/", "pod/default/changed/"]);
    joined.api.set_network(Network::Refused);
    joined.reboot();
    joined.start(SHORT, &[]);
    joined.wait_for_running(3);
    let of = |joined: &Joined, pod: &str| -> Vec<String> {
        let all = joined.node.fake.containers();
        let own = all.iter().filter(|one| one.config.labels.get("io.kubernetes.pod.name").unwrap().as_str() == pod);
        own.filter(|one| one.state == ContainerState::Running).map(|one| one.id.clone()).collect()
    };
    let (kept, deleted, changed) = (of(&joined, "kept"), of(&joined, "deleted"), of(&joined, "changed"));
    assert_eq!([&kept, &deleted, &changed].map(Vec::len), [1, 1, 1]);
    joined.api.delete_with_grace(&path("deleted"), 0);
    joined.node.fake.add_image("localhost/coracle/busybox:2");
    let mut newer = joined.api.get(&path("changed")).unwrap();
    newer["spec"]["containers"][0]["image"] = json!("localhost/coracle/busybox:2");
    joined.api.update(&newer);
    joined.api.create(&pod("new", &json!({})));
    joined.api.set_network(Network::Open);
    joined.api.wait(&path("new"), "the new pod to be ready", is_ready);
    joined.node.wait_until("the deleted pod is gone", |_| of(&joined, "deleted").is_empty());
    let is_other = |joined: &Joined| {
        let now = of(joined, "changed");
        now.len() == 1 && now != changed
    };
    joined.node.wait_until("the changed one runs as it is now", |_| is_other(&joined));
    assert_eq!(of(&joined, "kept"), kept);
    let stops: Vec<_> = joined.node.fake.requests::<coracle::platform::cri::v1::StopContainerRequest>("StopContainer");
    let stopped = |id: &str| stops.iter().filter(|stop| stop.container_id == id).map(|stop| stop.timeout).max();
    assert_eq!((stopped(&deleted[0]), stopped(&kept[0])), (Some(7), None));
    joined.node.wait_until("the store has followed", |_| {
        let journal = joined.journal();
        let last = |name: &str| {
            journal.lines().rfind(|line| line.contains(&format!("pod/default/{name}/"))).map(str::to_owned)
        };
        last("deleted").is_none_or(|line| line.contains("\"gone\":true")) && last("new").is_some()
    });
}

#[test]
fn server_that_does_not_know_the_node_changes_nothing() {
    let mut joined = Joined::with_web(&json!({}));
    joined.wait_until_stored(&["pod/default/web/"]);
    let (before, created) = (joined.running(), joined.created());
    joined.node.kill_agent();
    joined.api.delete_with_grace(WEB, 0);
    for code in [401, 403, 404] {
        let asked = joined.api.look(|world| world.requests.len());
        joined.api.on("*", "*").answer(code);
        joined.start(SHORT, &[]);
        joined.node.wait_until("the node goes by the store", |_| joined.stored()["inUse"] == true);
        joined.api.wait_for("some more requests", |world| world.requests.len() > asked + 6);
        assert_eq!((joined.running(), joined.created()), (before.clone(), created), "{code}");
        joined.node.kill_agent();
        joined.api.clear_faults();
    }
    let other = FakeApi::start(Options::default());
    let kubeconfig = joined.api.kubeconfig(joined.node.folder(), &Credentials::of_node(NODE_NAME));
    let text = fs::read_to_string(&kubeconfig).unwrap().replace(&joined.api.url(), &other.url());
    fs::write(&kubeconfig, text).unwrap();
    joined.node.start_agent_with(|command| {
        command.arg("--kubeconfig").arg(&kubeconfig).arg("--make-iptables-util-chains=false");
    });
    joined.node.wait_until("the node goes by the store", |_| joined.stored()["inUse"] == true);
    joined.node.wait_until("the server is not believed", |_| {
        let status = joined.node.status();
        status["apiServer"]["message"].as_str().is_some_and(|why| why.contains("certificate"))
    });
    assert_eq!((joined.running(), joined.created()), (before.clone(), created));
    assert_eq!(other.look(|world| world.requests.len()), 0);
    // The kubeconfig trusts this server, which lacks the pod. The agent still keeps the pod running.
    joined.node.kill_agent();
    let kubeconfig = other.kubeconfig(joined.node.folder(), &Credentials::of_node(NODE_NAME));
    let start = |joined: &mut Joined| {
        joined.node.start_agent_with(|command| {
            command.arg("--kubeconfig").arg(&kubeconfig).arg("--make-iptables-util-chains=false");
        })
    };
    start(&mut joined);
    joined.node.wait_until("it is told to be another one", |_| {
        joined.node.status()["sources"].to_string().contains("is of another cluster")
    });
    assert_eq!((joined.running(), joined.created()), (before, created));
    // The agent does not replace the stored node either.
    other.wait(NODE, "the node there", |node| condition(node, "Ready")["status"] == "True");
    let uid = |api: &FakeApi| api.get(NODE).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    // The store writes sooner than this.
    std::thread::sleep(Duration::from_secs(3));
    joined.wait_until_stored(&[&uid(&joined.api)]);
    assert!(!joined.journal().contains(&uid(&other)));
    joined.node.kill_agent();
    fs::remove_dir_all(joined.node.folder().join("pods/coracle/offline")).unwrap();
    start(&mut joined);
    joined.wait_for_running(0);
}

#[test]
fn idle_node_writes_nothing_and_a_change_writes_little() {
    let mut joined = Joined::with_key();
    prepare(&joined);
    joined.start(SHORT, &[]);
    joined.api.create(&rich());
    joined.wait_until_web_is_ready();
    // The store writes statuses within ten seconds.
    joined.wait_until_stored(&["token/default/", "\"type\":\"Ready\""]);
    joined.end_agent();
    joined.start(SHORT, &[]);
    let renewals = joined.api.count("patch", LEASE);
    joined.api.wait_for_requests("patch", LEASE, renewals + 4);
    // The store writes statuses within ten seconds; nothing may be written.
    std::thread::sleep(Duration::from_secs(11));
    assert_eq!(joined.stored()["writtenBytes"], 0, "a start, and a rest");
    let changes = 10;
    for value in 0..changes {
        let value = format!("{value}");
        let object = json!({"metadata": {"annotations": {"example.com/n": value.clone()}}});
        joined.api.patch(WEB, &object);
        joined.wait_until_stored(&[&format!("\"example.com/n\":\"{value}\"")]);
    }
    let written = joined.stored()["writtenBytes"].as_u64().unwrap();
    println!("{} bytes for each of {changes} changes of a pod", written / changes);
    assert!(written > 0 && written / changes <= 64 << 10, "{written}");
}

/// More pods than the status manager reports at once. Every report fails during the outage.
#[test]
fn six_pods_run_after_an_offline_reboot_and_are_reported_later() {
    let names: Vec<String> = (0..6).map(|number| format!("web-{number}")).collect();
    let path = |name: &str| format!("/api/v1/namespaces/default/pods/{name}");
    let mut joined = Joined::new();
    prepare(&joined);
    joined.start(SHORT, &[]);
    for name in &names {
        let mut pod = rich();
        pod["metadata"]["name"] = json!(name);
        joined.api.create(&pod);
    }
    for name in &names {
        joined.api.wait(&path(name), "the pod to be ready", is_ready);
    }
    let stored: Vec<String> = names.iter().map(|name| format!("pod/default/{name}/")).collect();
    joined.wait_until_stored(&stored.iter().map(String::as_str).chain(["token/default/"]).collect::<Vec<_>>());
    joined.api.set_network(Network::Refused);
    joined.reboot();
    joined.start(SHORT, &[]);
    joined.wait_for_running(names.len());
    joined.api.set_network(Network::Open);
    for name in &names {
        let told = |pod: &Value| is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1;
        joined.api.wait(&path(name), "the restart to be told", told);
    }
}
