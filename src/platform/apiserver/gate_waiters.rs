//! Futures that wait for the gate.

use std::rc::Rc;
use std::time::Duration;

use super::client::Client;
use super::gate::{Gate, Opening, Rank};
use super::traffic::Traffic;
use crate::platform::rt;

/// A round, in which every reflector lists once, or an open gate, at which they watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) is_round: bool,
    pub(super) number: u64,
}

impl Client {
    /// Waits until requests of this rank are admitted. The caller builds its request after that.
    pub(crate) async fn admitted(&self, rank: Rank) {
        if !self.gate().admits(rank) {
            let _waits = self.gate().waits(rank);
            let admits = |gate: &Gate| gate.admits(rank);
            until(self.gate(), admits).await;
        }
    }

    /// Waits until requests of this rank are no longer admitted.
    pub(crate) async fn shut_out(&self, rank: Rank) {
        until(self.gate(), |gate| !gate.admits(rank)).await;
    }

    /// Waits until the gate was opened more than `openings` times and admits this rank.
    pub(crate) async fn opened_since(&self, openings: u64, rank: Rank) {
        until(self.gate(), |gate| gate.openings() > openings && gate.admits(rank)).await;
    }

    /// Waits until a reflector may list or watch, and for the next round if it has taken part in round `done`.
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

/// Waits until no admitted request is waiting or in flight, and none arrives for a while.
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

/// A rank counts as finished if no request has arrived for this long: a new pod is processed meanwhile, and requests
/// what it needs.
const SETTLES: Duration = Duration::from_millis(250);
/// A transfer without a byte for this long counts as finished.
const STALLS: Duration = Duration::from_secs(30);

/// Waits until the gate is shut.
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
    /// A gate that is always open.
    pub(super) fn none() -> Rc<Self> {
        Self::new(Opening::Open(Rank::Event), None)
    }
}
