//! The state of a list and watch, and its next request. Pure.
//!
//! ```text
//!            watch with initial events              end of initial events
//!   Stream ------------------------------> (initial) ------------.
//!     | not supported, or a tenant's object                      v
//!     '-> List --- the last page -----------------------------> Watch(resource version)
//!          ^  \___ more pages: List(continue)                    |  ended or failed: again from there
//!          '------- 410, no version, another history ------------'
//! ```
//!
//! A watch whose line cannot be read would get the same line again: a list follows, whose pages can be smaller.

use std::time::Duration;

use super::ApiError;
use super::gate::Rank;
use super::request::{Request, Requester};
use super::watch_event::WatchEvent;
use crate::types::api::ObjectText;
use crate::types::time::Backoff;

/// The collection to list and watch, optionally narrowed by a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collection {
    /// `/api/v1/pods`.
    pub(crate) path: String,
    /// Empty for everything.
    pub(crate) field_selector: String,
    /// Bookmarks cost a line per minute, and avoid a new list after a long time without changes. A watch that begins
    /// with initial events has them in any case.
    pub(crate) bookmarks: bool,
    /// After a lost connection it is read again. What was deleted meanwhile is then missing; a watch that resumes would
    /// report the deletion as if it had just happened.
    pub(crate) rereads_after_loss: bool,
    pub(crate) rank: Rank,
    pub(crate) requester: Requester,
}

/// A change of the collection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The complete content.
    Replaced(Vec<ObjectText>),
    /// A new or updated object.
    Applied(ObjectText),
    Deleted(ObjectText),
    /// The server is not reachable, with the reason in one line. The known content remains valid.
    Away(String),
}

#[derive(Debug)]
pub(super) struct Reflection {
    collection: Collection,
    next: Next,
    /// Whether the server supports watches with initial events.
    streams: bool,
    /// The objects so far, until the initial events or all pages have arrived.
    initial: Option<Vec<ObjectText>>,
    /// Pages of the list so far.
    pages: u32,
    /// Objects that a page may have.
    page_objects: u32,
    /// Whether the last request's resource version was also too old.
    expired: bool,
    backoff: Backoff,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    Begin,
    /// The page at this continue token.
    Continue(String),
    Watch(String),
}

/// The next request.
#[derive(Debug, PartialEq)]
pub(super) enum ReflectorRequest {
    List(Request),
    /// The client ends the watch after `limit` if the server does not.
    Watch {
        request: Request,
        limit: Duration,
    },
}

/// A shorter watch is followed by a delay: a server or proxy that ends every watch at once would be asked in a busy
/// loop otherwise (client-go's "very short watch").
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);
/// Objects per page at most.
const MAX_PAGE_OBJECTS: u32 = 250;
/// A page that could not be read is followed by one that is so many times smaller. Of 250, it takes two steps to pages
/// of which each fits into a response whatever the objects are.
const PAGE_OBJECTS_STEP: u32 = 8;
/// Timeout of a page.
const LIST_PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// client-go's back-off of a reflector.
const FIRST_REFLECTOR_DELAY: Duration = Duration::from_millis(800);
const MAX_REFLECTOR_DELAY: Duration = Duration::from_secs(30);
/// Requested duration of a watch in seconds, plus a random part; client-go: 300.
const WATCH_SECONDS: u64 = 1800;
/// How long a watch may exceed its requested duration.
const WATCH_GRACE: Duration = Duration::from_secs(60);
/// Most objects of one list; a node has some hundred pods.
const MAX_LIST_OBJECTS: usize = 100_000;
/// Most pages of one list; a selector may leave pages empty.
const MAX_LIST_PAGES: u32 = 10_000;
/// Earlier events arrive at once. The bookmark that ends them and has the next resource version is sent two seconds
/// before the requested end (`bookmarkFrequency` in k8s.io/apiserver's cacher).
const BOOKMARK_WATCH_SECONDS: u64 = 3;
/// The shortest watch that a server accepts, when no bookmark is needed.
const MIN_WATCH_SECONDS: u64 = 1;
/// Timeout of the response's head.
const WATCH_RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

