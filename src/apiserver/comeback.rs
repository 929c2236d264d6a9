//! After an absence: who asks first, and when. A fleet that has lost its server does not come back as one.
//!
//! A lease is a sign of life and goes at once; the rest waits for a moment of the node's own, and then goes rank by rank:
//! what the node is, what it is to run, what has become of that, and what happened.

use std::rc::Rc;
use std::time::Duration;

use super::gate::{Gate, Rank};
use super::traffic::Traffic;
use super::turns::settle;
use crate::rt;

/// A server that was only restarted, or another connection to it, is no absence.
const NOTICED: Duration = Duration::from_secs(5);
/// A node asks about ten things when it is back, and renews its lease every ten seconds: the fleet then asks for less than
/// twice of what it does at rest.
const MOST: Duration = Duration::from_secs(150);

/// How long the rest waits at most, after an absence of so long; `None`: not at all.
pub(super) fn spread(away: Duration) -> Option<Duration> {
    (away >= NOTICED).then(|| away.saturating_mul(2).min(MOST))
}

/// The gate is as narrow as this says, for as long as it lives.
pub(super) struct Comeback {
    gate: Rc<Gate>,
    wait: Duration,
}

impl Comeback {
    /// Nothing but leases are admitted from now on.
    pub(super) fn begin(gate: &Rc<Gate>, wait: Duration) -> Self {
        gate.narrow(Some(Rank::Lease));
        Self { gate: Rc::clone(gate), wait }
    }

    /// Until everything is admitted again.
    pub(super) async fn run(self, traffic: &Traffic) {
        let first = async {
            settle(&self.gate, traffic).await;
            rt::sleep(self.wait).await;
        };
        rt::either(first, self.gate.hurried.beyond(self.gate.hurried.changes())).await;
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
        let spread = |seconds| spread(Duration::from_secs(seconds)).map(|most| most.as_secs());
        assert_eq!([0, 4, 5, 30, 75, 86_400].map(spread), [None, None, Some(10), Some(60), Some(150), Some(150)]);
    }
}
