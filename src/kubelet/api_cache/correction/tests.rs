use serde_json::{Value, json};

use super::*;
use crate::kubelet::api_cache::frames::Frames;
use crate::kubelet::api_cache::object_set::Change;
use crate::kubelet::api_cache::own_node::{OwnPod, OwnPodState};
use crate::protocol::protobuf::{each_field, put_bytes, put_str};
use crate::types::api::NodeAddress;

const BOTH: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];

/// An endpoint of `ns/POD`: pod, node, address and readiness.
type Shown = (String, String, String, bool);

fn shown(pod: &str, node: &str, address: &str, ready: bool) -> Shown {
    (pod.to_owned(), node.to_owned(), address.to_owned(), ready)
}

fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|(number, content)| put_bytes(*number, content, &mut out));
    out
}

/// A slice with a zone in each endpoint, which nobody may change.
fn slice(encoding: Encoding, name: &str, endpoints: &[Shown]) -> Vec<u8> {
    match encoding {
        Encoding::Json => {
            let endpoint = |(pod, node, address, ready): &Shown| {
                json!({"addresses": [address], "conditions": {"ready": ready, "serving": ready, "terminating": false},
                    "nodeName": node, "zone": "z", "targetRef": {"kind": "Pod", "namespace": "ns", "name": pod}})
            };
            let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
            let metadata = json!({"name": name, "namespace": "ns", "resourceVersion": "5", "uid": "u"});
            json!({"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints}).to_string().into_bytes()
        }
        Encoding::Protobuf => {
            let metadata = message(&[(1, name.as_bytes()), (3, b"ns"), (5, b"u"), (6, b"5")]);
            let mut slice = message(&[(1, &metadata)]);
            for (pod, node, address, ready) in endpoints {
                let ready = u8::from(*ready);
                let target = message(&[(1, b"Pod"), (2, b"ns"), (3, pod.as_bytes())]);
                let conditions = [1 << 3, ready, 2 << 3, ready, 3 << 3, 0];
                let fields: [(u32, &[u8]); 5] =
                    [(1, address.as_bytes()), (2, &conditions), (4, &target), (6, node.as_bytes()), (7, b"z")];
                put_bytes(2, &message(&fields), &mut slice);
            }
            put_str(4, "IPv4", &mut slice);
            slice
        }
    }
}

fn endpoints(encoding: Encoding, slice: &[u8]) -> Vec<Shown> {
    if encoding == Encoding::Json {
        let slice: Value = serde_json::from_slice(slice).unwrap();
        let endpoint = |endpoint: &Value| {
            assert_eq!(endpoint["zone"], "z");
            let text = |path: &str| endpoint.pointer(path).unwrap().as_str().unwrap().to_owned();
            let ready = endpoint["conditions"]["ready"].as_bool().unwrap();
            (text("/targetRef/name"), text("/nodeName"), text("/addresses/0"), ready)
        };
        return slice["endpoints"].as_array().unwrap().iter().map(endpoint).collect();
    }
    let mut found = Vec::new();
    each_field(slice, &mut |number, endpoint, _| {
        let mut shown = Shown::default();
        let text = |content: &[u8]| String::from_utf8(content.to_vec()).unwrap();
        let mut zone = Vec::new();
        if number == 2 {
            let take = &mut |number, content: &[u8], _: &[u8]| match number {
                1 => shown.2 = text(content),
                2 => shown.3 = content[1] == 1,
                4 => each_field(content, &mut |number, content, _| {
                    if number == 3 {
                        shown.0 = text(content);
                    }
                })
                .unwrap(),
                6 => shown.1 = text(content),
                7 => zone = content.to_vec(),
                _ => {}
            };
            each_field(endpoint, take).unwrap();
            assert_eq!(zone, b"z");
            found.push(shown);
        }
    })
    .unwrap();
    found
}

fn set(encoding: Encoding, kind: OwnKind, objects: Vec<(&str, Vec<u8>)>) -> ObjectSet {
    let [kind, api_version] = kind.names();
    let objects = objects.into_iter().map(|(name, object)| (name.to_owned(), object)).collect();
    let set = ObjectSet { kind: [kind, "List"].concat(), api_version: api_version.to_owned(), version: 9, objects };
    // As it is read again.
    read(encoding, encoding.write(&set))
}

fn read(encoding: Encoding, body: Vec<u8>) -> ObjectSet {
    match encoding.read(body).unwrap() {
        Content::List(set) => set,
        other => panic!("{other:?}"),
    }
}

fn pod(name: &str, address: &str, is_ready: bool) -> OwnPod {
    let state = OwnPodState { addresses: vec![address.to_owned()], is_ready, is_terminating: false };
    OwnPod { name: format!("ns/{name}"), state: Some(state) }
}

fn own(pods: &[OwnPod]) -> OwnNode {
    let ready = ["True", "KubeletReady", "ok"].map(str::to_owned);
    OwnNode { name: "n".to_owned(), is_complete: true, pods: pods.to_vec(), addresses: Vec::new(), ready }
}

/// The server's slices: `mixed` has endpoints of this node and another, `other` only of another.
fn slices(encoding: Encoding) -> ObjectSet {
    let mixed =
        [shown("a", "n", "10.0.0.1", true), shown("b", "n", "10.0.0.2", true), shown("c", "m", "10.9.0.1", true)];
    let other = slice(encoding, "other", &[shown("a", "m", "10.9.0.2", false)]);
    set(encoding, OwnKind::EndpointSlice, vec![("ns/mixed", slice(encoding, "mixed", &mixed)), ("ns/other", other)])
}

fn versions(encoding: Encoding, set: &ObjectSet) -> Vec<String> {
    let version = |object: &Vec<u8>| match encoding {
        Encoding::Json => {
            let object: Value = serde_json::from_slice(object).unwrap();
            assert_eq!(object["metadata"]["uid"], "u");
            object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
        }
        Encoding::Protobuf => {
            let mut found = Vec::new();
            each_field(object, &mut |number, metadata, _| {
                if number == 1 {
                    each_field(metadata, &mut |number, content, _| {
                        if number == 6 {
                            found.push(String::from_utf8(content.to_vec()).unwrap());
                        }
                    })
                    .unwrap();
                }
            })
            .unwrap();
            found.concat()
        }
    };
    set.objects.values().map(version).collect()
}

#[test]
fn list_has_what_the_node_knows_and_else_what_the_server_said() {
    for encoding in BOTH {
        let server = slices(encoding);
        let own = own(&[pod("a", "10.0.0.7", true)]);
        let answer = encoding.own_answer(encoding.write(&server), Some(&own), AnswerForm::Body);
        let list = read(encoding, answer.bytes);
        // The pod b is gone.
        let expected = [shown("a", "n", "10.0.0.7", true), shown("c", "m", "10.9.0.1", true)];
        assert_eq!(endpoints(encoding, &list.objects["ns/mixed"]), expected);
        assert_eq!(list.objects["ns/other"], server.objects["ns/other"]);
        let version = answer.version.unwrap().to_string();
        assert_eq!(versions(encoding, &list), [version.as_str(), "5"]);
        assert_eq!((corrected_version(&version), Some(list.version)), (answer.version, answer.version));
        assert_eq!((&list.kind, &list.api_version), (&server.kind, &server.api_version));
    }
}

#[test]
fn answer_is_the_servers_if_the_node_knows_nothing_better() {
    let same = own(&[pod("a", "10.0.0.1", true), pod("b", "10.0.0.2", true)]);
    let elsewhere = OwnNode { name: "x".to_owned(), ..own(&[]) };
    let starting = OwnNode { is_complete: false, ..own(&[]) };
    for encoding in BOTH {
        let body = encoding.write(&slices(encoding));
        for own in [Some(&same), Some(&elsewhere), Some(&starting), None] {
            let answer = encoding.own_answer(body.clone(), own, AnswerForm::Body);
            assert_eq!(answer, OwnAnswer { version: None, bytes: body.clone() });
            let answer = encoding.own_answer(body.clone(), own, AnswerForm::Events);
            assert_eq!(answer, OwnAnswer { version: None, bytes: Vec::new() });
        }
    }
}

#[test]
fn events_lead_from_every_state_of_a_watch_to_the_corrected_list() {
    for encoding in BOTH {
        let server = encoding.write(&slices(encoding));
        let states =
            [own(&[pod("a", "10.0.0.7", true)]), own(&[pod("a", "10.0.0.1", true), pod("b", "10.0.0.8", false)])];
        for after in &states {
            let list = encoding.own_answer(server.clone(), Some(after), AnswerForm::Body);
            let events = encoding.own_answer(server.clone(), Some(after), AnswerForm::Events);
            assert_eq!(list.version, events.version);
            let mut frames = Frames::new(encoding);
            frames.receive(&events.bytes);
            let mut known = slices(encoding);
            while let Some(frame) = frames.next().unwrap() {
                let event = encoding.read_event(frame).unwrap();
                assert_eq!((event.change, Some(event.version)), (Change::Set, events.version));
                assert_eq!((&*event.kind, &*event.api_version), ("EndpointSlice", "discovery.k8s.io/v1"));
                known.apply(event, encoding);
            }
            assert_eq!(known, read(encoding, list.bytes));
        }
        let version = |own| encoding.own_answer(server.clone(), Some(own), AnswerForm::Events).version;
        assert!(version(&states[0]) != version(&states[1]) && version(&states[0]) == version(&states[0].clone()));
    }
}

/// A node with readiness, an address and images.
fn node(encoding: Encoding, name: &str, ready: &str, address: &str) -> Vec<u8> {
    match encoding {
        Encoding::Json => {
            let conditions = json!([{"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": ready, "lastHeartbeatTime": "t", "reason": "r", "message": "m"}]);
            let status = json!({"conditions": conditions, "images": [1],
                "addresses": [{"type": "InternalIP", "address": address}]});
            let metadata = json!({"name": name, "resourceVersion": "5", "uid": "u"});
            json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata, "status": status}).to_string().into_bytes()
        }
        Encoding::Protobuf => {
            let metadata = message(&[(1, name.as_bytes()), (5, b"u"), (6, b"5")]);
            let pressure = message(&[(1, b"MemoryPressure"), (2, b"False")]);
            let ready = message(&[(1, b"Ready"), (2, ready.as_bytes()), (3, b"t"), (5, b"r"), (6, b"m")]);
            let address = message(&[(1, b"InternalIP"), (2, address.as_bytes())]);
            let status = message(&[(4, &pressure), (4, &ready), (5, &address), (8, b"i")]);
            message(&[(1, &metadata), (3, &status)])
        }
    }
}

