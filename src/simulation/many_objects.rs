//! The object watcher with more objects than it may watch: every one is read, and none keeps another pod waiting.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::api_server::{ApiServer, NODE};
use super::plan::Plan;
use super::record::{Lines, Record};
use super::watches::kubeconfig;
use crate::control::cluster::ObjectWatcher;
use crate::kubelet::offline::{KeyPlaces, OfflineStore};
use crate::platform::apiserver::{Client, Gate, Opening, Rank};
use crate::platform::config::FeatureGates;
use crate::platform::net::{Dialer, ProxySettings};
use crate::platform::rt::{self, World};
use crate::state::objects::{ObjectEvent, ObjectKey, ObjectKind, Objects, TokenKey, Topic};
use crate::state::pods::SyncEvent;
use crate::types::api::{Pod, PodUid, decode};
use crate::types::sorted::SortedMap;

/// ConfigMaps of the greedy pod.
const GREEDY_CONFIG_MAPS: usize = 300;

struct Watched {
    api: Rc<ApiServer>,
    watcher: ObjectWatcher,
    client: Client,
    inbox: async_channel::Receiver<SyncEvent>,
}

impl Watched {
    async fn begin(world: &Rc<World>, folder: &Path) -> Self {
        Self::begin_with(world, folder, &greedy()).await
    }

    /// The pod `greedy` refers to these ConfigMaps.
    async fn begin_with(world: &Rc<World>, folder: &Path, greedy: &[String]) -> Self {
        let plan = Plan { seed: 1, lease: Duration::from_secs(40), episodes: Vec::new() };
        let api = ApiServer::new(world, &Record::new(world, Lines::default()), &plan);
        api.start();
        api.change(|server| {
            server.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "default", "namespace": "default"}}));
            server.create(&pod("greedy", greedy));
            server.create(&pod("honest", &honest()));
        });
        let gate = Gate::new(Opening::Open(Rank::Event), None);
        let dialer = Dialer::of_server(ProxySettings::default());
        let client = Client::behind(gate, folder.join("kubeconfig"), dialer);
        let keys = KeyPlaces { credentials: None, file: None, plain: true };
        let store = OfflineStore::open(folder.join("store"), keys).await;
        let (sender, inbox) = async_channel::bounded(64);
        let watcher = ObjectWatcher::new(client.clone(), store, sender, FeatureGates::default());
        Self { api, watcher, client, inbox }
    }

    fn follow(&mut self, pods: &[(&str, Vec<String>)]) -> usize {
        let topics = pods
            .iter()
            .flat_map(|(pod, names)| names.iter().map(|name| (Arc::new(config_map(name)), PodUid::from(*pod))));
        self.watcher.follow(topics.collect()).len()
    }

    /// Follows all topics of these pods, of which some are shared.
    fn follow_pods(&mut self, objects: &mut Objects, pods: &[Arc<Pod>]) {
        for topic in objects.set_pods(pods).outdated {
            self.watcher.release(&topic);
        }
        self.watcher.follow(objects.pod_topics().iter().map(|(topic, pod)| (Arc::clone(topic), pod)).collect());
    }

    /// The topics of which an event arrives within `limit`, or until `wanted` have arrived.
    async fn heard(&self, wanted: usize, limit: Duration) -> BTreeSet<Topic> {
        let (end, mut heard) = (rt::now() + limit, BTreeSet::new());
        while heard.len() < wanted {
            let left = end.saturating_duration_since(rt::now());
            match rt::deadline(left, self.inbox.recv()).await {
                Ok(Ok(SyncEvent::Object(ObjectEvent::Received(topic, _)))) => drop(heard.insert(topic)),
                // The server refuses tokens for audiences that no volume of the pod names, and has no claim.
                Ok(Ok(SyncEvent::Object(ObjectEvent::Failed(topic @ (Topic::Token(_) | Topic::Claim { .. }), _)))) => {
                    heard.insert(topic);
                }
                Ok(event) => panic!("{:?}", event.is_ok()),
                Err(rt::Elapsed) => break,
            }
        }
        heard
    }

    fn create(&self, names: &[String]) {
        for name in names {
            self.api.change(|server| {
                server.create(&json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "namespace": "default"}}))
            });
        }
    }
}

/// Every pod with a token has it.
const SHARED: &str = "kube-root-ca.crt";

fn pod(name: &str, config_maps: &[String]) -> Value {
    let reference = |name: &String| json!({"configMapRef": {"name": name, "optional": true}});
    let references: Vec<Value> = config_maps.iter().map(reference).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i", "envFrom": references}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}]}})
}

