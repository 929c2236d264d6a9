//! How far a list or watch has come, and what is asked next. Pure.
//!
//! ```text
//!            all that there is, as a watch          the end of it
//!   Stream ------------------------------> (initial) ------------.
//!     | the server does not do that                              v
//!     '-> List --- the last page -----------------------------> Watch(resource version)
//!          ^  \___ more pages: List(continue)                    |  ended, broken: again from there
//!          '------- 410, no version, another history ------------'
//! ```

use std::time::Duration;

use serde_json::Value;

use super::ApiError;
use super::gate::Rank;
use super::request::Request;
use super::watch_event::{WatchEvent, resource_version};
use crate::types::time::Backoff;

/// What is followed: one path, narrowed by a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    /// `/api/v1/pods`.
    pub(crate) path: String,
    /// Empty: everything.
    pub(crate) field_selector: String,
    /// Bookmarks cost a line a minute, and keep a watch from beginning anew where nothing changes for long.
    pub(crate) bookmarks: bool,
    pub(crate) rank: Rank,
}

/// What has become of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// This is all that there is.
    Replaced(Vec<Value>),
    /// New, or as it is now.
    Applied(Value),
    Deleted(Value),
    /// Nothing can be heard at present, and why: one line. What was known stays.
    Away(String),
}

#[derive(Debug)]
pub(super) struct Reflection {
    collection: Collection,
    next: Next,
    /// Lists come as watches where the server does that.
    streams: bool,
    /// Until all that there was has come, with the first watch or page by page.
    initial: Option<Vec<Value>>,
    /// Pages of the list so far.
    pages: u32,
    /// The version that was asked for was too old the last time, too.
    expired: bool,
    backoff: Backoff,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    Begin,
    /// The pages after this mark of the server's.
    Continue(String),
    Watch(String),
}

/// What to ask.
#[derive(Debug, PartialEq)]
pub(super) enum Ask {
    List(Request),
    /// It ends after `limit`, even if the server goes on.
    Watch {
        request: Request,
        limit: Duration,
    },
}

/// A watch that ends sooner says nothing of the next one, which waits then: a server or a proxy that ends every watch at once
/// would be asked as fast as the line goes (client-go's "very short watch").
const SHORT: Duration = Duration::from_secs(1);
/// Objects in one answer.
const PAGE: &str = "250";
/// For a page.
const LIST: Duration = Duration::from_secs(60);
const FIRST: Duration = Duration::from_millis(800);
const MOST: Duration = Duration::from_secs(30);
/// The server ends a watch after so many seconds and a part more; client-go: 300.
const WATCH: u64 = 1800;
/// How long after its asked end a watch may still go on.
const GRACE: Duration = Duration::from_secs(60);
/// Most objects of one list; a node has some hundreds of pods.
const MOST_OBJECTS: usize = 100_000;
/// Most pages of one list: those that a selector leaves empty count as well.
const MOST_PAGES: u32 = 10_000;
/// What has happened before a watch comes at once. With a bookmark the server says that this was all, and from which
/// version on to ask the next time: two seconds before the end (`bookmarkFrequency` in k8s.io/apiserver's cacher).
const ONCE_WITH_BOOKMARK: u64 = 3;
const ONCE: u64 = 1;
/// And answers that it has begun within these.
const BEGIN: Duration = Duration::from_secs(30);

impl Reflection {
    pub(super) fn new(collection: Collection) -> Self {
        Self {
            collection,
            next: Next::Begin,
            streams: true,
            initial: None,
            pages: 0,
            expired: false,
            backoff: Backoff::new(FIRST, MOST),
        }
    }

    /// `once`: what there is now, and what has changed since; not what will.
    pub(super) fn ask(&self, once: bool, random: u32) -> Ask {
        let seconds = match (once, self.collection.bookmarks) {
            (false, _) => WATCH + u64::from(random) % WATCH,
            (true, true) => ONCE_WITH_BOOKMARK,
            (true, false) => ONCE,
        };
        let limit = Duration::from_secs(seconds) + GRACE;
        match &self.next {
            Next::Begin if self.streams && !once => {
                let watch = self.watch(seconds).with_query("sendInitialEvents", "true");
                let watch = watch.with_query("resourceVersionMatch", "NotOlderThan");
                Ask::Watch { request: watch.with_query("allowWatchBookmarks", "true"), limit }
            }
            Next::Begin => Ask::List(self.list().with_query("limit", PAGE)),
            Next::Continue(mark) => Ask::List(self.list().with_query("limit", PAGE).with_query("continue", mark)),
            Next::Watch(version) => {
                let watch = self.watch(seconds).with_query("resourceVersion", version);
                let request = match self.collection.bookmarks {
                    true => watch.with_query("allowWatchBookmarks", "true"),
                    false => watch,
                };
                Ask::Watch { request, limit }
            }
        }
    }