#[test]
fn own_node_has_its_readiness_and_addresses_and_another_node_the_servers() {
    for encoding in BOTH {
        let all = ["n", "other"].map(|name| (name, node(encoding, name, "Unknown", "10.0.0.1")));
        let server = set(encoding, OwnKind::Node, all.to_vec());
        let address = NodeAddress { kind: "InternalIP".into(), address: "10.0.0.2".to_owned() };
        let own = OwnNode { addresses: vec![address], ..own(&[]) };
        let answer = encoding.own_answer(encoding.write(&server), Some(&own), AnswerForm::Body);
        let list = read(encoding, answer.bytes);
        assert_eq!(list.objects["/other"], server.objects["/other"]);
        let one = encoding.wrap(OwnKind::Node, node(encoding, "n", "Unknown", "10.0.0.1"));
        let one = encoding.own_answer(one, Some(&own), AnswerForm::Body);
        assert!(one.version.is_some());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for corrected in [text(&list.objects["/n"]), text(&one.bytes)] {
            for has in ["True", "KubeletReady", "ok", "10.0.0.2", "MemoryPressure"] {
                assert!(corrected.contains(has), "{has} in {corrected}");
            }
            assert!(!corrected.contains("Unknown") && !corrected.contains("10.0.0.1"), "{corrected}");
        }
        if encoding == Encoding::Json {
            let mut expected: Value = serde_json::from_slice(&server.objects["/n"]).unwrap();
            expected["status"]["addresses"] = json!([{"type": "InternalIP", "address": "10.0.0.2"}]);
            expected["status"]["conditions"][1] = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": "t",
                "reason": "KubeletReady", "message": "ok"});
            expected["metadata"]["resourceVersion"] = list.version.to_string().into();
            assert_eq!(serde_json::from_slice::<Value>(&list.objects["/n"]).unwrap(), expected);
        }
        let same = OwnNode { addresses: Vec::new(), ready: ["Unknown", "x", "x"].map(str::to_owned), ..own };
        assert_eq!(encoding.own_answer(encoding.write(&server), Some(&same), AnswerForm::Body).version, None);
    }
}

