//! Decides which requests to the API server are admitted: none, some ranks, or all. Pure.
//!
//! A caller waits at the gate before it builds its request, so that the request is up to date when it is sent. Shutting
//! the gate closes the connections behind it.
//!
//! ```text
//!            open(rank), then rank by rank          shut
//!   Shut ------------------------------> Round ----------> Shut
//!     '--------------------------------> Open  ----------> Shut
//! ```

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::platform::rpc::Signal;

/// Kinds of requests, in the order in which a round sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Lease,
    Node,
    /// The pods of this node, and the objects that they refer to.
    Intent,
    /// Pod statuses.
    Status,
    Event,
}

/// How far the gate is open. A rank admits all ranks before it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Shut,
    /// For one round: each reflector lists once and its watch ends.
    Round(Rank),
    Open(Rank),
}

#[derive(Debug)]
pub(crate) struct Gate {
    opening: Cell<Opening>,
    /// How often the gate was opened.
    openings: Cell<u64>,
    /// The last rank admitted while requests are paced after an absence.
    narrowed: Cell<Option<Rank>>,
    /// The budget in bytes, if there is one, and how much is left of it.
    budget: Option<u64>,
    budget_left: Cell<u64>,
    /// When the budget's day ends, by the boot clock.
    day_ends: Cell<Duration>,
    counts: [Counts; GATE_RANKS],
    /// Notified when the set of admitted ranks changes.
    pub(crate) changed: Signal,
    /// Notified when a caller arrives at the gate, and when a request has ended.
    pub(crate) moved: Signal,
    /// Notified when a user on the node asks to synchronize at once.
    pub(crate) hurried: Signal,
}

/// Counters of one rank.
#[derive(Debug, Default)]
struct Counts {
    waiting: Cell<u32>,
    under_way: Cell<u32>,
    succeeded: Cell<u32>,
    failed: Cell<u32>,
}

const GATE_RANKS: usize = 5;
/// Bytes of a TLS handshake with both certificates and a ticket.
const TLS_HANDSHAKE_BYTES: u64 = 8 << 10;

impl Rank {
    pub(crate) const ALL: [Self; GATE_RANKS] = [Self::Lease, Self::Node, Self::Intent, Self::Status, Self::Event];

    /// The percentage of the daily budget that this rank and all others may use before its requests are refused; the
    /// rest is reserved. Leases may use all of it, then node and pod statuses, then pods, and events the least: a pod
    /// that is not started yet costs nothing, and one that was started is reported to its end.
    const fn share(self) -> u64 {
        match self {
            Self::Lease => 100,
            Self::Node | Self::Status => 90,
            Self::Intent => 80,
            Self::Event => 60,
        }
    }

    /// The part of the budget that is reserved from this rank. Requests are charged after they are sent, so no request
    /// starts with less left than a connection may cost.
    fn kept(self, budget: u64) -> u64 {
        (budget / 100 * (100 - self.share())).max(TLS_HANDSHAKE_BYTES)
    }

    /// The name in the status output.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Lease => "leases",
            Self::Node => "node status",
            Self::Intent => "pods and what they need",
            Self::Status => "pod statuses",
            Self::Event => "events",
        }
    }
}

impl Gate {
    pub(crate) fn new(opening: Opening, budget: Option<u64>) -> Rc<Self> {
        Rc::new(Self {
            opening: Cell::new(opening),
            openings: Cell::new(0),
            narrowed: Cell::new(None),
            budget,
            budget_left: Cell::new(budget.unwrap_or(u64::MAX)),
            day_ends: Cell::default(),
            counts: Default::default(),
            changed: Signal::default(),
            moved: Signal::default(),
            hurried: Signal::default(),
        })
    }

    /// Opens, opens further, or shuts.
    pub(crate) fn set(&self, opening: Opening) {
        let before = self.opening.replace(opening);
        if before == Opening::Shut && opening != Opening::Shut {
            self.openings.set(self.openings.get() + 1);
        }
        if before != opening {
            self.changed.notify();
        }
    }

    /// Limits an open gate to ranks up to `last`, as if it had just been opened, or lifts that limit.
    pub(super) fn narrow(&self, last: Option<Rank>) {
        let before = self.narrowed.replace(last);
        if before.is_none() && last.is_some() {
            self.openings.set(self.openings.get() + 1);
        }
        if before != last {
            self.changed.notify();
        }
    }

    /// Records the bytes used today. Returns whether that changes which ranks are admitted.
    pub(crate) fn used(&self, bytes: u64) -> bool {
        let Some(budget) = self.budget else { return false };
        let before = self.left_out().count();
        self.budget_left.set(budget.saturating_sub(bytes));
        let is_news = self.left_out().count() != before;
        if is_news {
            self.changed.notify();
        }
        is_news
    }

