//! The API server's pods of this node, including mirror pods. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::control::pod_sources::merge::same_content;
use crate::control::pod_sources::received_pods::{PodChange, PodKey, ReceivedPod, without_spec};
use crate::kubelet::offline::WriteUrgency;
use crate::state::pods::{SourceName, SourcePod, SourceProblem, SourceUpdate};
use crate::types::api::annotations::{CONFIG_SEEN, CONFIG_SOURCE};
use crate::types::api::{ObjectText, Pod, PodUid, Time};
use crate::types::sorted::SortedMap;
use crate::types::timestamp::Timestamp;

#[derive(Debug, Default)]
pub(super) struct ApiPods {
    /// The complete set has been sent once.
    synced: bool,
    changed: bool,
    /// A list arrived since the last update.
    relisted: bool,
    pods: SortedMap<PodUid, Arc<Pod>>,
    /// Pods that cannot be decoded. Their last known state stays, but for their deletion.
    unread: SortedMap<PodUid, SourceProblem>,
    away: Option<SourceProblem>,
    /// Recently deleted pods: later changes of them are outdated.
    deleted: VecDeque<PodUid>,
    /// Changes to be stored.
    kept: Vec<StoreChange>,
}

/// A change to store for a start without the API server.
#[derive(Debug)]
pub(super) enum StoreChange {
    Put {
        pod: Arc<Pod>,
        /// As received from the server, without its managed fields.
        content: ObjectText,
        pace: WriteUrgency,
    },
    Remove(Arc<Pod>),
}

/// Number of deleted pods remembered.
const REMEMBERED_DELETED_PODS: usize = 64;

/// The origin shown for these pods.
const API_POD_ORIGIN: &str = "API server";

impl ApiPods {
    pub(super) fn apply(&mut self, change: PodChange, now: Timestamp) {
        self.changed = true;
        if !matches!(change, PodChange::Away(_)) {
            self.away = None;
        }
        match change {
            PodChange::Replaced(all) => {
                self.synced = true;
                self.relisted = true;
                self.unread.clear();
                // A list counts whatever its versions: the server may have another history now.
                self.deleted.clear();
                let before = std::mem::take(&mut self.pods);
                for pod in all {
                    self.apply_pod(pod, &before, now);
                }
                let gone = before.into_iter().filter(|(uid, _)| !self.pods.contains_key(uid));
                self.kept.extend(gone.map(|(_, pod)| StoreChange::Remove(pod)));
            }
            PodChange::Applied(pod) if self.is_older(&pod.key) => {}
            PodChange::Applied(pod) => {
                let before = self.pods.clone();
                self.apply_pod(*pod, &before, now);
            }
            PodChange::Deleted(PodKey { uid, .. }) => {
                self.unread.remove(&uid);
                self.kept.extend(self.pods.remove(&uid).map(StoreChange::Remove));
                if self.deleted.len() == REMEMBERED_DELETED_PODS {
                    self.deleted.pop_front();
                }
                self.deleted.push_back(uid);
            }
            PodChange::Away(why) => self.away = Some(problem(API_POD_ORIGIN, why, now)),
        }
    }

    /// Restores the stored pods. The API server's set may differ by now.
    pub(super) fn restore(&mut self, stored: Vec<ReceivedPod>, now: Timestamp) {
        self.changed = true;
        for pod in stored {
            self.apply_pod(pod, &SortedMap::new(), now);
        }
        self.kept.clear();
    }

    /// No pods are known.
    pub(super) fn has_none(&self) -> bool {
        self.pods.is_empty()
    }

    /// The changes to store since the last call.
    pub(super) fn take_kept(&mut self) -> Vec<StoreChange> {
        std::mem::take(&mut self.kept)
    }

    /// Whether a newer state of the pod is known.
    fn is_older(&self, PodKey { uid, resource_version, .. }: &PodKey) -> bool {
        let latest = self.pods.get(uid).map(|pod| version(&pod.metadata.resource_version));
        self.deleted.contains(uid) || latest.is_some_and(|latest| latest > version(resource_version))
    }

