//! What components of the node have read from the API server, for the time without it.
//!
//! An answer belongs to the ServiceAccount that has read it: the server has authorized it, and no other account sees it.
//! Lists are kept up to date with the events of the account's watches. Answers are kept in memory in gzip, and in a
//! store like the offline store.
//!
//! ```text
//!   recorder.rs       copies a response while it is passed on        -> frames.rs
//!   fold.rs           the next body of a list                        -> encoding.rs, json.rs, protobuf.rs
//!   entries.rs        the remembered answers
//!   listed_object.rs  an object as a newer list has it               -> json.rs, protobuf.rs
//!   correction.rs     an answer with what the node knows better      -> own_node.rs, json.rs, protobuf.rs
//! ```

mod accepted_tokens;
mod correction;
mod encoding;
mod entries;
mod fold;
mod frames;
mod identity;
mod json;
mod listed_object;
mod object_set;
mod own_node;
mod protobuf;
mod read_request;
mod recorder;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kubelet::offline::OfflineStore;
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::protocol::gzip::inflate;
use crate::protocol::sha256::sha256;
use crate::types::api::Bytes;
use crate::types::time::Backoff;

use accepted_tokens::AcceptedTokens;
pub(crate) use correction::{AnswerForm, OwnAnswer};
use entries::{Entries, MAX_PENDING_BYTES, Snapshot};
use fold::{Folded, MAX_BODY_BYTES};
pub(crate) use identity::Identity;
#[cfg(test)]
pub(crate) use identity::testing;
pub(crate) use object_set::key_of;
pub(crate) use own_node::{OwnNode, OwnPod, OwnPodState};
use read_request::list_keys;
pub(crate) use read_request::{ReadKind, ReadRequest};
pub(crate) use recorder::{Recorder, ResponseHead};

/// Clones share it.
#[derive(Clone)]
pub(crate) struct ApiCache {
    inner: Rc<Inner>,
}

struct Inner {
    /// `NAMESPACE/NAME` of the ServiceAccounts whose reads are remembered.
    accounts: Vec<String>,
    store: OfflineStore,
    entries: RefCell<Entries>,
    tokens: RefCell<AcceptedTokens>,
    /// The accounts with tokens that are not stored.
    new_tokens: RefCell<Vec<String>>,
    /// The accounts with a record of their tokens.
    stored_tokens: RefCell<Vec<String>>,
    /// Bytes of the responses that are being recorded.
    recorded: Cell<usize>,
    /// When changes are folded and stored.
    due: Cell<Option<Instant>>,
    changed: Signal,
    /// A list has more than [`MAX_PENDING_BYTES`] of events.
    has_much: Cell<bool>,
    /// No write before.
    not_before: Cell<Option<Instant>>,
    backoff: RefCell<Backoff>,
    /// What was logged as not remembered.
    logged: RefCell<Vec<String>>,
}

/// A remembered answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    name: String,
    pub(crate) content_type: String,
    /// Whether it is a list, which can be watched.
    pub(crate) is_list: bool,
    /// The record of the newest list that may have the object.
    list: Option<String>,
}

/// Changes within this time are written together.
const FIRST_API_CACHE_DELAY: Duration = Duration::from_secs(10);
/// Between two writes, while changes go on.
const MAX_API_CACHE_DELAY: Duration = Duration::from_secs(600);
/// Of all responses together.
const MAX_RECORDED_BYTES: usize = 8 << 20;
const MAX_RECENT_REQUESTS: usize = 64;

