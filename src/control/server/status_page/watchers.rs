//! The watchers of the page, and the observations that they share, which run while there is a watcher.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use super::changes::{Block, Changes};
use super::event_card::shown_event;
use super::history::History;
use super::pod_card::shown;
use crate::control::server::connections::Text;
use crate::control::server::http::Response;
use crate::control::server::json_list::json;
use crate::control::server::local_api::LocalApi;
use crate::control::server::metrics_pages::Page;
use crate::control::server::unread_responses::UnreadResponses;
use crate::control::server::{MissingImage, NodeStatus, SyncHealth};
use crate::platform::host::clock;
use crate::platform::rpc::Signal;
use crate::platform::rt::{self, Task};
use crate::types::api;

/// Maximum number of watchers.
pub(super) const MAX_WATCHERS: usize = 8;
/// Number of blocks kept. A watcher that falls further behind is dropped.
pub(super) const MAX_KEPT_BLOCKS: usize = 16;
/// Maximum number of events sent.
const MAX_SENT_EVENTS: usize = 100;
/// Period of the observations of the sync loop's state. They take at most a twentieth ([`OBSERVATION_SHARE_DIVISOR`]) of
/// the time, even on small boards.
const PAGE_OBSERVATION_INTERVAL: Duration = Duration::from_secs(2);
const OBSERVATION_SHARE_DIVISOR: u32 = 20;
/// Period of the measurements. The first of every [`ROUNDS_PER_COMPLETE_ONE`] is a complete one, with disks and
/// pressures; the others have only CPU and memory, which change faster and cost less to read.
const FIGURES_PERIOD: Duration = Duration::from_secs(4);
const ROUNDS_PER_COMPLETE_ONE: u32 = 4;
/// A watcher that reads nothing for this long is taken for dead.
const DEAD_WATCHER_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Watchers {
    api: Rc<dyn LocalApi>,
    health: SyncHealth,
    /// Of all connections of the page.
    unread: Rc<UnreadResponses>,
    state: RefCell<State>,
    history: Rc<RefCell<History>>,
    changed: Signal,
}

#[derive(Default)]
struct State {
    watching: usize,
    /// The last blocks, oldest first, and the number of the first one.
    blocks: VecDeque<Rc<[u8]>>,
    first: u64,
    /// The last complete measurement, for new watchers.
    figures: Option<Rc<[u8]>>,
    /// As of the last complete measurement, because the runtime is asked for them.
    missing_images: Option<Vec<MissingImage>>,
    looks: Vec<Task<()>>,
}

/// The lists of which only changes are sent.
struct Lists {
    pods: Changes,
    events: Changes,
    /// A pod has a next version: its line (percent, time left, countdown) changes while the sync loop rests.
    has_next_version: bool,
}

/// One watcher, as the text that it is sent.
pub(super) struct Watcher {
    watchers: Rc<Watchers>,
    /// The history and, if others watch already, the complete state; sent first.
    begin: Option<Vec<u8>>,
    /// The number of the next block to send.
    next: u64,
}

impl Watchers {
    pub(super) fn new(api: Rc<dyn LocalApi>, health: SyncHealth) -> Rc<Self> {
        let (unread, state, history) = (Rc::default(), RefCell::default(), Rc::default());
        Rc::new(Self { api, health, unread, state, history, changed: Signal::default() })
    }

    pub(super) fn api(&self) -> &dyn LocalApi {
        &*self.api
    }

    pub(super) fn unread(&self) -> &Rc<UnreadResponses> {
        &self.unread
    }

    pub(super) const fn history(&self) -> &Rc<RefCell<History>> {
        &self.history
    }

    /// Adds a watcher; `None` if there are too many.
    pub(super) fn join(self: &Rc<Self>) -> Option<Watcher> {
        let mut state = self.state.borrow_mut();
        if state.watching == MAX_WATCHERS {
            return None;
        }
        state.watching += 1;
        let mut block = Block::default();
        block.push("past", &self.history.borrow().json(rt::now()));
        let begin = if state.looks.is_empty() {
            state.looks = vec![rt::spawn(Rc::clone(self).observe_state()), rt::spawn(Rc::clone(self).measure())];
            block.unfinished()
        } else {
            block.push("status", &json(&self.status(&state)));
            Lists::default().changes(self.api(), &mut block);
            if let Some(figures) = &state.figures {
                block.push("figures", figures);
            }
            block.end(&now())
        };
        let next = state.first.saturating_add(u64::try_from(state.blocks.len()).unwrap_or(u64::MAX));
        Some(Watcher { watchers: Rc::clone(self), begin: Some(begin), next })
    }

