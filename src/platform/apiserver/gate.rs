//! What may be asked of the API server now: nothing, everything, or as much as it has come to. Pure.
//!
//! Whoever has something to ask waits here before he puts it into words, so that what goes out is true when it goes.
//! A gate that is shut ends every connection behind it.
//!
//! ```text
//!            open(rank), then rank by rank          shut
//!   Shut ------------------------------> Round ----------> Shut
//!     '--------------------------------> Open  ----------> Shut
//! ```

use std::cell::Cell;
use std::rc::Rc;

use crate::platform::rpc::Signal;

/// Kinds of requests, in the order in which they are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Lease,
    Node,
    /// The pods that the node is to run, and what they need.
    Intent,
    /// What has become of them.
    Status,
    Event,
}

/// How far the gate is open: up to and with a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Shut,
    /// For one exchange: what is followed is asked for once, and ends.
    Round(Rank),
    Open(Rank),
}

#[derive(Debug)]
pub(crate) struct Gate {
    opening: Cell<Opening>,
    /// How often it was opened.
    openings: Cell<u64>,
    /// The last rank that passes while the node comes back after an absence.
    narrowed: Cell<Option<Rank>>,
    /// Bytes that may be used, if there is a bound, and that are left of them.
    budget: Option<u64>,
    left: Cell<u64>,
    counts: [Counts; RANKS],
    /// Notified when other ranks are admitted than before.
    pub(crate) changed: Signal,
    /// Notified when something comes to the gate, and when a request has ended.
    pub(crate) moved: Signal,
    /// Notified when somebody on the node does not want to wait.
    pub(crate) hurried: Signal,
}

/// Of one rank.
#[derive(Debug, Default)]
struct Counts {
    waiting: Cell<u32>,
    under_way: Cell<u32>,
    answered: Cell<u32>,
    failed: Cell<u32>,
}

const RANKS: usize = 5;
/// With TLS, both certificates and a ticket.
const CONNECTION: u64 = 8 << 10;

impl Rank {
    pub(crate) const ALL: [Self; RANKS] = [Self::Lease, Self::Node, Self::Intent, Self::Status, Self::Event];

    /// The part of a day's bytes after which nothing of this rank is asked, in percent: the rest is for what counts more.
    /// A lease comes before statuses, these before what is to run, and all of them before events.
    const fn share(self) -> u64 {
        match self {
            Self::Lease => 100,
            Self::Node | Self::Status => 90,
            Self::Intent => 80,
            Self::Event => 60,
        }
    }

    /// So much of a day's bytes is not for this rank. What is asked is paid for when it is known what it has cost: nothing
    /// is begun with less than a connection may take.
    fn kept(self, budget: u64) -> u64 {
        (budget / 100 * (100 - self.share())).max(CONNECTION)
    }

    /// As it is told.
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
            left: Cell::new(budget.unwrap_or(u64::MAX)),
            counts: Default::default(),
            changed: Signal::default(),
            moved: Signal::default(),
            hurried: Signal::default(),
        })
    }

    /// A gate that is always open.
    pub(super) fn none() -> Rc<Self> {
        Self::new(Opening::Open(Rank::Event), None)
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

    /// Lets an open gate pass no more than this, as if it had just been opened; or all of it again.
    pub(super) fn narrow(&self, last: Option<Rank>) {
        let before = self.narrowed.replace(last);
        if before.is_none() && last.is_some() {
            self.openings.set(self.openings.get() + 1);
        }
        if before != last {
            self.changed.notify();
        }
    }

    /// So many bytes have been used today. True if something is admitted now that was not, or the other way round.
    pub(crate) fn used(&self, bytes: u64) -> bool {
        let Some(budget) = self.budget else { return false };
        let before = self.left_out().count();
        self.left.set(budget.saturating_sub(bytes));
        let is_news = self.left_out().count() != before;
        if is_news {
            self.changed.notify();
        }
        is_news
    }

    pub(crate) fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// For what today's bytes do not last.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = Rank> {
        Rank::ALL.into_iter().filter(|rank| !self.affords(*rank))
    }

    fn affords(&self, rank: Rank) -> bool {
        self.budget.is_none_or(|budget| self.left.get() > rank.kept(budget))
    }

    /// After how many bytes of today something else is left out; `None` if nothing is.
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

    /// How often it was opened.
    pub(crate) fn openings(&self) -> u64 {
        self.openings.get()
    }

    pub(crate) fn admits(&self, rank: Rank) -> bool {
        self.admits_now(rank) && self.narrowed.get().is_none_or(|last| rank <= last)
    }

    /// The same for what is of no use later.
    pub(super) fn admits_now(&self, rank: Rank) -> bool {
        let is_open = match self.opening.get() {
            Opening::Shut => false,
            Opening::Round(last) | Opening::Open(last) => rank <= last,
        };
        is_open && self.affords(rank)
    }

    /// Whether nobody of the ranks that are admitted waits or is on his way.
    pub(crate) fn is_quiet(&self) -> bool {
        Rank::ALL
            .iter()
            .zip(&self.counts)
            .all(|(rank, counts)| counts.under_way.get() == 0 && (counts.waiting.get() == 0 || !self.admits(*rank)))
    }

    /// Answers so far, and requests that have failed, each by rank.
    pub(crate) fn tally(&self) -> [(u32, u32); RANKS] {
        self.counts.each_ref().map(|counts| (counts.answered.get(), counts.failed.get()))
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

    /// Somebody waits until he is admitted; dropping it takes him away.
    pub(super) fn waits(self: &Rc<Self>, rank: Rank) -> Waits {
        add(&self.counts(rank).waiting);
        self.moved.notify();
        Waits { gate: Rc::clone(self), rank }
    }

    /// A request is on its way until this is dropped.
    pub(super) fn passes(self: &Rc<Self>, rank: Rank) -> Pass {
        add(&self.counts(rank).under_way);
        self.moved.notify();
        Pass { gate: Rc::clone(self), rank }
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
pub(super) struct Pass {
    gate: Rc<Gate>,
    rank: Rank,
}

impl Pass {
    /// What has come of it.
    pub(super) fn ended(&self, answered: bool) {
        let counts = self.gate.counts(self.rank);
        add(if answered { &counts.answered } else { &counts.failed });
    }
}

impl Drop for Pass {
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
    fn a_gate_admits_what_it_has_come_to_and_nothing_when_it_is_shut() {
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
    fn it_is_quiet_when_nobody_who_is_admitted_waits_or_is_on_his_way() {
        let gate = Gate::new(Opening::Round(Rank::Lease), None);
        let event = gate.waits(Rank::Event);
        assert!(gate.is_quiet(), "its turn has not come");
        gate.set(Opening::Round(Rank::Event));
        assert!(!gate.is_quiet());
        let pass = gate.passes(Rank::Event);
        drop(event);
        assert!(!gate.is_quiet());
        pass.ended(true);
        drop(pass);
        assert!(gate.is_quiet());
        assert_eq!(gate.tally()[4], (1, 0));
    }

    /// The day's bytes go out for events first, then for what is to run, then for statuses, and for leases at the end.
    #[test]
    fn as_the_days_bytes_are_used_up_events_are_left_out_first_and_leases_last() {
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
    fn who_comes_back_is_admitted_rank_by_rank_and_who_cannot_wait_at_once() {
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
    fn without_a_bound_nothing_is_ever_left_out() {
        let gate = Gate::new(Opening::Open(Rank::Event), None);
        assert!(!gate.used(u64::MAX) && admitted(&gate).len() == 5 && gate.next_mark().is_none());
    }
}
