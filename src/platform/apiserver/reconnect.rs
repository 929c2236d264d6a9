//! After an absence: who asks first, and when. A fleet that has lost its server does not come back as one.
//!
//! A lease is a sign of life and goes at once. What the node is comes soon: the controllers' word that it is not ready stands
//! until then, and ends its pods after five minutes. The rest follows, rank by rank. Each waits for a moment of the node's own.

use std::rc::Rc;
use std::time::Duration;

use super::gate::{Gate, Rank};
use super::gate_waiters::settle;
use super::traffic::Traffic;
use crate::platform::rt;

/// A server that was only restarted, or another connection to it, is no absence.
const NOTICED: Duration = Duration::from_secs(5);
/// A node renews its lease every ten seconds. It asks three things for what it is and about seven more, and the first nodes are
/// at these while the last ones wait for those: within such times a fleet asks for less than twice of what it does at rest.
const NODE: Duration = Duration::from_secs(60);
const MOST: Duration = Duration::from_secs(150);

/// How long, after an absence of so long, what the node is waits at most, and after that the rest; `None`: not at all.
pub(super) fn spread(away: Duration) -> Option<[Duration; 2]> {
    let most = away.saturating_mul(2);
    (away >= NOTICED).then(|| [most.min(NODE), most.min(MOST)])
}

/// The gate is as narrow as this says, for as long as it lives.
pub(super) struct Comeback {
    gate: Rc<Gate>,
    waits: [Duration; 2],
}

impl Comeback {
    /// Nothing but leases are admitted from now on.
    pub(super) fn begin(gate: &Rc<Gate>, waits: [Duration; 2]) -> Self {
        gate.narrow(Some(Rank::Lease));
        Self { gate: Rc::clone(gate), waits }
    }

    /// Until everything is admitted again.
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
    fn the_longer_nobody_was_there_the_more_a_fleet_is_spread_up_to_a_bound() {
        let spread = |seconds| spread(Duration::from_secs(seconds)).map(|most| most.map(|most| most.as_secs()));
        let known = [None, None, Some([10, 10]), Some([60, 60]), Some([60, 150]), Some([60, 150])];
        assert_eq!([0, 4, 5, 30, 75, 86_400].map(spread), known);
    }
}
