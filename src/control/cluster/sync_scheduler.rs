//! Opens and closes the gate to the API server according to the sync mode, and keeps the results.
//!
//! An exchange opens the gate for one rank of requests after the other. The next rank follows when no request of the
//! earlier ranks is in flight. The requests themselves are made by other components.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::byte_budget::{ByteDay, DayRecord, next_write};
use super::sync_windows::{first_wait, next_wait, window};
use crate::platform::apiserver::{Client, Opening, Rank, settle};
use crate::platform::config::{SyncMode, SyncWindows};
use crate::platform::host::link_state::{LinkEvents, is_up};
use crate::platform::host::{boot_timer, clock, wall_timer};
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::types::time::Backoff;
use crate::types::time_windows::Window;
use crate::types::timestamp::Timestamp;

/// Handle of the task; clones share it.
#[derive(Clone)]
pub(crate) struct SyncScheduler {
    inner: Rc<Inner>,
}

struct Inner {
    client: Client,
    mode: SyncMode,
    /// A user or component on the node requested an exchange.
    is_requested: Cell<bool>,
    requests: Signal,
    /// An exchange started or ended, or the gate was opened.
    changed: Signal,
    under_way: Cell<bool>,
    ended: Cell<u64>,
    last: RefCell<Option<Exchange>>,
    /// The last successful exchange and the next one, by the boot clock.
    succeeded: Cell<Option<Duration>>,
    next: Cell<Option<Duration>>,
    day: Cell<ByteDay>,
    /// Present if a daily byte limit is configured.
    day_record: Option<DayRecord>,
    logged_left_out: Cell<usize>,
}

/// The result of one exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) ended: Timestamp,
    /// Why the exchange was aborted; empty if it was not.
    pub(crate) fault: String,
    /// Number of responses by kind of request, in order.
    pub(crate) answered: Vec<(&'static str, u32)>,
    pub(crate) failed: u32,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
}

/// The state shown to users.
pub(crate) struct SyncState {
    pub(crate) is_open: bool,
    pub(crate) last: Option<Exchange>,
    /// Seconds since the last success.
    pub(crate) succeeded: Option<u64>,
    /// Seconds until the next exchange.
    pub(crate) next: Option<u64>,
    pub(crate) bytes_today: u64,
    pub(crate) bytes_per_day: Option<u64>,
    pub(crate) left_out: Vec<&'static str>,
}

/// Longest duration of an exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// First wait after a failed poll; doubled for each further failure.
const FIRST_POLL_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Assumed length of a window whose end is unknown.
const ASSUMED_WINDOW: Duration = Duration::from_secs(50);

