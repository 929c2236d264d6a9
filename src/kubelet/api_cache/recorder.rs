//! Copies a response while it is passed on to the client that reads it.

use super::encoding::Encoding;
use super::entries;
use super::fold::{Base, Fold, Folded, MAX_BODY_BYTES, TOO_LARGE_ANSWER};
use super::frames::Frames;
use super::identity::Identity;
use super::object_set::{Change, WatchedEvent};
use super::read_request::{ReadKind, ReadRequest, representation};
use super::{ApiCache, MAX_PENDING_BYTES, MAX_RECORDED_BYTES, read_prefix};
use crate::platform::rt;

/// What is known of a response before its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseHead<'a> {
    pub(crate) status: u16,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) content_encoding: Option<&'a str>,
}

pub(crate) struct Recorder {
    cache: ApiCache,
    account: String,
    /// The record.
    name: String,
    /// For the log.
    key: String,
    content_type: String,
    encoding: Encoding,
    is_of_objects: bool,
    recording: Recording,
    /// Its bytes of [`MAX_RECORDED_BYTES`].
    claimed: usize,
}

enum Recording {
    Off,
    /// The body of one answer.
    Body {
        bytes: Vec<u8>,
        is_gzip: bool,
    },
    /// The initial events of a watch, until the bookmark after them.
    Initial {
        frames: Frames,
        events: Vec<WatchedEvent>,
    },
    /// A watch that continues the remembered list of this generation.
    Watch {
        frames: Frames,
        generation: u64,
    },
}

impl ApiCache {
    /// `None` if the response says nothing to remember.
    pub(crate) fn record(
        &self,
        identity: &Identity,
        request: &ReadRequest,
        head: ResponseHead<'_>,
    ) -> Option<Recorder> {
        let content_type = head.content_type.filter(|_| head.status == 200)?;
        let encoding = entries::encoding(content_type)?;
        let representation = representation(content_type)?;
        let name = [&*read_prefix(identity, &request.key), &*representation].concat();
        let frames = Frames::new(encoding);
        let recording = match (&request.kind, head.content_encoding) {
            (ReadKind::Once, None | Some("identity")) => Recording::Body { bytes: Vec::new(), is_gzip: false },
            (ReadKind::Once, Some("gzip")) => Recording::Body { bytes: Vec::new(), is_gzip: true },
            (ReadKind::Watch { has_initial_events: true, .. }, None) => {
                Recording::Initial { frames, events: Vec::new() }
            }
            (ReadKind::Watch { version, .. }, None) => {
                let generation = self.continued(&name, version);
                if generation.is_none() {
                    self.not_remembered(&request.key, "a watch of what was not listed before");
                }
                Recording::Watch { frames, generation: generation? }
            }
            _ => return None,
        };
        Some(Recorder {
            cache: self.clone(),
            account: identity.account.clone(),
            name,
            key: request.key.clone(),
            content_type: content_type.split(";stream=").next().unwrap_or(content_type).to_owned(),
            encoding,
            is_of_objects: request.is_of_objects,
            recording,
            claimed: 0,
        })
    }

    /// The generation of the remembered list, if it has everything up to this version. A watch that begins later cannot
    /// continue the list: events between are missing.
    fn continued(&self, name: &str, version: &str) -> Option<u64> {
        let version: u64 = version.parse().ok()?;
        let mut entries = self.inner.entries.borrow_mut();
        let entry = entries.get(name)?;
        (version > 0 && entry.version.is_some_and(|recorded_version| version <= recorded_version))
            .then_some(entry.generation)
    }
}

impl Recorder {
    /// The next part of the content.
    pub(crate) async fn data(&mut self, data: &[u8]) {
        let frames = match &mut self.recording {
            Recording::Off => return,
            Recording::Body { bytes, .. } => {
                bytes.extend_from_slice(data);
                if !self.claim(data.len()) {
                    self.stop(TOO_LARGE_ANSWER);
                }
                return;
            }
            Recording::Initial { frames, .. } | Recording::Watch { frames, .. } => frames,
        };
        frames.receive(data);
        loop {
            let frame = match &mut self.recording {
                Recording::Initial { frames, .. } | Recording::Watch { frames, .. } => frames.next(),
                Recording::Body { .. } | Recording::Off => return,
            };
            match frame {
                Ok(None) => return,
                Ok(Some(frame)) => match self.encoding.read_event(frame) {
                    Some(event) => self.event(event).await,
                    // The server ends the watch, or sends another form of the objects.
                    None => self.recording = Recording::Off,
                },
                Err(_) => self.stop(TOO_LARGE_ANSWER),
            }
        }
    }

