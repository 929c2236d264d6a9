//! Lists and watches a collection, across connections.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use async_channel::Sender;

use super::ApiError;
use super::client::Client;
use super::reflector_state::{Change, Collection, Reflection, ReflectorRequest};
use super::request::Request;
use super::watch_event::Lines;
use crate::platform::rt;
use crate::types::error::ErrorChain;

/// Runs until the listener is closed. A slow listener slows down the watch.
pub(crate) async fn reflect(client: Client, collection: Collection, listener: Sender<Change>) {
    let (path, rank) = (collection.path.clone(), collection.rank);
    let mut reflection = Reflection::new(collection);
    let mut away = false;
    let mut history = client.histories().changes();
    // The last round in which everything was received.
    let mut done_in = 0;
    while !listener.is_closed() {
        if std::mem::replace(&mut history, client.histories().changes()) != history {
            reflection.start_over();
        }
        let turn = client.gate().wait_for_turn(done_in, rank).await;
        let openings = client.gate().openings();
        let begun = rt::now();
        let ask = reflection.next_request(turn.is_round, rt::random());
        let is_list = matches!(ask, ReflectorRequest::List(_));
        let done = match ask {
            ReflectorRequest::List(request) => list(&client, &request, &mut reflection, &listener).await,
            ReflectorRequest::Watch { request, limit } => {
                let mut ended = pin!(rt::either(client.histories().beyond(history), client.gate().shut_out(rank)));
                let end = begun + limit;
                watch(&client, &request, end, ended.as_mut(), &mut reflection, &listener, turn.is_round).await
            }
        };
        let wait = match done {
            Ok(outcome) => {
                if turn.is_round && outcome == WatchOutcome::All {
                    done_in = turn.number;
                }
                away = false;
                match is_list {
                    true => reflection.after_list(),
                    // Watches within a round are short on purpose.
                    false if turn.is_round => reflection.ended(Duration::MAX),
                    false => reflection.ended(rt::elapsed(begun)),
                }
            }
            Err(error) => {
                log!(debug, "list or watch failed", path = path, error = ErrorChain(&error));
                let wait = reflection.failed(&error, rt::elapsed(begun));
                if !wait.is_zero() && !std::mem::replace(&mut away, true) {
                    // A closed listener ends this loop.
                    let _ = listener.send(Change::Away(ErrorChain(&error).to_string())).await;
                }
                wait
            }
        };
        if !wait.is_zero() {
            // A failure from before the gate was opened delays no request after that.
            let opened = client.gate().opened_since(openings, rank);
            // Nor does it delay the new list of a server whose history has changed.
            let woken = rt::either(opened, client.histories().beyond(history));
            rt::either(rt::sleep(crate::types::time::jitter(wait, 1.0, rt::random())), woken).await;
        }
    }
}

/// Whether the server may have more to send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchOutcome {
    All,
    More,
}

async fn list(
    client: &Client,
    request: &Request,
    reflection: &mut Reflection,
    listener: &Sender<Change>,
) -> Result<WatchOutcome, ApiError> {
    let response = client.send(request).await;
    if matches!(response, Err(ApiError::Malformed(_))) {
        reflection.page_unread();
    }
    let object = response?.object()?;
    // Each of the two reads a page of up to 32 MiB.
    rt::yield_now().await;
    let Some(change) = reflection.listed(&object)? else { return Ok(WatchOutcome::More) };
    client.note_watched(reflection.version());
    let _ = listener.send(change).await;
    Ok(WatchOutcome::All)
}

/// Watches until `end`, or until `ended` completes, but never stops between receiving a change and delivering it. In a
/// round, the watch ends when the server has sent everything or has nothing to send.
async fn watch(
    client: &Client,
    request: &Request,
    end: Instant,
    mut ended: Pin<&mut dyn Future<Output = ()>>,
    reflection: &mut Reflection,
    listener: &Sender<Change>,
    is_round: bool,
) -> Result<WatchOutcome, ApiError> {
    let opened = async { client.open(request).await.map(Next::Some) };
    let Next::Some(mut stream) = unless(ended.as_mut(), opened).await? else { return Ok(WatchOutcome::More) };
    reflection.begun();
    let mut lines = Lines::default();
    let mut outcome = WatchOutcome::All;
    loop {
        let next = async { Ok(until(end, stream.next()).await?.map_or(Next::End, Next::Some)) };
        match unless(ended.as_mut(), next).await? {
            Next::Some(bytes) => lines.receive(bytes),
            Next::End => return Ok(outcome),
            Next::Ended => return Ok(WatchOutcome::More),
        }
        while let Some(event) = lines.next()? {
            let ends_round = is_round && event.is_bookmark();
            let change = reflection.watched(event);
            client.note_watched(reflection.version());
            if ends_round {
                return Ok(WatchOutcome::All);
            }
            let Some(change) = change else { continue };
            // The server may end the watch before it has sent everything.
            outcome = WatchOutcome::More;
            if listener.send(change).await.is_err() {
                return Ok(outcome);
            }
        }
    }
}

/// The next item of a watch.
enum Next<T> {
    Some(T),
    /// The server has ended the watch.
    End,
    /// The gate was shut, or the server's history has changed.
    Ended,
}

/// The output of `next`, unless `ended` completes first.
async fn unless<T>(
    ended: Pin<&mut dyn Future<Output = ()>>,
    next: impl Future<Output = Result<Next<T>, ApiError>>,
) -> Result<Next<T>, ApiError> {
    let ended = async {
        ended.await;
        Ok(Next::Ended)
    };
    rt::either(ended, next).await
}

/// The next part of a watch; `None` at its end and at `end`.
async fn until<T>(
    end: Instant,
    next: impl Future<Output = Result<Option<T>, ApiError>>,
) -> Result<Option<T>, ApiError> {
    let time_left = end.saturating_duration_since(rt::now());
    rt::deadline(time_left, next).await.unwrap_or(Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_ends_at_its_limit() {
        let passed = rt::simulate(1, |world| async move {
            let end = rt::now() + Duration::from_secs(1860);
            assert_eq!(until(end, async { Ok(Some(7)) }).await.unwrap(), Some(7));
            assert_eq!(until::<u8>(end, std::future::pending()).await.unwrap(), None);
            world.passed()
        });
        assert_eq!(passed, Ok(Duration::from_secs(1860)));
    }
}