#[test]
fn slice_at_the_size_limit_of_the_server_is_corrected() {
    for encoding in BOTH {
        let mut endpoints_of_server = vec![shown("a", "n", "10.0.0.1", true); 1];
        endpoints_of_server.extend((0..8_000).map(|index| shown(&format!("pod-{index}"), "m", "10.9.0.1", true)));
        let mut object = slice(encoding, "large", &endpoints_of_server);
        if encoding == Encoding::Json {
            object.splice(1..1, format!(r#""x":"{}","#, "y".repeat(1_400_000 - object.len().min(1_399_999))).bytes());
        } else {
            put_bytes(999, &vec![0; 1_500_000 - object.len()], &mut object);
        }
        assert!(object.len() >= 1_400_000);
        let server = set(encoding, OwnKind::EndpointSlice, vec![("ns/large", object)]);
        let own = own(&[pod("a", "10.0.0.7", true)]);
        let answer = encoding.own_answer(encoding.write(&server), Some(&own), AnswerForm::Events);
        let mut frames = Frames::new(encoding);
        frames.receive(&answer.bytes);
        let event = encoding.read_event(frames.next().unwrap().unwrap()).unwrap();
        let corrected = endpoints(encoding, &event.object);
        assert_eq!((corrected.len(), &corrected[0]), (8_001, &shown("a", "n", "10.0.0.7", true)));
    }
}

#[test]
fn damaged_object_is_answered_as_it_is() {
    let own = own(&[]);
    for encoding in BOTH {
        let whole = slice(encoding, "mixed", &[shown("a", "n", "10.0.0.1", true)]);
        for length in 0..whole.len() {
            let _ = encoding.correct(&whole[..length], OwnKind::EndpointSlice, &own, 7);
        }
        let body = encoding.write(&slices(encoding));
        for at in 0..body.len() {
            let mut damaged = body.clone();
            damaged[at] ^= 0xff;
            let _ = encoding.own_answer(damaged, Some(&own), AnswerForm::Events);
        }
        let answer = encoding.own_answer(b"k8s\0\xff".to_vec(), Some(&own), AnswerForm::Body);
        assert_eq!(answer, OwnAnswer { version: None, bytes: b"k8s\0\xff".to_vec() });
    }
    // The endpoint is cut; the metadata are whole.
    let metadata = message(&[(1, b"cut"), (3, b"ns"), (6, b"5")]);
    let object = message(&[(1, &metadata), (2, &[0x0a, 0xff]), (4, b"IPv4")]);
    let body = Encoding::Protobuf.write(&set(Encoding::Protobuf, OwnKind::EndpointSlice, vec![("ns/cut", object)]));
    let answer = Encoding::Protobuf.own_answer(body.clone(), Some(&own), AnswerForm::Body);
    assert_eq!(answer, OwnAnswer { version: None, bytes: body });
    // The status is cut after its conditions.
    let metadata = message(&[(1, b"n"), (6, b"5")]);
    let ready = message(&[(4, &message(&[(1, b"Ready"), (2, b"Unknown")]))]);
    let object = message(&[(1, &metadata), (3, &[&*ready, &[0x0a, 0xff]].concat())]);
    let body = Encoding::Protobuf.write(&set(Encoding::Protobuf, OwnKind::Node, vec![("/n", object)]));
    let answer = Encoding::Protobuf.own_answer(body.clone(), Some(&own), AnswerForm::Body);
    assert_eq!(answer, OwnAnswer { version: None, bytes: body });
}
