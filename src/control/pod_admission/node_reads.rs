//! Pods that the known labels of the node would reject, and that wait until the Node object has been read again: a label
//! may reach the node later than the pod. As `getNodeSync` upstream, which reads before it rejects.

use std::time::{Duration, Instant};

use async_channel::Sender;

use crate::kubelet::node::StatusView;
use crate::platform::rt;
use crate::state::pods::SyncEvent;
use crate::types::api::PodUid;
use crate::types::time::TokenBucket;

/// After this long, the pods are rejected by what is known.
const NODE_READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Burst and then interval of the reads: a controller may recreate a rejected pod for ever, and a Node object has some
/// 10 KB.
const NODE_READ_BURST: u32 = 5;
const NODE_READ_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) struct NodeReads {
    status: StatusView,
    inbox: Sender<SyncEvent>,
    tokens: TokenBucket,
    /// The pods that wait for the read under way.
    reading: Vec<PodUid>,
    /// The pods that came after it began.
    next: Vec<PodUid>,
    read: Option<rt::Task<()>>,
}

impl NodeReads {
    pub(crate) fn new(status: StatusView, inbox: Sender<SyncEvent>) -> Self {
        let tokens = TokenBucket::each(NODE_READ_INTERVAL, NODE_READ_BURST, rt::now());
        Self { status, inbox, tokens, reading: Vec::new(), next: Vec::new(), read: None }
    }

    /// Reads the Node object for the pod. False if it was read too often of late.
    pub(super) fn wait(&mut self, uid: &PodUid, now: Instant) -> bool {
        if self.read.is_some() {
            self.next.push(uid.clone());
            return true;
        }
        if !self.tokens.take(now) {
            return false;
        }
        self.reading.push(uid.clone());
        self.begin();
        true
    }

    /// The read has ended, or has taken too long. Returns the pods to decide about.
    pub(super) fn on_read(&mut self, now: Instant) -> Vec<PodUid> {
        let mut decided = std::mem::take(&mut self.reading);
        self.read = None;
        if !self.next.is_empty() && self.tokens.take(now) {
            self.reading = std::mem::take(&mut self.next);
            self.begin();
        }
        decided.append(&mut self.next);
        decided
    }

    fn begin(&mut self) {
        let (status, inbox) = (self.status.clone(), self.inbox.clone());
        self.read = Some(rt::spawn(async move {
            let _ = rt::deadline(NODE_READ_TIMEOUT, status.fresh_node()).await;
            // The receiver is gone only at shutdown.
            let _ = inbox.send(SyncEvent::NodeRead).await;
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::kubelet::node::StatusInputs;

    fn simulated(
        test: impl AsyncFnOnce(NodeReads, async_channel::Receiver<SyncEvent>, Rc<StatusInputs>) + Send + 'static,
    ) {
        let run = rt::simulate(1, |_| async move {
            let (inbox, events) = async_channel::bounded(8);
            let inputs: Rc<StatusInputs> = Rc::default();
            test(NodeReads::new(StatusView::new(&inputs), inbox), events, inputs).await;
        });
        assert_eq!(run, Ok(()));
    }

    fn uids(names: &[&str]) -> Vec<PodUid> {
        names.iter().map(|name| PodUid::from(*name)).collect()
    }

    #[test]
    fn pod_that_comes_during_a_read_waits_for_the_next_one() {
        simulated(async |mut reads, events, inputs| {
            assert!(reads.wait(&"a".into(), rt::now()));
            while !inputs.take_wanted_read() {
                rt::yield_now().await;
            }
            assert!(reads.wait(&"b".into(), rt::now()));
            inputs.set_node_read();
            assert!(matches!(events.recv().await, Ok(SyncEvent::NodeRead)));
            assert_eq!(reads.on_read(rt::now()), uids(&["a"]));
            while !inputs.take_wanted_read() {
                rt::yield_now().await;
            }
            inputs.set_node_read();
            assert!(matches!(events.recv().await, Ok(SyncEvent::NodeRead)));
            assert_eq!(reads.on_read(rt::now()), uids(&["b"]));
        });
    }

    #[test]
    fn read_without_an_answer_ends_after_its_time_limit() {
        simulated(async |mut reads, events, _| {
            let begun = rt::now();
            assert!(reads.wait(&"a".into(), begun));
            assert!(matches!(events.recv().await, Ok(SyncEvent::NodeRead)));
            assert_eq!(rt::elapsed(begun), NODE_READ_TIMEOUT);
            assert_eq!(reads.on_read(rt::now()), uids(&["a"]));
        });
    }

    #[test]
    fn node_is_read_a_few_times_and_then_at_intervals() {
        simulated(async |mut reads, _events, _| {
            let now = rt::now();
            for _ in 0..NODE_READ_BURST {
                assert!(reads.wait(&"a".into(), now));
                assert_eq!(reads.on_read(now), uids(&["a"]));
            }
            assert!(!reads.wait(&"a".into(), now));
            let later = now + NODE_READ_INTERVAL;
            assert!(reads.wait(&"a".into(), later) && reads.wait(&"b".into(), later));
            assert_eq!(reads.on_read(later), uids(&["a", "b"]), "no token is left for a further read");
            assert!(!reads.wait(&"a".into(), later));
        });
    }
}