impl ApiCache {
    /// Takes what is stored. `node_tokens`: tokens for the API server that the node has stored for its pods.
    pub(crate) fn new(store: OfflineStore, accounts: &[String], node_tokens: &[String]) -> Self {
        let cache = Self {
            inner: Rc::new(Inner {
                accounts: accounts.to_vec(),
                store,
                entries: RefCell::default(),
                tokens: RefCell::default(),
                new_tokens: RefCell::default(),
                stored_tokens: RefCell::default(),
                has_much: Cell::default(),
                recorded: Cell::new(0),
                due: Cell::default(),
                changed: Signal::default(),
                not_before: Cell::default(),
                backoff: RefCell::new(Backoff::new(FIRST_API_CACHE_DELAY, MAX_API_CACHE_DELAY)),
                logged: RefCell::default(),
            }),
        };
        let stored = cache.inner.store.take_reads();
        for account in accounts {
            let tokens = stored.get(&tokens_record(account)).and_then(|content| serde_json::from_slice(content).ok());
            if let Some(tokens) = tokens {
                cache.inner.tokens.borrow_mut().read(account, &tokens);
                cache.inner.stored_tokens.borrow_mut().push(account.clone());
            }
            let prefix = read_record(account, "");
            for (name, content) in stored.iter().filter(|(name, _)| name.starts_with(&prefix)) {
                cache.take(account, name, content);
            }
        }
        for identity in node_tokens.iter().filter_map(|token| cache.identity(token)) {
            cache.inner.tokens.borrow_mut().add(&identity);
        }
        // Records of accounts that are not remembered any longer.
        let is_used = |name: &str| accounts.iter().any(|account| name.starts_with(&read_record(account, "")));
        for name in stored.keys().filter(|name| !is_used(name)) {
            cache.inner.store.remember_read(name.clone(), None);
        }
        cache
    }

    fn take(&self, account: &str, name: &str, content: &[u8]) -> Option<()> {
        let content: Value = serde_json::from_slice(content).ok()?;
        let text = |field: &str| content.get(field).and_then(Value::as_str);
        let Bytes(body) = Bytes::from_base64(text("body")?)?;
        let content_type = text("type")?;
        let mut version = None;
        if content.get("list") == Some(&Value::Bool(true)) {
            let list = entries::encoding(content_type)?.read(inflate(&body, MAX_BODY_BYTES).ok()?)?;
            let object_set::Content::List(set) = list else { return None };
            version = Some(set.version);
        }
        let folded = Folded { body: body.into(), version, is_changed: false };
        self.inner.entries.borrow_mut().replace(account, name, content_type, folded);
        Some(())
    }

    /// The account of a token; `None` if its reads are not remembered.
    pub(crate) fn identity(&self, token: &str) -> Option<Identity> {
        Identity::of(token).filter(|identity| self.inner.accounts.contains(&identity.account))
    }

    /// Whether the API server has accepted this very token.
    pub(crate) fn is_accepted(&self, identity: &Identity) -> bool {
        self.inner.tokens.borrow().has(identity)
    }

    /// A server with these CAs has accepted the token. What was read in another cluster is forgotten.
    pub(crate) fn accepted(&self, identity: &Identity, authorities: &[String]) {
        let inner = &self.inner;
        if !inner.store.is_same_cluster(authorities) {
            log!(warn, "the API server is another cluster's, forgetting what components have read");
            let removed = inner.entries.borrow_mut().clear();
            removed.into_iter().for_each(|name| inner.store.remember_read(name, None));
            inner.tokens.borrow_mut().clear();
            inner.new_tokens.replace(inner.accounts.clone());
        }
        inner.store.remember_cluster(authorities.to_vec(), String::new());
        if inner.tokens.borrow_mut().add(identity) {
            self.tokens_changed(&identity.account);
        }
    }

    /// The server does not accept the token.
    pub(crate) fn rejected(&self, identity: &Identity) {
        if self.inner.tokens.borrow_mut().remove(identity) {
            self.tokens_changed(&identity.account);
        }
    }

    /// Stored with the next change: a token of its own must not wear the flash every hour. The node stores tokens of
    /// its pods itself.
    fn tokens_changed(&self, account: &str) {
        let mut new = self.inner.new_tokens.borrow_mut();
        let is_first = !self.inner.stored_tokens.borrow().iter().any(|stored_account| stored_account == account);
        if !new.iter().any(|listed| listed == account) {
            new.push(account.to_owned());
        }
        drop(new);
        if is_first {
            self.mark_due();
        }
    }

