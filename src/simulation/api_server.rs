//! The cluster's API server on the simulated network: real HTTP/2, the decisions of the tests' fake server, and
//! injected faults.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::fairness::Fairness;
use super::fake_api::fairness::refusal;
use super::fake_api::handle::Reply;
use super::fake_api::http::{Message, Response};
use super::fake_api::http2::message;
use super::fake_api::identity::Identity;
use super::fake_api::in_process::{Following, Lines, Server};
use super::lease::LeaseWatch;
use super::plan::Plan;
use super::record::{Record, Rule};
use super::trials::Verdicts;
use super::wanted::ASKED;
use crate::platform::host::clock;
use crate::platform::rpc::{End, Signal, drive};
use crate::platform::rt::{self, Line, TcpStream, World};
use crate::protocol::hpack::Field;
use crate::protocol::http2::{self, Connection, ErrorCode, Event, StreamId};

pub(super) const ADDRESS: &str = "10.0.0.254:6443";
pub(super) const NODE: &str = "node-a";

/// How often requests fail, in parts per thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Status 429, 500 or 503, without an effect.
    pub(super) refused: u32,
    /// The request takes effect, and the response is lost.
    pub(super) lost: u32,
    /// No effect, and no response.
    pub(super) hung: u32,
    /// The connection closes in the middle of the response.
    pub(super) halved: u32,
    /// The watch ends right after its start.
    pub(super) short: u32,
    /// Longest latency.
    pub(super) slow: Duration,
}

pub(super) struct ApiServer {
    world: Rc<World>,
    record: Rc<Record>,
    server: RefCell<Server>,
    /// Objects changed, or watches must end.
    changed: Signal,
    pub(super) faults: Cell<Faults>,
    /// Watches of earlier generations must end.
    generation: Cell<u64>,
    serving: RefCell<Option<rt::Task<()>>>,
    /// Requests in the current second, and when it started.
    rate: Cell<(Duration, u32)>,
    pub(super) lease: LeaseWatch,
    pub(super) verdicts: Verdicts,
    fairness: Fairness,
    /// `--goaway-chance`, in parts per thousand.
    pub(super) goaway: Cell<u32>,
    /// Requests in a second that count as a storm.
    storm: u32,
    /// Of the last request.
    pub(super) authorization: RefCell<String>,
}

/// Requests per second that count as a storm. A node of a few pods sends about a hundred after an outage.
const STORM_REQUESTS_PER_SECOND: u32 = 400;
/// The server closes a connection without requests after this time.
const SERVER_IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// How soon it closes a connection after GOAWAY and the last response.
const GOAWAY_GRACE: Duration = Duration::from_secs(10);
/// Watches that ask for bookmarks get one each minute.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

impl ApiServer {
    pub(super) fn new(world: &Rc<World>, record: &Rc<Record>, plan: &Plan) -> Rc<Self> {
        let seed = plan.seed;
        Rc::new(Self {
            world: Rc::clone(world),
            record: Rc::clone(record),
            server: RefCell::new(Server::new(now, seed)),
            changed: Signal::default(),
            faults: Cell::default(),
            generation: Cell::default(),
            serving: RefCell::default(),
            rate: Cell::default(),
            lease: LeaseWatch::new(world, record, plan.lease),
            verdicts: Verdicts::default(),
            fairness: Fairness::default(),
            goaway: Cell::new(if seed % 4 == 3 { 10 } else { 0 }),
            storm: storm(plan.own_pods()),
            authorization: RefCell::default(),
        })
    }

    /// Starts the server, unless it runs: connections and requests under way stay.
    pub(super) fn start(self: &Rc<Self>) {
        if self.serving.borrow().is_some() {
            return;
        }
        let connections = self.world.network.host(ADDRESS).listen();
        let server = Rc::clone(self);
        let task = rt::spawn(async move {
            let mut open: Vec<rt::Task<()>> = Vec::new();
            while let Ok(pipe) = connections.recv().await {
                open.retain(|connection| !connection.is_finished());
                let server = Rc::clone(&server);
                open.push(rt::spawn(async move {
                    // The connection may be cut at any time.
                    let _ = serve_connection(server, TcpStream::Simulated(pipe)).await;
                }));
            }
        });
        self.serving.replace(Some(task));
    }