    /// Observes the sync loop's state while there are watchers.
    async fn observe_state(self: Rc<Self>) {
        let mut lists = Lists::default();
        let (mut seen, mut turn) = (None, 0u32);
        loop {
            let begun = rt::now();
            let rounds = Some(self.health.rounds());
            let has_moved = seen != rounds;
            seen = rounds;
            // Some things change without the loop, and the status shows that the server is alive.
            let is_due = has_moved || turn % 2 == 0;
            let mut block = Block::default();
            if has_moved || is_due && lists.has_next_version {
                lists.changes(self.api(), &mut block);
            }
            if is_due {
                block.push("status", &json(&self.status(&self.state.borrow())));
                self.broadcast(block);
            }
            turn = turn.wrapping_add(1);
            rt::sleep(PAGE_OBSERVATION_INTERVAL.max(rt::elapsed(begun).saturating_mul(OBSERVATION_SHARE_DIVISOR)))
                .await;
        }
    }

    /// Takes measurements while there are watchers.
    async fn measure(self: Rc<Self>) {
        let mut turn = 0u32;
        loop {
            let only_cpu_and_memory = turn % ROUNDS_PER_COMPLETE_ONE != 0;
            let figures = self.api.page(Page::Summary { only_cpu_and_memory }).await;
            let mut block = Block::default();
            block.push("figures", &figures);
            self.broadcast(block);
            if !only_cpu_and_memory {
                let missing = self.api.missing_images().await.ok();
                let mut state = self.state.borrow_mut();
                (state.figures, state.missing_images) = (Some(figures.into()), missing);
            }
            // CPU usage takes two measurements.
            rt::sleep(if turn == 0 { PAGE_OBSERVATION_INTERVAL } else { FIGURES_PERIOD }).await;
            turn = turn.wrapping_add(1);
        }
    }

    fn status(&self, state: &State) -> NodeStatus {
        NodeStatus { missing_images: state.missing_images.clone(), ..self.api.status() }
    }

    pub(super) fn broadcast(&self, block: Block) {
        let mut state = self.state.borrow_mut();
        state.blocks.push_back(block.end(&now()).into());
        if state.blocks.len() > MAX_KEPT_BLOCKS {
            state.blocks.pop_front();
            state.first += 1;
        }
        drop(state);
        self.changed.notify();
    }
}

impl Default for Lists {
    fn default() -> Self {
        Self {
            pods: Changes::new("pod", "pod-gone"),
            events: Changes::new("event", "event-gone"),
            has_next_version: false,
        }
    }
}

impl Lists {
    fn changes(&mut self, api: &dyn LocalApi, block: &mut Block) {
        self.has_next_version = false;
        api.pods(&mut |entry| {
            let entry = shown(entry);
            self.has_next_version |= entry.pod.pointer("/metadata/annotations").is_some();
            let uid = entry.pod.pointer("/metadata/uid").and_then(serde_json::Value::as_str).unwrap_or_default();
            self.pods.item(uid, &json(&entry), block);
        });
        self.pods.end_round(block);
        let mut newest = VecDeque::with_capacity(MAX_SENT_EVENTS);
        api.events(&mut |event| {
            if newest.len() == MAX_SENT_EVENTS {
                newest.pop_front();
            }
            newest.push_back(shown_event(event));
        });
        for event in newest {
            let key = [&*event.metadata.namespace, "/", &*event.metadata.name].concat();
            self.events.item(&key, api::encode_text(&event).as_bytes(), block);
        }
        self.events.end_round(block);
    }
}

impl Text for Watcher {
    fn open(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Response>> + '_>> {
        Box::pin(ready(Ok(())))
    }

    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<u8>>> + '_>> {
        Box::pin(async {
            if self.begin.is_some() {
                return self.begin.take();
            }
            let changed = &self.watchers.changed;
            loop {
                let seen = changed.changes();
                {
                    let state = self.watchers.state.borrow();
                    let behind = usize::try_from(self.next.checked_sub(state.first)?).ok()?;
                    if let Some(block) = state.blocks.get(behind) {
                        self.next += 1;
                        return Some(block.to_vec());
                    }
                }
                changed.beyond(seen).await;
            }
        })
    }

    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    fn slowest(&self) -> Duration {
        DEAD_WATCHER_TIMEOUT
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut state = self.watchers.state.borrow_mut();
        state.watching -= 1;
        if state.watching == 0 {
            let ended = std::mem::take(&mut *state);
            drop(state);
            drop(ended);
        }
    }
}

fn now() -> String {
    clock::timestamp().to_string()
}
