use super::*;
use crate::kubelet::offline::KeyPlaces;
use crate::platform::rt::TestFolder;
use crate::protocol::http1::Request;

const PROXY: &str = "system:serviceaccount:kube-system:kube-proxy";
const LIST: &str = r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}"#;

fn identity(cache: &ApiCache, subject: &str, signature: &str) -> Option<Identity> {
    cache.identity(&testing::token("https://k", subject, signature))
}

fn request(target: &str) -> ReadRequest {
    let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\nAccept: application/json\r\n\r\n");
    ReadRequest::of(&Request::take(text.as_bytes()).unwrap().unwrap().0).unwrap()
}

async fn opened(folder: &TestFolder) -> ApiCache {
    let keys = KeyPlaces { credentials: None, file: Some(folder.0.join("key")), plain: false };
    let store = OfflineStore::open(folder.0.join("store"), keys).await;
    ApiCache::new(store, &["kube-system/kube-proxy".to_owned()], &[])
}

async fn recorded(cache: &ApiCache, identity: &Identity, target: &str, body: &[u8]) {
    cache.accepted(identity, &["ca".to_owned()]);
    let head = ResponseHead { status: 200, content_type: Some("application/json"), content_encoding: None };
    let mut recorder = cache.record(identity, &request(target), head).unwrap();
    recorder.data(body).await;
    recorder.end().await;
}

async fn body(cache: &ApiCache, identity: &Identity, target: &str) -> Option<String> {
    let found = cache.find(identity, &request(target))?;
    let (answer, _) = cache.answer(&found, None, AnswerForm::Body).await?;
    Some(String::from_utf8(answer.bytes).unwrap())
}

#[test]
fn reads_and_accepted_tokens_outlast_a_restart_sealed() {
    rt::block_on(async {
        let folder = TestFolder::new("api-cache-restart");
        let cache = opened(&folder).await;
        let proxy = identity(&cache, PROXY, "real").unwrap();
        recorded(&cache, &proxy, "/api/v1/services", LIST.as_bytes()).await;
        cache.flush().await;
        drop(cache);
        let journal = std::fs::read_to_string(folder.0.join("store/journal")).unwrap();
        assert!(journal.contains("read/kube-system%2Fkube-proxy/") && !journal.contains("application/json"));
        let cache = opened(&folder).await;
        assert_eq!(body(&cache, &proxy, "/api/v1/services?limit=500").await.as_deref(), Some(LIST));
        assert_eq!(body(&cache, &proxy, "/api/v1/endpoints").await, None);
        let forged = identity(&cache, PROXY, "forged").unwrap();
        assert!(cache.is_accepted(&proxy) && !cache.is_accepted(&forged));
        assert_eq!(identity(&cache, "system:serviceaccount:kube-system:other", "real"), None);
    });
}

#[test]
fn watch_continues_only_what_it_has_a_list_of() {
    rt::block_on(async {
        let folder = TestFolder::new("api-cache-watch");
        let cache = opened(&folder).await;
        let proxy = identity(&cache, PROXY, "real").unwrap();
        let head = ResponseHead { status: 200, content_type: Some("application/json"), content_encoding: None };
        let watch = |version: u64| request(&format!("/api/v1/services?watch=1&resourceVersion={version}"));
        assert!(cache.record(&proxy, &watch(5), head).is_none());
        recorded(&cache, &proxy, "/api/v1/services", LIST.as_bytes()).await;
        // A later list has events that this one lacks.
        assert!(cache.record(&proxy, &watch(6), head).is_none() && cache.record(&proxy, &watch(0), head).is_none());
        let mut recorder = cache.record(&proxy, &watch(5), head).unwrap();
        let line = r#"{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"6"}}}"#;
        recorder.data(line.as_bytes()).await;
        assert!(!body(&cache, &proxy, "/api/v1/services").await.unwrap().contains("\"a\""));
        recorder.data(b"\n").await;
        let now = body(&cache, &proxy, "/api/v1/services").await.unwrap();
        assert!(now.contains("\"a\"") && now.contains(r#""resourceVersion":"6"},"items""#), "{now}");
        // The watch of a replaced list does not change the new one.
        recorded(&cache, &proxy, "/api/v1/services", LIST.as_bytes()).await;
        recorder.data(format!("{}\n", line.replace("\"6\"", "\"9\"")).as_bytes()).await;
        assert_eq!(body(&cache, &proxy, "/api/v1/services").await.as_deref(), Some(LIST));
    });
}

#[test]
fn object_is_as_the_newer_list_of_its_account_has_it() {
    rt::block_on(async {
        let folder = TestFolder::new("api-cache-object");
        let cache = opened(&folder).await;
        let proxy = identity(&cache, PROXY, "real").unwrap();
        let node = |version: u64, color: &str| {
            let metadata =
                json!({"name": "n", "resourceVersion": version.to_string(), "annotations": {"color": color}});
            json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata})
        };
        let list = |name: &str| {
            let item = json!({"metadata": {"name": name, "resourceVersion": "6"}});
            let metadata = json!({"resourceVersion": "7"});
            json!({"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": [item]}).to_string()
        };
        let path = "/api/v1/nodes/n";
        recorded(&cache, &proxy, path, node(5, "red").to_string().as_bytes()).await;
        recorded(&cache, &proxy, "/api/v1/nodes", list("other").as_bytes()).await;
        assert_eq!(body(&cache, &proxy, path).await, Some(node(5, "red").to_string()));
        recorded(&cache, &proxy, "/api/v1/nodes", list("n").as_bytes()).await;
        let listed = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "resourceVersion": "6"}});
        assert_eq!(body(&cache, &proxy, path).await, Some(listed.to_string()));
        let head = ResponseHead { status: 200, content_type: Some("application/json"), content_encoding: None };
        let watch = request("/api/v1/nodes?watch=1&resourceVersion=7");
        let mut recorder = cache.record(&proxy, &watch, head).unwrap();
        recorder.data(format!("{}\n", json!({"type": "MODIFIED", "object": node(8, "green")})).as_bytes()).await;
        assert_eq!(body(&cache, &proxy, path).await, Some(node(8, "green").to_string()));
        // Read again later.
        recorded(&cache, &proxy, path, node(9, "blue").to_string().as_bytes()).await;
        assert_eq!(body(&cache, &proxy, path).await, Some(node(9, "blue").to_string()));
    });
}