impl SyncScheduler {
    /// Bytes already used today count from the start. `socket` is the local socket, on a file system in memory.
    pub(crate) fn new(client: Client, mode: SyncMode, socket: &Path) -> Self {
        let day_record = client.gate().budget().map(|_| DayRecord::beside(socket));
        let day = day_record.as_ref().map_or_else(|| ByteDay::new(clock::uptime(), 0), DayRecord::read);
        client.gate().used(day.used(client.traffic().bytes()));
        let inner = Inner {
            client,
            mode,
            is_requested: Cell::default(),
            requests: Signal::default(),
            changed: Signal::default(),
            under_way: Cell::default(),
            ended: Cell::default(),
            last: RefCell::default(),
            succeeded: Cell::default(),
            next: Cell::default(),
            day: Cell::new(day),
            day_record,
            logged_left_out: Cell::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// The gate's initial opening.
    pub(crate) fn first(mode: &SyncMode) -> Opening {
        match mode {
            SyncMode::Watch => Opening::Open(Rank::Event),
            SyncMode::Poll { .. } | SyncMode::Windows(_) | SyncMode::Manual => Opening::Shut,
        }
    }

    pub(crate) async fn run(self) {
        let times = async {
            match &self.inner.mode {
                SyncMode::Watch => std::future::pending().await,
                SyncMode::Poll { every } => self.poll(*every).await,
                SyncMode::Windows(windows) => self.follow_windows(windows).await,
                SyncMode::Manual => loop {
                    self.requested().await;
                    self.exchange().await;
                },
            }
        };
        rt::either(times, self.count_days()).await;
    }

    async fn poll(&self, every: Duration) {
        let mut retry = Backoff::new(FIRST_POLL_RETRY_DELAY.min(every), every);
        let mut wait = first_wait(every, rt::random());
        loop {
            let begin = clock::uptime().saturating_add(wait);
            self.inner.next.set(Some(begin));
            rt::either(boot_timer::sleep(wait), self.requested()).await;
            let begun = clock::uptime();
            wait = if self.exchange().await {
                retry.reset();
                next_wait(every, rt::random()).saturating_sub(clock::uptime().saturating_sub(begun))
            } else {
                next_wait(retry.next_wait(), rt::random())
            };
        }
    }

    async fn follow_windows(&self, windows: &SyncWindows) {
        let link_events = windows.interface.as_ref().map(|_| LinkEvents::of_links());
        let look = || {
            let is_up = windows.interface.as_deref().is_none_or(is_up);
            window(windows, clock::timestamp().as_second(), is_up)
        };
        let gate = self.inner.client.gate();
        loop {
            let now = look();
            if !now.is_open {
                let next = now.stays.filter(|_| link_events.is_none()).map(Duration::from_secs);
                self.inner.next.set(next.map(|wait| clock::uptime().saturating_add(wait)));
                let edge = async {
                    edge(now, link_events.as_ref()).await;
                    false
                };
                let requested = async {
                    self.requested().await;
                    true
                };
                if rt::either(requested, edge).await {
                    self.exchange().await;
                }
                continue;
            }
            self.inner.next.set(None);
            let open = async {
                let length = now.stays.map_or(ASSUMED_WINDOW, Duration::from_secs);
                rt::either(boot_timer::sleep(first_wait(length, rt::random())), self.requested()).await;
                gate.set(Opening::Open(Rank::Lease));
                self.inner.changed.notify();
                self.open_gate_by_rank(Opening::Open).await;
                gate.set(Opening::Open(Rank::Event));
                std::future::pending::<()>().await;
            };
            let closes = async {
                loop {
                    let now = look();
                    if !now.is_open {
                        return;
                    }
                    edge(now, link_events.as_ref()).await;
                }
            };
            rt::either(closes, open).await;
            if gate.is_open() {
                self.inner.succeeded.set(Some(clock::uptime()));
            }
            gate.set(Opening::Shut);
        }
    }

    async fn requested(&self) {
        loop {
            let seen = self.inner.requests.changes();
            if self.inner.is_requested.take() {
                return;
            }
            self.inner.requests.beyond(seen).await;
        }
    }

    /// Runs one exchange. True if it succeeded.
    async fn exchange(&self) -> bool {
        let Inner { client, changed, under_way, .. } = &*self.inner;
        let before = (client.traffic().bytes_sent(), client.traffic().bytes_received(), client.gate().tally());
        under_way.set(true);
        changed.notify();
        let fault = match rt::deadline(EXCHANGE_TIMEOUT, self.open_gate_by_rank(Opening::Round)).await {
            Ok(fault) => fault,
            Err(rt::Elapsed) => Some("it took too long".to_owned()),
        };
        client.gate().set(Opening::Shut);
        let tally = client.gate().tally().into_iter().zip(before.2);
        let failed = tally.clone().map(|((_, failed), (_, before))| failed.saturating_sub(before)).sum();
        let answered =
            tally.zip(Rank::ALL).map(|(((now, _), (before, _)), rank)| (rank.name(), now.wrapping_sub(before)));
        let went_well = fault.is_none();
        if went_well {
            self.inner.succeeded.set(Some(clock::uptime()));
        }
        let exchange = Exchange {
            ended: clock::timestamp(),
            fault: fault.unwrap_or_default(),
            answered: answered.collect(),
            failed,
            sent_bytes: client.traffic().bytes_sent().saturating_sub(before.0),
            received_bytes: client.traffic().bytes_received().saturating_sub(before.1),
        };
        log!(
            debug,
            "exchanged with the API server",
            sent = exchange.sent_bytes,
            received = exchange.received_bytes,
            failed = exchange.failed,
            fault = exchange.fault
        );
        self.inner.last.replace(Some(exchange));
        self.inner.ended.set(self.inner.ended.get() + 1);
        self.inner.is_requested.set(false);
        under_way.set(false);
        changed.notify();
        went_well
    }

    /// Opens the gate rank by rank. Returns why that was aborted, if it was.
    async fn open_gate_by_rank(&self, opening: fn(Rank) -> Opening) -> Option<String> {
        let client = &self.inner.client;
        client.reset_backoff();
        for rank in Rank::ALL {
            client.gate().set(opening(rank));
            settle(client.gate(), client.traffic()).await;
            if client.gate().is_shut() {
                return Some("the bytes of today are used up".to_owned());
            }
            if let (false, Some(error)) = (client.is_connected(), client.failure()) {
                return Some(error.to_string());
            }
        }
        None
    }

    /// Counts the bytes of each day by the boot clock, and passes them to the gate.
    async fn count_days<T>(&self) -> T {
        let (gate, traffic) = (self.inner.client.gate(), self.inner.client.traffic());
        loop {
            let (day, now) = (self.inner.day.get(), clock::uptime());
            let until_midnight = day.left(now);
            if until_midnight.is_zero() {
                self.inner.day.set(ByteDay::new(now, traffic.bytes()));
                continue;
            }
            let marked = traffic.marked.changes();
            let used = day.used(traffic.bytes());
            gate.used(used);
            gate.set_day_end(now.saturating_add(until_midnight));
            self.log_left_out();
            if let Some(record) = &self.inner.day_record {
                record.write(day, traffic.bytes()).await;
            }
            let write = gate.budget().map(|budget| next_write(budget, used));
            let mark = [gate.next_mark(), write].into_iter().flatten().min();
            traffic.mark(mark.map(|mark| day.counted_at(mark)));
            rt::either(boot_timer::sleep(until_midnight), traffic.marked.beyond(marked)).await;
        }
    }

    /// Logs when further kinds of requests are left out.
    fn log_left_out(&self) {
        let left_out = self.left_out();
        let logged = self.inner.logged_left_out.replace(left_out.len());
        if left_out.len() > logged {
            log!(warn, "sync.bytesPerDay nearly used up, holding back traffic", held_back = left_out.join(", "));
        }
    }

    fn left_out(&self) -> Vec<&'static str> {
        self.inner.client.gate().left_out().map(Rank::name).collect()
    }

    /// Requests an exchange, unless the gate is open anyway. With `wait`, returns when the exchange has ended.
    pub(crate) async fn request_exchange(&self, wait: bool) {
        let Inner { client, is_requested, requests, changed, under_way, ended, .. } = &*self.inner;
        let before = ended.get();
        client.gate().hurried.notify();
        is_requested.set(!under_way.get());
        requests.notify();
        loop {
            let seen = changed.changes();
            if client.gate().is_open() || !wait && under_way.get() {
                is_requested.set(false);
                return;
            }
            if ended.get() > before {
                return;
            }
            changed.beyond(seen).await;
        }
    }

    pub(crate) fn state(&self) -> SyncState {
        let Inner { client, last, succeeded, next, day, .. } = &*self.inner;
        let now = clock::uptime();
        let is_open = client.gate().is_open();
        let is_heard = is_open && client.is_connected();
        SyncState {
            is_open,
            last: last.borrow().clone(),
            succeeded: succeeded.get().filter(|_| !is_heard).map(|then| now.saturating_sub(then).as_secs()),
            next: next.get().filter(|_| !is_open).map(|then| then.saturating_sub(now).as_secs()),
            bytes_today: day.get().used(client.traffic().bytes()),
            bytes_per_day: client.gate().budget(),
            left_out: self.left_out(),
        }
    }
}

/// Returns when a window may have opened or closed.
async fn edge(now: Window, link_events: Option<&LinkEvents>) {
    let time = async {
        match now.stays {
            Some(seconds) => {
                let second = clock::timestamp().as_second();
                wall_timer::until(second.saturating_add_unsigned(seconds)).await;
            }
            None => std::future::pending().await,
        }
    };
    let link = async {
        match link_events {
            Some(link_events) => link_events.next().await,
            None => std::future::pending().await,
        }
    };
    rt::either(time, link).await;
}