    /// Deducts bytes of images before the day's use is counted again.
    pub(crate) fn charge(&self, bytes: u64) {
        self.budget_left.set(self.budget_left.get().saturating_sub(bytes));
    }

    /// Bytes that images may still use today: as much as events.
    pub(crate) fn left_for_images(&self) -> u64 {
        self.budget.map_or(u64::MAX, |budget| self.budget_left.get().saturating_sub(Rank::Event.kept(budget)))
    }

    /// When the budget's day ends, by the boot clock.
    pub(crate) fn day_ends(&self) -> Duration {
        self.day_ends.get()
    }

    pub(crate) fn set_day_end(&self, end: Duration) {
        self.day_ends.set(end);
    }

    pub(crate) fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// The ranks for which the budget is exhausted.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = Rank> {
        Rank::ALL.into_iter().filter(|rank| !self.affords(*rank))
    }

    fn affords(&self, rank: Rank) -> bool {
        self.budget.is_none_or(|budget| self.budget_left.get() > rank.kept(budget))
    }

    /// The number of bytes at which the next rank is left out; `None` if there is none.
    pub(crate) fn next_mark(&self) -> Option<u64> {
        let budget = self.budget?;
        let marks = Rank::ALL.into_iter().filter(|rank| self.affords(*rank));
        marks.map(|rank| budget.saturating_sub(rank.kept(budget))).min()
    }

    pub(crate) fn is_shut(&self) -> bool {
        !self.admits(Rank::Lease)
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.opening.get(), Opening::Open(_))
    }

    /// How often the gate was opened.
    pub(crate) fn openings(&self) -> u64 {
        self.openings.get()
    }

    pub(crate) fn admits(&self, rank: Rank) -> bool {
        self.admits_now(rank) && self.narrowed.get().is_none_or(|last| rank <= last)
    }

    /// As [`Self::admits`], ignoring the pacing, for requests that are useless later.
    pub(super) fn admits_now(&self, rank: Rank) -> bool {
        let is_open = match self.opening.get() {
            Opening::Shut => false,
            Opening::Round(last) | Opening::Open(last) => rank <= last,
        };
        is_open && self.affords(rank)
    }

    /// Whether no request of an admitted rank is waiting or in flight.
    pub(crate) fn is_quiet(&self) -> bool {
        Rank::ALL
            .iter()
            .zip(&self.counts)
            .all(|(rank, counts)| counts.under_way.get() == 0 && (counts.waiting.get() == 0 || !self.admits(*rank)))
    }

    /// Successful and failed requests so far, by rank.
    pub(crate) fn tally(&self) -> [(u32, u32); GATE_RANKS] {
        self.counts.each_ref().map(|counts| (counts.succeeded.get(), counts.failed.get()))
    }

    /// Records the outcome of a request.
    pub(super) fn on_ended(&self, rank: Rank, succeeded: bool) {
        let counts = self.counts(rank);
        add(if succeeded { &counts.succeeded } else { &counts.failed });
    }

    fn counts(&self, rank: Rank) -> &Counts {
        let [lease, node, intent, status, event] = &self.counts;
        match rank {
            Rank::Lease => lease,
            Rank::Node => node,
            Rank::Intent => intent,
            Rank::Status => status,
            Rank::Event => event,
        }
    }

    /// Counts a waiting caller until the result is dropped.
    pub(super) fn waits(self: &Rc<Self>, rank: Rank) -> Waits {
        add(&self.counts(rank).waiting);
        self.moved.notify();
        Waits { gate: Rc::clone(self), rank }
    }

    /// Counts a request in flight until the result is dropped.
    pub(super) fn passes(self: &Rc<Self>, rank: Rank) -> GatePass {
        add(&self.counts(rank).under_way);
        self.moved.notify();
        GatePass { gate: Rc::clone(self), rank }
    }
}

fn add(count: &Cell<u32>) {
    count.set(count.get().saturating_add(1));
}

#[derive(Debug)]
pub(super) struct Waits {
    gate: Rc<Gate>,
    rank: Rank,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let waiting = &self.gate.counts(self.rank).waiting;
        waiting.set(waiting.get().saturating_sub(1));
        self.gate.moved.notify();
    }
}

#[derive(Debug)]
pub(super) struct GatePass {
    gate: Rc<Gate>,
    rank: Rank,
}