    /// The server refuses the read, or the object is gone.
    pub(crate) fn forget(&self, identity: &Identity, request: &ReadRequest) {
        let removed = self.inner.entries.borrow_mut().remove(&read_prefix(identity, &request.key));
        removed.into_iter().for_each(|name| self.inner.store.remember_read(name, None));
    }

    /// What the account has read before, in the first representation that the client accepts.
    pub(crate) fn find(&self, identity: &Identity, request: &ReadRequest) -> Option<Remembered> {
        let mut entries = self.inner.entries.borrow_mut();
        let records = |key: &str| -> Vec<String> {
            let prefix = read_prefix(identity, key);
            request.accepted.iter().map(|representation| [&*prefix, representation].concat()).collect()
        };
        let name = records(&request.key).into_iter().find(|name| entries.get(name).is_some())?;
        let entry = entries.get(&name)?;
        let (content_type, is_list) = (entry.content_type.clone(), entry.version.is_some());
        let lists = if is_list { Vec::new() } else { list_keys(&request.key) };
        let mut list: Option<(u64, String)> = None;
        for name in lists.iter().flat_map(|key| records(key)) {
            let version = entries.get(&name).and_then(|entry| entry.version);
            if let Some(version) = version.filter(|version| list.as_ref().is_none_or(|(newest, _)| version > newest)) {
                list = Some((version, name));
            }
        }
        Some(Remembered { name, content_type, is_list, list: list.map(|(_, name)| name) })
    }

    /// The answer with all events so far, and with what the node knows better, and its content type. `None` if it is
    /// damaged or removed.
    pub(crate) async fn answer(
        &self,
        remembered: &Remembered,
        own_node: Option<OwnNode>,
        form: AnswerForm,
    ) -> Option<(OwnAnswer, String)> {
        let (entry, list) = {
            let mut entries = self.inner.entries.borrow_mut();
            let list = remembered.list.as_ref().and_then(|name| entries.get(name)).map(|list| list.snapshot());
            (entries.get(&remembered.name)?.snapshot(), list)
        };
        let answered = move || {
            let (encoding, content_type, body) = entry.read()?;
            let listed = list.and_then(Snapshot::read).and_then(|(list_encoding, list_type, list)| {
                let object = list_encoding.listed_object(&encoding.single(&body)?, list)?;
                Some((list_encoding, list_type, object))
            });
            let (encoding, content_type, body) = listed.unwrap_or((encoding, content_type, body));
            Some((encoding.own_answer(body, own_node.as_ref(), form), content_type))
        };
        rt::blocking_for_client(answered).await
    }

    /// Folds pending events into the body of a list. Only one task does this at a time.
    async fn fold(&self, name: &str) {
        let (generation, count, fold) = {
            let entries = self.inner.entries.borrow();
            let Some(entry) = entries.all.iter().find(|entry| entry.name == name && !entry.pending.is_empty()) else {
                return;
            };
            let Some(fold) = entry.fold() else { return };
            (entry.generation, entry.pending.len(), fold)
        };
        let version = fold.version;
        let folded = rt::blocking_for_client(move || fold.run()).await;
        let mut entries = self.inner.entries.borrow_mut();
        let Some(entry) = entries.all.iter_mut().find(|entry| entry.name == name && entry.generation == generation)
        else {
            return;
        };
        match folded {
            Ok(folded) => {
                entry.pending.drain(..count);
                (entry.body, entry.body_version) = (folded.body, version);
                entry.is_unwritten |= folded.is_changed;
                let account = entry.account.clone();
                let removed = entries.shrink(&account);
                drop(entries);
                self.removed(removed);
            }
            Err(why) => {
                let removed = entries.remove(name);
                drop(entries);
                self.not_remembered(name, why);
                removed.into_iter().for_each(|name| self.inner.store.remember_read(name, None));
            }
        }
    }

