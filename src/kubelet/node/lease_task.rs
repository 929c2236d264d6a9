//! Renews the node lease.

use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use super::StatusInputs;
use super::lease::{Lease, LeaseOutcome, LeaseStep, NAMESPACE};
use crate::platform::apiserver::{ApiError, Client, History, Patch, Rank, Request};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::time::{Backoff, jitter};
use crate::types::timestamp::Timestamp;

/// A fraction of the interval: spreads nodes that started together.
const LEASE_JITTER_SHARE: f64 = 0.04;
const FIRST_LEASE_RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) async fn run(client: Client, node: String, duration: Duration, inputs: Rc<StatusInputs>) {
    let mut lease = Lease::new(&node, duration);
    let mut retry = Backoff::new(FIRST_LEASE_RETRY_DELAY.min(lease.interval()), lease.interval());
    let mut history = History::default();
    let mut fails = false;
    loop {
        client.gate().admitted(Rank::Lease).await;
        let seen = inputs.changed.changes();
        let uid = inputs.uid();
        let openings = client.gate().openings();
        let (now, instant) = (clock::timestamp(), rt::now());
        let step = lease.next(&uid, now, instant);
        if step == LeaseStep::AwaitNode {
            inputs.changed.beyond(seen).await;
            continue;
        }
        // A lease that is only read may be older than all that is watched.
        let watched = client.watched_version().filter(|_| step != LeaseStep::Get);
        let outcome = match send(&client, &node, &step, lease.interval()).await {
            Ok((outcome, version)) => {
                // The lease is the node's most frequent write, so a restored etcd is noticed within one interval, unless
                // so much was written since that the versions have caught up.
                client.on_written(&mut history, version, watched);
                if std::mem::take(&mut fails) {
                    log!(info, "node lease renewed again");
                }
                outcome
            }
            Err(error) => {
                if !std::mem::replace(&mut fails, true) {
                    log!(warn, "failed to renew node lease, retrying", error = ErrorChain(&error));
                }
                if error.is_retryable() { LeaseOutcome::Unreached } else { LeaseOutcome::Refused }
            }
        };
        lease.done(&step, outcome, &uid, now, instant);
        let wait = match outcome {
            LeaseOutcome::Done => {
                retry.reset();
                lease.interval().saturating_sub(rt::elapsed(instant))
            }
            // In a new cluster the namespace may not exist yet.
            LeaseOutcome::NotFound if matches!(step, LeaseStep::Create(_)) => retry.next_wait(),
            // The next step needs no wait.
            LeaseOutcome::Found(_) | LeaseOutcome::NotFound => continue,
            LeaseOutcome::Exists | LeaseOutcome::Refused | LeaseOutcome::Unreached => retry.next_wait(),
        };
        // After a pause in the traffic the lease is renewed first.
        let opened = client.gate().opened_since(openings, Rank::Lease);
        rt::either(rt::sleep(jitter(wait, LEASE_JITTER_SHARE, rt::random())), opened).await;
    }
}

/// Sends the step. Returns the outcome and the lease's resource version; an error if no outcome describes the result.
async fn send(
    client: &Client,
    node: &str,
    step: &LeaseStep,
    limit: Duration,
) -> Result<(LeaseOutcome, Option<u64>), ApiError> {
    let collection_path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let lease_path = format!("{collection_path}/{node}");
    let request = match step {
        LeaseStep::Get | LeaseStep::AwaitNode => Request::get(lease_path),
        LeaseStep::Create(lease) => Request::post(collection_path, lease).unread(),
        LeaseStep::Claim(patch) | LeaseStep::Renew(patch) => Request::patch(lease_path, Patch::Merge, patch).unread(),
    };
    match client.send(&request.within(limit).ranked(Rank::Lease)).await {
        Ok(response) if *step == LeaseStep::Get => {
            Ok((LeaseOutcome::Found(renew_time(&response.json()?)), response.version()))
        }
        Ok(response) => Ok((LeaseOutcome::Done, response.version())),
        Err(error) if error.is_not_found() => Ok((LeaseOutcome::NotFound, None)),
        Err(error) if error.is_already_exists() => Ok((LeaseOutcome::Exists, None)),
        Err(error) => Err(error),
    }
}

fn renew_time(lease: &Value) -> Option<Timestamp> {
    lease.pointer("/spec/renewTime")?.as_str()?.parse().ok()
}
