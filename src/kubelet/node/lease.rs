//! State machine of the node lease. Pure: time is an argument.
//!
//! ```text
//!   Unseen --found--> Unclaimed --claimed--> Held
//!     |                  ^  ^                 |
//!     '-not found-> Missing '---refused-------'
//! ```
//!
//! The lease is renewed every ten seconds and is nearly all the traffic of an idle node, so a renewal is small: a
//! patch of `renewTime` alone, with only metadata in the response. The claim before it empties `managedFields`, which
//! would be larger than the rest of the object.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::types::timestamp::Timestamp;

#[derive(Debug)]
pub(crate) struct Lease {
    node: String,
    duration: Duration,
    state: State,
    /// The owner's uid as last written.
    owner: String,
    /// The last renew time and when it was written or read. The clock may have been set back since, or not been set
    /// in this boot; the node lifecycle controller treats a lease whose renew time does not advance as not renewed.
    last: Option<(Timestamp, Instant)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unseen,
    Missing,
    Unclaimed,
    Held,
}

/// The next request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LeaseStep {
    Get,
    Create(Value),
    /// A merge patch of all the fields that the node owns.
    Claim(Value),
    /// A merge patch of `renewTime` alone.
    Renew(Value),
    /// Wait: without a registered node the lease would have no owner.
    AwaitNode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseOutcome {
    Done,
    /// The lease exists and was last renewed at this time.
    Found(Option<Timestamp>),
    NotFound,
    /// Creation failed because the lease exists.
    Exists,
    /// The server rejected the request.
    Refused,
    /// No response, or a retryable error.
    Unreached,
}

pub(crate) const NAMESPACE: &str = "kube-node-lease";

impl Lease {
    pub(crate) fn new(node: &str, duration: Duration) -> Self {
        Self { node: node.to_owned(), duration, state: State::Unseen, owner: String::new(), last: None }
    }

