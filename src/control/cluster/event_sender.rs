//! Sends events about pods and the node to the API server, one at a time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::platform::apiserver::{ApiError, Client, History, Patch, Rank, Request};
use crate::platform::config::Reporting;
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::state::pods::{EventRing, SendOutcome, UnsentChange, UnsentEvent};
use crate::types::api::encode;
use crate::types::error::ErrorChain;
use crate::types::time::{Backoff, TokenBucket, jitter};

/// Handle of the task that sends the events in the ring.
pub(crate) struct EventSender {
    noted: Rc<Signal>,
    #[expect(dead_code, reason = "dropping the task ends it")]
    task: rt::Task<()>,
}

const FIRST_EVENT_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest wait between retries. Leases and statuses come first when the API server is back.
const MAX_EVENT_RETRY_DELAY: Duration = Duration::from_secs(60);

impl EventSender {
    /// `noted` tells of new events in the ring.
    pub(crate) fn start(
        client: Client,
        node: &str,
        reporting: &Reporting,
        ring: Rc<RefCell<EventRing>>,
        noted: Rc<Signal>,
    ) -> Self {
        let rate = TokenBucket::new(reporting.event_qps, reporting.event_burst, rt::now());
        let task = rt::spawn(run(client, node.to_owned(), rate, ring, Rc::clone(&noted)));
        Self { noted, task }
    }

    /// New events are in the ring.
    pub(crate) fn on_new_events(&self) {
        self.noted.notify();
    }
}

async fn run(
    client: Client,
    node: String,
    mut rate: Option<TokenBucket>,
    ring: Rc<RefCell<EventRing>>,
    noted: Rc<Signal>,
) {
    let mut retry = Backoff::new(FIRST_EVENT_RETRY_DELAY, MAX_EVENT_RETRY_DELAY);
    let mut history = History::default();
    let mut lost = 0;
    loop {
        let seen = noted.changes();
        if ring.borrow().unsent(&node).is_some() {
            client.gate().admitted(Rank::Event).await;
        }
        // Read again: an event that has waited at the gate is sent with its latest count.
        let next = ring.borrow().unsent(&node);
        let Some(unsent) = next else {
            noted.beyond(seen).await;
            continue;
        };
        let too_many = rate.as_mut().and_then(|rate| (!rate.take(rt::now())).then(|| rate.next_token()));
        if let Some(time) = too_many {
            rt::sleep_until(time).await;
            continue;
        }
        let openings = client.gate().openings();
        match send(&client, &unsent).await {
            Ok((outcome, version)) => {
                retry.reset();
                // Compared with events only: they may have an etcd of their own.
                client.on_written(&mut history, version, None);
                ring.borrow_mut().sent(&unsent, outcome);
                let lost_total = ring.borrow().lost();
                if lost_total > lost {
                    log!(warn, "events lost before they could be sent", events = lost_total - lost);
                    lost = lost_total;
                }
            }
            Err(error) => {
                log!(debug, "failed to send event, trying again", error = ErrorChain(&error));
                let wait = rt::sleep(jitter(retry.next_wait(), 0.5, rt::random()));
                rt::either(wait, client.gate().opened_since(openings, Rank::Event)).await;
            }
        }
    }
}

/// Returns the event's resource version too, if it was written. Fails only if a retry may succeed.
async fn send(client: &Client, unsent: &UnsentEvent) -> Result<(SendOutcome, Option<u64>), ApiError> {
    let collection_path = format!("/api/v1/namespaces/{}/events", unsent.namespace);
    let (request, is_new) = match &unsent.change {
        UnsentChange::New(event) => (Request::post(collection_path, &encode(&**event)), true),
        UnsentChange::Again(patch) => {
            (Request::patch(format!("{collection_path}/{}", unsent.name), Patch::Merge, patch), false)
        }
    };
    match client.send(&request.unread().ranked(Rank::Event)).await {
        Ok(response) => Ok((SendOutcome::Accepted, response.version())),
        // The response to an earlier attempt was lost.
        Err(error) if is_new && error.is_already_exists() => Ok((SendOutcome::Accepted, None)),
        Err(error) if !is_new && error.is_not_found() => Ok((SendOutcome::Gone, None)),
        Err(error) if may_be_accepted_later(&error) => Err(error),
        Err(error) => {
            log!(debug, "API server rejected event", error = ErrorChain(&error));
            Ok((SendOutcome::Rejected, None))
        }
    }
}

/// Whether the server is away or overloaded, or the node's credentials may be renewed. Other refusals are about the
/// event, also 500, with which a failed admission webhook ends: as in client-go (`recordEvent`), such an event does not
/// hold back the others.
fn may_be_accepted_later(error: &ApiError) -> bool {
    match error {
        ApiError::Refused(status) => matches!(status.code, 401 | 429 | 502 | 503 | 504) || status.retry_after.is_some(),
        error => error.is_retryable(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::apiserver::Status;

    #[test]
    fn only_refusals_that_are_not_about_the_event_are_retried() {
        let refused = |code, retry_after: Option<u64>| {
            let retry_after = retry_after.map(Duration::from_secs);
            may_be_accepted_later(&ApiError::Refused(Box::new(Status { code, retry_after, ..Status::default() })))
        };
        let retried = [401, 429, 502, 503, 504];
        for code in [400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504] {
            assert_eq!(refused(code, None), retried.contains(&code), "{code}");
        }
        assert!(refused(500, Some(2)), "etcd is away");
        assert!(may_be_accepted_later(&ApiError::Timeout) && may_be_accepted_later(&ApiError::NeverSent));
        assert!(!may_be_accepted_later(&ApiError::Malformed("a page of a proxy".into())));
    }
}
