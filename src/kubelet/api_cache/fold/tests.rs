use super::*;
use crate::kubelet::api_cache::object_set::Change;
use crate::protocol::protobuf::{put_bytes, put_str};

/// A message with these fields.
fn message(fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|(number, content)| put_bytes(*number, content, &mut out));
    out
}

/// An object with this version, spec and, for a node, a heartbeat.
fn object(encoding: Encoding, name: &str, version: &str, spec: &str, heartbeat: &str) -> Vec<u8> {
    match encoding {
        Encoding::Json => format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"ns","resourceVersion":"{version}"}},"spec":"{spec}","status":{{"conditions":["{heartbeat}"]}}}}"#
        )
        .into_bytes(),
        Encoding::Protobuf => {
            let metadata = message(&[(1, name.as_bytes()), (3, b"ns"), (6, version.as_bytes())]);
            message(&[(1, &metadata), (2, spec.as_bytes()), (3, &message(&[(4, heartbeat.as_bytes())]))])
        }
    }
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    put_str(1, api_version, &mut type_meta);
    put_str(2, kind, &mut type_meta);
    [b"k8s\0", &*message(&[(1, &type_meta), (2, raw)])].concat()
}

fn list(encoding: Encoding, kind: &str, version: &str, objects: &[Vec<u8>]) -> Vec<u8> {
    match encoding {
        Encoding::Json => {
            let objects: Vec<String> =
                objects.iter().map(|object| String::from_utf8(object.clone()).unwrap()).collect();
            let objects = objects.join(",");
            format!(
                r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{objects}]}}"#
            )
            .into_bytes()
        }
        Encoding::Protobuf => {
            let metadata = message(&[(2, version.as_bytes())]);
            let items = objects.iter().map(|object| (2, &**object));
            let fields: Vec<(u32, &[u8])> = std::iter::once((1, &*metadata)).chain(items).collect();
            envelope("v1", kind, &message(&fields))
        }
    }
}

/// A frame of a watch, as it is read.
fn event(encoding: Encoding, change: &str, kind: &str, object: &[u8]) -> Option<WatchedEvent> {
    encoding.read_event(match encoding {
        Encoding::Json => {
            let object = String::from_utf8(object.to_vec()).unwrap();
            let object = object.replacen('{', &format!(r#"{{"kind":"{kind}","apiVersion":"v1","#), 1);
            format!("{{\"type\":\"{change}\",\"object\":{object}}}\n").into_bytes()
        }
        Encoding::Protobuf => message(&[(1, change.as_bytes()), (2, &message(&[(1, &envelope("v1", kind, object))]))]),
    })
}

fn fold(
    encoding: Encoding,
    old: Option<&Folded>,
    base: Base,
    events: Vec<WatchedEvent>,
) -> Result<Folded, &'static str> {
    let version = events.last().map(|event| event.version);
    let old = old.map(|old| Arc::clone(&old.body));
    Fold { encoding, is_of_objects: true, old, base, events, version }.run()
}

fn names(encoding: Encoding, folded: &Folded) -> Vec<String> {
    let set = encoding.list(inflate(&folded.body, MAX_BODY_BYTES).unwrap()).unwrap();
    set.objects.keys().cloned().collect()
}

const ENCODINGS: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];

#[test]
fn events_change_the_list() {
    for encoding in ENCODINGS {
        let of = |name, version| object(encoding, name, version, "s", "");
        let bytes = list(encoding, "ServiceList", "5", &[of("a", "1"), of("b", "2")]);
        let first = fold(encoding, None, Base::Body { bytes, is_gzip: false }, Vec::new()).unwrap();
        assert_eq!(
            (first.version, first.is_changed, &*names(encoding, &first)),
            (Some(5), true, &["ns/a", "ns/b"].map(str::to_owned)[..])
        );
        let events = [("ADDED", "c", "6"), ("DELETED", "a", "7"), ("MODIFIED", "b", "8")];
        let events =
            events.map(|(change, name, version)| event(encoding, change, "Service", &of(name, version)).unwrap());
        let next = fold(encoding, Some(&first), Base::Old, events.to_vec()).unwrap();
        assert_eq!(
            (next.version, next.is_changed, names(encoding, &next).join(" ")),
            (Some(8), true, "ns/b ns/c".to_owned())
        );
        // What is written is what the server would have written.
        let written = inflate(&next.body, MAX_BODY_BYTES).unwrap();
        if encoding == Encoding::Protobuf {
            assert_eq!(written, list(encoding, "ServiceList", "8", &[of("b", "8"), of("c", "6")]));
        } else {
            let written: serde_json::Value = serde_json::from_slice(&written).unwrap();
            assert_eq!(
                (&written["kind"], &written["metadata"]["resourceVersion"]),
                (&"ServiceList".into(), &"8".into())
            );
            assert_eq!(written["items"][0]["metadata"]["resourceVersion"], "8");
        }
    }
}