    /// The next request. `uid` is the uid of the registered node, or empty.
    pub(crate) fn next(&self, uid: &str, now: Timestamp, instant: Instant) -> LeaseStep {
        let time = format!("{:.6}", self.renew_time(now, instant));
        let spec = json!({
            "holderIdentity": self.node, "leaseDurationSeconds": self.duration.as_secs(), "renewTime": time,
        });
        match self.state {
            State::Unseen => LeaseStep::Get,
            State::Missing if uid.is_empty() => LeaseStep::AwaitNode,
            State::Missing => LeaseStep::Create(json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": self.node, "namespace": NAMESPACE, "ownerReferences": self.owners(uid) },
                "spec": spec,
            })),
            State::Held if uid.is_empty() || uid == self.owner => {
                LeaseStep::Renew(json!({ "spec": { "renewTime": time } }))
            }
            State::Unclaimed | State::Held => {
                // An entry with no fields clears `managedFields` and stops the server from tracking them.
                let mut metadata = json!({ "managedFields": [{}] });
                if let (Value::Object(metadata), false) = (&mut metadata, uid.is_empty()) {
                    metadata.insert("ownerReferences".to_owned(), self.owners(uid));
                }
                LeaseStep::Claim(json!({ "metadata": metadata, "spec": spec }))
            }
        }
    }

    fn owners(&self, uid: &str) -> Value {
        json!([{ "apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid }])
    }

    /// The clock, or the last renew time plus the time elapsed since, whichever is later.
    fn renew_time(&self, now: Timestamp, instant: Instant) -> Timestamp {
        let grown = self.last.map(|(last, then)| {
            let passed = instant.saturating_duration_since(then).max(MIN_RENEW_TIME_STEP);
            last.checked_add(passed).unwrap_or(Timestamp::MAX)
        });
        grown.map_or(now, |grown| grown.max(now))
    }

    /// Applies the outcome of a step that `next` returned for the same arguments.
    pub(crate) fn done(
        &mut self,
        step: &LeaseStep,
        outcome: LeaseOutcome,
        uid: &str,
        now: Timestamp,
        instant: Instant,
    ) {
        match outcome {
            LeaseOutcome::Done => {
                self.last = Some((self.renew_time(now, instant), instant));
                if !matches!(step, LeaseStep::Renew(_)) {
                    uid.clone_into(&mut self.owner);
                }
                self.state = if matches!(step, LeaseStep::Create(_)) { State::Unclaimed } else { State::Held };
            }
            LeaseOutcome::Found(last) => {
                self.last = last.map(|last| (last, instant)).or(self.last);
                self.state = State::Unclaimed;
            }
            LeaseOutcome::NotFound => self.state = State::Missing,
            LeaseOutcome::Exists => self.state = State::Unseen,
            LeaseOutcome::Refused if self.state == State::Held => self.state = State::Unclaimed,
            LeaseOutcome::Refused | LeaseOutcome::Unreached => {}
        }
    }

    /// The renew interval without jitter (`nodeLeaseRenewIntervalFraction`).
    pub(crate) fn interval(&self) -> Duration {
        self.duration / 4
    }
}

/// Minimum difference between two renew times.
const MIN_RENEW_TIME_STEP: Duration = Duration::from_micros(1);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lease() -> Lease {
        Lease::new("node1", Duration::from_secs(40))
    }

    /// Runs the steps that these outcomes lead to; returns what was sent.
    fn steps(lease: &mut Lease, uid: &str, outcomes: &[LeaseOutcome]) -> Vec<LeaseStep> {
        let instant = Instant::now();
        let step = |(second, outcome): (usize, &LeaseOutcome)| {
            let now = at(second.try_into().unwrap());
            let step = lease.next(uid, now, instant);
            lease.done(&step, *outcome, uid, now, instant);
            step
        };
        outcomes.iter().enumerate().map(step).collect()
    }

    fn words(steps: &[LeaseStep]) -> Vec<&'static str> {
        let word = |step: &LeaseStep| match step {
            LeaseStep::Get => "get",
            LeaseStep::Create(_) => "create",
            LeaseStep::Claim(_) => "claim",
            LeaseStep::Renew(_) => "renew",
            LeaseStep::AwaitNode => "await",
        };
        steps.iter().map(word).collect()
    }

    #[test]
    fn lease_matches_the_recorded_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/upstream-1.36/lease.json");
        let mut recorded: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let uid = recorded["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap().to_owned();
        let now: Timestamp = recorded["spec"]["renewTime"].as_str().unwrap().parse().unwrap();
        let mut lease = lease();
        lease.state = State::Missing;
        let LeaseStep::Create(made) = lease.next(&uid, now, Instant::now()) else { panic!("no lease") };
        // Set by the API server.
        for field in ["creationTimestamp", "resourceVersion", "uid"] {
            recorded["metadata"].as_object_mut().unwrap().remove(field).unwrap();
        }
        assert_eq!(made, recorded);
    }

    #[test]
    fn existing_lease_is_claimed_and_then_renewed_with_fifty_bytes() {
        use LeaseOutcome::{Done, Found};

        let steps = steps(&mut lease(), "u", &[Found(None), Done, Done]);
        let claim = json!({
            "metadata": {
                "managedFields": [{}],
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "u" }],
            },
            "spec": {
                "holderIdentity": "node1", "leaseDurationSeconds": 40, "renewTime": "1970-01-01T00:00:01.000000Z",
            },
        });
        let renewal = json!({ "spec": { "renewTime": "1970-01-01T00:00:02.000000Z" } });
        assert_eq!(renewal.to_string().len(), 52);
        assert_eq!(steps, [LeaseStep::Get, LeaseStep::Claim(claim), LeaseStep::Renew(renewal)]);
    }

    #[test]
    fn missing_lease_is_created_once_the_node_exists() {
        use LeaseOutcome::{Done, Exists, Found, NotFound, Unreached};

        let mut lease = lease();
        assert_eq!(words(&steps(&mut lease, "", &[Unreached, NotFound, Unreached])), ["get", "get", "await"]);
        let made = steps(&mut lease, "u", &[Unreached, Done, Done, Done]);
        assert_eq!(words(&made), ["create", "create", "claim", "renew"]);
        let again = steps(&mut lease, "u", &[NotFound, Exists, Found(None), Done, Unreached, Done]);
        assert_eq!(words(&again), ["renew", "create", "get", "claim", "renew", "renew"]);
    }

    #[test]
    fn refusal_or_a_new_node_uid_leads_to_a_claim() {
        use LeaseOutcome::{Done, Found, Refused};

        let mut lease = lease();
        steps(&mut lease, "", &[Found(None), Done]);
        assert_eq!(lease.state, State::Held);
        assert_eq!(lease.interval(), Duration::from_secs(10));
        // It was claimed before the node was known.
        assert_eq!(words(&steps(&mut lease, "u", &[Done, Done])), ["claim", "renew"]);
        assert_eq!(words(&steps(&mut lease, "v", &[Done, Refused, Done, Done])), ["claim", "renew", "claim", "renew"]);
    }

    #[test]
    fn renew_time_advances_whatever_the_clock_does() {
        let mut lease = lease();
        let start = Instant::now();
        let look = LeaseStep::Get;
        lease.done(&look, LeaseOutcome::Found(Some(at(1000))), "u", at(5), start);
        let second = Duration::from_secs(1);
        assert_eq!(lease.renew_time(at(6), start + second), at(1001), "the clock was not set in this boot");
        let renewal = lease.next("u", at(6), start + second);
        lease.done(&renewal, LeaseOutcome::Done, "u", at(6), start + second);
        assert_eq!(lease.renew_time(at(2000), start + second * 2), at(2000), "now it is");
        lease.done(&renewal, LeaseOutcome::Done, "u", at(2000), start + second * 2);
        assert_eq!(lease.renew_time(at(1500), start + second * 3), at(2001), "the clock was set back");
        assert!(lease.renew_time(at(1500), start + second * 2) > at(2000), "no time has passed");
        lease.last = Some((Timestamp::MAX, start));
        assert_eq!(lease.renew_time(at(0), start + second), Timestamp::MAX);
    }
}