    fn selected(&self) -> Request {
        let request = Request::get(&*self.collection.path);
        match self.collection.field_selector.as_str() {
            "" => request,
            selector => request.with_query("fieldSelector", selector),
        }
    }

    fn list(&self) -> Request {
        self.selected().for_much().within(LIST).ranked(self.collection.rank)
    }

    fn watch(&self, seconds: u64) -> Request {
        let watch = self.selected().with_query("watch", "1").with_query("timeoutSeconds", &seconds.to_string());
        watch.within(BEGIN).ranked(self.collection.rank)
    }

    /// A page has come. What is known now, if it was the last one.
    pub(super) fn listed(&mut self, mut list: Value) -> Result<Option<Change>, ApiError> {
        let items = match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            None | Some(Value::Null) if list.pointer("/metadata").is_some() => Vec::new(),
            _ => return Err(ApiError::Malformed("expected a list of items".into())),
        };
        self.pages = if self.initial.is_none() { 1 } else { self.pages.saturating_add(1) };
        let all = self.initial.get_or_insert_default();
        if all.len().saturating_add(items.len()) > MOST_OBJECTS || self.pages > MOST_PAGES {
            return Err(ApiError::Malformed(format!("expected a list of at most {MOST_OBJECTS} objects").into()));
        }
        all.extend(items);
        match list.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(mark) if !mark.is_empty() => {
                self.next = Next::Continue(mark.to_owned());
                Ok(None)
            }
            _ => Ok(Some(self.complete(resource_version(&list).to_owned()))),
        }
    }

    fn complete(&mut self, version: String) -> Change {
        self.next = if version.is_empty() { Next::Begin } else { Next::Watch(version) };
        Change::Replaced(self.initial.take().unwrap_or_default())
    }

    /// How long to wait after a page or a list. A list without a version cannot be watched from, and begins again.
    pub(super) fn after_list(&mut self) -> Duration {
        if self.next == Next::Begin { self.backoff.next_wait() } else { Duration::ZERO }
    }

    /// A line of a watch has come.
    pub(super) fn watched(&mut self, event: WatchEvent) -> Option<Change> {
        self.backoff.reset();
        let version = event.resource_version();
        if let Some(initial) = &mut self.initial {
            if event.ends_initial_events() {
                let version = version.to_owned();
                return Some(self.complete(version));
            }
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => initial.push(object),
                // Nothing is deleted before it is known what there is.
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            }
            return None;
        }
        if !version.is_empty() {
            self.next = Next::Watch(version.to_owned());
        }
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(Change::Applied(object)),
            WatchEvent::Deleted(object) => Some(Change::Deleted(object)),
            WatchEvent::Bookmark(_) => None,
        }
    }

    /// The server has begun another history, in which the versions that are known mean nothing.
    pub(super) fn begin_anew(&mut self) {
        self.next = Next::Begin;
        self.initial = None;
    }

    /// A watch has been begun.
    pub(super) fn begun(&mut self) {
        if self.next == Next::Begin {
            self.initial = Some(Vec::new());
        }
    }

    /// The watch has come to its end, as it does after a time. `lasted` is that time. How long to wait before the next one.
    pub(super) fn ended(&mut self, lasted: Duration) -> Duration {
        if self.initial.take().is_some() {
            // It ended before it had told what there is.
            return self.backoff.next_wait();
        }
        self.next_watch(lasted)
    }

    fn next_watch(&mut self, lasted: Duration) -> Duration {
        if lasted < SHORT {
            return self.backoff.next_wait();
        }
        Duration::ZERO
    }

    /// The request has failed, or the watch was broken off, after `lasted`. How long to wait before the next one.
    pub(super) fn failed(&mut self, error: &ApiError, lasted: Duration) -> Duration {
        let initial = self.initial.take().is_some();
        self.expired &= lasted < SHORT;
        if error.is_expired() {
            let was_asked_anew = self.next == Next::Begin;
            self.next = Next::Begin;
            let again = std::mem::replace(&mut self.expired, true);
            return if was_asked_anew || again { self.backoff.next_wait() } else { Duration::ZERO };
        }
        match &self.next {
            Next::Continue(_) => self.next = Next::Begin,
            // A server that does not know how to begin a watch with what there is says that the request is wrong.
            Next::Begin if self.streams && matches!(error.code(), Some(400 | 405 | 422)) => {
                self.streams = false;
                return Duration::ZERO;
            }
            Next::Begin | Next::Watch(_) => {}
        }
        // A connection that was lost says nothing of the server; the client has a back-off of its own.
        match error {
            ApiError::Lost(_) | ApiError::NeverSent if !initial => self.next_watch(lasted),
            _ => self.backoff.next_wait(),
        }
    }
}

#[cfg(test)]
mod tests;
