//! An established watch: sends events in chunks until it ends.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api_error::ApiError;
use super::collections::{self, ListOptions};
use super::exchange::{Exchange, Seen};
use super::faults::WatchFault;
use super::negotiation::{Form, encoded};
use super::resources::Target;
use super::selectors::Selector;
use super::shared::{Following, Shared, lock};
use super::world::{Network, OpenWatch, WatchOrder, World};

/// The target and the start of a watch.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub id: u64,
    target: Target,
    selector: Selector,
    form: Form,
    bookmarks: bool,
    first: Vec<Value>,
    from: u64,
    lasts: Duration,
}

/// `--min-request-timeout`: a watch without a timeout lasts this long, and up to twice as long.
const MIN_WATCH_TIME: Duration = Duration::from_secs(30 * 60);

/// A bookmark is sent this long before a watch ends.
const BEFORE_END: Duration = Duration::from_secs(2);

impl Watch {
    pub(super) fn begin(
        world: &mut World,
        target: &Target,
        options: &ListOptions,
        form: Form,
    ) -> Result<Self, ApiError> {
        let (first, from) = world.begin_watch(target, options)?;
        let id = world.next_number();
        world.watches.push(OpenWatch { id, path: target.path(), orders: Vec::new() });
        Ok(Self {
            id,
            target: target.clone(),
            selector: options.selector.clone(),
            form,
            bookmarks: options.bookmarks,
            first,
            from,
            lasts: options
                .timeout
                .map_or_else(|| MIN_WATCH_TIME.mul_f64(1.0 + world.random_part()), Duration::from_secs),
        })
    }

    /// The initial lines of the watch.
    pub(super) fn first_lines(&self) -> Vec<Vec<u8>> {
        self.first.iter().map(|event| self.line(event)).collect()
    }

    /// The lines after `cursor`, which advances. An error is the last line of the watch.
    pub(super) fn lines_since(&self, world: &World, cursor: &mut u64) -> Result<Vec<Vec<u8>>, Vec<u8>> {
        let from = *cursor;
        *cursor = world.store.version().max(from);
        match world.store.since(from) {
            Ok(changes) => {
                let seen = changes.filter_map(|change| collections::event(&self.target, &self.selector, change));
                Ok(seen.map(|event| self.line(&event)).collect())
            }
            Err(_) => Err(self.line(&expired(from, world))),
        }
    }

    pub(super) fn bookmark_line(&self, version: u64) -> Option<Vec<u8>> {
        self.bookmarks.then(|| self.line(&self.bookmark(version)))
    }

    pub(super) fn from(&self) -> u64 {
        self.from
    }

    pub(crate) fn lasts(&self) -> Duration {
        self.lasts
    }

    fn line(&self, event: &Value) -> Vec<u8> {
        let object = &event["object"];
        let object = if event["type"] == "ERROR" { object.clone() } else { self.form.show(object.clone()) };
        format!("{{\"type\":{},\"object\":{}}}\n", event["type"], encoded(&object)).into_bytes()
    }

    fn bookmark(&self, version: u64) -> Value {
        collections::bookmark(&self.target, version, false)
    }
}

fn expired(cursor: u64, world: &World) -> Value {
    let why = format!("too old resource version: {cursor} ({})", world.store.version());
    json!({ "type": "ERROR", "object": ApiError::expired(why).status() })
}

/// The next step of a watch.
enum Step {
    Events(Vec<Value>),
    Order(WatchOrder),
    /// The watch has timed out.
    End,
    /// The client has gone, or the test is over.
    Cut,
}

/// Sends events until the watch ends.
pub(super) fn run(
    shared: &Arc<Shared>,
    exchange: &mut dyn Exchange,
    watch: &Watch,
    connection: u64,
    token: u64,
    fault: Option<WatchFault>,
) -> io::Result<()> {
    let end = Instant::now() + watch.lasts;
    let following = Some(shared.follow_client(connection, token));
    let is_silent = fault == Some(WatchFault::Silent);
    let mut teller = Teller { exchange, following, fault, told: 0, held: None, is_silent };
    let mut cursor = watch.from;
    let (often, last) = (shared.look(|world| world.options.bookmarks), end - BEFORE_END.min(watch.lasts));
    let next_bookmark = || (watch.bookmarks && Instant::now() < last).then(|| (Instant::now() + often).min(last));
    let mut due = next_bookmark();
    let mut step = Step::Events(watch.first.clone());
    loop {
        match step {
            Step::Events(events) => {
                for event in events {
                    let is_last = event["type"] == "ERROR";
                    match teller.tell(&watch.line(&event))? {
                        Told::GoesOn if !is_last => {}
                        Told::GoesOn | Told::Ends => return teller.end(),
                        Told::Cut => return teller.abort(),
                    }
                }
            }
            Step::Order(WatchOrder::End) => return teller.end(),
            Step::Order(WatchOrder::Cut) | Step::Cut => return teller.abort(),
            Step::Order(WatchOrder::Silence) => teller.is_silent = true,
            Step::Order(WatchOrder::Write(bytes)) => teller.exchange.body(&bytes)?,
            Step::Order(WatchOrder::Expire) => {
                let event = shared.look(|world| expired(cursor, world));
                teller.tell(&watch.line(&event))?;
                return teller.end();
            }
            Step::Order(WatchOrder::Bookmark) if watch.bookmarks => {
                teller.tell(&watch.line(&watch.bookmark(cursor)))?;
                due = due.or_else(next_bookmark);
            }
            Step::Order(WatchOrder::Bookmark) => {}
            Step::End => return teller.end(),
        }
        step = next(shared, watch, token, &mut cursor, &mut due, end);
    }
}

