//! Turns of image pulls. Namespaces take turns, so that one with slow registries delays another by one turn.

use std::cell::RefCell;
use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use crate::platform::rt;
use crate::types::sorted::SortedMap;

/// Hands out a limited number of turns.
pub(super) struct PullTurns(RefCell<State>);

struct State {
    /// Free turns.
    free: usize,
    arrivals: u64,
    waiting: Vec<WaitingPull>,
    /// The namespaces whose pulls wait or are under way.
    namespaces: SortedMap<Rc<str>, Share>,
}

struct WaitingPull {
    namespace: Rc<str>,
    /// Of a static or system-critical pod.
    is_of_node: bool,
    arrival: u64,
    begins: Sender<()>,
}

#[derive(Debug, Default)]
struct Share {
    /// Pulls that have or had a turn and are under way.
    pulling: usize,
    /// When its last turn began, in the order of turns.
    last: u64,
}

/// A pull that waits or is under way. Dropping it ends the pull's wait or turn.
pub(super) struct PullTurn {
    /// `None` for a pull that needs no turn.
    turns: Option<Rc<PullTurns>>,
    namespace: Rc<str>,
    /// While it waits.
    arrival: u64,
    is_passed_on: bool,
}

/// After this time a pull passes its turn on to another namespace that waits, and continues beside that one's pull.
const PULL_TURN: Duration = Duration::from_secs(10 * 60);
/// How often a longer pull looks whether another namespace waits.
const PULL_TURN_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// How often a pull wakes up that has no turn to pass on.
const IDLE_INTERVAL: Duration = Duration::from_secs(24 * 3600);

impl PullTurns {
    pub(super) fn new(limit: usize) -> Rc<Self> {
        let state = State { free: limit, arrivals: 0, waiting: Vec::new(), namespaces: SortedMap::new() };
        Rc::new(Self(RefCell::new(state)))
    }

    /// A turn that is free now.
    pub(super) fn try_take(self: &Rc<Self>, namespace: &str) -> Option<PullTurn> {
        let mut state = self.0.borrow_mut();
        if state.free == 0 {
            return None;
        }
        let namespace = Rc::from(namespace);
        state.begin(&namespace);
        Some(PullTurn { turns: Some(Rc::clone(self)), namespace, arrival: state.arrivals, is_passed_on: false })
    }

    /// Waits for a turn.
    pub(super) async fn take(self: &Rc<Self>, namespace: &str, is_of_node: bool) -> PullTurn {
        let namespace: Rc<str> = Rc::from(namespace);
        let (begins, beginning) = async_channel::bounded(1);
        let turn = {
            let mut state = self.0.borrow_mut();
            state.arrivals += 1;
            let arrival = state.arrivals;
            state.namespaces.entry(Rc::clone(&namespace)).or_default();
            state.waiting.push(WaitingPull { namespace: Rc::clone(&namespace), is_of_node, arrival, begins });
            state.hand_out();
            PullTurn { turns: Some(Rc::clone(self)), namespace, arrival, is_passed_on: false }
        };
        // The sender is dropped after use.
        let _ = beginning.recv().await;
        turn
    }
}

impl State {
    fn hand_out(&mut self) {
        while let Some(pull) = self.next() {
            let _ = pull.begins.try_send(());
        }
    }

    fn begin(&mut self, namespace: &Rc<str>) {
        self.free -= 1;
        self.arrivals += 1;
        let share = self.namespaces.entry(Rc::clone(namespace)).or_default();
        share.pulling += 1;
        share.last = self.arrivals;
    }

    /// Pulls of the node come first, then those of the namespace with the fewest pulls under way that waits the longest
    /// since its last turn.
    fn next(&mut self) -> Option<WaitingPull> {
        if self.free == 0 {
            return None;
        }
        let order = |pull: &WaitingPull| {
            let share = self.namespaces.get(&pull.namespace);
            let (pulling, last) = share.map_or((0, 0), |share| (share.pulling, share.last));
            (!pull.is_of_node, pulling, last, pull.arrival)
        };
        let (place, _) = self.waiting.iter().enumerate().min_by_key(|(_, pull)| order(pull))?;
        let pull = self.waiting.remove(place);
        self.begin(&pull.namespace);
        Some(pull)
    }

