//! Paces requests after an absence, so that a fleet that lost its server does not overload it on return.
//!
//! Leases are renewed at once. Node status follows soon: until then the controllers consider the node not ready, and
//! evict its pods after five minutes. The other ranks follow in order. Each waits for a random part of its delay.

use std::rc::Rc;
use std::time::Duration;

use super::gate::{Gate, Rank};
use super::gate_waiters::settle;
use super::traffic::Traffic;
use crate::platform::rt;

/// A shorter loss of the connection, such as a restart of the server, is not an absence.
const NOTICED: Duration = Duration::from_secs(5);
/// A node renews its lease every ten seconds. On return it sends three requests for its node object and about seven
/// more, and early nodes send these while late ones send those: with these delays a fleet's request rate at most
/// doubles.
const NODE: Duration = Duration::from_secs(60);
const MOST: Duration = Duration::from_secs(150);

/// The longest delays after an absence: of node status, and then of the rest; `None` if it was too short.
pub(super) fn spread(away: Duration) -> Option<[Duration; 2]> {
    let most = away.saturating_mul(2);
    (away >= NOTICED).then(|| [most.min(NODE), most.min(MOST)])
}

/// Narrows the gate for as long as it lives.
pub(super) struct Comeback {
    gate: Rc<Gate>,
    waits: [Duration; 2],
}

impl Comeback {
    /// Admits only leases from now on.
    pub(super) fn begin(gate: &Rc<Gate>, waits: [Duration; 2]) -> Self {
        gate.narrow(Some(Rank::Lease));
        Self { gate: Rc::clone(gate), waits }
    }

    /// Widens the gate step by step, until everything is admitted.
    pub(super) async fn run(self, traffic: &Traffic) {
        let [node, rest] = self.waits;
        let waits = async {
            settle(&self.gate, traffic).await;
            rt::sleep(node).await;
            self.gate.narrow(Some(Rank::Node));
            settle(&self.gate, traffic).await;
            rt::sleep(rest).await;
        };
        rt::either(waits, self.gate.hurried.beyond(self.gate.hurried.changes())).await;
        for rank in [Rank::Node, Rank::Intent, Rank::Status] {
            self.gate.narrow(Some(rank));
            settle(&self.gate, traffic).await;
        }
    }
}

impl Drop for Comeback {
    fn drop(&mut self) {
        self.gate.narrow(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_with_the_absence_up_to_a_limit() {
        let spread = |seconds| spread(Duration::from_secs(seconds)).map(|most| most.map(|most| most.as_secs()));
        let known = [None, None, Some([10, 10]), Some([60, 60]), Some([60, 150]), Some([60, 150])];
        assert_eq!([0, 4, 5, 30, 75, 86_400].map(spread), known);
    }
}
