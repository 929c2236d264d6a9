//! The health of the sync loop, and its endpoint: `/healthz` on 127.0.0.1:10248.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection_shares::ConnectionLimits;
use super::connections::{MAX_LOCAL_CONNECTIONS, Reply, SingleGet, serve_connection};
use super::http::{Response, Status};
use super::listener::Listener;
use super::open_connections::ConnectionFuture;
use super::pulse::{Activity, Pulse};
use crate::platform::rt::{self, TcpStream};

/// Progress of the sync loop: written by the loop, read by the health endpoint and the watchdog.
#[derive(Clone, Debug)]
pub(crate) struct SyncHealth {
    /// When the last round began.
    last: Rc<Cell<Instant>>,
    limit: Duration,
    pulse: Arc<Pulse>,
}

impl SyncHealth {
    pub(crate) fn new(sync_frequency: Duration, now: Instant) -> Self {
        let limit = sync_frequency.saturating_mul(2).max(MIN_STALL_TIME);
        Self { last: Rc::new(Cell::new(now)), limit, pulse: Arc::default() }
    }

    pub(crate) fn stamp(&self, now: Instant) {
        self.last.set(now);
    }

    /// Notes what the current round is doing.
    pub(crate) fn begin(&self, activity: Activity) {
        self.pulse.begin(activity);
    }

    pub(crate) fn end_round(&self) {
        self.pulse.end_round();
    }

    pub(crate) fn pulse(&self) -> Arc<Pulse> {
        Arc::clone(&self.pulse)
    }

    /// While this number is the same, state that only the loop writes has not changed.
    pub(crate) fn rounds(&self) -> u32 {
        self.pulse.rounds()
    }

    /// How long the loop has been stalled, if that exceeds the limit.
    pub(crate) fn stalled(&self, now: Instant) -> Option<Duration> {
        let still = now.saturating_duration_since(self.last.get());
        (still > self.limit).then_some(still)
    }
}

/// Serves `/healthz` at `address`. Never returns.
pub(crate) async fn serve(address: SocketAddr, health: SyncHealth) {
    door(address).serve(&|tcp, _, _| meet(tcp, &health)).await;
}

const fn door(address: SocketAddr) -> Listener {
    // No client is ever authenticated.
    let limits = ConnectionLimits {
        most: MAX_LOCAL_CONNECTIONS,
        most_strangers: MAX_LOCAL_CONNECTIONS,
        most_of_one: MAX_LOCAL_CONNECTIONS,
    };
    Listener { name: "health", address, limits }
}

fn meet(tcp: TcpStream, health: &SyncHealth) -> ConnectionFuture {
    let health = health.clone();
    let respond = move |path: &str, _: &str| Reply::Whole(respond(path, health.stalled(rt::now())));
    Box::pin(serve_connection(tcp, SingleGet(respond)))
}

fn respond(path: &str, stalled: Option<Duration>) -> Response {
    match (path, stalled) {
        ("/healthz", None) => Response::text(Status::Ok, "ok"),
        ("/healthz", Some(still)) => {
            let seconds = still.as_secs();
            Response::text(Status::InternalServerError, format!("the sync loop has not moved for {seconds} s\n"))
        }
        _ => Response::not_found(),
    }
}

/// Minimum time without a round that counts as a stall, whatever the sync frequency (`SyncLoopHealthCheck`).
const MIN_STALL_TIME: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net;

    use super::*;
    use crate::platform::rt::{self, TcpListener};

    #[test]
    fn loop_stalls_after_twice_the_sync_frequency_and_at_least_five_minutes() {
        let start = Instant::now();
        for (frequency, limit) in [(60, 300), (10, 300), (200, 400)] {
            let health = SyncHealth::new(Duration::from_secs(frequency), start);
            assert_eq!(health.stalled(start + Duration::from_secs(limit)), None);
            let late = Duration::from_secs(limit + 1);
            assert_eq!(health.stalled(start + late), Some(late));
            health.stamp(start + late);
            assert_eq!(health.stalled(start + late), None);
        }
    }

    /// The response of `/healthz` when the loop has not moved for `seconds`.
    fn healthz(seconds: u64) -> String {
        let now = Instant::now();
        let health = SyncHealth::new(Duration::from_secs(60), now);
        health.stamp(now.checked_sub(Duration::from_secs(seconds)).unwrap());
        rt::block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let client = rt::blocking(move || {
                let mut stream = net::TcpStream::connect(address).unwrap();
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
                let mut response = String::new();
                stream.read_to_string(&mut response).unwrap();
                response
            });
            let serve = async {
                door(address).accept(&listener, &|tcp, _, _| meet(tcp, &health)).await;
                unreachable!("serves for ever")
            };
            rt::either(client, serve).await
        })
    }

    #[test]
    fn healthz_is_ok_until_the_loop_stalls_and_then_tells_for_how_long() {
        let moving = healthz(0);
        assert!(moving.starts_with("HTTP/1.1 200 OK\r\n") && moving.ends_with("\r\n\r\nok"), "{moving}");
        let stalled = healthz(301);
        let text = "the sync loop has not moved for 301 s\n";
        assert!(stalled.starts_with("HTTP/1.1 500 ") && stalled.ends_with(text), "{stalled}");
    }
}
