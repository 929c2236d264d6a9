//! Waiting at the gate.

use std::rc::Rc;
use std::time::Duration;

use super::client::Client;
use super::gate::{Gate, Opening, Rank};
use super::traffic::Traffic;
use crate::platform::rt;

/// One exchange, in which everything that is followed is asked for once; or an open gate, in which it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) is_round: bool,
    pub(super) number: u64,
}

impl Client {
    /// Waits until requests of this rank are admitted: what is asked then is true then.
    pub(crate) async fn admitted(&self, rank: Rank) {
        if !self.gate().admits(rank) {
            let _waits = self.gate().waits(rank);
            let admits = |gate: &Gate| gate.admits(rank);
            until(self.gate(), admits).await;
        }
    }

    /// Waits until none of this rank are admitted any more.
    pub(crate) async fn shut_out(&self, rank: Rank) {
        until(self.gate(), |gate| !gate.admits(rank)).await;
    }

    /// Waits until the gate has been opened since, and admits this rank.
    pub(crate) async fn opened_since(&self, openings: u64, rank: Rank) {
        until(self.gate(), |gate| gate.openings() > openings && gate.admits(rank)).await;
    }

    /// Waits until what is followed may be asked for, which in the exchange `done` it was.
    pub(super) async fn turn(&self, done: u64, rank: Rank) -> Turn {
        let turn = |gate: &Gate| Turn { is_round: !gate.is_open(), number: gate.openings() };
        until(self.gate(), |gate| {
            let Turn { is_round, number } = turn(gate);
            gate.admits(rank) && !(is_round && number == done)
        })
        .await;
        turn(self.gate())
    }
}

/// Waits until nothing of what is admitted is on its way any more, or comes to be.
pub(crate) async fn settle(gate: &Gate, traffic: &Traffic) {
    loop {
        let (moved, bytes) = (gate.moved.changes(), traffic.bytes());
        let is_quiet = gate.is_quiet();
        let still = rt::deadline(if is_quiet { SETTLES } else { STALLS }, gate.moved.beyond(moved)).await.is_err();
        if still && (is_quiet || traffic.bytes() == bytes) {
            return;
        }
    }
}

/// Nothing more comes of one kind of request when nothing has for so long: a pod that has just come is worked on meanwhile,
/// and what it needs is asked for.
const SETTLES: Duration = Duration::from_millis(250);
/// A server from which nothing has come for so long has nothing more to say.
const STALLS: Duration = Duration::from_secs(30);

/// Waits until no connection may be held.
pub(super) async fn shut(gate: &Gate) {
    until(gate, Gate::is_shut).await;
}

async fn until(gate: &Gate, holds: impl Fn(&Gate) -> bool) {
    loop {
        let seen = gate.changed.changes();
        if holds(gate) {
            return;
        }
        gate.changed.beyond(seen).await;
    }
}

impl Gate {
    /// A gate that nobody shuts.
    pub(super) fn none() -> Rc<Self> {
        Self::new(Opening::Open(Rank::Event), None)
    }
}
