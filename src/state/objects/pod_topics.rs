//! Which pods need which topics, and whose topics have all been answered. Pure.
//!
//! A tenant decides how many topics a pod has, so nothing here walks all topics because of one answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Topic;
use crate::types::api::{Pod, PodUid};
use crate::types::sorted::{SortOnce, SortedMap};

#[derive(Debug, Default)]
pub(crate) struct PodTopics {
    /// The pods that need each topic, never empty. A tree, because tenants decide how many topics there are.
    users: BTreeMap<Arc<Topic>, Vec<PodUid>>,
    pods: SortedMap<PodUid, PodEntry>,
}

#[derive(Debug)]
struct PodEntry {
    /// The pod whose topics these are.
    pod: Arc<Pod>,
    /// Sorted.
    topics: Vec<Arc<Topic>>,
    /// How many topics have not been answered yet.
    unanswered: usize,
    /// An answer may have added topics to the pod.
    is_stale: bool,
}

impl PodTopics {
    /// Whether the topics of this version of the pod are known.
    pub(super) fn is_current(&self, pod: &Arc<Pod>) -> bool {
        self.pods.get(&pod.metadata.uid).is_some_and(|entry| !entry.is_stale && Arc::ptr_eq(&entry.pod, pod))
    }

    /// The topic, sharing memory with the one that is known.
    pub(super) fn shared(&self, topic: &Topic) -> Arc<Topic> {
        self.users.get_key_value(topic).map_or_else(|| Arc::new(topic.clone()), |(shared, _)| Arc::clone(shared))
    }

    /// Sets the topics of a pod.
    pub(super) fn set(
        &mut self,
        pod: &Arc<Pod>,
        topics: impl IntoIterator<Item = Topic>,
        is_answered: impl Fn(&Topic) -> bool,
    ) {
        let uid = &pod.metadata.uid;
        let mut entry = PodEntry { pod: Arc::clone(pod), topics: Vec::new(), unanswered: 0, is_stale: false };
        for topic in topics {
            entry.unanswered += usize::from(!is_answered(&topic));
            let topic = self.shared(&topic);
            let users = self.users.entry(Arc::clone(&topic)).or_default();
            if !users.contains(uid) {
                users.push(uid.clone());
            }
            entry.topics.push(topic);
        }
        entry.topics.sort_once();
        if let Some(former) = self.pods.insert(uid.clone(), entry) {
            let topics = self.pods.get(uid).map_or(&[][..], |entry| &entry.topics);
            let released = former.topics.into_iter().filter(|topic| topics.binary_search(topic).is_err());
            release(&mut self.users, uid, released);
        }
    }

    /// Forgets all other pods. Returns the topics that only they needed, or `None` if there were no others.
    pub(super) fn retain(&mut self, keep: impl Fn(&PodUid) -> bool) -> Option<Vec<Arc<Topic>>> {
        let gone: Vec<PodUid> = self.pods.keys().filter(|uid| !keep(uid)).cloned().collect();
        let mut unused = Vec::new();
        for uid in &gone {
            if let Some(entry) = self.pods.remove(uid) {
                unused.extend(release(&mut self.users, uid, entry.topics.into_iter()));
            }
        }
        (!gone.is_empty()).then_some(unused)
    }

    /// The first answer for a topic has arrived.
    pub(super) fn on_first_response(&mut self, topic: &Topic) {
        for uid in self.users.get(topic).into_iter().flatten() {
            if let Some(entry) = self.pods.get_mut(uid) {
                entry.unanswered = entry.unanswered.saturating_sub(1);
            }
        }
    }

    /// Marks the topics of all pods that need `topic` as incomplete. Returns the number of their topics.
    pub(super) fn mark_stale(&mut self, topic: &Topic) -> usize {
        let mut topics = 0;
        for uid in self.users.get(topic).into_iter().flatten() {
            if let Some(entry) = self.pods.get_mut(uid) {
                entry.is_stale = true;
                topics += entry.topics.len();
            }
        }
        topics
    }

    pub(super) fn mark_all_stale(&mut self) {
        for entry in self.pods.values_mut() {
            entry.is_stale = true;
        }
    }

    /// The pods that need `topic`, and that have an answer for everything else they need.
    pub(super) fn complete_users(&self, topic: &Topic) -> Vec<PodUid> {
        let users = self.users.get(topic).into_iter().flatten();
        users.filter(|uid| self.is_complete(uid) == Some(true)).cloned().collect()
    }

    /// Whether everything that the pod needs has been answered; `None` for an unknown pod.
    pub(super) fn is_complete(&self, uid: &PodUid) -> Option<bool> {
        self.pods.get(uid).map(|entry| entry.unanswered == 0 && !entry.is_stale)
    }

    pub(super) fn all_complete(&self) -> bool {
        self.pods.values().all(|entry| entry.unanswered == 0 && !entry.is_stale)
    }

    /// All topics in order, each with the pod that it counts for: of its users the one with the fewest topics, so that
    /// a pod with many does not delay those of others. Services count for the node, with the empty uid.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<Topic>, PodUid)> {
        let topics = |uid: &&PodUid| self.pods.get(*uid).map_or(0, |entry| entry.topics.len());
        self.users.iter().filter_map(move |(topic, users)| match **topic {
            Topic::ApiServerService | Topic::Services(_) => Some((topic, PodUid::default())),
            _ => Some((topic, users.iter().min_by_key(topics)?.clone())),
        })
    }
}