    pub(super) fn stop(&self) {
        self.world.network.host(ADDRESS).close();
        self.serving.take();
    }

    pub(super) fn set_line(&self, line: Line) {
        self.world.network.host(ADDRESS).set_line(line);
    }

    pub(super) fn cut(&self) {
        self.world.network.host(ADDRESS).cut();
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.world.network.host(ADDRESS).delay.set(delay);
    }

    /// Ends all open watches.
    pub(super) fn end_watches(&self) {
        self.generation.set(self.generation.get() + 1);
        self.changed.notify();
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Server) -> T) -> T {
        look(&self.server.borrow())
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Server) -> T) -> T {
        let mut server = self.server.borrow_mut();
        let before = server.version();
        let changed = change(&mut server);
        // Most requests change nothing; a compaction or a restore comes with the end of all watches.
        if server.version() != before {
            self.changed.notify();
        }
        changed
    }

    /// Occupies seats like the requests of another node.
    pub(super) async fn occupy(&self, seats: usize, lasts: Duration) {
        let _taken = self.fairness.occupy(seats);
        rt::sleep(lasts).await;
    }

    fn count_request(&self) {
        let (now, (since, count)) = (self.world.passed(), self.rate.get());
        let (since, count) =
            if now.saturating_sub(since) < Duration::from_secs(1) { (since, count + 1) } else { (now, 1) };
        self.rate.set((since, count));
        if count == self.storm {
            self.record.violated(Rule::Modest, format!("{count} requests to the API server within a second"));
        }
    }
}

/// After an outage each object is listed and watched again: two of each pod, and those of the hostile pod.
fn storm(own_pods: usize) -> u32 {
    let objects = if own_pods > 0 { 2 * own_pods + ASKED } else { 0 };
    STORM_REQUESTS_PER_SECOND + 2 * u32::try_from(objects + own_pods).unwrap_or(u32::MAX)
}

fn now() -> Timestamp {
    Timestamp::from_nanosecond(clock::timestamp().as_nanosecond().into()).unwrap_or_default()
}

async fn serve_connection(server: Rc<ApiServer>, stream: TcpStream) -> io::Result<()> {
    let link = Rc::new_cyclic(|this| Link {
        this: Weak::clone(this),
        state: RefCell::new(State { http: Connection::server(), arriving: Vec::new(), answering: Vec::new() }),
        work: Signal::default(),
        left: Cell::new(usize::MAX),
        used: Cell::new(rt::now()),
        is_leaving: Cell::default(),
        server,
    });
    let idle = async {
        close_when_idle(&link).await;
        Ok(())
    };
    let ended = rt::either(drive(&mut stream.clone(), &mut stream.clone(), &*link), idle).await;
    let answering = std::mem::take(&mut link.state.borrow_mut().answering);
    drop(answering);
    ended
}

/// Returns once no request was under way for a while, or after a GOAWAY when the last request has ended.
async fn close_when_idle(link: &Link) {
    let is_open = || link.state.borrow().http.has_streams();
    loop {
        let idle = if link.is_leaving.get() { GOAWAY_GRACE } else { SERVER_IDLE_TIMEOUT };
        let due = link.used.get() + idle;
        if is_open() || rt::now() < due {
            rt::sleep_until(due.max(rt::now() + GOAWAY_GRACE)).await;
            if is_open() {
                link.used.set(rt::now());
            }
            continue;
        }
        link.server.record.count("idle connections closed");
        link.with(Connection::go_away);
        // The client reads it before the end.
        return rt::sleep(Duration::from_secs(1)).await;
    }
}