    fn end(&mut self, turn: &PullTurn) {
        let place = self.waiting.iter().position(|pull| pull.arrival == turn.arrival);
        if let Some(place) = place {
            self.waiting.remove(place);
        } else {
            self.free += usize::from(!turn.is_passed_on);
        }
        let waits = self.waiting.iter().any(|pull| pull.namespace == turn.namespace);
        if let Some(share) = self.namespaces.get_mut(&turn.namespace) {
            share.pulling -= usize::from(place.is_none());
            if share.pulling == 0 && !waits {
                self.namespaces.remove(&turn.namespace);
            }
        }
        self.hand_out();
    }
}

impl PullTurn {
    /// For a pull beside those that have turns.
    pub(super) fn beside() -> Self {
        Self { turns: None, namespace: Rc::from(""), arrival: 0, is_passed_on: false }
    }

    /// Runs the pull, which passes its turn on when it takes long and another namespace waits.
    pub(super) async fn run<T>(mut self, pull: impl Future<Output = T>) -> T {
        let mut pull = pin!(pull);
        let mut wait = PULL_TURN;
        loop {
            if let Ok(pulled) = rt::deadline(wait, pull.as_mut()).await {
                return pulled;
            }
            self.pass_on();
            let is_idle = self.is_passed_on || self.turns.is_none();
            wait = if is_idle { IDLE_INTERVAL } else { PULL_TURN_CHECK_INTERVAL };
        }
    }

    fn pass_on(&mut self) {
        let Some(turns) = &self.turns else { return };
        let mut state = turns.0.borrow_mut();
        if !self.is_passed_on && state.waiting.iter().any(|pull| pull.namespace != self.namespace) {
            self.is_passed_on = true;
            state.free += 1;
            state.hand_out();
        }
    }
}

impl Drop for PullTurn {
    fn drop(&mut self) {
        if let Some(turns) = &self.turns {
            turns.0.borrow_mut().end(self);
        }
    }
}

impl fmt::Debug for PullTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PullTurns").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rt::{World, simulate, sleep, spawn};

    const HOUR: Duration = Duration::from_secs(3600);

    /// How long a pull of `ours` waits while `others` waits with ten pulls that take `each`, the first of them begun.
    fn waits(limit: usize, ours: (&'static str, bool), others: &'static str, each: Duration) -> Duration {
        let waited = simulate(1, move |world: Rc<World>| async move {
            let turns = PullTurns::new(limit);
            let greedy: Vec<_> = (0..10)
                .map(|_| {
                    let turns = Rc::clone(&turns);
                    spawn(async move { turns.take(others, false).await.run(sleep(each)).await })
                })
                .collect();
            sleep(Duration::from_secs(1)).await;
            let begun = world.passed();
            let turn = turns.take(ours.0, ours.1).await;
            let waited = world.passed() - begun;
            drop((turn, greedy));
            waited
        });
        waited.unwrap()
    }

    #[test]
    fn namespace_with_slow_registries_delays_another_by_one_turn() {
        assert!(waits(1, ("ours", false), "others", 5 * HOUR) <= PULL_TURN);
        assert!(waits(3, ("ours", false), "others", 5 * HOUR) <= PULL_TURN);
        // One turn at a time.
        assert!(waits(1, ("ours", false), "others", PULL_TURN / 2) <= PULL_TURN / 2);
    }

    #[test]
    fn pulls_of_one_namespace_keep_their_turns() {
        assert!(waits(1, ("ours", false), "ours", 5 * HOUR) > 49 * HOUR);
    }

    #[test]
    fn pulls_of_the_node_come_first() {
        assert!(waits(1, ("ours", true), "ours", HOUR) <= HOUR);
    }

    #[test]
    fn abandoned_and_ended_turns_are_free_again() {
        let free = simulate(1, |_| async {
            let turns = PullTurns::new(1);
            let first = turns.try_take("a").unwrap();
            assert!(turns.try_take("b").is_none());
            for _ in 0..10 {
                assert!(rt::deadline(Duration::from_millis(1), turns.take("b", false)).await.is_err());
            }
            drop(first);
            drop(turns.take("a", false).await);
            let state = turns.0.borrow();
            (state.free, state.waiting.len(), state.namespaces.len())
        });
        assert_eq!(free, Ok((1, 0, 0)));
    }
}