impl Reflection {
    pub(super) fn new(collection: Collection) -> Self {
        Self {
            collection,
            next: Next::Begin,
            streams: true,
            initial: None,
            pages: 0,
            page_objects: MAX_PAGE_OBJECTS,
            expired: false,
            backoff: Backoff::new(FIRST_REFLECTOR_DELAY, MAX_REFLECTOR_DELAY),
        }
    }

    /// With `once`, asks only for what exists and has changed so far.
    pub(super) fn next_request(&self, once: bool, random: u32) -> ReflectorRequest {
        let seconds = match (once, self.collection.bookmarks) {
            (false, _) => WATCH_SECONDS + u64::from(random) % WATCH_SECONDS,
            (true, true) => BOOKMARK_WATCH_SECONDS,
            (true, false) => MIN_WATCH_SECONDS,
        };
        let limit = Duration::from_secs(seconds) + WATCH_GRACE;
        match &self.next {
            Next::Begin if self.begins_with_events() && !once => {
                let watch = self.watch(seconds).with_query("sendInitialEvents", "true");
                let watch = watch.with_query("resourceVersionMatch", "NotOlderThan");
                ReflectorRequest::Watch { request: watch.with_query("allowWatchBookmarks", "true"), limit }
            }
            Next::Begin => ReflectorRequest::List(self.list()),
            Next::Continue(mark) => ReflectorRequest::List(self.list().with_query("continue", mark)),
            Next::Watch(version) => {
                let watch = self.watch(seconds).with_query("resourceVersion", version);
                let request = match self.collection.bookmarks {
                    true => watch.with_query("allowWatchBookmarks", "true"),
                    false => watch,
                };
                ReflectorRequest::Watch { request, limit }
            }
        }
    }

    /// A node watches hundreds of objects of tenants. The bookmarks of all of them would be most of its traffic.
    fn begins_with_events(&self) -> bool {
        self.streams && (self.collection.bookmarks || self.collection.requester == Requester::Node)
    }

    fn selected(&self) -> Request {
        let request = Request::get(&*self.collection.path).requested_by(self.collection.requester);
        match self.collection.field_selector.as_str() {
            "" => request,
            selector => request.with_query("fieldSelector", selector),
        }
    }

    fn list(&self) -> Request {
        let list = self.selected().with_query("limit", &self.page_objects.to_string());
        list.accepting_gzip().within(LIST_PAGE_TIMEOUT).ranked(self.collection.rank)
    }

    fn watch(&self, seconds: u64) -> Request {
        let watch = self.selected().with_query("watch", "1").with_query("timeoutSeconds", &seconds.to_string());
        watch.within(WATCH_RESPONSE_TIMEOUT).ranked(self.collection.rank)
    }

    /// Handles a page. Returns the complete list after the last one.
    pub(super) fn listed(&mut self, list: &ObjectText) -> Result<Option<Change>, ApiError> {
        let no_list = || ApiError::Malformed("expected a list of items".into());
        let [items, metadata] = list.parts(["items", "metadata"]).map_err(|_| no_list())?;
        let items = match items.filter(|items| items.as_str() != "null") {
            Some(items) => items.elements().map_err(|_| no_list())?,
            None if metadata.is_some() => Vec::new(),
            None => return Err(no_list()),
        };
        let metadata = metadata.and_then(|metadata| metadata.value().ok()).unwrap_or_default();
        let text = |key: &str| metadata.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        self.pages = if self.initial.is_none() { 1 } else { self.pages.saturating_add(1) };
        let initial_objects = self.initial.get_or_insert_default();
        if initial_objects.len().saturating_add(items.len()) > MAX_LIST_OBJECTS || self.pages > MAX_LIST_PAGES {
            return Err(ApiError::Malformed(format!("expected a list of at most {MAX_LIST_OBJECTS} objects").into()));
        }
        initial_objects.extend(items);
        let mark = text("continue");
        if mark.is_empty() {
            self.page_objects = self.page_objects.saturating_mul(PAGE_OBJECTS_STEP).min(MAX_PAGE_OBJECTS);
            return Ok(Some(self.complete(text("resourceVersion"))));
        }
        self.next = Next::Continue(mark);
        Ok(None)
    }