    async fn event(&mut self, event: WatchedEvent) {
        match &mut self.recording {
            Recording::Initial { events, .. } => {
                let (length, is_end) = (event.object.len(), event.change == Change::EndOfInitialEvents);
                events.push(event);
                if !self.claim(length) {
                    return self.stop(TOO_LARGE_ANSWER);
                }
                if is_end {
                    self.initial_events_ended().await;
                }
            }
            Recording::Watch { generation, .. } => {
                let generation = *generation;
                if !self.cache.push(&self.name, generation, event) {
                    self.recording = Recording::Off;
                }
            }
            Recording::Body { .. } | Recording::Off => {}
        }
    }

    async fn initial_events_ended(&mut self) {
        let Recording::Initial { frames, events } = std::mem::replace(&mut self.recording, Recording::Off) else {
            return;
        };
        if let Some(generation) = self.keep(Base::Empty, events).await {
            self.recording = Recording::Watch { frames, generation };
        }
        self.release();
    }

    /// The content is complete.
    pub(crate) async fn end(&mut self) {
        if let Recording::Body { bytes, is_gzip } = std::mem::replace(&mut self.recording, Recording::Off) {
            self.keep(Base::Body { bytes, is_gzip }, Vec::new()).await;
        }
        self.release();
    }

    /// Remembers a new answer. Returns its generation.
    async fn keep(&mut self, base: Base, events: Vec<WatchedEvent>) -> Option<u64> {
        let old = self.cache.inner.entries.borrow_mut().get(&self.name).map(|entry| entry.body.clone());
        let fold =
            Fold { encoding: self.encoding, is_of_objects: self.is_of_objects, old, base, events, version: None };
        match rt::blocking_for_client(move || fold.run()).await {
            Ok(folded) => Some(self.cache.replace(&self.account, &self.name, &self.content_type, folded)),
            Err(why) => {
                self.stop(why);
                None
            }
        }
    }

    /// False if there is no room for it.
    fn claim(&mut self, bytes: usize) -> bool {
        self.claimed += bytes;
        let recorded = &self.cache.inner.recorded;
        recorded.set(recorded.get() + bytes);
        self.claimed <= MAX_BODY_BYTES && recorded.get() <= MAX_RECORDED_BYTES
    }

    fn release(&mut self) {
        let recorded = &self.cache.inner.recorded;
        recorded.set(recorded.get().saturating_sub(std::mem::take(&mut self.claimed)));
    }

    fn stop(&mut self, why: &str) {
        self.cache.not_remembered(&self.key, why);
        self.recording = Recording::Off;
        self.release();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.release();
    }
}

impl ApiCache {
    fn replace(&self, account: &str, name: &str, content_type: &str, folded: Folded) -> u64 {
        let is_changed = folded.is_changed;
        let (generation, removed) = self.inner.entries.borrow_mut().replace(account, name, content_type, folded);
        self.removed(removed);
        if is_changed {
            self.mark_due();
        }
        generation
    }

    /// Adds an event to a list. False if the list was replaced.
    fn push(&self, name: &str, generation: u64, event: WatchedEvent) -> bool {
        let mut entries = self.inner.entries.borrow_mut();
        let Some(entry) = entries.get(name).filter(|entry| entry.generation == generation) else { return false };
        let (is_news, is_much) = (entry.push(event), entry.pending_bytes() > MAX_PENDING_BYTES);
        drop(entries);
        if is_much {
            self.inner.has_much.set(true);
            self.inner.changed.notify();
        }
        if is_news {
            self.mark_due();
        }
        true
    }
}