/// Removes `uid` from the users of `topics`. Returns those that have no other user.
fn release(
    users: &mut BTreeMap<Arc<Topic>, Vec<PodUid>>,
    uid: &PodUid,
    topics: impl Iterator<Item = Arc<Topic>>,
) -> Vec<Arc<Topic>> {
    let mut unused = Vec::new();
    for topic in topics {
        let Some(of_topic) = users.get_mut(&topic) else { continue };
        of_topic.retain(|user| user != uid);
        if of_topic.is_empty() {
            users.remove(&topic);
            unused.push(topic);
        }
    }
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = uid.into();
        pod.into()
    }

    fn topic(name: &str) -> Topic {
        Topic::CsiDriver(name.to_owned())
    }

    fn topics(names: &[&str]) -> Vec<Topic> {
        names.iter().map(|name| topic(name)).collect()
    }

    fn owners(topics: &PodTopics) -> Vec<(String, String)> {
        topics.iter().map(|(topic, owner)| (format!("{topic:?}"), owner.to_string())).collect()
    }

    #[test]
    fn pod_is_complete_after_the_last_answer() {
        let mut pod_topics = PodTopics::default();
        pod_topics.set(&pod("a"), topics(&["x", "y"]), |topic| *topic == self::topic("y"));
        assert_eq!(pod_topics.is_complete(&"a".into()), Some(false));
        assert_eq!(pod_topics.complete_users(&topic("x")), Vec::<PodUid>::new());
        pod_topics.on_first_response(&topic("x"));
        assert_eq!((pod_topics.is_complete(&"a".into()), pod_topics.all_complete()), (Some(true), true));
        assert_eq!(pod_topics.complete_users(&topic("x")), [PodUid::from("a")]);
        assert_eq!(pod_topics.is_complete(&"b".into()), None);
    }

    #[test]
    fn answer_that_may_add_topics_makes_its_pods_incomplete() {
        let mut pod_topics = PodTopics::default();
        let (a, b) = (pod("a"), pod("b"));
        pod_topics.set(&a, topics(&["x", "y"]), |_| true);
        pod_topics.set(&b, topics(&["y"]), |_| true);
        assert_eq!(pod_topics.mark_stale(&topic("x")), 2);
        assert_eq!((pod_topics.is_current(&a), pod_topics.is_current(&b)), (false, true));
        assert_eq!(
            (pod_topics.is_complete(&"a".into()), pod_topics.is_complete(&"b".into())),
            (Some(false), Some(true))
        );
        pod_topics.set(&a, topics(&["x", "z"]), |_| true);
        assert!(pod_topics.is_current(&a) && pod_topics.all_complete());
    }

    #[test]
    fn topic_stays_while_any_pod_needs_it() {
        let mut pod_topics = PodTopics::default();
        pod_topics.set(&pod("a"), topics(&["x", "y"]), |_| true);
        pod_topics.set(&pod("b"), topics(&["y", "z"]), |_| true);
        let of = |topic: &str, owner: &str| (format!("{:?}", self::topic(topic)), owner.to_owned());
        assert_eq!(owners(&pod_topics), [of("x", "a"), of("y", "a"), of("z", "b")]);
        pod_topics.set(&pod("a"), topics(&["x"]), |_| true);
        assert_eq!(owners(&pod_topics), [of("x", "a"), of("y", "b"), of("z", "b")]);
        let unused = pod_topics.retain(|uid| uid.as_str() == "a").unwrap();
        assert_eq!(unused.iter().map(|topic| (**topic).clone()).collect::<Vec<_>>(), topics(&["y", "z"]));
        assert_eq!(pod_topics.retain(|_| true), None);
        assert_eq!(owners(&pod_topics), [of("x", "a")]);
    }

    #[test]
    fn shared_topic_counts_for_the_pod_with_the_fewest_topics() {
        let mut pod_topics = PodTopics::default();
        let of = |topic: &str, owner: &str| (format!("{:?}", self::topic(topic)), owner.to_owned());
        pod_topics.set(&pod("greedy"), topics(&["x", "y", "z"]), |_| true);
        pod_topics.set(&pod("honest"), topics(&["x", "y"]), |_| true);
        assert_eq!(owners(&pod_topics), [of("x", "honest"), of("y", "honest"), of("z", "greedy")]);
        pod_topics.set(&pod("greedy"), topics(&["y"]), |_| true);
        assert_eq!(owners(&pod_topics), [of("x", "honest"), of("y", "greedy")]);
    }

    #[test]
    fn services_count_for_the_node() {
        let mut pod_topics = PodTopics::default();
        pod_topics.set(&pod("a"), [Topic::ApiServerService, Topic::Services("ns".into())], |_| true);
        assert!(pod_topics.iter().all(|(_, owner)| owner == PodUid::default()));
    }

    #[test]
    fn another_version_of_a_pod_is_not_current() {
        let mut pod_topics = PodTopics::default();
        let first = pod("a");
        assert!(!pod_topics.is_current(&first));
        pod_topics.set(&first, topics(&["x"]), |_| true);
        assert!(pod_topics.is_current(&first) && !pod_topics.is_current(&pod("a")));
        pod_topics.mark_all_stale();
        assert!(!pod_topics.is_current(&first));
    }
}
