//! A reflector delivers every change, even if its gate is shut and opened again at any moment.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::api_server::{ADDRESS, ApiServer, NODE};
use super::plan::Plan;
use super::record::{Lines, Record};
use super::wanted::{Pod, Source as Origin, Traits};
use crate::platform::apiserver::{
    ApiError, Change, Client, Collection, Gate, Opening, Rank, Request, Requester, reflect,
};
use crate::platform::net::{Dialer, ProxySettings};
use crate::platform::rt::{self, World};
use crate::types::api::ObjectText;

/// The label `number` of each pod.
type Numbers = BTreeMap<String, String>;

fn number(pod: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&pod["metadata"]["name"]), text(&pod["metadata"]["labels"]["number"]))
}

fn sent(pod: &ObjectText) -> (String, String) {
    number(&pod.value().unwrap())
}

fn take(numbers: &mut Numbers, change: Change) {
    match change {
        Change::Replaced(pods) => *numbers = pods.iter().map(sent).collect(),
        Change::Applied(pod) => numbers.extend([sent(&pod)]),
        Change::Deleted(pod) => drop(numbers.remove(&sent(&pod).0)),
        Change::Away(_) => {}
    }
}

/// Writes a kubeconfig for the simulated API server.
pub(super) fn kubeconfig(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("coracle-{name}-{}", std::process::id()));
    let content = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{ADDRESS}")}}],
        "users": [{"name": "u", "user": {"token": "known"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    });
    std::fs::write(&path, content.to_string()).unwrap();
    path
}

#[test]
fn no_change_is_lost_when_the_gate_is_shut() {
    let kubeconfig = kubeconfig("watches");
    for seed in 0..20 {
        let path = kubeconfig.clone();
        let ended = rt::simulate(seed, move |world| async move {
            let api = api_server(&world, seed);
            api.start();
            let pods =
                ["a", "b", "c"].map(|name| Pod { name: name.into(), source: Origin::Api, traits: Traits::default() });
            api.change(|server| {
                server.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
                    "metadata": {"name": "default", "namespace": "default"}}));
                for pod in &pods {
                    server.create(&pod.object("1"));
                }
            });
            let gate = Gate::new(Opening::Open(Rank::Event), None);
            let client = Client::behind(Rc::clone(&gate), path, Dialer::of_server(ProxySettings::default()));
            let collection = Collection {
                path: "/api/v1/pods".into(),
                field_selector: format!("spec.nodeName={NODE}"),
                bookmarks: true,
                rereads_after_loss: false,
                rank: Rank::Intent,
                requester: Requester::Node,
            };
            // The listener is slow, and the channel has room for one change.
            let (sender, changes) = async_channel::bounded(1);
            let _reflector = rt::spawn(reflect(client, collection, sender));
            let heard: Rc<RefCell<Numbers>> = Rc::default();
            let (listener, slow) = (Rc::clone(&heard), Rc::clone(&world));
            let _listener = rt::spawn(async move {
                while let Ok(change) = changes.recv().await {
                    take(&mut listener.borrow_mut(), change);
                    rt::sleep(slow.duration_below(Duration::from_millis(200))).await;
                }
            });
            for round in 0..30 {
                rt::sleep(world.duration_below(Duration::from_secs(3))).await;
                for pod in &pods {
                    let patch = json!({"metadata": {"labels": {"number": round.to_string()}}});
                    api.change(|server| server.patch(&pod.path(), &patch));
                }
                rt::sleep(world.duration_below(Duration::from_millis(300))).await;
                gate.set(Opening::Shut);
                rt::sleep(world.duration_below(Duration::from_millis(100))).await;
                gate.set(Opening::Open(Rank::Event));
            }
            rt::sleep(Duration::from_secs(60)).await;
            let truth: Numbers = api.look(|server| server.list("/api/v1/pods")).iter().map(number).collect();
            let heard = heard.borrow().clone();
            (truth, heard)
        });
        let (truth, heard) = ended.unwrap();
        assert_eq!(heard, truth, "seed {seed}");
    }
    std::fs::remove_file(kubeconfig).unwrap();
}

pub(super) fn api_server(world: &Rc<World>, seed: u64) -> Rc<ApiServer> {
    let plan = Plan { seed, lease: Duration::from_secs(40), episodes: Vec::new() };
    ApiServer::new(world, &Record::new(world, Lines::default()), &plan)
}

const OBJECTS: usize = 300;

/// Three hundred objects of a pod, and a client that watches them.
struct ManyWatches {
    api: Rc<ApiServer>,
    client: Client,
    changes: async_channel::Receiver<Change>,
    _reflectors: Vec<rt::Task<()>>,
}