#[test]
fn initial_events_make_a_list() {
    for encoding in ENCODINGS {
        let of = |change, name, version| {
            event(encoding, change, "Service", &object(encoding, name, version, "s", "")).unwrap()
        };
        let made = fold(encoding, None, Base::Empty, vec![of("ADDED", "a", "3"), of("BOOKMARK", "", "9")]).unwrap();
        assert_eq!((made.version, names(encoding, &made).join(" ")), (Some(9), "ns/a".to_owned()));
        let set = encoding.list(inflate(&made.body, MAX_BODY_BYTES).unwrap()).unwrap();
        assert_eq!((&*set.kind, &*set.api_version), ("ServiceList", "v1"));
    }
}

#[test]
fn new_versions_and_heartbeats_are_not_worth_a_write() {
    for encoding in ENCODINGS {
        let body = |kind, version, spec, heartbeat| Base::Body {
            bytes: list(encoding, kind, version, &[object(encoding, "a", version, spec, heartbeat)]),
            is_gzip: false,
        };
        for (kind, is_heartbeat_news) in [("NodeList", false), ("PodList", true)] {
            let first = fold(encoding, None, body(kind, "1", "s", "x"), Vec::new()).unwrap();
            let is_changed = |base| fold(encoding, Some(&first), base, Vec::new()).unwrap().is_changed;
            assert!(!is_changed(body(kind, "2", "s", "x")));
            assert_eq!(is_changed(body(kind, "2", "s", "y")), is_heartbeat_news, "{kind}");
            assert!(is_changed(body(kind, "2", "t", "x")));
            let beat = object(encoding, "a", "3", "s", "y");
            let beat = event(encoding, "MODIFIED", kind.strip_suffix("List").unwrap(), &beat).unwrap();
            assert_eq!(fold(encoding, Some(&first), Base::Old, vec![beat]).unwrap().is_changed, is_heartbeat_news);
        }
    }
}

#[test]
fn tables_pages_and_garbage_are_not_remembered() {
    let kept =
        |encoding, bytes: &[u8]| fold(encoding, None, Base::Body { bytes: bytes.to_vec(), is_gzip: false }, Vec::new());
    for encoding in ENCODINGS {
        assert!(
            kept(encoding, b"").is_err() && kept(encoding, b"[]").is_err() && kept(encoding, b"k8s\0\xff").is_err()
        );
        assert!(kept(encoding, &list(encoding, "ServiceList", "not a number", &[])).is_err());
    }
    assert!(kept(Encoding::Json, br#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[]}"#).is_err());
    assert!(kept(Encoding::Protobuf, &envelope("meta.k8s.io/v1", "PartialObjectMetadataList", b"")).is_err());
    let page =
        br#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"x"},"items":[]}"#;
    assert!(kept(Encoding::Json, page).is_err());
    let page = envelope("v1", "ServiceList", &message(&[(1, &message(&[(2, b"1"), (3, b"x")]))]));
    assert!(kept(Encoding::Protobuf, &page).is_err());
}

#[test]
fn malformed_events_are_refused() {
    for encoding in ENCODINGS {
        let whole = object(encoding, "a", "1", "s", "");
        assert_eq!(event(encoding, "ERROR", "Status", &whole), None);
        assert_eq!(event(encoding, "ADDED", "Service", &object(encoding, "a", "", "s", "")), None);
        assert_eq!(encoding.read_event(b"\xff\xff".to_vec()), None);
        assert_eq!(event(encoding, "DELETED", "Service", &whole).unwrap().change, Change::Removed);
    }
}

/// The answer with one object.
fn answer(encoding: Encoding, version: &str, spec: &str) -> Vec<u8> {
    let object = object(encoding, "a", version, spec, "");
    match encoding {
        Encoding::Json => {
            let mut object: serde_json::Value = serde_json::from_slice(&object).unwrap();
            object["kind"] = "Thing".into();
            object["apiVersion"] = "v1".into();
            object.to_string().into_bytes()
        }
        Encoding::Protobuf => envelope("v1", "Thing", &object),
    }
}

#[test]
fn object_of_a_newer_list_is_answered_in_the_encoding_of_the_list() {
    let both = [Encoding::Json, Encoding::Protobuf];
    for (of_object, of_list) in both.iter().flat_map(|one| both.map(|other| (*one, other))) {
        let list = |name: &str| list(of_list, "ThingList", "7", &[object(of_list, name, "6", "new", "")]);
        let listed = |version: &str, list: Vec<u8>| {
            of_list.listed_object(&of_object.single(&answer(of_object, version, "old")).unwrap(), list)
        };
        assert_eq!(listed("5", list("a")), Some(answer(of_list, "6", "new")));
        for (version, list) in [("7", list("a")), ("5", list("b")), ("5", answer(of_list, "9", ""))] {
            assert_eq!(listed(version, list), None);
        }
    }
}