    fn apply_pod(&mut self, received: ReceivedPod, before: &SortedMap<PodUid, Arc<Pod>>, now: Timestamp) {
        let ReceivedPod { key: PodKey { name, uid, resource_version }, content, pod } = received;
        let old = before.get(&uid);
        match pod {
            Ok(pod) => {
                self.unread.remove(&uid);
                let pod = Arc::new(annotated(pod, old, now));
                if !pod.is_mirror() {
                    // A change of the status alone was written by this node itself.
                    let is_asked = old.is_none_or(|old| !same_content(old, &pod));
                    let pace = if is_asked { WriteUrgency::Soon } else { WriteUrgency::Later };
                    self.kept.push(StoreChange::Put { pod: Arc::clone(&pod), content, pace });
                }
                self.pods.insert(uid, pod);
            }
            Err(error) => {
                self.unread.insert(uid.clone(), problem(&name, error.to_string(), now));
                let deleted = without_spec(&content).filter(|pod| pod.metadata.deletion_timestamp.is_some());
                if let Some(old) = old {
                    let mut old = Pod::clone(old);
                    // Changes older than the undecodable one stay outdated.
                    old.metadata.resource_version = resource_version;
                    if let Some(Pod { metadata, .. }) = deleted {
                        old.metadata.deletion_timestamp = metadata.deletion_timestamp;
                        old.metadata.deletion_grace_period_seconds = metadata.deletion_grace_period_seconds;
                    }
                    self.pods.insert(uid, Arc::new(old));
                } else if let Some(deleted) = deleted {
                    // The end of a pod needs no spec.
                    self.pods.insert(uid, Arc::new(annotated(deleted, None, now)));
                }
            }
        }
    }

    /// The next update, if anything changed since the last one and the complete set is known.
    pub(super) fn update(&mut self) -> Option<SourceUpdate> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let (mirrors, pods): (Vec<_>, Vec<_>) = self.pods.values().cloned().partition(|pod| pod.is_mirror());
        let origin: Arc<str> = Arc::from(API_POD_ORIGIN);
        Some(SourceUpdate {
            source: SourceName::Api,
            pods: pods.into_iter().map(|pod| SourcePod { pod, origin: Arc::clone(&origin) }).collect(),
            objects: Vec::new(),
            mirrors,
            problems: self.unread.values().chain(&self.away).cloned().collect(),
            unread: self.unread.keys().cloned().collect(),
            complete: self.synced,
            relisted: std::mem::take(&mut self.relisted),
        })
    }
}

/// Adds this node's annotations.
fn annotated(mut pod: Pod, old: Option<&Arc<Pod>>, now: Timestamp) -> Pod {
    if !pod.is_mirror() {
        let seen = old.and_then(|old| old.annotation(CONFIG_SEEN)).map_or_else(|| now.to_string(), str::to_owned);
        pod.metadata.annotations.insert(CONFIG_SEEN, seen);
        pod.metadata.annotations.insert(CONFIG_SOURCE, SourceName::Api.as_str().to_owned());
    }
    pod
}

fn problem(origin: &str, message: String, now: Timestamp) -> SourceProblem {
    SourceProblem { origin: origin.into(), message, keeps_last_good: true, since: Time::from_timestamp(now) }
}