    /// Handles a page that could not be read, because it is longer than a response may be or for another reason.
    pub(super) fn page_unread(&mut self) {
        self.page_objects = (self.page_objects / PAGE_OBJECTS_STEP).max(1);
    }

    fn complete(&mut self, version: String) -> Change {
        self.next = if version.is_empty() { Next::Begin } else { Next::Watch(version) };
        Change::Replaced(self.initial.take().unwrap_or_default())
    }

    /// The delay after a page or a list. A list without a resource version cannot be watched and starts over.
    pub(super) fn after_list(&mut self) -> Duration {
        if self.next == Next::Begin { self.backoff.next_wait() } else { Duration::ZERO }
    }

    /// Handles a watch event.
    pub(super) fn watched(&mut self, event: WatchEvent) -> Option<Change> {
        self.backoff.reset();
        let version = event.resource_version();
        if let Some(initial) = &mut self.initial {
            if event.ends_initial_events() {
                return Some(self.complete(version));
            }
            match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => initial.push(object),
                // Deletions and bookmarks mean nothing before the initial events have ended.
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            }
            return None;
        }
        if !version.is_empty() {
            self.next = Next::Watch(version);
        }
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Some(Change::Applied(object)),
            WatchEvent::Deleted(object) => Some(Change::Deleted(object)),
            WatchEvent::Bookmark(_) => None,
        }
    }

    /// The version up to which all changes are known, if it is a number.
    pub(super) fn version(&self) -> Option<u64> {
        match &self.next {
            Next::Watch(version) => version.parse().ok(),
            _ => None,
        }
    }

    /// Starts over, because the server's history has changed and the known versions mean nothing.
    pub(super) fn start_over(&mut self) {
        self.next = Next::Begin;
        self.initial = None;
    }

    /// Records the start of a watch.
    pub(super) fn begun(&mut self) {
        if self.next == Next::Begin {
            self.initial = Some(Vec::new());
        }
    }

    /// Handles the regular end of a watch that `lasted` this long. Returns the delay before the next request.
    pub(super) fn ended(&mut self, lasted: Duration) -> Duration {
        if self.initial.take().is_some() {
            // It ended before the initial events did.
            return self.backoff.next_wait();
        }
        self.next_watch(lasted)
    }

    fn next_watch(&mut self, lasted: Duration) -> Duration {
        if lasted < MIN_WATCH_DURATION {
            return self.backoff.next_wait();
        }
        Duration::ZERO
    }

    /// Handles a failed request or watch that `lasted` this long. Returns the delay before the next request.
    pub(super) fn failed(&mut self, error: &ApiError, lasted: Duration) -> Duration {
        let initial = self.initial.take().is_some();
        self.expired &= lasted < MIN_WATCH_DURATION;
        if error.is_expired() {
            let was_asked_anew = self.next == Next::Begin;
            self.next = Next::Begin;
            let again = std::mem::replace(&mut self.expired, true);
            return if was_asked_anew || again { self.backoff.next_wait() } else { Duration::ZERO };
        }
        let is_unreadable = matches!(error, ApiError::Malformed(_));
        self.streams &= !is_unreadable;
        if is_unreadable || self.collection.rereads_after_loss && error.code().is_none() {
            self.next = Next::Begin;
        }
        match &self.next {
            Next::Continue(_) => self.next = Next::Begin,
            // A server without support for initial events rejects the request as invalid.
            Next::Begin if self.begins_with_events() && matches!(error.code(), Some(400 | 405 | 422)) => {
                self.streams = false;
                return Duration::ZERO;
            }
            Next::Begin | Next::Watch(_) => {}
        }
        // A lost connection says nothing about the server, and the client has a back-off of its own.
        match error {
            ApiError::Lost(_) | ApiError::NeverSent if !initial => self.next_watch(lasted),
            _ => self.backoff.next_wait(),
        }
    }
}

#[cfg(test)]
mod tests;
