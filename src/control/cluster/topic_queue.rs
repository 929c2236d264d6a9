//! The order in which topics without a watch are requested: fair between pods, and within a pod by due time. Pure.
//!
//! The topics of a pod share their due times, so that a pod with many of them wakes the node about once a minute. They
//! also share a number of requests an hour, so that the line of a pod with hundreds of objects costs no more than that
//! of one with a few.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::state::objects::Topic;
use crate::types::api::PodUid;
use crate::types::sorted::SortedMap;

/// The waiting topics, and how many requests are under way.
#[derive(Debug, Default)]
pub(super) struct TopicQueue {
    pods: SortedMap<PodUid, PodQueue>,
    under_way: usize,
    /// The pod whose topic was requested last: the next one has its turn.
    last: PodUid,
}

#[derive(Debug, Default)]
struct PodQueue {
    /// Topics by due time.
    waiting: BTreeSet<(Instant, Arc<Topic>)>,
    under_way: usize,
}

/// Requests under way at a time.
pub(super) const MAX_TOPIC_REQUESTS: usize = 16;
/// Requests of one pod under way at a time.
const MAX_TOPIC_REQUESTS_OF_POD: usize = 4;
/// Topics of a pod that are read again without being late. With more, all of the pod's topics wait longer in proportion.
/// A request costs 450 bytes: eight of them each minute are 216 kB an hour.
const TOPICS_READ_IN_TIME: u32 = 8;

impl PodQueue {
    /// When the next request of the pod may begin.
    fn due(&self) -> Option<Instant> {
        self.waiting.first().map(|(due, _)| *due).filter(|_| self.under_way < MAX_TOPIC_REQUESTS_OF_POD)
    }

    /// How long a topic waits, so that the pod's topics together stay within the requests of [`TOPICS_READ_IN_TIME`].
    fn stretched(&self, after: Duration) -> Duration {
        let topics = u32::try_from(self.waiting.len() + self.under_way).unwrap_or(u32::MAX);
        after.saturating_mul(topics.max(TOPICS_READ_IN_TIME)) / TOPICS_READ_IN_TIME
    }
}

impl TopicQueue {
    pub(super) fn insert(&mut self, pod: &PodUid, topic: Arc<Topic>, due: Instant) {
        self.pods.entry(pod.clone()).or_default().waiting.insert((due, topic));
    }

    /// Inserts a topic that is due after this time, or up to half of it earlier, together with others of the pod. With
    /// many others, the time is longer. Returns when.
    pub(super) fn insert_with_others(
        &mut self,
        pod: &PodUid,
        topic: Arc<Topic>,
        now: Instant,
        after: Duration,
    ) -> Instant {
        let queue = self.pods.entry(pod.clone()).or_default();
        let after = queue.stretched(after);
        let (earliest, latest) = (now + after / 2, now + after);
        let first = Arc::new(Topic::first());
        // Those that are due at `latest` need no look: it is the time without others.
        let others = (earliest, Arc::clone(&first))..(latest, first);
        let due = queue.waiting.range(others).next_back().map_or(latest, |(due, _)| *due);
        queue.waiting.insert((due, topic));
        due
    }

    pub(super) fn remove(&mut self, pod: &PodUid, topic: &Arc<Topic>, due: Instant) {
        if let Some(queue) = self.pods.get_mut(pod) {
            queue.waiting.remove(&(due, Arc::clone(topic)));
            self.drop_unused(pod);
        }
    }

    /// Takes the next topic to request now. [`Self::ended`] must follow.
    pub(super) fn take(&mut self, now: Instant) -> Option<Arc<Topic>> {
        if self.under_way >= MAX_TOPIC_REQUESTS {
            return None;
        }
        let is_due = |(_, queue): &(&PodUid, &PodQueue)| queue.due().is_some_and(|due| due <= now);
        let later = self.pods.iter().filter(|(uid, _)| **uid > self.last);
        let pod = later.chain(&self.pods).find(is_due)?.0.clone();
        let queue = self.pods.get_mut(&pod)?;
        let (_, topic) = queue.waiting.pop_first()?;
        self.begun(&pod);
        self.last = pod;
        Some(topic)
    }

    /// A request of the pod is under way. [`Self::ended`] must follow.
    pub(super) fn begun(&mut self, pod: &PodUid) {
        self.pods.entry(pod.clone()).or_default().under_way += 1;
        self.under_way += 1;
    }