fn honest() -> Vec<String> {
    vec!["honest".to_owned(), SHARED.to_owned()]
}

/// As many objects as a pod may watch, and as many more as are read without being late.
const READ_IN_TIME: usize = 64 + 8;

fn greedy() -> Vec<String> {
    names(GREEDY_CONFIG_MAPS)
}

fn names(number: usize) -> Vec<String> {
    (0..number).map(|number| format!("greedy-{number}")).collect()
}

fn config_map(name: &str) -> Topic {
    Topic::Object(ObjectKey { kind: ObjectKind::ConfigMap, namespace: "default".into(), name: name.into() })
}

fn simulate<T: Send + 'static, F: Future<Output = T> + 'static>(
    name: &str,
    make: impl FnOnce(Rc<World>, PathBuf) -> F + Send,
) -> T {
    let folder = std::env::temp_dir().join(format!("coracle-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::rename(kubeconfig(&format!("{name}-kubeconfig")), folder.join("kubeconfig")).unwrap();
    let inside = folder.clone();
    let ended = rt::simulate(1, move |world| make(world, inside));
    std::fs::remove_dir_all(&folder).unwrap();
    ended.unwrap()
}

#[test]
fn objects_beyond_the_watches_of_a_pod_are_read_again_within_their_lifetime() {
    simulate("many-objects", |world, folder| async move {
        let mut watched = Watched::begin(&world, &folder).await;
        let honest = vec!["honest".to_owned()];
        watched.follow(&[("many", names(READ_IN_TIME)), ("honest", honest.clone())]);
        let begun = rt::now();
        assert_eq!(watched.heard(READ_IN_TIME + 1, Duration::from_secs(60)).await.len(), READ_IN_TIME + 1);
        assert!(rt::elapsed(begun) < Duration::from_secs(10), "{:?}", rt::elapsed(begun));
        // What does not change is no news.
        assert_eq!(watched.heard(1, Duration::from_secs(150)).await.len(), 0);
        watched.create(&honest);
        assert_eq!(watched.heard(1, Duration::from_secs(1)).await, BTreeSet::from([config_map("honest")]));
        watched.create(&names(READ_IN_TIME));
        assert_eq!(watched.heard(READ_IN_TIME, Duration::from_secs(80)).await.len(), READ_IN_TIME);
        assert_eq!(watched.client.traffic().connections(), 1);
    });
}

#[test]
fn hundreds_of_objects_of_a_pod_share_the_reads_of_eight() {
    simulate("shared-reads", |world, folder| async move {
        let mut watched = Watched::begin(&world, &folder).await;
        watched.follow(&[("greedy", greedy())]);
        assert_eq!(watched.heard(GREEDY_CONFIG_MAPS, Duration::from_secs(60)).await.len(), GREEDY_CONFIG_MAPS);
        watched.create(&greedy());
        // Those with a watch are heard at once. The other 236 are read once in 36 minutes at the latest.
        assert_eq!(watched.heard(GREEDY_CONFIG_MAPS, Duration::from_secs(60)).await.len(), 64);
        assert_eq!(
            watched.heard(GREEDY_CONFIG_MAPS - 64, Duration::from_secs(36 * 60)).await.len(),
            GREEDY_CONFIG_MAPS - 64
        );
    });
}

#[test]
fn objects_of_a_pod_without_a_watch_are_read_together() {
    simulate("batched-objects", |world, folder| async move {
        let mut watched = Watched::begin(&world, &folder).await;
        watched.follow(&[("greedy", greedy())]);
        assert_eq!(watched.heard(GREEDY_CONFIG_MAPS, Duration::from_secs(60)).await.len(), GREEDY_CONFIG_MAPS);
        let timers = || -> u64 {
            let wakes = world.wakes_by.borrow();
            wakes.iter().filter(|((file, _), _)| file.ends_with("topic_requests.rs")).map(|(_, wakes)| *wakes).sum()
        };
        let before = timers();
        assert_eq!(watched.heard(1, Duration::from_secs(600)).await.len(), 0);
        // In ten minutes, eight requests a minute.
        let woken = timers() - before;
        assert!(woken < 150, "woken {woken} times");
    });
}

#[test]
fn released_topic_is_requested_no_longer() {
    simulate("released-objects", |world, folder| async move {
        let mut watched = Watched::begin(&world, &folder).await;
        watched.follow(&[("greedy", greedy())]);
        // Some requests are under way, and some are waiting.
        watched.heard(100, Duration::from_secs(10)).await;
        assert_eq!(watched.follow(&[("honest", vec!["honest".to_owned()])]), GREEDY_CONFIG_MAPS);
        watched.heard(GREEDY_CONFIG_MAPS, Duration::from_millis(100)).await;
        watched.create(&greedy());
        watched.create(&["honest".to_owned()]);
        let heard = watched.heard(GREEDY_CONFIG_MAPS, Duration::from_secs(200)).await;
        assert_eq!(heard, BTreeSet::from([config_map("honest")]));
    });
}

#[test]
fn tokens_of_one_pod_do_not_hold_up_those_of_another() {
    simulate("many-tokens", |world, folder| async move {
        let mut watched = Watched::begin(&world, &folder).await;
        let token = |pod: &str, audience: usize| TokenKey {
            pod: pod.into(),
            pod_name: pod.into(),
            namespace: "default".into(),
            service_account: "default".into(),
            audience: format!("a-{audience}"),
            seconds: 3607,
        };
        let greedy = (0..2000).map(|audience| token("greedy", audience));
        let topic = |key: TokenKey| {
            let pod = key.pod.clone();
            (Arc::new(Topic::Token(key)), pod)
        };
        let topics: SortedMap<_, _> = greedy.chain([token("honest", 0)]).map(topic).collect();
        watched.watcher.follow(topics);
        let honest = Topic::Token(token("honest", 0));
        let mut heard = BTreeSet::new();
        while !heard.contains(&honest) && heard.len() < 2000 {
            heard.extend(watched.heard(1, Duration::from_secs(60)).await);
        }
        assert!(heard.len() < 50, "after {} tokens of the other pod", heard.len());
    });
}

#[test]
fn pod_with_thousands_of_objects_does_not_delay_topics_that_it_shares() {
    simulate("shared-topics", |world, folder| async move {
        let greedy = [names(5000), vec![SHARED.to_owned()]].concat();
        let mut watched = Watched::begin_with(&world, &folder, &greedy).await;
        let pods = [pod("greedy", &greedy), pod("honest", &honest())];
        let pods = pods.map(|pod| Arc::new(decode::<Pod>(pod).unwrap().value));
        let mut objects = Objects::default();
        watched.follow_pods(&mut objects, &pods[..1]);
        let mut heard = watched.heard(usize::MAX, Duration::from_secs(2)).await;
        watched.follow_pods(&mut objects, &pods);
        heard.extend(watched.heard(usize::MAX, Duration::from_secs(1)).await);
        let late: Vec<Topic> = Topic::of(&pods[1]).iter().filter(|topic| !heard.contains(topic)).cloned().collect();
        assert!(late.is_empty(), "{late:?}");
        // The pod's watch reports changes at once.
        watched.create(&[SHARED.to_owned()]);
        assert!(watched.heard(usize::MAX, Duration::from_secs(1)).await.contains(&config_map(SHARED)));
    });
}

#[test]
fn claim_is_looked_up_again_for_the_pod_that_replaces_its_last_user() {
    simulate("replaced-pod", |world, folder| async move {
        let mut watched = Watched::begin(&world, &folder).await;
        watched.api.change(|server| {
            let metadata = json!({"name": "shared", "namespace": "default"});
            let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeName": "disk"});
            let claim = server.create(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": metadata, "spec": spec}));
            let uid = &claim["metadata"]["uid"];
            let reference =
                json!({"kind": "PersistentVolumeClaim", "namespace": "default", "name": "shared", "uid": uid});
            server.create(&json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
                "spec": {"accessModes": ["ReadWriteOnce"], "claimRef": reference, "hostPath": {"path": "/disk"}}}));
            let path = "/api/v1/namespaces/default/persistentvolumeclaims/shared/status";
            server.patch(path, &json!({"status": {"phase": "Bound"}}));
        });
        let pods = [pod("greedy", &honest()), pod("honest", &honest())];
        let pods = pods.map(|pod| Arc::new(decode::<Pod>(pod).unwrap().value));
        let claim = Topic::claim(&pods[0], &pods[0].spec.volumes[0]).unwrap();
        let mut objects = Objects::default();
        let mut is_heard_for = async |pods: &[Arc<Pod>]| {
            watched.follow_pods(&mut objects, pods);
            watched.heard(usize::MAX, Duration::from_secs(5)).await.contains(&claim)
        };
        assert!(is_heard_for(&pods[..1]).await);
        assert!(!is_heard_for(&pods).await, "it was looked up again although a user stayed");
        assert!(!is_heard_for(&pods[1..]).await, "it was looked up again although a user stayed");
        assert!(is_heard_for(&pods[..1]).await);
    });
}