struct Link {
    this: Weak<Link>,
    state: RefCell<State>,
    work: Signal,
    /// Number of bytes until the connection is cut.
    left: Cell<usize>,
    /// When a request was last known to be under way.
    used: Cell<Instant>,
    /// The server has sent GOAWAY.
    is_leaving: Cell<bool>,
    server: Rc<ApiServer>,
}

struct State {
    http: Connection,
    arriving: Vec<(StreamId, Message)>,
    answering: Vec<(StreamId, rt::Task<()>)>,
}

impl End for Link {
    fn receive(&self, bytes: &[u8], now: Instant) -> Result<(), http2::Error> {
        let mut events = Vec::new();
        let received = self.state.borrow_mut().http.receive(bytes, now, &mut events);
        for event in events {
            self.take(event);
        }
        received
    }

    fn transmit(&self, out: &mut Vec<u8>) {
        self.state.borrow_mut().http.transmit(out);
    }

    fn written(&self, len: usize) {
        if self.left.get() != usize::MAX {
            self.left.set(self.left.get().saturating_sub(len));
        }
    }

    fn allowance(&self) -> usize {
        self.left.get()
    }

    fn work(&self) -> &Signal {
        &self.work
    }
}

impl Link {
    fn take(&self, event: Event) {
        let mut state = self.state.borrow_mut();
        let ended = match event {
            Event::Head { stream, fields, end } => {
                let message = message(&fields);
                message.header("authorization").clone_into(&mut self.server.authorization.borrow_mut());
                state.arriving.push((stream, message));
                end.then_some(stream)
            }
            Event::Data { stream, data, end } => {
                state.http.consume(stream, data.len());
                let Some((_, message)) = state.arriving.iter_mut().find(|(other, _)| *other == stream) else { return };
                message.push(&data);
                end.then_some(stream)
            }
            Event::Trailers { stream, .. } => Some(stream),
            Event::Reset { stream, .. } => {
                state.arriving.retain(|(other, _)| *other != stream);
                state.answering.retain(|(other, _)| *other != stream);
                None
            }
            Event::Ready | Event::GoAway { .. } => None,
        };
        let Some(stream) = ended else { return };
        let Some(index) = state.arriving.iter().position(|(other, _)| *other == stream) else { return };
        let (_, message) = state.arriving.remove(index);
        state.answering.retain(|(_, task)| !task.is_finished());
        let link = Weak::clone(&self.this);
        state.answering.push((stream, rt::spawn(respond(link, stream, message))));
    }

    fn with(&self, act: impl FnOnce(&mut Connection)) {
        act(&mut self.state.borrow_mut().http);
        self.work.notify();
    }

    fn head(&self, stream: StreamId, response: &Response) {
        self.used.set(rt::now());
        if self.server.world.chance(self.server.goaway.get()) {
            self.server.record.count("GOAWAYs by chance");
            self.is_leaving.set(true);
            self.with(Connection::go_away);
        }
        let mut fields = vec![Field::new(":status", response.status.to_string())];
        for (name, value) in &response.headers {
            let name = Cow::Owned(name.to_ascii_lowercase().into_bytes());
            fields.push(Field { name, value: Cow::Owned(value.clone().into_bytes()) });
        }
        self.with(|http| http.respond(stream, fields, false));
    }

    fn body(&self, stream: StreamId, bytes: Vec<u8>, end: bool) {
        self.with(|http| http.send_data(stream, bytes, end));
    }

    /// Cuts the connection after `bytes` more bytes.
    fn cut_after(&self, bytes: usize) {
        self.left.set(bytes);
        self.work.notify();
    }
}