impl ManyWatches {
    async fn begin(world: &Rc<World>, kubeconfig: PathBuf) -> Self {
        let api = api_server(world, 1);
        api.start();
        let references: Vec<Value> =
            (0..OBJECTS).map(|n| json!({"configMapRef": {"name": format!("c-{n}")}})).collect();
        api.change(|server| {
            server.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": "default"}}));
            server
                .create(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
                "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i", "envFrom": references}]}}));
        });
        let gate = Gate::new(Opening::Open(Rank::Event), None);
        let client = Client::behind(gate, kubeconfig, Dialer::of_server(ProxySettings::default()));
        let (sender, changes) = async_channel::unbounded();
        let watch = |number| {
            let collection = Collection {
                path: "/api/v1/namespaces/default/configmaps".into(),
                field_selector: format!("metadata.name=c-{number}"),
                bookmarks: false,
                rereads_after_loss: false,
                rank: Rank::Intent,
                requester: Requester::Tenant,
            };
            rt::spawn(reflect(client.clone(), collection, sender.clone()))
        };
        let watches = Self { _reflectors: (0..OBJECTS).map(watch).collect(), api, client, changes };
        for _ in 0..OBJECTS {
            let change = rt::deadline(Duration::from_secs(10), watches.changes.recv()).await;
            assert_eq!(change.expect("all watches begin").unwrap(), Change::Replaced(Vec::new()));
        }
        watches
    }

    fn create_all(&self) {
        for number in 0..OBJECTS {
            self.api.change(|server| {
                server.create(&json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("c-{number}"), "namespace": "default"}}))
            });
        }
    }

    /// The changes that arrive within `limit`.
    async fn applied(&self, limit: Duration) -> usize {
        let (end, mut applied) = (rt::now() + limit, 0);
        while let Ok(change) = rt::deadline(end.saturating_duration_since(rt::now()), self.changes.recv()).await {
            applied += usize::from(matches!(change, Ok(Change::Applied(_))));
        }
        applied
    }

    async fn ask_for_lease(&self) -> ApiError {
        ask_for_lease(&self.client).await
    }
}

/// There is none.
pub(super) async fn ask_for_lease(client: &Client) -> ApiError {
    let lease = Request::get(format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"));
    client.send(&lease.ranked(Rank::Lease)).await.unwrap_err()
}

/// A server with `--goaway-chance` has its clients connect again and again.
#[test]
fn connection_that_replaces_another_ends_no_absence() {
    let kubeconfig = kubeconfig("goaway");
    let path = kubeconfig.clone();
    let ended = rt::simulate(1, move |world| async move {
        let api = api_server(&world, 1);
        api.start();
        let gate = Gate::new(Opening::Open(Rank::Event), None);
        let client = Client::behind(Rc::clone(&gate), path, Dialer::of_server(ProxySettings::default()));
        let ask = async || assert_eq!(ask_for_lease(&client).await.code(), Some(404));
        ask().await;
        api.stop();
        rt::sleep(Duration::from_secs(60)).await;
        api.start();
        ask().await;
        let mut admitted = vec![gate.admits(Rank::Event)];
        for _ in 0..2 {
            // An hour, in which the first connection ends.
            for _ in 0..120 {
                ask().await;
                rt::sleep(Duration::from_secs(30)).await;
            }
            let connections = client.traffic().connections();
            api.goaway.set(1000);
            ask().await;
            api.goaway.set(0);
            ask().await;
            assert_eq!(client.traffic().connections(), connections + 1);
            admitted.push(gate.admits(Rank::Event));
        }
        admitted
    });
    assert_eq!(ended, Ok(vec![false, true, true]));
    std::fs::remove_file(kubeconfig).unwrap();
}

/// Each watch occupies one of the hundred streams that the server accepts on a connection.
#[test]
fn hundreds_of_watches_leave_streams_to_the_node() {
    let kubeconfig = kubeconfig("many-watches");
    let path = kubeconfig.clone();
    let ended = rt::simulate(1, move |world| async move {
        let watches = ManyWatches::begin(&world, path).await;
        let begun = rt::now();
        assert_eq!(watches.ask_for_lease().await.code(), Some(404));
        let took = rt::elapsed(begun);
        watches.create_all();
        (took, watches.applied(Duration::from_secs(10)).await, watches.client.traffic().connections())
    });
    std::fs::remove_file(kubeconfig).unwrap();
    let (took, applied, connections) = ended.unwrap();
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!((applied, connections), (OBJECTS, 4));
}

/// The first connection is found dead by the node's requests, the further ones by their PINGs.
#[test]
fn watches_of_a_dead_connection_resume_on_another() {
    let kubeconfig = kubeconfig("dead-watches");
    let path = kubeconfig.clone();
    let ended = rt::simulate(1, move |world| async move {
        let watches = ManyWatches::begin(&world, path).await;
        watches.api.set_line(rt::Line::BlackHole);
        watches.create_all();
        watches.ask_for_lease().await;
        rt::sleep(Duration::from_secs(60)).await;
        watches.api.set_line(rt::Line::Up);
        watches.applied(Duration::from_secs(30)).await
    });
    std::fs::remove_file(kubeconfig).unwrap();
    assert_eq!(ended.unwrap(), OBJECTS);
}
