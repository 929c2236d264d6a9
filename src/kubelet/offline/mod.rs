//! What the cluster last asked of this node, kept on the disk: a node that starts without a network goes by it.
//!
//! The store has the pods of this node and what they need, each as the API server last told it. It is written when
//! something has changed, many changes together, and read once, at the start. Nothing is ever removed from it because
//! something could not be heard or read.

mod files;
mod journal;
mod key;
mod names;
pub mod record;
mod seal;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::platform::host::clock;
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::state::objects::Topic;
use crate::state::pods::NodeTerms;
use crate::types::api::{Pod, Time};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

use files::Folder;
use journal::{Batch, Committed, Faults, Journal};
use names::Cluster;
pub(crate) use names::{used_part, without_managed_fields};
pub(crate) use seal::KeyPlaces;
use seal::Seal;

/// Where it is, below the root directory.
pub(crate) const OFFLINE: &str = "coracle/offline";

/// A handle on the store; clones share it.
#[derive(Clone)]
pub(crate) struct OfflineStore {
    inner: Rc<Inner>,
}

struct Inner {
    /// What stood in it at the start, until somebody asks for it.
    found: RefCell<SortedMap<String, Vec<u8>>>,
    pending: RefCell<Batch>,
    /// When what is pending is to be written.
    due: Cell<Option<Instant>>,
    /// Something is pending, or has been written.
    changed: Signal,
    /// `None` while a batch is being written.
    journal: RefCell<Option<Journal>>,
    /// The node goes by what was stored.
    counts: Cell<bool>,
    /// Whose word it has; `None` while there is none.
    cluster: RefCell<Option<Cluster>>,
    /// A server of other authorities has the same node.
    has_same_node: Cell<bool>,
    /// What a server told of a node that has not the uid of the stored cluster's.
    other_node: RefCell<Option<Vec<u8>>>,
    book: RefCell<Book>,
}

/// What is shown of the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    pub(crate) records: usize,
    /// Of the journal.
    pub(crate) bytes: u64,
    /// Written since the start.
    pub(crate) written: u64,
    pub(crate) damaged: u64,
    pub(crate) other_format: u64,
    pub(crate) unopened: u64,
    /// Records that would have made it too large.
    pub(crate) left_out: u64,
    /// What becomes of Secrets and tokens.
    pub(crate) secrets: String,
    /// When something in it last changed; `None` while there is nothing.
    pub(crate) changed: Option<Time>,
    /// Why it could not be read or written: one line.
    pub(crate) fault: Option<String>,
}

/// How soon something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// What is asked of the node.
    Soon,
    /// What the node itself has told: it can find it out again.
    Later,
}

/// Changes rarely come alone: those of so long are written together.
const SOON: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_secs(10);
/// What runs is not touched meanwhile; what does not run starts once, with what the cluster wants by now, where the line is
/// good for a handshake and two answers in this time. It is not waited for when it is known sooner that there is no cluster.
const CLUSTER_FIRST: Duration = Duration::from_secs(3);
/// For what is pending when the agent ends.
const FLUSH: Duration = Duration::from_secs(5);
/// A disk that takes nothing is tried again after so long, and then twice as long.
const RETRY_FIRST: Duration = Duration::from_secs(5);
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// When a store that the disk does not give is read again. Pods wait for it.
const READ_AGAIN: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(3)];