    /// A request of the pod has ended.
    pub(super) fn ended(&mut self, pod: &PodUid) {
        if let Some(queue) = self.pods.get_mut(pod) {
            queue.under_way = queue.under_way.saturating_sub(1);
            self.under_way = self.under_way.saturating_sub(1);
            self.drop_unused(pod);
        }
    }

    /// When [`Self::take`] has something to return; `None` before a request has ended or a topic was inserted.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.pods.values().filter_map(PodQueue::due).min();
        due.filter(|_| self.under_way < MAX_TOPIC_REQUESTS)
    }

    fn drop_unused(&mut self, pod: &PodUid) {
        if self.pods.get(pod).is_some_and(|queue| queue.waiting.is_empty() && queue.under_way == 0) {
            self.pods.remove(pod);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn topic(name: &str) -> Arc<Topic> {
        Arc::new(Topic::CsiDriver(name.to_owned()))
    }

    /// Takes everything that is due, as `NAME`.
    fn take_all(queue: &mut TopicQueue, now: Instant) -> Vec<String> {
        let name = |topic: Arc<Topic>| match &*topic {
            Topic::CsiDriver(name) => name.clone(),
            _ => String::new(),
        };
        std::iter::from_fn(|| queue.take(now)).map(name).collect()
    }

    #[test]
    fn pods_take_turns() {
        let (mut queue, now) = (TopicQueue::default(), Instant::now());
        for number in 0..9 {
            queue.insert(&"greedy".into(), topic(&format!("g{number}")), now);
        }
        queue.insert(&"honest".into(), topic("h"), now + Duration::from_millis(1));
        queue.insert(&"other".into(), topic("o"), now + Duration::from_secs(1));
        assert_eq!(take_all(&mut queue, now), ["g0", "g1", "g2", "g3"]);
        assert_eq!(queue.due(), Some(now + Duration::from_millis(1)));
        for _ in 0..4 {
            queue.ended(&"greedy".into());
        }
        let later = now + Duration::from_millis(1);
        assert_eq!(take_all(&mut queue, later), ["h", "g4", "g5", "g6", "g7"]);
        assert_eq!(queue.due(), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn requests_under_way_are_limited() {
        let (mut queue, now) = (TopicQueue::default(), Instant::now());
        for pod in ["a", "b", "c", "d", "e"] {
            for number in 0..5 {
                queue.insert(&pod.into(), topic(&format!("{pod}{number}")), now);
            }
        }
        assert_eq!((take_all(&mut queue, now).len(), queue.due()), (MAX_TOPIC_REQUESTS, None));
        queue.ended(&"a".into());
        assert_eq!(take_all(&mut queue, now).len(), 1);
    }

    /// Reads this many topics of one pod for ten hours. Returns the requests, and the wake-ups for them.
    fn read_for_ten_hours(topics: u32) -> (u32, u32) {
        let (mut queue, start) = (TopicQueue::default(), Instant::now());
        (0..topics).for_each(|number| queue.insert(&"a".into(), topic(&number.to_string()), start));
        let (mut now, mut requests, mut wakes) = (start, 0, 0);
        while now < start + Duration::from_secs(36_000) {
            now = now.max(queue.due().unwrap());
            wakes += 1;
            while let Some(topic) = queue.take(now) {
                requests += 1;
                // Each answer takes 20 ms, and waits differ.
                now += Duration::from_millis(20);
                let after = Duration::from_millis(60_000 + u64::from(requests) * 7919 % 12_000);
                queue.insert_with_others(&"a".into(), topic, now, after);
                queue.ended(&"a".into());
            }
        }
        (requests, wakes)
    }

    #[test]
    fn topics_of_a_pod_share_their_due_times_and_a_number_of_requests() {
        let (requests, wakes) = read_for_ten_hours(8);
        assert!((8 * 500..8 * 1200).contains(&requests), "{requests} requests");
        for topics in [30, 300, 3000] {
            let (of_many, wakes_for_many) = read_for_ten_hours(topics);
            assert!(of_many < 2 * requests + topics, "{of_many} requests for {topics} topics, {requests} for 8");
            assert!(wakes_for_many <= 2 * wakes, "{wakes_for_many} wake-ups for {topics} topics, {wakes} for 8");
        }
    }

    #[test]
    fn removed_topic_is_not_requested() {
        let (mut queue, now) = (TopicQueue::default(), Instant::now());
        queue.insert(&"a".into(), topic("x"), now);
        queue.remove(&"a".into(), &topic("x"), now);
        assert_eq!((queue.take(now), queue.due()), (None, None));
        assert!(queue.pods.is_empty());
    }
}
