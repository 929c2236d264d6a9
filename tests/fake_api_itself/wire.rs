//! Headers, representations and sizes.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::client::Client;
use super::{FakeApi, Options, PODS, WEB, config_map, pod, start};

#[test]
fn responses_have_the_headers_of_a_real_server() {
    let api = start();
    api.create(&pod("web", None));
    let mut client = Client::admin(&api);
    let answer = client.get(WEB);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("cache-control"), "no-cache, private");
    for name in ["audit-id", "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid", "date"] {
        assert!(!answer.header(name).is_empty(), "{name}");
    }
    api.set_clock_ahead(SignedDuration::from_hours(24 * 365));
    let date = client.get(WEB).header("date").to_owned();
    let ahead = Timestamp::strptime("%a, %d %b %Y %H:%M:%S %z", date.replace("GMT", "+0000")).unwrap();
    assert!(ahead > Timestamp::now() + SignedDuration::from_hours(24 * 364), "{date}");
}

#[test]
fn client_can_request_metadata_only() {
    let api = start();
    api.create(&pod("web", None));
    let mut client = Client::admin(&api)
        .with("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
    let object = client.get(WEB).json();
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1")));
    assert_eq!((&object["metadata"]["name"], &object["spec"]), (&json!("web"), &json!(null)));
    let list = client.get(PODS).json();
    assert_eq!((&list["kind"], &list["items"][0]["kind"]), (&json!("PartialObjectMetadataList"), &object["kind"]));
    client.watch("/api/v1/pods?watch=true");
    assert_eq!(client.event().unwrap().1["kind"], "PartialObjectMetadata");
    let mut client = Client::admin(&api).with("Accept", "application/vnd.kubernetes.protobuf");
    assert_eq!(client.get(WEB).status, 406);
}

#[test]
fn large_responses_are_compressed_on_request() {
    let api = FakeApi::start(Options { gzip_above: 4000, ..Options::default() });
    api.create(&config_map("a", &"x".repeat(10_000)));
    let path = "/api/v1/namespaces/default/configmaps/a";
    let plain = Client::admin(&api).get(path);
    assert_eq!((plain.header("content-encoding"), plain.header("transfer-encoding")), ("", "chunked"));
    let compressed = Client::admin(&api).with("Accept-Encoding", "gzip").get(path);
    assert_eq!((compressed.header("content-encoding"), compressed.header("vary")), ("gzip", "Accept-Encoding"));
    assert!(compressed.body.len() < plain.body.len() / 4);
    assert_eq!(compressed.json(), plain.json());
}

#[test]
fn bytes_and_connections_are_counted() {
    let api = FakeApi::start(Options { tls: false, node_authorization: false, ..Options::default() });
    let mut client = Client::anonymous(&api);
    let answer = client.get("/api/v1/pods");
    client.get("/api/v1/pods");
    let (received, sent) = api.traffic();
    assert!(received > 2 * 80 && sent > 2 * u64::try_from(answer.body.len()).unwrap(), "{received} {sent}");
    assert_eq!(api.connections_so_far(), 1);
    let request = api.requests()[0].clone();
    assert_eq!((request.connection, request.number, request.header("user-agent")), (1, 1, "kubelet/v1.36.2"));
    let connection = api.look(|world| world.connections[0].clone());
    assert_eq!((connection.number, connection.bytes_received(), connection.bytes_sent()), (1, received, sent));
}

#[test]
fn chunked_bodies_are_accepted_and_too_large_ones_refused() {
    let api = start();
    let mut client = Client::admin(&api);
    let text = config_map("a", "1").to_string();
    let path = "/api/v1/namespaces/default/configmaps";
    let (one, two) = text.split_at(10);
    let chunked = format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len());
    let answer = client.ask_raw("POST", path, &[("Transfer-Encoding", "chunked")], chunked.as_bytes()).unwrap();
    assert_eq!(answer.status, 201);
    assert_eq!(api.requests_of("create", path)[0].json()["data"]["key"], "1");
    let large = vec![b' '; 3 * 1024 * 1024 + 1];
    let answer = client.ask("POST", path, &[], &large);
    // The server may close the connection before it has read the whole body.
    assert!(answer.map_or(true, |answer| answer.status == 413));
    let mut client = Client::admin(&api);
    client.send("POST", path, &[("Expect", "100-continue")], config_map("b", "1").to_string().as_bytes()).unwrap();
    assert_eq!((client.head().unwrap().0, client.head().unwrap().0), (100, 201));
}

#[test]
fn unknown_paths_are_not_found() {
    let api = start();
    let mut client = Client::admin(&api);
    assert_eq!(client.get("/apis/unicorns.io/v1/unicorns").body, b"404 page not found\n");
    assert_eq!(client.get("/api/v1/unicorns").message(), "the server could not find the requested resource");
    assert_eq!(client.get(&format!("{WEB}/unicorns")).status, 404);
    assert_eq!(client.ask("OPTIONS", PODS, &[], b"").unwrap().status, 405);
    assert_eq!(client.post(PODS, &json!([])).status, 400);
    assert_eq!(client.ask("POST", PODS, &[], b"{").unwrap().status, 400);
    let answer = client.post(PODS, &json!({ "apiVersion": "v2", "kind": "Pod" }));
    assert_eq!(
        answer.message(),
        "Pod in version \"v2\" cannot be handled as a Pod: no kind \"Pod\" is registered for version \"v2\" in scheme \
         \"pkg/api/legacyscheme/scheme.go:30\""
    );
    let answer = client.put(WEB, &pod("other", None));
    assert_eq!(answer.status, 404);
    api.create(&pod("web", None));
    let answer = client.put(WEB, &pod("other", None));
    assert_eq!(answer.message(), "the name of the object (other) does not match the name on the URL (web)");
}