impl Drop for GatePass {
    fn drop(&mut self) {
        let under_way = &self.gate.counts(self.rank).under_way;
        under_way.set(under_way.get().saturating_sub(1));
        self.gate.moved.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(gate: &Gate) -> Vec<Rank> {
        Rank::ALL.into_iter().filter(|rank| gate.admits(*rank)).collect()
    }

    #[test]
    fn gate_admits_ranks_up_to_its_opening() {
        let gate = Gate::new(Opening::Shut, None);
        assert!(admitted(&gate).is_empty() && gate.is_shut());
        gate.set(Opening::Round(Rank::Lease));
        assert_eq!((admitted(&gate), gate.openings()), (vec![Rank::Lease], 1));
        gate.set(Opening::Round(Rank::Intent));
        assert_eq!((admitted(&gate), gate.openings()), (Rank::ALL[..3].to_vec(), 1));
        gate.set(Opening::Open(Rank::Event));
        assert_eq!((admitted(&gate), gate.is_open()), (Rank::ALL.to_vec(), true));
        gate.set(Opening::Shut);
        gate.set(Opening::Open(Rank::Event));
        assert_eq!(gate.openings(), 2);
    }

    #[test]
    fn gate_is_quiet_without_admitted_requests() {
        let gate = Gate::new(Opening::Round(Rank::Lease), None);
        let event = gate.waits(Rank::Event);
        assert!(gate.is_quiet(), "its turn has not come");
        gate.set(Opening::Round(Rank::Event));
        assert!(!gate.is_quiet());
        let pass = gate.passes(Rank::Event);
        drop(event);
        assert!(!gate.is_quiet());
        gate.on_ended(Rank::Event, true);
        drop(pass);
        assert!(gate.is_quiet());
        assert_eq!(gate.tally()[4], (1, 0));
    }

    #[test]
    fn images_may_use_as_much_of_the_budget_as_events() {
        let gate = Gate::new(Opening::Open(Rank::Event), Some(1_000_000));
        assert_eq!(gate.left_for_images(), 600_000);
        gate.charge(500_000);
        assert_eq!((gate.left_for_images(), gate.admits(Rank::Event)), (100_000, true));
        gate.charge(200_000);
        assert_eq!((gate.left_for_images(), gate.admits(Rank::Event), gate.admits(Rank::Intent)), (0, false, true));
        assert_eq!(Gate::new(Opening::Shut, None).left_for_images(), u64::MAX);
    }

    /// The budget runs out for events first, then for pods, then for statuses, and for leases last.
    #[test]
    fn budget_runs_out_for_events_first_and_leases_last() {
        use Rank::{Event, Intent, Lease, Node, Status};

        let gate = Gate::new(Opening::Open(Event), Some(1_000_000));
        let table: [(u64, &[Rank]); 8] = [
            (0, &[]),
            (599_999, &[]),
            (600_000, &[Event]),
            (800_000, &[Intent, Event]),
            (900_000, &[Node, Intent, Status, Event]),
            (991_807, &[Node, Intent, Status, Event]),
            (991_808, &Rank::ALL),
            (5_000_000, &Rank::ALL),
        ];
        for (used, left_out) in table {
            gate.used(used);
            assert_eq!(gate.left_out().collect::<Vec<_>>(), left_out, "{used}");
            assert!(left_out.iter().all(|rank| !gate.admits(*rank)));
        }
        assert!(gate.is_shut() && gate.next_mark().is_none());
        assert!(gate.used(0), "the next day");
        assert_eq!((admitted(&gate).len(), gate.next_mark()), (5, Some(600_000)));
        assert!(!gate.used(599_999) && gate.used(600_000));
        assert_eq!((gate.next_mark(), gate.admits(Lease)), (Some(800_000), true));
    }

    #[test]
    fn pacing_does_not_delay_urgent_requests() {
        let gate = Gate::new(Opening::Open(Rank::Event), None);
        gate.narrow(Some(Rank::Lease));
        assert_eq!((admitted(&gate), gate.openings(), gate.is_open()), (vec![Rank::Lease], 1, true));
        assert!(gate.admits_now(Rank::Event));
        gate.narrow(Some(Rank::Intent));
        assert_eq!((admitted(&gate), gate.openings()), (Rank::ALL[..3].to_vec(), 1));
        gate.narrow(None);
        assert_eq!(admitted(&gate), Rank::ALL);
    }

    #[test]
    fn without_a_budget_every_rank_is_admitted() {
        let gate = Gate::new(Opening::Open(Rank::Event), None);
        assert!(!gate.used(u64::MAX) && admitted(&gate).len() == 5 && gate.next_mark().is_none());
    }
}