/// Versions of one server can be compared as numbers. An unreadable one counts as the newest.
fn version(text: &str) -> u64 {
    text.parse().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::control::pod_sources::received_pods::read_all;
    use crate::platform::apiserver::Change;
    use crate::platform::rt;
    use crate::types::api::PodPhase;

    fn apply(pods: &mut ApiPods, change: Change, now: Timestamp) {
        pods.apply(rt::block_on(PodChange::read(change)), now);
    }

    fn pod(name: &str, image: Value) -> Value {
        let containers = json!([{"name": "c", "image": image}]);
        json!({"metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": {"containers": containers}})
    }

    fn replaced(objects: &[Value]) -> Change {
        Change::Replaced(objects.iter().map(ObjectText::of).collect())
    }

    fn mirror(name: &str) -> Value {
        let annotations = json!({"kubernetes.io/config.mirror": "h", "kubernetes.io/config.source": "file"});
        json!({"metadata": {"namespace": "ns", "name": name, "uid": name, "annotations": annotations}})
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn names(pods: &[SourcePod]) -> Vec<&str> {
        pods.iter().map(|pod| pod.pod.metadata.name.as_str()).collect()
    }

    #[test]
    fn pods_are_added_and_removed_and_mirror_pods_are_separate() {
        let mut pods = ApiPods::default();
        assert!(pods.update().is_none());
        apply(&mut pods, replaced(&[pod("a", json!("i")), mirror("m")]), at(1));
        let update = pods.update().unwrap();
        assert!(update.complete);
        assert_eq!(names(&update.pods), ["a"]);
        assert_eq!(update.pods[0].pod.annotation(CONFIG_SOURCE), Some("api"));
        assert_eq!(update.mirrors[0].annotation(CONFIG_SOURCE), Some("file"));
        apply(&mut pods, Change::Applied(ObjectText::of(&pod("b", json!("i")))), at(2));
        apply(&mut pods, Change::Deleted(ObjectText::of(&pod("a", json!("i")))), at(2));
        assert_eq!(names(&pods.update().unwrap().pods), ["b"]);
        assert!(pods.update().is_none());
    }

    #[test]
    fn outdated_changes_are_ignored() {
        let in_version = |image: &str, version: &str| {
            let mut object = pod("a", json!(image));
            object["metadata"]["resourceVersion"] = json!(version);
            object
        };
        let mut pods = ApiPods::default();
        apply(&mut pods, replaced(&[in_version("i", "9")]), at(1));
        apply(&mut pods, Change::Applied(ObjectText::of(&in_version("k", "11"))), at(1));
        apply(&mut pods, Change::Applied(ObjectText::of(&in_version("j", "10"))), at(1));
        assert_eq!(pods.update().unwrap().pods[0].pod.spec.containers[0].image, "k");
        apply(&mut pods, Change::Deleted(ObjectText::of(&in_version("k", "12"))), at(1));
        apply(&mut pods, Change::Applied(ObjectText::of(&in_version("j", "10"))), at(1));
        assert!(pods.update().unwrap().pods.is_empty());
    }

    #[test]
    fn list_counts_whatever_its_versions() {
        let in_version = |image: Value, version: &str| {
            let mut object = pod("a", image);
            object["metadata"]["resourceVersion"] = json!(version);
            object
        };
        let mut pods = ApiPods::default();
        apply(&mut pods, replaced(&[in_version(json!("i"), "9")]), at(1));
        assert!(pods.update().unwrap().relisted);
        apply(&mut pods, Change::Applied(ObjectText::of(&in_version(json!("j"), "10"))), at(1));
        assert!(!pods.update().unwrap().relisted);
        // In another history, the pod cannot be decoded at first.
        apply(&mut pods, replaced(&[in_version(json!(7), "3")]), at(2));
        apply(&mut pods, Change::Applied(ObjectText::of(&in_version(json!("k"), "4"))), at(2));
        let update = pods.update().unwrap();
        assert!(update.relisted);
        assert_eq!(update.pods[0].pod.spec.containers[0].image, "k");
    }

    #[test]
    fn time_of_first_sight_is_kept() {
        let mut pods = ApiPods::default();
        apply(&mut pods, replaced(&[pod("a", json!("i"))]), at(1));
        apply(&mut pods, replaced(&[pod("a", json!("j"))]), at(2));
        let update = pods.update().unwrap();
        assert_eq!(update.pods[0].pod.annotation(CONFIG_SEEN), Some("1970-01-01T00:00:01Z"));
    }

    #[test]
    fn undecodable_pod_stays_unchanged_and_is_reported() {
        let mut pods = ApiPods::default();
        apply(&mut pods, replaced(&[pod("a", json!("i"))]), at(1));
        apply(&mut pods, Change::Applied(ObjectText::of(&pod("a", json!(7)))), at(2));
        let update = pods.update().unwrap();
        assert_eq!(update.pods[0].pod.spec.containers[0].image, "i");
        assert_eq!(&*update.problems[0].origin, "pod ns/a");
        assert_eq!(
            update.problems[0].message,
            "spec.containers[0].image: expected a string, found a number: put it in quotes"
        );
        assert_eq!(update.unread, ["a".into()]);
        apply(&mut pods, Change::Applied(ObjectText::of(&pod("a", json!("k")))), at(3));
        let update = pods.update().unwrap();
        assert!(update.problems.is_empty() && update.unread.is_empty());
    }

    #[test]
    fn undecodable_pod_keeps_no_other_pod_from_being_known() {
        let mut pods = ApiPods::default();
        apply(&mut pods, replaced(&[pod("a", json!(7)), pod("b", json!("i"))]), at(1));
        let update = pods.update().unwrap();
        assert_eq!((names(&update.pods), update.unread, update.complete), (vec!["b"], vec!["a".into()], true));
        apply(&mut pods, Change::Deleted(ObjectText::of(&pod("a", json!(7)))), at(2));
        assert!(pods.update().unwrap().unread.is_empty());
    }

    #[test]
    fn deletion_of_an_undecodable_pod_is_seen() {
        let deleted = |name: &str| {
            let mut object = pod(name, json!(7));
            object["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:09Z");
            object["metadata"]["deletionGracePeriodSeconds"] = json!(5);
            object["status"] = json!({"phase": "Running"});
            object
        };
        let mut pods = ApiPods::default();
        apply(&mut pods, replaced(&[pod("known", json!("i"))]), at(1));
        apply(&mut pods, Change::Applied(ObjectText::of(&deleted("known"))), at(2));
        apply(&mut pods, Change::Applied(ObjectText::of(&deleted("new"))), at(2));
        let update = pods.update().unwrap();
        assert_eq!(names(&update.pods), ["known", "new"]);
        for SourcePod { pod, .. } in &update.pods {
            assert!(pod.is_of_cluster() && pod.metadata.deletion_timestamp.is_some());
            assert_eq!(pod.metadata.deletion_grace_period_seconds, Some(5));
        }
        assert_eq!(update.pods[0].pod.spec.containers[0].image, "i");
        let new = &update.pods[1].pod;
        assert_eq!((new.spec.containers.len(), new.status.phase), (0, PodPhase::Running));
    }

    #[test]
    fn restored_pods_are_reported_but_not_as_complete() {
        let mut pods = ApiPods::default();
        let stored = [pod("a", json!("i")), pod("b", json!("i"))].iter().map(ObjectText::of).collect();
        pods.restore(rt::block_on(read_all(stored)), at(1));
        let update = pods.update().unwrap();
        assert_eq!((names(&update.pods), update.complete, update.relisted), (vec!["a", "b"], false, false));
        assert!(pods.take_kept().is_empty());
        apply(&mut pods, replaced(&[pod("b", json!("i")), mirror("m")]), at(2));
        let update = pods.update().unwrap();
        assert_eq!((names(&update.pods), update.complete), (vec!["b"], true));
        let kept: Vec<String> = pods.take_kept().iter().map(kept).collect();
        assert_eq!(kept, ["b Later", "a gone"]);
    }

    fn kept(kept: &StoreChange) -> String {
        match kept {
            StoreChange::Put { pod, pace, content } => {
                let content = content.value().unwrap();
                assert_eq!(content["metadata"]["name"], pod.metadata.name.as_str());
                format!("{} {pace:?}", pod.metadata.name)
            }
            StoreChange::Remove(pod) => format!("{} gone", pod.metadata.name),
        }
    }

    #[test]
    fn spec_changes_are_stored_sooner_than_own_status() {
        let object = |image: &str, phase: &str| {
            let mut object = pod("a", json!(image));
            object["metadata"]["managedFields"] = json!([{"manager": "m"}]);
            object["status"] = json!({"phase": phase});
            object
        };
        let mut pods = ApiPods::default();
        apply(&mut pods, replaced(&[object("i", "Pending")]), at(1));
        apply(&mut pods, Change::Applied(ObjectText::of(&object("i", "Running"))), at(1));
        apply(&mut pods, Change::Applied(ObjectText::of(&object("j", "Running"))), at(1));
        apply(&mut pods, Change::Applied(ObjectText::of(&pod("a", json!(7)))), at(1));
        apply(&mut pods, Change::Deleted(ObjectText::of(&object("j", "Running"))), at(1));
        let all = pods.take_kept();
        assert_eq!(all.iter().map(kept).collect::<Vec<_>>(), ["a Soon", "a Later", "a Soon", "a gone"]);
        let StoreChange::Put { content, .. } = &all[0] else { panic!("it is there") };
        assert!(!content.as_str().contains("managedFields"));
    }

    #[test]
    fn unreachable_server_removes_no_pod() {
        let mut pods = ApiPods::default();
        apply(&mut pods, Change::Away("connection refused".to_owned()), at(1));
        assert!(!pods.update().unwrap().complete);
        apply(&mut pods, replaced(&[pod("a", json!("i"))]), at(2));
        apply(&mut pods, Change::Away("connection refused".to_owned()), at(3));
        let update = pods.update().unwrap();
        assert_eq!((names(&update.pods), update.problems.len(), update.complete), (vec!["a"], 1, true));
    }
}
