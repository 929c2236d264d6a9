//! Paces requests after an absence, so that a fleet that lost its server does not overload it on return.
//!
//! Leases are renewed at once. Node status follows soon: until then the controllers consider the node not ready, and
//! evict its pods after five minutes. The other ranks follow in order. Each waits for a random part of its delay.
//!
//! After a short absence, which mostly concerns one node, the delays are a few seconds. They grow with the absence, and
//! if the server is overloaded.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::gate::{Gate, Rank};
use super::gate_waiters::settle;
use super::traffic::Traffic;
use crate::platform::rt;

/// A shorter loss of the connection, such as a restart of the server, is not an absence.
const NOTICED_ABSENCE_TIME: Duration = Duration::from_secs(5);
/// Up to this absence the server knows everything within ten seconds of its return.
const MAX_SHORT_ABSENCE: Duration = Duration::from_secs(120);
/// The longest delays after a short absence. Connecting and the requests take the rest of the ten seconds.
const MAX_SHORT_NODE_DELAY: Duration = Duration::from_secs(1);
const MAX_SHORT_OTHERS_DELAY: Duration = Duration::from_secs(2);
/// A server that takes longer to answer counts as overloaded.
const OVERLOADED_RESPONSE_TIME: Duration = Duration::from_secs(5);
/// A node renews its lease every ten seconds. After the server's return it sends three requests for its Node object and
/// about seven others. With these delays, late nodes send the first while early nodes send the others, so that a
/// fleet's request rate at most doubles.
const NODE_SPREAD: Duration = Duration::from_secs(60);
const MAX_RECONNECT_SPREAD: Duration = Duration::from_secs(150);
/// How long the requests of a rank delay the next rank.
const MAX_RANK_SETTLE_TIME: Duration = Duration::from_secs(30);

/// The longest delays after an absence: of node status, and then of the rest; `None` if it was too short.
pub(super) fn spread(away: Duration) -> Option<[Duration; 2]> {
    let grown = away.saturating_sub(MAX_SHORT_ABSENCE).saturating_mul(2);
    (away >= NOTICED_ABSENCE_TIME).then(|| {
        [(grown + MAX_SHORT_NODE_DELAY).min(NODE_SPREAD), (grown + MAX_SHORT_OTHERS_DELAY).min(MAX_RECONNECT_SPREAD)]
    })
}

/// How often the server has shown that it is overloaded.
#[derive(Debug, Default)]
pub(super) struct Overload {
    signs: Cell<u32>,
}

impl Overload {
    /// The server asked for a delay (Retry-After), or a request timed out.
    pub(super) fn shows(&self) {
        self.signs.set(self.signs.get().wrapping_add(1));
    }

    /// Records how long the server took to answer.
    pub(super) fn record_response_time(&self, after: Duration) {
        if after > OVERLOADED_RESPONSE_TIME {
            self.shows();
        }
    }
}

/// Narrows the gate for as long as it lives.
pub(super) struct ReconnectGuard {
    gate: Rc<Gate>,
    waits: [Duration; 2],
    /// The delay if the server is overloaded.
    overloaded: Duration,
}

impl ReconnectGuard {
    /// Admits only leases from now on. `part` of the longest delays applies.
    pub(super) fn begin(gate: &Rc<Gate>, most: [Duration; 2], part: f64) -> Self {
        gate.narrow(Some(Rank::Lease));
        let waits = most.map(|most| most.mul_f64(part));
        Self { gate: Rc::clone(gate), waits, overloaded: MAX_RECONNECT_SPREAD.mul_f64(part) }
    }

    /// Widens the gate step by step, until everything is admitted.
    pub(super) async fn run(self, traffic: &Traffic, overload: &Overload) {
        let [node, rest] = self.waits;
        let settled = async || {
            // After this time the next rank follows all the same.
            let _ = rt::deadline(MAX_RANK_SETTLE_TIME, settle(&self.gate, traffic)).await;
        };
        let (hurried, mut seen_signs) = (self.gate.hurried.changes(), overload.signs.get());
        let mut in_hurry = false;
        for (rank, wait) in [(Rank::Node, node), (Rank::Intent, rest), (Rank::Status, Duration::ZERO)] {
            let turn = async {
                settled().await;
                let signs = overload.signs.get();
                let is_overloaded = std::mem::replace(&mut seen_signs, signs) != signs;
                rt::sleep(if is_overloaded { wait.max(self.overloaded) } else { wait }).await;
                false
            };
            let hurry = async {
                self.gate.hurried.beyond(hurried).await;
                true
            };
            if in_hurry {
                settled().await;
            } else {
                in_hurry = rt::either(turn, hurry).await;
            }
            self.gate.narrow(Some(rank));
        }
        settled().await;
    }
}

impl Drop for ReconnectGuard {
    fn drop(&mut self) {
        self.gate.narrow(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::apiserver::Opening;

    #[test]
    fn delays_grow_with_the_absence_up_to_a_limit() {
        let spread = |seconds| spread(Duration::from_secs(seconds)).map(|most| most.map(|most| most.as_secs()));
        let known =
            [None, None, Some([1, 2]), Some([1, 2]), Some([41, 42]), Some([60, 102]), Some([60, 150]), Some([60, 150])];
        assert_eq!([0, 4, 5, 120, 140, 170, 195, 86_400].map(spread), known);
    }

    #[test]
    fn everything_is_admitted_within_ten_seconds_unless_the_server_is_overloaded() {
        for (away, is_overloaded, expected) in [(119, false, 0..5), (119, true, 100..200), (3600, false, 150..215)] {
            let took = rt::simulate(1, |_| async move {
                let (gate, traffic) = (Gate::new(Opening::Open(Rank::Event), None), Traffic::default());
                let overload = Overload::default();
                let most = spread(Duration::from_secs(away)).unwrap_or_default();
                let comeback = ReconnectGuard::begin(&gate, most, 0.99);
                let begun = rt::now();
                let lease = async {
                    rt::sleep(Duration::from_millis(100)).await;
                    overload.record_response_time(if is_overloaded {
                        OVERLOADED_RESPONSE_TIME * 2
                    } else {
                        OVERLOADED_RESPONSE_TIME
                    });
                    std::future::pending().await
                };
                rt::either(lease, comeback.run(&traffic, &overload)).await;
                assert!(gate.admits(Rank::Event));
                rt::elapsed(begun).as_secs()
            });
            let took = took.unwrap();
            assert!(expected.contains(&took), "away for {away} s: {took} s");
        }
    }

    #[test]
    fn requests_without_a_pause_do_not_keep_the_gate_narrow() {
        let took = rt::simulate(1, |_| async move {
            let (gate, traffic) = (Gate::new(Opening::Open(Rank::Event), None), Traffic::default());
            let most = spread(NOTICED_ABSENCE_TIME).unwrap_or_default();
            let comeback = ReconnectGuard::begin(&gate, most, 0.99);
            let begun = rt::now();
            let requests = async {
                loop {
                    let _pass = gate.passes(Rank::Lease);
                    rt::sleep(Duration::from_millis(100)).await;
                }
            };
            rt::either(requests, comeback.run(&traffic, &Overload::default())).await;
            rt::elapsed(begun).as_secs()
        });
        assert!((120..125).contains(&took.unwrap()));
    }
}
