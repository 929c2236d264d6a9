//! Evicts pods that exceed their own local storage limits. The measurements run independently of the node pressure
//! checks, which do not wait for them.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use super::manager::EvictionManager;
use super::pressure_check::{IMMEDIATE_EVICTION_GRACE, measure, observe};
use crate::control::eviction::{Candidate, ExceededLimit, Layout, PodUsage, exceeded, has_limits};
use crate::control::pod_table::PodTable;
use crate::platform::rt;
use crate::state::pods::{PodEviction, SyncEvent};
use crate::types::api::PodUid;
use crate::types::sorted::{SortOnce, SortedMap};

/// Time limit of one round of measurements. The next round continues after the pod measured last.
const MEASURE_ROUND_TIMEOUT: Duration = Duration::from_secs(10);

/// The measurements against the pods' own limits.
pub(crate) struct StorageLimits {
    inbox: Sender<SyncEvent>,
    is_requested: bool,
    task: Option<rt::Task<()>>,
    walks: Rc<RefCell<Walks>>,
}

impl StorageLimits {
    pub(crate) fn new(inbox: Sender<SyncEvent>) -> Self {
        Self { inbox, is_requested: false, task: None, walks: Rc::default() }
    }

    pub(crate) fn on_relisted(&mut self) {
        self.is_requested = true;
    }

    fn is_busy(&self) -> bool {
        self.task.as_ref().is_some_and(|task| !task.is_finished())
    }
}

impl StorageLimits {
    /// Starts a requested round.
    pub(crate) fn round(&mut self, pods: &PodTable, eviction: &EvictionManager) {
        if !self.is_requested || self.is_busy() || !pods.can_work() {
            return;
        }
        self.is_requested = false;
        let has_limits = |candidate: &Candidate| has_limits(&candidate.pod) || !candidate.claims.is_empty();
        let candidates: Vec<Candidate> = eviction.candidates(pods).into_iter().filter(has_limits).collect();
        if candidates.is_empty() {
            return;
        }
        let (runtime, inbox) = (Rc::clone(pods.runtime()), self.inbox.clone());
        let kept = Rc::clone(&self.walks);
        self.task = Some(rt::spawn(async move {
            let (_, layout) = observe(&runtime).await;
            let measure = measure(&runtime);
            let walk = |candidate: &Candidate| -> Walk {
                let (measure, candidate) = (measure.clone(), candidate.clone());
                Box::pin(async move { measure.limited(&candidate).await })
            };
            let mut walks = kept.take();
            let measured = walks.round(candidates, walk, rt::now() + MEASURE_ROUND_TIMEOUT).await;
            kept.replace(walks);
            let evictions: Vec<PodEviction> =
                measured.iter().filter_map(|(candidate, usage)| over_its_limits(candidate, usage, layout)).collect();
            if !evictions.is_empty() {
                // The loop outlives its tasks.
                let _ = inbox.send(SyncEvent::OverStorageLimits(evictions)).await;
            }
        }));
    }
}

fn over_its_limits(candidate: &Candidate, usage: &PodUsage, layout: Layout) -> Option<PodEviction> {
    let ExceededLimit { signal, message } = exceeded(&candidate.pod, usage, layout == Layout::ImagesApart)?;
    let uid = candidate.pod.metadata.uid.clone();
    Some(PodEviction { uid, signal, message, grace: IMMEDIATE_EVICTION_GRACE, is_disruption: false })
}

type Walk = Pin<Box<dyn Future<Output = PodUsage>>>;

/// Measures pods one at a time.
#[derive(Default)]
struct Walks {
    /// Walks that outlasted their round. A second walk of the same pod would take as long.
    under_way: SortedMap<PodUid, Walk>,
    last: Option<PodUid>,
}

impl Walks {
    /// Measures pods until `end`, starting after the last pod of the previous round.
    async fn round(
        &mut self,
        mut pods: Vec<Candidate>,
        begin: impl Fn(&Candidate) -> Walk,
        end: Instant,
    ) -> Vec<(Candidate, PodUsage)> {
        pods.sort_once_by(|a, b| a.pod.metadata.uid.cmp(&b.pod.metadata.uid));
        let behind = pods.partition_point(|candidate| Some(&candidate.pod.metadata.uid) <= self.last.as_ref());
        pods.rotate_left(behind);
        self.under_way.retain(|uid, _| pods.iter().any(|candidate| candidate.pod.metadata.uid == *uid));
        let mut measured = Vec::new();
        for candidate in pods {
            let left = end.saturating_duration_since(rt::now());
            if left.is_zero() {
                break;
            }
            let uid = candidate.pod.metadata.uid.clone();
            let mut walk = self.under_way.remove(&uid).unwrap_or_else(|| begin(&candidate));
            self.last = Some(uid.clone());
            match rt::deadline(left, &mut walk).await {
                Ok(usage) => measured.push((candidate, usage)),
                Err(rt::Elapsed) => drop(self.under_way.insert(uid, walk)),
            }
        }
        measured
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;
    use crate::state::pods::ObservedPod;
    use crate::types::api::Pod;

    fn candidate(uid: &str) -> Candidate {
        let mut pod = Pod::default();
        pod.metadata.uid = uid.into();
        Candidate { pod: Arc::new(pod), observed: Rc::new(ObservedPod::new(uid.into(), "ns", uid)), claims: Vec::new() }
    }

    #[test]
    fn pod_on_a_hanging_disk_is_walked_once_and_ends_its_round() {
        let rounds = rt::simulate(1, |world| async move {
            let begun = Cell::new(0);
            let walk = |candidate: &Candidate| -> Walk {
                if candidate.pod.metadata.uid.as_str() == "b" {
                    begun.set(begun.get() + 1);
                    return Box::pin(std::future::pending());
                }
                Box::pin(std::future::ready(PodUsage::default()))
            };
            let mut walks = Walks::default();
            let mut rounds = Vec::new();
            for _ in 0..3 {
                let began = world.passed();
                let pods = ["c", "b", "a"].map(candidate).into();
                let measured = walks.round(pods, walk, rt::now() + MEASURE_ROUND_TIMEOUT).await;
                let names: Vec<String> = measured.iter().map(|(one, _)| one.pod.metadata.uid.to_string()).collect();
                rounds.push((names.concat(), (world.passed() - began).as_secs()));
            }
            (rounds, begun.get())
        });
        let expected = vec![("a".to_owned(), 10), ("ca".to_owned(), 10), ("ca".to_owned(), 10)];
        assert_eq!(rounds, Ok((expected, 1)));
    }
}
