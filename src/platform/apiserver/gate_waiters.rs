//! Futures that wait for the gate.

use std::rc::Rc;
use std::time::Duration;

use super::gate::{Gate, Rank};
use super::traffic::Traffic;
use crate::platform::rt;

/// A round, in which every reflector lists once, or an open gate, at which they watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GateTurn {
    pub(super) is_round: bool,
    pub(super) number: u64,
}

impl Gate {
    /// Waits until requests of this rank are admitted. The caller then builds its request, which is up to date.
    pub(crate) async fn admitted(self: &Rc<Self>, rank: Rank) {
        if !self.admits(rank) {
            let _waits = self.waits(rank);
            self.until(|gate| gate.admits(rank)).await;
        }
    }

    /// Waits until requests of this rank are no longer admitted.
    pub(crate) async fn shut_out(&self, rank: Rank) {
        self.until(|gate| !gate.admits(rank)).await;
    }

    /// Waits until no connection may be held.
    pub(super) async fn shut(&self) {
        self.until(Self::is_shut).await;
    }

    /// Waits until the gate was opened more than `openings` times and admits this rank.
    pub(crate) async fn opened_since(&self, openings: u64, rank: Rank) {
        self.until(|gate| gate.openings() > openings && gate.admits(rank)).await;
    }

    /// Waits until a reflector may list or watch, and for the next round if it has taken part in round `done`.
    pub(super) async fn wait_for_turn(&self, done: u64, rank: Rank) -> GateTurn {
        let turn = |gate: &Self| GateTurn { is_round: !gate.is_open(), number: gate.openings() };
        self.until(|gate| {
            let GateTurn { is_round, number } = turn(gate);
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

/// Waits until no admitted request is waiting or in flight, and none arrives for a while.
pub(crate) async fn settle(gate: &Gate, traffic: &Traffic) {
    loop {
        let (moved, bytes) = (gate.moved.changes(), traffic.bytes());
        let is_quiet = gate.is_quiet();
        let still =
            rt::deadline(if is_quiet { IDLE_RANK_TIME } else { STALLED_TRANSFER_TIMEOUT }, gate.moved.beyond(moved))
                .await
                .is_err();
        if still && (is_quiet || traffic.bytes() == bytes) {
            return;
        }
    }
}

/// A rank counts as finished if no request has arrived for this long: a new pod is processed meanwhile, and requests
/// what it needs.
const IDLE_RANK_TIME: Duration = Duration::from_millis(250);
/// A transfer without a byte for this long counts as finished.
const STALLED_TRANSFER_TIMEOUT: Duration = Duration::from_secs(30);
