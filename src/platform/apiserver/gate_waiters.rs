//! Waiting at the gate.

use std::rc::Rc;
use std::time::Duration;

use super::gate::{Gate, Rank};
use super::traffic::Traffic;
use crate::platform::rt;

/// One exchange, in which everything that is followed is asked for once; or an open gate, in which it is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) is_round: bool,
    pub(super) number: u64,
}

impl Gate {
    /// Waits until requests of this rank are admitted: what is asked then is true then.
    pub(crate) async fn admitted(self: &Rc<Self>, rank: Rank) {
        if !self.admits(rank) {
            let _waits = self.waits(rank);
            self.until(|gate| gate.admits(rank)).await;
        }
    }

    /// Waits until none of this rank are admitted any more.
    pub(crate) async fn shut_out(&self, rank: Rank) {
        self.until(|gate| !gate.admits(rank)).await;
    }

    /// Waits until no connection may be held.
    pub(super) async fn shut(&self) {
        self.until(Self::is_shut).await;
    }

    /// Waits until the gate has been opened since, and admits this rank.
    pub(crate) async fn opened_since(&self, openings: u64, rank: Rank) {
        self.until(|gate| gate.openings() > openings && gate.admits(rank)).await;
    }

    /// Waits until what is followed may be asked for, which in the exchange `done` it was.
    pub(super) async fn turn(&self, done: u64, rank: Rank) -> Turn {
        let turn = |gate: &Self| Turn { is_round: !gate.is_open(), number: gate.openings() };
        self.until(|gate| {
            let Turn { is_round, number } = turn(gate);
            gate.admits(rank) && !(is_round && number == done)
        })
        .await;
        turn(self)
    }

    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let seen = self.changed.changes();
            if holds(self) {
                return;
            }
            self.changed.beyond(seen).await;
        }
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