async fn respond(link: Weak<Link>, stream: StreamId, message: Message) {
    let Some(server) = link.upgrade().map(|link| Rc::clone(&link.server)) else { return };
    let (world, record, faults) = (&server.world, &server.record, server.faults.get());
    server.count_request();
    record.count("requests");
    record.line(&format!("api     {} {}", message.method, message.target));
    let Some(seat) = server.fairness.seat(&message.target).await else {
        record.count("requests refused for want of seats");
        let (refusal, Some(link)) = (refusal(), link.upgrade()) else { return };
        link.head(stream, &refusal);
        return link.body(stream, refusal.body, true);
    };
    rt::sleep(Duration::from_micros(500) + world.duration_below(faults.slow)).await;
    drop(seat);
    if world.chance(faults.hung) {
        record.count("requests that hung");
        return std::future::pending().await;
    }
    if world.chance(faults.refused) {
        record.count("requests refused");
        let status = [429, 500, 503][usize::try_from(world.below(3)).unwrap_or_default()];
        let refusal = Response::new(status, "text/plain; charset=utf-8", "not now\n");
        let Some(link) = link.upgrade() else { return };
        link.head(stream, &refusal);
        return link.body(stream, refusal.body, true);
    }
    let reply = server.change(|server| server.answer(&message, Identity::node(NODE)));
    let reported = message.target.split('?').next().and_then(|path| path.strip_suffix("/status"));
    if let Some(pod) = reported.filter(|path| message.method == "PATCH" && path.contains("/pods/")) {
        let pod = server.look(|server| server.get(pod));
        if let Err(what) = pod.map_or(Ok(()), |pod| server.verdicts.on_report(&pod)) {
            record.violated(Rule::JudgedOnce, what);
        }
    }
    let Some(now) = link.upgrade() else { return };
    if world.chance(faults.lost) {
        record.count("answers lost");
        return match world.chance(500) {
            true => now.cut_after(0),
            false => now.with(|http| http.reset(stream, ErrorCode::INTERNAL_ERROR)),
        };
    }
    match reply {
        Reply::Answer(response) => {
            if response.status < 300 && message.method != "GET" && message.target.contains("/leases") {
                server.lease.on_renewed();
            }
            if response.status >= 400 {
                record.line(&format!("api     -> {} {}", response.status, String::from_utf8_lossy(&response.body)));
            }
            now.head(stream, &response);
            if world.chance(faults.halved) {
                record.count("answers cut in half");
                now.cut_after(response.body.len() / 2);
            }
            now.body(stream, response.body, true);
        }
        Reply::Watch(watch) => {
            now.head(stream, &Response::new(200, "application/json", ""));
            drop(now);
            let (first, following) = Server::follow(watch);
            tell(&server, &link, stream, first, following, world.chance(faults.short)).await;
        }
    }
}

/// Sends watch events until the watch times out or is ended.
async fn tell(
    server: &ApiServer,
    link: &Weak<Link>,
    stream: StreamId,
    first: Vec<Vec<u8>>,
    mut following: Following,
    is_short: bool,
) {
    let (generation, end) = (server.generation.get(), rt::now() + following.lasts());
    let mut bookmark = following.bookmark().map_or(end, |_| rt::now() + BOOKMARK_INTERVAL);
    // Earlier events are sent at once.
    let mut lines = match server.look(|server| server.lines(&mut following)) {
        Lines::GoOn(more) => Lines::GoOn([first, more].concat()),
        last @ Lines::End(_) => last,
    };
    loop {
        let seen = server.changed.changes();
        let Some(now) = link.upgrade() else { return };
        match lines {
            Lines::GoOn(lines) if lines.is_empty() => {}
            Lines::GoOn(lines) => now.body(stream, lines.concat(), false),
            Lines::End(last) => return now.body(stream, last, true),
        }
        let is_over = rt::now() >= end || generation != server.generation.get() || is_short;
        if is_over {
            return now.body(stream, following.bookmark().unwrap_or_default(), true);
        }
        if rt::now() >= bookmark {
            bookmark += BOOKMARK_INTERVAL;
            now.body(stream, following.bookmark().unwrap_or_default(), false);
        }
        drop(now);
        rt::either(server.changed.beyond(seen), rt::sleep_until(end.min(bookmark))).await;
        lines = server.look(|server| server.lines(&mut following));
    }
}
