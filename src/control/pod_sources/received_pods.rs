//! Pods as the API server sends them, decoded.

use crate::kubelet::offline::without_managed_fields;
use crate::platform::apiserver::Change;
use crate::platform::rt::{self, TurnWork};
use crate::types::api::{DecodeError, ObjectText, Pod, PodUid};

/// A [`Change`] with decoded pods.
pub(super) enum PodChange {
    Replaced(Vec<ReceivedPod>),
    Applied(Box<ReceivedPod>),
    Deleted(PodKey),
    Away(String),
}

/// A pod, and what of it can be read if it cannot be decoded.
pub(super) struct ReceivedPod {
    pub(super) key: PodKey,
    /// As received, without managed fields.
    pub(super) content: ObjectText,
    pub(super) pod: Result<Pod, DecodeError>,
}

/// What identifies a state of a pod, also of one that cannot be decoded.
pub(super) struct PodKey {
    /// For people.
    pub(super) name: String,
    pub(super) uid: PodUid,
    pub(super) resource_version: String,
}

/// Bytes of pods that are decoded in a turn: a larger pod has a turn of its own. Decoding on the blocking pool would take
/// twice the memory, because its short-lived values lie between those that stay.
const DECODED_BYTES_OF_A_TURN: usize = 64 << 10;

impl PodChange {
    pub(super) async fn read(change: Change) -> Self {
        match change {
            Change::Replaced(all) => Self::Replaced(read_all(all).await),
            Change::Applied(object) => {
                let pod = ReceivedPod::read(&object);
                if object.as_str().len() >= DECODED_BYTES_OF_A_TURN {
                    rt::yield_now().await;
                }
                Self::Applied(Box::new(pod))
            }
            Change::Deleted(object) => Self::Deleted(PodKey::of(&object)),
            Change::Away(why) => Self::Away(why),
        }
    }
}

/// Decodes pods, and lets other tasks run between them.
pub(super) async fn read_all(objects: Vec<ObjectText>) -> Vec<ReceivedPod> {
    let mut turn = TurnWork::new(DECODED_BYTES_OF_A_TURN);
    let mut pods = Vec::with_capacity(objects.len());
    for object in objects {
        pods.push(ReceivedPod::read(&object));
        if turn.ends_with(object.as_str().len()) {
            rt::yield_now().await;
        }
    }
    pods
}

impl ReceivedPod {
    fn read(object: &ObjectText) -> Self {
        let content = without_managed_fields(object);
        let pod = content.decode::<Pod>().map(|decoded| decoded.value);
        let key = match &pod {
            Ok(pod) => {
                let meta = &pod.metadata;
                PodKey::new(&meta.namespace, &meta.name, meta.uid.clone(), meta.resource_version.clone())
            }
            Err(_) => PodKey::of(&content),
        };
        Self { key, content, pod }
    }
}

impl PodKey {
    fn of(object: &ObjectText) -> Self {
        let [namespace, name, uid, resource_version] = object.metadata(["namespace", "name", "uid", "resourceVersion"]);
        Self::new(&namespace, &name, PodUid::from(uid), resource_version)
    }

    fn new(namespace: &str, name: &str, uid: PodUid, resource_version: String) -> Self {
        Self { name: format!("pod {namespace}/{name}"), uid, resource_version }
    }
}

/// A pod without its spec, and without a status that cannot be decoded; `None` if its metadata cannot be decoded.
pub(super) fn without_spec(content: &ObjectText) -> Option<Pod> {
    let decode = |left_out: &[&str]| content.without(left_out).decode::<Pod>().map(|decoded| decoded.value).ok();
    decode(&["spec"]).or_else(|| decode(&["spec", "status"]))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use serde_json::json;

    use super::*;

    /// The turns in which pods with so many bytes of annotations are decoded.
    fn decode_rounds(sizes: &[usize]) -> usize {
        let pod = |size: &usize| ObjectText::of(&json!({"metadata": {"annotations": {"a": "x".repeat(*size)}}}));
        let mut reading = pin!(PodChange::read(Change::Replaced(sizes.iter().map(pod).collect())));
        let mut turns = 1;
        while reading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            turns += 1;
        }
        turns
    }

    #[test]
    fn large_pods_of_a_list_are_decoded_in_turns_of_their_own() {
        assert_eq!(decode_rounds(&[1000; 50]), 1);
        assert_eq!(decode_rounds(&[1000; 110]), 2);
        assert_eq!(decode_rounds(&[70_000; 10]), 11);
    }

    #[test]
    fn key_of_a_pod_that_cannot_be_decoded_is_read() {
        let metadata = json!({"namespace": "ns", "name": "n", "uid": "u", "resourceVersion": "7"});
        for spec in [json!({}), json!(7)] {
            let is_wrong = !spec.is_object();
            let ReceivedPod { key, pod, .. } =
                ReceivedPod::read(&ObjectText::of(&json!({"metadata": metadata, "spec": spec})));
            let PodKey { name, uid, resource_version } = key;
            assert_eq!((name.as_str(), uid.as_str(), resource_version.as_str()), ("pod ns/n", "u", "7"));
            assert_eq!(pod.is_err(), is_wrong);
        }
    }
}