/// Waits for the next step. At most one bookmark is pending.
fn next(shared: &Shared, watch: &Watch, token: u64, cursor: &mut u64, due: &mut Option<Instant>, end: Instant) -> Step {
    let mut world = lock(&shared.world);
    loop {
        if world.ended || world.has_left(token) {
            return Step::Cut;
        }
        let now = Instant::now();
        if world.network != Network::Blackhole {
            let open = world.watches.iter_mut().find(|open| open.id == watch.id);
            let order = open.filter(|open| !open.orders.is_empty()).map(|open| open.orders.remove(0));
            if let Some(order) = order {
                return Step::Order(order);
            }
            let from = *cursor;
            *cursor = world.store.version().max(from);
            match world.store.since(from) {
                Err(_) => return Step::Order(WatchOrder::Expire),
                Ok(changes) => {
                    let seen = changes.filter_map(|change| collections::event(&watch.target, &watch.selector, change));
                    let events: Vec<Value> = seen.collect();
                    if !events.is_empty() {
                        return Step::Events(events);
                    }
                }
            }
            if due.take_if(|due| now >= *due).is_some() {
                return Step::Order(WatchOrder::Bookmark);
            }
            if now >= end {
                return Step::End;
            }
        }
        let left = due.unwrap_or(end).saturating_duration_since(now).max(Duration::from_millis(10));
        world = shared.wait(world, left);
    }
}

enum Told {
    GoesOn,
    /// The watch ends after this event.
    Ends,
    Cut,
}

/// Writes events, altered by the watch's fault.
struct Teller<'a> {
    exchange: &'a mut dyn Exchange,
    following: Option<Following<'a>>,
    fault: Option<WatchFault>,
    told: usize,
    /// The first of two events to swap.
    held: Option<Vec<u8>>,
    is_silent: bool,
}

impl Teller<'_> {
    fn tell(&mut self, line: &[u8]) -> io::Result<Told> {
        if self.is_silent {
            return Ok(Told::GoesOn);
        }
        match &self.fault {
            Some(WatchFault::Duplicate) => {
                self.exchange.body(line)?;
                self.exchange.body(line)?;
            }
            Some(WatchFault::Reorder) => match self.held.take() {
                None => self.held = Some(line.to_vec()),
                Some(held) => {
                    self.exchange.body(line)?;
                    self.exchange.body(&held)?;
                }
            },
            Some(WatchFault::CutInEvent(after)) if *after == self.told => {
                self.exchange.body(&line[..line.len() / 2])?;
                return Ok(Told::Cut);
            }
            Some(WatchFault::Drip { bytes, pause }) => {
                for part in line.chunks(*bytes) {
                    self.exchange.body(part)?;
                    std::thread::sleep(*pause);
                }
            }
            Some(WatchFault::CutAfter(0)) => return Ok(Told::Cut),
            Some(WatchFault::EndAfter(0)) => return Ok(Told::Ends),
            Some(WatchFault::StallAfter(0)) => {
                self.is_silent = true;
                return Ok(Told::GoesOn);
            }
            Some(WatchFault::Garbage { after: 0, bytes }) if self.told == 0 => {
                self.exchange.body(bytes)?;
                self.exchange.body(line)?;
            }
            _ => self.exchange.body(line)?,
        }
        self.told += 1;
        let told = self.told;
        match &self.fault {
            Some(WatchFault::CutAfter(after)) if *after == told => return Ok(Told::Cut),
            Some(WatchFault::EndAfter(after)) if *after == told => return Ok(Told::Ends),
            Some(WatchFault::StallAfter(after)) if *after == told => self.is_silent = true,
            Some(WatchFault::Garbage { after, bytes }) if *after == told => {
                self.exchange.body(bytes)?;
            }
            _ => {}
        }
        Ok(Told::GoesOn)
    }

    fn end(&mut self) -> io::Result<()> {
        // Any bytes from the client are now another request.
        self.following = None;
        self.exchange.end()
    }

    fn abort(&mut self) -> io::Result<()> {
        self.exchange.abort(Seen::Yes);
        Ok(())
    }
}