#[test]
fn refused_reads_and_reads_of_another_cluster_are_forgotten() {
    rt::block_on(async {
        let folder = TestFolder::new("api-cache-forgotten");
        let cache = opened(&folder).await;
        let proxy = identity(&cache, PROXY, "real").unwrap();
        recorded(&cache, &proxy, "/api/v1/services", LIST.as_bytes()).await;
        recorded(&cache, &proxy, "/api/v1/nodes", LIST.as_bytes()).await;
        cache.forget(&proxy, &request("/api/v1/nodes?watch=true"));
        assert!(cache.find(&proxy, &request("/api/v1/nodes")).is_none());
        assert!(cache.find(&proxy, &request("/api/v1/services")).is_some());
        let next = identity(&cache, PROXY, "next").unwrap();
        cache.accepted(&next, &["other ca".to_owned()]);
        assert!(cache.find(&next, &request("/api/v1/services")).is_none() && !cache.is_accepted(&proxy));
        assert!(cache.is_accepted(&next));
        cache.rejected(&next);
        assert!(!cache.is_accepted(&next));
    });
}

#[test]
fn large_response_is_not_remembered_and_leaves_room_to_others() {
    rt::block_on(async {
        let folder = TestFolder::new("api-cache-large");
        let cache = opened(&folder).await;
        let proxy = identity(&cache, PROXY, "real").unwrap();
        recorded(&cache, &proxy, "/api/v1/services", &vec![b' '; MAX_BODY_BYTES + 1]).await;
        assert_eq!((body(&cache, &proxy, "/api/v1/services").await, cache.inner.recorded.get()), (None, 0));
        recorded(&cache, &proxy, "/api/v1/services", LIST.as_bytes()).await;
        assert_eq!((cache.inner.recorded.get(), cache.inner.entries.borrow().all.len()), (0, 1));
    });
}

#[test]
fn correction_is_neither_remembered_nor_stored() {
    rt::block_on(async {
        let folder = TestFolder::new("api-cache-corrected");
        let cache = opened(&folder).await;
        let proxy = identity(&cache, PROXY, "real").unwrap();
        let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "resourceVersion": "5"},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        let (path, node) = ("/api/v1/nodes/n", node.to_string());
        recorded(&cache, &proxy, path, node.as_bytes()).await;
        cache.flush().await;
        let journal = || std::fs::read(folder.0.join("store/journal")).unwrap();
        let before = journal();
        let own = OwnNode { name: "n".to_owned(), ready: ["True", "", ""].map(str::to_owned), ..OwnNode::default() };
        let found = cache.find(&proxy, &request(path)).unwrap();
        let (answer, _) = cache.answer(&found, Some(own), AnswerForm::Body).await.unwrap();
        assert!(answer.version.is_some() && String::from_utf8(answer.bytes).unwrap().contains("True"));
        cache.flush().await;
        assert_eq!((body(&cache, &proxy, path).await, journal()), (Some(node), before));
    });
}
