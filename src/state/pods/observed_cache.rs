//! The newest observation of each pod. Pure.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use crate::state::pods::ObservedPod;
use crate::types::api::PodUid;
use crate::types::sorted::SortedMap;

/// Cache of observations. An older query's result never replaces that of a newer one, even if the newer one found
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct ObservedCache {
    pods: SortedMap<PodUid, CachedPod>,
    /// Pods that were gone in the query with this number. Kept while an older query is in progress.
    gone: SortedMap<PodUid, u64>,
    /// Number of queries begun. Cells, because whoever reads the cache may begin a query.
    begun: Cell<u64>,
    under_way: RefCell<VecDeque<Query>>,
}

/// The number of a query, and whether it is still in progress.
type Query = (u64, Weak<()>);

#[derive(Debug)]
struct CachedPod {
    pod: Rc<ObservedPod>,
    query: u64,
}

/// A query of the runtime: begun before the first request, and held until its result is stored.
#[derive(Clone, Debug)]
pub(crate) struct ObservationTicket {
    number: u64,
    #[expect(dead_code, reason = "the query is in progress while this is held")]
    under_way: Arc<()>,
}

/// The effect of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObserveResult {
    /// A newer query's result is already stored.
    TooLate,
    NothingNew,
    News,
}

impl ObservedCache {
    pub(crate) fn pod(&self, uid: &PodUid) -> Option<&Rc<ObservedPod>> {
        self.pods.get(uid).map(|seen| &seen.pod)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rc<ObservedPod>> + Clone {
        self.pods.values().map(|seen| &seen.pod)
    }

    /// Begins a query.
    pub(crate) fn begin(&self) -> ObservationTicket {
        let number = self.begun.get() + 1;
        self.begun.set(number);
        let query = Arc::new(());
        let mut under_way = self.under_way.borrow_mut();
        forget_ended(&mut under_way);
        under_way.push_back((number, Arc::downgrade(&query)));
        ObservationTicket { number, under_way: query }
    }

    pub(crate) fn observe(&mut self, pod: ObservedPod, ticket: &ObservationTicket) -> ObserveResult {
        self.forget_gone();
        let newest = self.pods.get(&pod.uid).map(|seen| seen.query).or_else(|| self.gone.get(&pod.uid).copied());
        if newest.is_some_and(|newest| newest > ticket.number) {
            return ObserveResult::TooLate;
        }
        let former = self.pods.get_mut(&pod.uid);
        if pod.is_gone() {
            let was_known = former.is_some();
            self.pods.remove(&pod.uid);
            self.gone.insert(pod.uid, ticket.number);
            self.forget_gone();
            return if was_known { ObserveResult::News } else { ObserveResult::NothingNew };
        }
        self.gone.remove(&pod.uid);
        match former {
            Some(seen) if *seen.pod == pod => {
                seen.query = ticket.number;
                ObserveResult::NothingNew
            }
            Some(_) | None => {
                self.pods.insert(pod.uid.clone(), CachedPod { pod: Rc::new(pod), query: ticket.number });
                ObserveResult::News
            }
        }
    }

    /// Forgets pods that no query in progress could report again.
    fn forget_gone(&mut self) {
        let under_way = self.under_way.get_mut();
        forget_ended(under_way);
        match under_way.front() {
            Some((oldest, _)) => self.gone.retain(|_, query| *query > *oldest),
            None => self.gone.clear(),
        }
    }
}

fn forget_ended(queries: &mut VecDeque<Query>) {
    while queries.front().is_some_and(|(_, query)| query.strong_count() == 0) {
        queries.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pods::{ObservedSandbox, SandboxState};

    fn pod(sandboxes: &[&str]) -> ObservedPod {
        let mut pod = ObservedPod::new(PodUid::from("u"), "default", "web");
        pod.sandboxes = sandboxes
            .iter()
            .map(|id| ObservedSandbox {
                id: (*id).to_owned(),
                attempt: 0,
                state: SandboxState::Ready,
                created_at: 0,
                host_network: false,
                ips: Vec::new(),
                has_address: false,
                pid: None,
            })
            .collect();
        pod
    }

    #[test]
    fn repeated_observation_is_not_a_change() {
        let mut cache = ObservedCache::default();
        let look = cache.begin();
        assert_eq!(cache.observe(pod(&["a"]), &look), ObserveResult::News);
        assert_eq!(cache.observe(pod(&["a"]), &look), ObserveResult::NothingNew);
        assert_eq!(cache.observe(pod(&["b"]), &look), ObserveResult::News);
        assert_eq!(cache.observe(pod(&[]), &look), ObserveResult::News);
        assert_eq!(cache.observe(pod(&[]), &look), ObserveResult::NothingNew);
        assert_eq!(cache.iter().count(), 0);
    }

    #[test]
    fn gone_pod_is_forgotten_once_no_older_query_is_in_progress() {
        let mut cache = ObservedCache::default();
        let (first, second) = (cache.begin(), cache.begin());
        cache.observe(pod(&["a"]), &second);
        cache.observe(pod(&[]), &second);
        assert_eq!(cache.gone.len(), 1);
        drop(first);
        let third = cache.begin();
        assert_eq!((cache.gone.len(), cache.under_way.borrow().len()), (1, 2));
        let mut other = pod(&["b"]);
        other.uid = PodUid::from("v");
        cache.observe(other, &third);
        assert_eq!(cache.gone.len(), 0);
        drop((second, third));
        cache.begin();
        assert_eq!(cache.under_way.borrow().len(), 1);
    }

    /// A query begins; or one in progress sees the pod, does not see it, or is dropped.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Begin,
        Sees(usize, bool),
        GivenUp(usize),
    }

    /// Runs every sequence of `length` steps and checks after each step that the cache has the result of the newest
    /// query whose result was stored.
    fn every_sequence(steps: &mut Vec<Step>, length: usize) -> u32 {
        let under_way = replay(steps);
        if length == 0 {
            return 1;
        }
        let ends =
            (0..under_way).flat_map(|look| [Step::Sees(look, true), Step::Sees(look, false), Step::GivenUp(look)]);
        let mut all = 1;
        for step in std::iter::once(Step::Begin).chain(ends) {
            steps.push(step);
            all += every_sequence(steps, length - 1);
            steps.pop();
        }
        all
    }

    /// Returns the number of queries in progress at the end.
    fn replay(steps: &[Step]) -> usize {
        let mut cache = ObservedCache::default();
        let mut looks: Vec<ObservationTicket> = Vec::new();
        let mut newest: Option<(u64, bool)> = None;
        for step in steps {
            match *step {
                Step::Begin => looks.push(cache.begin()),
                Step::GivenUp(place) => drop(looks.remove(place)),
                Step::Sees(place, there) => {
                    let look = looks.remove(place);
                    // Each query sees a different sandbox, so that results can be told apart.
                    let id = look.number.to_string();
                    let sandboxes = if there { &[&*id][..] } else { &[] };
                    let late = newest.is_some_and(|(number, _)| number > look.number);
                    let taken = cache.observe(pod(sandboxes), &look);
                    assert_eq!(taken == ObserveResult::TooLate, late, "{steps:?}");
                    if !late {
                        newest = Some((look.number, there));
                    }
                }
            }
            let shown = cache.pod(&PodUid::from("u")).map(|pod| pod.sandboxes[0].id.clone());
            let expected = newest.and_then(|(number, there)| there.then(|| number.to_string()));
            assert_eq!(shown, expected, "{steps:?}");
            if looks.is_empty() {
                cache.forget_gone();
                assert!(cache.gone.is_empty() && cache.under_way.borrow().is_empty(), "{steps:?}");
            }
        }
        looks.len()
    }

    #[test]
    fn newest_completed_query_wins_in_every_order() {
        let sequences = every_sequence(&mut Vec::new(), 8);
        assert!(sequences > 10_000, "{sequences}");
    }
}
