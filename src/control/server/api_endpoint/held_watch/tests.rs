use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Value, json};

use super::*;
use crate::control::server::api_endpoint::OwnNodeSource;
use crate::control::server::api_endpoint::tests::endpoint_without_server;
use crate::kubelet::api_cache::{ApiCache, Identity, OwnPod, OwnPodState, ResponseHead, testing};
use crate::kubelet::offline::{KeyPlaces, OfflineStore};
use crate::platform::rt::{Stuck, TestFolder, simulate};
use crate::protocol::http1::Request;

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
/// Of the server's list.
const SERVER_VERSION: &str = "5";

struct Pods(RefCell<OwnNode>);

impl OwnNodeSource for Pods {
    fn own_node(&self) -> OwnNode {
        self.0.borrow().clone()
    }
}

/// The node with its one pod at this address.
fn own(address: &str) -> OwnNode {
    let state = OwnPodState { addresses: vec![address.to_owned()], is_ready: true, is_terminating: false };
    let pods = vec![OwnPod { name: "ns/a".to_owned(), state: Some(state) }];
    OwnNode { name: "n".to_owned(), is_complete: true, pods, ..OwnNode::default() }
}

fn request(target: &str) -> ReadRequest {
    let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\n\r\n");
    ReadRequest::of(&Request::take(text.as_bytes()).unwrap().unwrap().0).unwrap()
}

fn watch_from(version: &str) -> ReadRequest {
    request(&format!("{SLICES}?watch=true&resourceVersion={version}"))
}

struct Life {
    endpoint: ApiEndpoint,
    pods: Rc<Pods>,
    remembered: Remembered,
}

impl Life {
    /// An endpoint without the server, which remembers a slice with the pod at 10.0.0.1.
    async fn new(folder: &TestFolder) -> Self {
        let keys = KeyPlaces { credentials: None, file: None, plain: false };
        let store = OfflineStore::open(folder.0.join("store"), keys).await;
        let cache = ApiCache::new(store, &["ns/proxy".to_owned()], &[]);
        let identity = cache.identity(&testing::token("https://k", "system:serviceaccount:ns:proxy", "s")).unwrap();
        let remembered = read(&cache, &identity).await;
        let pods = Rc::new(Pods(RefCell::new(own("10.0.0.1"))));
        let endpoint = endpoint_without_server(cache, pods.clone());
        Self { endpoint, pods, remembered }
    }

    async fn open(&self, version: &str) -> Result<HeldWatch, OwnStatus> {
        HeldWatch::open(&self.endpoint, self.remembered.clone(), &watch_from(version), None).await
    }

    async fn next(&self, watch: &mut HeldWatch) -> (String, String) {
        let events = watch.next(&self.endpoint).await.unwrap();
        let event: Value = serde_json::from_slice(&events).unwrap();
        let text = |path: &str| event.pointer(path).unwrap().as_str().unwrap().to_owned();
        (text("/object/endpoints/0/addresses/0"), text("/object/metadata/resourceVersion"))
    }

    fn pod_moves(&self, address: &str) {
        self.pods.0.replace(own(address));
        self.endpoint.status_inputs.pods_changed();
    }
}

async fn read(cache: &ApiCache, identity: &Identity) -> Remembered {
    let slice = json!({
        "metadata": {"name": "s", "namespace": "ns", "resourceVersion": "4"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "nodeName": "n",
            "targetRef": {"kind": "Pod", "namespace": "ns", "name": "a"}}],
    });
    let list = json!({"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "items": [slice],
        "metadata": {"resourceVersion": SERVER_VERSION}});
    let head = ResponseHead { status: 200, content_type: Some("application/json"), content_encoding: None };
    let mut recorder = cache.record(identity, &request(SLICES), head).unwrap();
    recorder.data(list.to_string().as_bytes()).await;
    recorder.end().await;
    cache.find(identity, &request(SLICES)).unwrap()
}

#[test]
fn watch_gets_each_change_once_and_waits_without_timers() {
    let end = simulate(1, |_| async {
        let folder = TestFolder::new("held-watch-rest");
        let life = Life::new(&folder).await;
        let mut watch = life.open(SERVER_VERSION).await.unwrap();
        let changes = async {
            rt::sleep(Duration::from_secs(60)).await;
            life.pod_moves("10.0.0.2");
            // The same address again within the delay.
            life.pod_moves("10.0.0.3");
            rt::sleep(Duration::from_secs(60)).await;
            life.pod_moves("10.0.0.3");
            std::future::pending().await
        };
        let watched = async {
            let (address, version) = life.next(&mut watch).await;
            assert_eq!(address, "10.0.0.3");
            // A client that has this version has the event.
            let mut second = life.open(&version).await.unwrap();
            let mut first = life.open(SERVER_VERSION).await.unwrap();
            assert_eq!(life.next(&mut first).await, (address, version));
            rt::either(life.next(&mut watch), life.next(&mut second)).await;
        };
        rt::either(watched, changes).await;
    });
    // The last timer is that of the second change, which was none.
    assert!(matches!(end, Err(Stuck::Waits { at }) if at.as_secs() == 120), "{end:?}");
}

#[test]
fn client_with_a_correction_lists_again_when_all_is_as_the_server_says() {
    rt::block_on(async {
        let folder = TestFolder::new("held-watch-same");
        let life = Life::new(&folder).await;
        life.pod_moves("10.0.0.2");
        let mut watch = life.open(SERVER_VERSION).await.unwrap();
        let (_, version) = life.next(&mut watch).await;
        life.pod_moves("10.0.0.1");
        assert_eq!(watch.next(&life.endpoint).await, None);
        let refused = life.open(&version).await.err();
        assert_eq!(refused, Some(OwnStatus::expired()));
        assert!(life.open(SERVER_VERSION).await.is_ok());
    });
}