impl OfflineStore {
    /// Reads what is there. A store that cannot be read is told of, and stops nothing.
    pub(crate) async fn open(folder: PathBuf, keys: KeyPlaces) -> Self {
        let shown = folder.display().to_string();
        let mut tries = READ_AGAIN.into_iter();
        let (journal, found, secrets, changed) = loop {
            let (folder, keys) = (folder.clone(), keys.clone());
            let opened = rt::blocking(move || {
                let (seal, secrets) = keys.seal();
                let changed = files::changed(&folder.join(journal::JOURNAL));
                let is_read = !matches!(seal, Seal::Unread(_));
                let (journal, found) = Journal::open(Box::new(Folder(folder)), seal);
                (is_read && found.is_ok(), (journal, found, secrets, changed))
            });
            match (opened.await, tries.next()) {
                ((false, _), Some(wait)) => rt::sleep(wait).await,
                ((_, opened), _) => break opened,
            }
        };
        log!(info, "offline store", folder = shown, records = journal.records(), secrets = secrets);
        let mut book =
            Book { records: journal.records(), bytes: journal.length(), secrets, changed, ..Book::default() };
        let contents = match found {
            Ok(found) => {
                let Faults { damaged, other_format, unopened } = found.faults;
                if damaged + other_format + unopened > 0 {
                    log!(
                        warn,
                        "records of the offline store cannot be used",
                        folder = shown,
                        damaged = damaged,
                        other_format = other_format,
                        unopened = unopened
                    );
                }
                book = Book { damaged, other_format, unopened, ..book };
                found.contents
            }
            Err(error) => {
                log!(error, "the offline store cannot be read", folder = shown, error = ErrorChain(&error));
                book.fault = Some(format!("read {shown}: {error}"));
                SortedMap::new()
            }
        };
        let mut contents = contents;
        let cluster = contents.remove(names::CLUSTER);
        let cluster = cluster.and_then(|content| Cluster::read(&serde_json::from_slice(&content).ok()?));
        let inner = Inner {
            found: RefCell::new(contents),
            pending: RefCell::default(),
            due: Cell::default(),
            changed: Signal::default(),
            journal: RefCell::new(Some(journal)),
            counts: Cell::new(false),
            cluster: RefCell::new(cluster),
            has_same_node: Cell::new(false),
            other_node: RefCell::default(),
            book: RefCell::new(book),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Whether there is anything to go by.
    pub(crate) fn has_pods(&self) -> bool {
        self.inner.found.borrow().keys().any(|name| name.starts_with(names::PODS))
    }

    /// From now on the node goes by what was stored, until it hears otherwise.
    pub(crate) fn begin_to_count(&self) {
        self.inner.counts.set(true);
    }

    /// The cluster has told its pods: that counts.
    pub(crate) fn end_to_count(&self) {
        self.inner.counts.set(false);
    }

    /// So long the cluster's own word is waited for before that of the store counts.
    pub(crate) fn patience(&self) -> Duration {
        if self.inner.counts.get() { Duration::ZERO } else { CLUSTER_FIRST }
    }

    /// Whether a server that these vouch for may change what is stored: one of another cluster may not.
    pub(crate) fn believes(&self, authorities: &[String]) -> bool {
        let cluster = self.inner.cluster.borrow();
        self.inner.has_same_node.get() || cluster.as_ref().is_none_or(|known| known.is_vouched_for_by(authorities))
    }

    /// A server has told the uid of this node. One that has the stored uid is of the same cluster, whoever vouches for it.
    pub(crate) fn node_is(&self, uid: &str) {
        let cluster = self.inner.cluster.borrow();
        let is_same = cluster.as_ref().is_some_and(|known| !uid.is_empty() && known.node == uid);
        self.inner.has_same_node.set(is_same);
    }

    /// From now on the store has the word of this cluster.
    pub(crate) fn remember_cluster(&self, authorities: Vec<String>, node: String) {
        let cluster = Cluster { authorities, node };
        if self.inner.cluster.borrow().as_ref() != Some(&cluster) {
            self.change(names::CLUSTER.to_owned(), Some(cluster.write().to_string().into_bytes()), Pace::Soon);
            self.inner.cluster.replace(Some(cluster));
        }
        if let Some(content) = self.inner.other_node.take() {
            self.change(names::NODE.to_owned(), Some(content), Pace::Soon);
        }
    }

    /// The pods as the cluster last told them. They are given once.
    pub(crate) fn take_pods(&self) -> Vec<Value> {
        let mut found = self.inner.found.borrow_mut();
        let names: Vec<String> = found.keys().filter(|name| name.starts_with(names::PODS)).cloned().collect();
        let contents = names.iter().filter_map(|name| found.remove(name));
        contents.filter_map(|content| serde_json::from_slice(&content).ok()).collect()
    }

    /// What was last heard of something that pods need. It is given once.
    pub(crate) fn take(&self, topic: &Topic) -> Option<Value> {
        self.take_named(&names::of_topic(topic))
    }

    /// What the cluster last had of the node.
    pub(crate) fn take_node(&self) -> Option<NodeTerms> {
        self.take_named(names::NODE).and_then(names::read_terms)
    }

    fn take_named(&self, name: &str) -> Option<Value> {
        let content = self.inner.found.borrow_mut().remove(name)?;
        serde_json::from_slice(&content).ok()
    }

    /// All that is needed has been taken: what is left is of pods that are no more.
    pub(crate) fn forget_what_is_left(&self) {
        for (name, _) in self.inner.found.take() {
            self.change(name, None, Pace::Later);
        }
    }

    pub(crate) fn remember_pod(&self, pod: &Pod, content: Vec<u8>, pace: Pace) {
        self.change(names::of_pod(pod), Some(content), pace);
    }

    pub(crate) fn forget_pod(&self, pod: &Pod) {
        self.change(names::of_pod(pod), None, Pace::Soon);
    }

    pub(crate) fn remember(&self, topic: &Topic, content: &Value) {
        self.change(names::of_topic(topic), Some(content.to_string().into_bytes()), Pace::Soon);
    }

    pub(crate) fn forget(&self, topic: &Topic) {
        self.change(names::of_topic(topic), None, Pace::Soon);
    }

    /// A node with another uid than the stored cluster's is kept once that cluster is the one to be remembered.
    pub(crate) fn remember_node(&self, terms: &NodeTerms) {
        let content = names::write_terms(terms).to_string().into_bytes();
        if self.inner.cluster.borrow().as_ref().is_some_and(|known| known.node != terms.uid) {
            self.inner.other_node.replace(Some(content));
        } else {
            self.change(names::NODE.to_owned(), Some(content), Pace::Soon);
        }
    }

    fn change(&self, name: String, content: Option<Vec<u8>>, pace: Pace) {
        self.inner.found.borrow_mut().remove(&name);
        self.inner.pending.borrow_mut().insert(name, content);
        let wait = match pace {
            Pace::Soon => SOON,
            Pace::Later => LATER,
        };
        let due = rt::now() + wait;
        self.inner.due.set(Some(self.inner.due.get().map_or(due, |before| before.min(due))));
        self.inner.changed.notify();
    }

    /// Whether the node goes by it, and has not heard the cluster since.
    pub(crate) fn counts(&self) -> bool {
        self.inner.counts.get()
    }

    pub(crate) fn book(&self) -> Book {
        self.inner.book.borrow().clone()
    }

    /// Writes what is pending when it is due, for as long as the agent runs.
    pub(crate) async fn run(self) {
        let mut retry = Backoff::new(RETRY_FIRST, RETRY_LONGEST);
        loop {
            let seen = self.inner.changed.changes();
            let Some(due) = self.inner.due.get() else {
                self.inner.changed.beyond(seen).await;
                continue;
            };
            if rt::now() < due {
                rt::either(rt::sleep_until(due), self.inner.changed.beyond(seen)).await;
                continue;
            }
            if self.write().await {
                retry.reset();
            } else {
                rt::sleep(retry.next_wait()).await;
            }
        }
    }

    /// Writes what is pending at once, before the agent ends. It waits for no disk that hangs.
    pub(crate) async fn flush(&self) {
        let all = async {
            while self.write().await {
                let is_done = self.inner.pending.borrow().is_empty() && self.inner.journal.borrow().is_some();
                if is_done {
                    break;
                }
            }
        };
        let _ = rt::deadline(FLUSH, all).await;
    }

    /// False if it has failed.
    async fn write(&self) -> bool {
        let seen = self.inner.changed.changes();
        let Some(mut journal) = self.inner.journal.take() else {
            // Another batch is on its way.
            self.inner.changed.beyond(seen).await;
            return true;
        };
        self.inner.due.set(None);
        let batch = self.inner.pending.take();
        let (journal, batch, done) = rt::blocking(move || {
            let done = journal.commit(&batch);
            (journal, batch, done)
        })
        .await;
        let is_done = self.note(&journal, batch, done);
        self.inner.journal.replace(Some(journal));
        self.inner.changed.notify();
        is_done
    }

    fn note(&self, journal: &Journal, batch: Batch, done: std::io::Result<Committed>) -> bool {
        let mut book = self.inner.book.borrow_mut();
        (book.records, book.bytes) = (journal.records(), journal.length());
        match done {
            Ok(Committed { bytes, left_out, damaged, secrets }) => {
                if let Some(secrets) = secrets {
                    log!(info, "read the key of the offline store", secrets = secrets);
                    book.secrets = secrets;
                }
                book.fault = None;
                book.written += bytes;
                if bytes > 0 {
                    book.changed = Some(clock::now());
                }
                book.left_out += left_out;
                book.damaged += damaged;
                true
            }
            Err(error) => {
                let fault = format!("write: {error}");
                if book.fault.as_ref() != Some(&fault) {
                    log!(error, "the offline store cannot be written", error = ErrorChain(&error));
                }
                book.fault = Some(fault);
                // What has come meanwhile is newer.
                let mut pending = self.inner.pending.borrow_mut();
                for (name, content) in batch {
                    pending.entry(name).or_insert(content);
                }
                self.inner.due.set(Some(rt::now()));
                false
            }
        }
    }
}