    async fn fold_all(&self) {
        let names: Vec<String> = self.inner.entries.borrow().all.iter().map(|entry| entry.name.clone()).collect();
        for name in names {
            self.fold(&name).await;
        }
    }

    fn removed(&self, names: Vec<String>) {
        for name in names {
            self.not_remembered(&name, "its account has read too much");
            self.inner.store.remember_read(name, None);
        }
    }

    /// Logs once for each answer that the time without the server will not have it.
    fn not_remembered(&self, request_name: &str, why: &str) {
        let mut logged = self.inner.logged.borrow_mut();
        if logged.len() < MAX_RECENT_REQUESTS && !logged.iter().any(|logged_request| logged_request == request_name) {
            logged.push(request_name.to_owned());
            log!(warn, "answer of the API server is not remembered", request = request_name, error = why);
        }
    }

    fn mark_due(&self) {
        let inner = &self.inner;
        if inner.due.get().is_some() {
            return;
        }
        let now = rt::now();
        if inner.not_before.get().is_some_and(|time| now > time + MAX_API_CACHE_DELAY) {
            inner.backoff.borrow_mut().reset();
        }
        let due = now + FIRST_API_CACHE_DELAY;
        inner.due.set(Some(inner.not_before.get().map_or(due, |time| time.max(due))));
        inner.changed.notify();
    }

    /// The store, which has to run until [`Self::flush`] has returned.
    pub(crate) fn store(&self) -> OfflineStore {
        self.inner.store.clone()
    }

    /// Passes changes to the store when they are due; never returns.
    pub(crate) async fn run(self) {
        let inner = &self.inner;
        loop {
            let seen = inner.changed.changes();
            if inner.has_much.take() {
                self.fold_all().await;
                continue;
            }
            let Some(due) = inner.due.get() else {
                inner.changed.beyond(seen).await;
                continue;
            };
            if rt::now() < due {
                rt::either(rt::sleep_until(due), inner.changed.beyond(seen)).await;
                continue;
            }
            inner.due.set(None);
            if self.write().await {
                let wait = inner.backoff.borrow_mut().next_wait();
                inner.not_before.set(Some(rt::now() + wait));
            }
        }
    }

    /// Writes what is not stored, at the end of the agent.
    pub(crate) async fn flush(&self) {
        self.write().await;
        self.write_tokens();
        self.inner.store.flush().await;
    }

    /// Returns whether there was anything to write.
    async fn write(&self) -> bool {
        self.fold_all().await;
        let mut is_written = false;
        for entry in self.inner.entries.borrow_mut().all.iter_mut().filter(|entry| entry.is_unwritten) {
            entry.is_unwritten = false;
            self.inner.store.remember_read(entry.name.clone(), Some(entry.write().to_string().into_bytes()));
            is_written = true;
        }
        let is_first = |account: &String| !self.inner.stored_tokens.borrow().contains(account);
        if is_written || self.inner.new_tokens.borrow().iter().any(is_first) {
            self.write_tokens();
            is_written = true;
        }
        is_written
    }

    fn write_tokens(&self) {
        for account in self.inner.new_tokens.take() {
            let tokens = self.inner.tokens.borrow().write(&account);
            self.inner.store.remember_read(tokens_record(&account), Some(tokens.to_string().into_bytes()));
            self.inner.stored_tokens.borrow_mut().push(account);
        }
    }
}

/// The records of an account.
fn read_record(account: &str, rest: &str) -> String {
    OfflineStore::read_record(account, rest)
}

fn tokens_record(account: &str) -> String {
    read_record(account, "tokens")
}

/// The records of an answer, without the representation.
fn read_prefix(identity: &Identity, key: &str) -> String {
    let digest = sha256(json!([identity.id, key]).to_string().as_bytes());
    [&*read_record(&identity.account, &digest), "."].concat()
}

#[cfg(test)]
mod tests;
