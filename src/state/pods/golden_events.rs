//! The events that upstream's kubelet sent, made again from what they tell.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde_json::Value;

use super::*;
use crate::types::api::{EventKind, ObjectKind, Pod, Reason, Time, decode, encode};

/// Fields that the recording does not have, or has of the moment and the name.
const NOT_RECORDED: [&str; 4] = ["apiVersion", "kind", "firstTimestamp", "lastTimestamp"];

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The container that a field path names, if it names one.
fn container(event: &Value) -> Option<&str> {
    let path = event["involvedObject"]["fieldPath"].as_str()?;
    path.split_once('{')?.1.strip_suffix('}')
}

fn made(event: &Value, pod: &Pod) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let involved = &event["involvedObject"];
    let object = EventObject {
        kind: ObjectKind::from_word(involved["kind"].as_str().unwrap()).unwrap(),
        namespace: text(&involved["namespace"]),
        name: text(&involved["name"]),
        uid: text(&involved["uid"]).into(),
    };
    let mut pod = pod.clone();
    pod.metadata.resource_version = text(&involved["resourceVersion"]);
    let kind = EventKind::from_word(event["type"].as_str().unwrap()).unwrap();
    let (reason, message) = (Reason::from(text(&event["reason"])), text(&event["message"]));
    let mut ring = EventRing::with_queue(1);
    for _ in 0..event["count"].as_i64().unwrap() {
        let happened = match container(event) {
            Some(name) => PodEvent::of_container(&object.uid, name, kind, reason.clone(), message.as_str()),
            None => PodEvent::of_pod(&object.uid, kind, reason.clone(), message.as_str()),
        };
        let told = Told::of_pod(object.clone(), Some(&pod), happened);
        ring.note(told, Time::from_unix_nanos(0), Instant::now());
    }
    let unsent = ring.unsent("node1").unwrap();
    let UnsentWhat::New(event) = unsent.what else { panic!("{unsent:?}") };
    let metadata = &event.metadata;
    assert_eq!((&metadata.namespace, &metadata.name), (&unsent.namespace, &unsent.name));
    assert_eq!(metadata.namespace, object.namespace, "an event is beside its object");
    // As upstream names them: the object, and a number in hexadecimal digits.
    let number = metadata.name.strip_prefix(&object.name).unwrap().strip_prefix('.').unwrap();
    assert!(number.chars().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase()), "{number}");
    encode(&*event)
}

#[test]
fn each_recorded_event_is_made_again() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/upstream-1.36");
    let mut judged = 0;
    for file in fs::read_dir(data.join("events")).unwrap() {
        let path = file.unwrap().path();
        let pod: Pod = decode(read(&data.join("pods").join(path.file_name().unwrap()))).unwrap().value;
        for event in read(&path).as_array().unwrap() {
            // The scheduler's are not a node's to make.
            if event["source"]["component"] != "kubelet" {
                continue;
            }
            let mut made = made(event, &pod);
            let fields = made.as_object_mut().unwrap();
            for field in NOT_RECORDED {
                fields.remove(field).unwrap();
            }
            fields.remove("metadata");
            assert_eq!(&made, event, "{}", path.display());
            judged += 1;
        }
    }
    assert!(judged > 100, "{judged}");
}
