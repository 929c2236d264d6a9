//! The offline store: the cluster's last state for this node, on disk, for starts without a network.
//!
//! It has the node's pods and the objects that they need, each as last received from the API server. Changes are
//! written in batches; the file is read once, at the start. Nothing is removed because the API server or the disk
//! could not be read.

mod digest;
mod files;
mod journal;
mod key;
mod names;
pub mod record;
mod seal;
mod shares;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::platform::host::clock;
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::state::objects::Topic;
use crate::state::pods::NodeFields;
use crate::types::api::{ObjectText, Pod, Time};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

use files::Folder;
use journal::{Batch, CommitResult, Faults, Journal};
use names::Cluster;
pub(crate) use names::{used_part, used_part_of_volume, without_managed_fields};
pub(crate) use seal::KeyPlaces;
use seal::Seal;

/// Directory of the store, below the root directory.
pub(crate) const OFFLINE: &str = "coracle/offline";

/// Directory of what components have read.
pub(crate) const API_ENDPOINT_STORE: &str = "coracle/offline/api-endpoint";

#[derive(Clone)]
pub(crate) struct OfflineStore {
    inner: Rc<Inner>,
}

struct Inner {
    /// Contents read at the start and not taken yet.
    unclaimed: RefCell<SortedMap<String, Vec<u8>>>,
    pending: RefCell<Batch>,
    /// When pending changes must be written.
    due: Cell<Option<Instant>>,
    /// Changes are pending, or were written.
    changed: Signal,
    /// `None` while a batch is being written.
    journal: RefCell<Option<Journal>>,
    /// The stored pods are in use because the cluster was not reached yet.
    counts: Cell<bool>,
    /// The cluster that the store belongs to; `None` while unknown.
    cluster: RefCell<Option<Cluster>>,
    /// A server with another CA has a node with the stored uid.
    has_same_node: Cell<bool>,
    /// The Node object from a server where its uid is not the stored one.
    other_node: RefCell<Option<Vec<u8>>>,
    stored: RefCell<StoredObjects>,
}

/// State of the store, for status and metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredObjects {
    pub(crate) records: usize,
    /// Size of the journal.
    pub(crate) bytes: u64,
    /// Bytes written since the start.
    pub(crate) written: u64,
    pub(crate) damaged: u64,
    pub(crate) other_format: u64,
    pub(crate) unopened: u64,
    /// Records left out because of the size limit.
    pub(crate) left_out: u64,
    /// How Secrets and tokens are stored.
    pub(crate) secrets: String,
    /// When a record last changed; `None` if the store is empty.
    pub(crate) changed: Option<Time>,
    /// Why it could not be read or written; one line.
    pub(crate) fault: Option<String>,
}

/// How soon a change is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteUrgency {
    /// Received from the cluster.
    Soon,
    /// Reported by the node, which can determine it again.
    Later,
}

/// Changes often come in groups, which are written together.
const STORE_WRITE_DELAY: Duration = Duration::from_secs(1);
/// For changes that nobody waits for: more of them share one write to flash.
const SHARED_WRITE_DELAY: Duration = Duration::from_secs(10);
/// How long to wait for the cluster before stored pods are started. Running pods are not affected; others start only
/// once, with their current spec, if a handshake and two responses fit in this time. Ends early once the cluster is
/// known to be unreachable.
const FIRST_CLUSTER_WAIT: Duration = Duration::from_secs(3);
/// Time to write pending changes at shutdown.
const SHUTDOWN_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// First and longest delay after a failed write.
const FIRST_STORE_RETRY_DELAY: Duration = Duration::from_secs(5);
const MAX_STORE_RETRY_DELAY: Duration = Duration::from_secs(60);
/// Delays before an unreadable store is read again; pods wait for it.
const READ_AGAIN: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(3)];

impl OfflineStore {
    /// Reads the store. A store that cannot be read is reported and treated as empty.
    pub(crate) async fn open(folder: PathBuf, keys: KeyPlaces) -> Self {
        let shown = folder.display().to_string();
        let mut tries = READ_AGAIN.into_iter();
        let (journal, read, secrets, changed) = loop {
            let (folder, keys) = (folder.clone(), keys.clone());
            let opened = rt::blocking(move || {
                let (seal, secrets) = keys.seal();
                let changed = files::changed(&folder.join(journal::JOURNAL_FILE));
                let is_read = !matches!(seal, Seal::Unread(_));
                let (journal, read) = Journal::open(Box::new(Folder(folder)), seal);
                (is_read && read.is_ok(), (journal, read, secrets, changed))
            });
            match (opened.await, tries.next()) {
                ((false, _), Some(wait)) => rt::sleep(wait).await,
                ((_, opened), _) => break opened,
            }
        };
        log!(info, "offline store opened", folder = shown, records = journal.records(), secrets = secrets);
        let mut stored = StoredObjects {
            records: journal.records(),
            bytes: journal.length(),
            secrets,
            changed,
            ..StoredObjects::default()
        };
        let contents = match read {
            Ok(read) => {
                let Faults { damaged, other_format, unopened } = read.faults;
                if damaged + other_format + unopened > 0 {
                    log!(
                        warn,
                        "offline store has unusable records",
                        folder = shown,
                        damaged = damaged,
                        other_format = other_format,
                        unopened = unopened
                    );
                }
                stored = StoredObjects { damaged, other_format, unopened, ..stored };
                read.contents
            }
            Err(error) => {
                log!(error, "failed to read offline store", folder = shown, error = ErrorChain(&error));
                stored.fault = Some(format!("read {shown}: {error}"));
                SortedMap::new()
            }
        };
        let mut contents = contents;
        let cluster = contents.remove(names::CLUSTER);
        let cluster = cluster.and_then(|content| Cluster::read(&serde_json::from_slice(&content).ok()?));
        let inner = Inner {
            unclaimed: RefCell::new(contents),
            pending: RefCell::default(),
            due: Cell::default(),
            changed: Signal::default(),
            journal: RefCell::new(Some(journal)),
            counts: Cell::new(false),
            cluster: RefCell::new(cluster),
            has_same_node: Cell::new(false),
            other_node: RefCell::default(),
            stored: RefCell::new(stored),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Whether pods are stored.
    pub(crate) fn has_pods(&self) -> bool {
        self.inner.unclaimed.borrow().keys().any(|name| name.starts_with(names::POD_RECORD_PREFIX))
    }

    /// Marks the stored pods as in use.
    pub(crate) fn begin_to_count(&self) {
        self.inner.counts.set(true);
    }

    /// Ends the use of the stored pods: the cluster has sent its own.
    pub(crate) fn end_to_count(&self) {
        self.inner.counts.set(false);
    }

    /// How long to wait for the cluster before the stored pods are used.
    pub(crate) fn patience(&self) -> Duration {
        if self.inner.counts.get() { Duration::ZERO } else { FIRST_CLUSTER_WAIT }
    }

    /// Whether a server with these CAs belongs to the stored cluster and may change the store.
    pub(crate) fn is_same_cluster(&self, authorities: &[String]) -> bool {
        let cluster = self.inner.cluster.borrow();
        self.inner.has_same_node.get()
            || cluster.as_ref().is_none_or(|stored_cluster| stored_cluster.has_authority_of(authorities))
    }

    /// Takes the uid of this node at a server. The stored uid proves the same cluster, even with another CA.
    pub(crate) fn set_node_uid(&self, uid: &str) {
        let cluster = self.inner.cluster.borrow();
        let is_same = cluster.as_ref().is_some_and(|stored_cluster| !uid.is_empty() && stored_cluster.node == uid);
        self.inner.has_same_node.set(is_same);
    }

    /// Records the cluster that the store belongs to.
    pub(crate) fn remember_cluster(&self, authorities: Vec<String>, node: String) {
        let cluster = Cluster { authorities, node };
        if self.inner.cluster.borrow().as_ref() != Some(&cluster) {
            self.change(names::CLUSTER.to_owned(), Some(cluster.write().to_string().into_bytes()), WriteUrgency::Soon);
            self.inner.cluster.replace(Some(cluster));
        }
        if let Some(content) = self.inner.other_node.take() {
            self.change(names::NODE_RECORD.to_owned(), Some(content), WriteUrgency::Soon);
        }
    }

    /// The stored pods. Returned only once.
    pub(crate) fn take_pods(&self) -> Vec<ObjectText> {
        let mut unclaimed = self.inner.unclaimed.borrow_mut();
        let names: Vec<String> =
            unclaimed.keys().filter(|name| name.starts_with(names::POD_RECORD_PREFIX)).cloned().collect();
        let contents = names.iter().filter_map(|name| unclaimed.remove(name));
        contents.filter_map(|content| ObjectText::parse(content).ok()).collect()
    }

    /// The stored object for a topic. Returned only once.
    pub(crate) fn take(&self, topic: &Topic) -> Option<Value> {
        self.take_named(&names::of_topic(topic))
    }

    /// The stored fields of the Node object.
    pub(crate) fn take_node(&self) -> Option<NodeFields> {
        self.take_named(names::NODE_RECORD).and_then(names::read_node_fields)
    }

    fn take_named(&self, name: &str) -> Option<Value> {
        let content = self.inner.unclaimed.borrow_mut().remove(name)?;
        serde_json::from_slice(&content).ok()
    }

    /// The stored tokens of pods for the API server that were not taken yet.
    pub(crate) fn tokens_for_api_server(&self) -> Vec<String> {
        let unclaimed = self.inner.unclaimed.borrow();
        let tokens = unclaimed.iter().filter(|(name, _)| names::is_token_for_api_server(name));
        let read = tokens.filter_map(|(_, content)| serde_json::from_slice::<Value>(content).ok());
        read.filter_map(|content| Some(content.get("token")?.as_str()?.to_owned())).collect()
    }

    /// The name of a record of what a component with this ServiceAccount has read.
    pub(crate) fn read_record(account: &str, rest: &str) -> String {
        names::of_read(account, rest)
    }

    /// Everything that components have read. Returned only once.
    pub(crate) fn take_reads(&self) -> SortedMap<String, Vec<u8>> {
        let mut unclaimed = self.inner.unclaimed.borrow_mut();
        let is_read = |name: &str| name.starts_with(names::READ_RECORD_PREFIX);
        let reads = unclaimed.iter_mut().filter(|(name, _)| is_read(name));
        let reads = reads.map(|(name, content)| (name.clone(), std::mem::take(content))).collect();
        unclaimed.retain(|name, _| !is_read(name));
        reads
    }

    /// Remembers, or forgets, what a component has read.
    pub(crate) fn remember_read(&self, name: String, content: Option<Vec<u8>>) {
        self.change(name, content, WriteUrgency::Soon);
    }

    /// Removes the records that were not taken: their pods no longer exist.
    pub(crate) fn remove_unclaimed(&self) {
        for (name, _) in self.inner.unclaimed.take() {
            self.change(name, None, WriteUrgency::Later);
        }
    }

    pub(crate) fn remember_pod(&self, pod: &Pod, content: ObjectText, urgency: WriteUrgency) {
        self.change(names::of_pod(pod), Some(content.into_bytes()), urgency);
    }

    pub(crate) fn forget_pod(&self, pod: &Pod) {
        self.change(names::of_pod(pod), None, WriteUrgency::Soon);
    }

    pub(crate) fn remember(&self, topic: &Topic, content: ObjectText) {
        self.change(names::of_topic(topic), Some(content.into_bytes()), WriteUrgency::Soon);
    }

    pub(crate) fn forget(&self, topic: &Topic) {
        self.change(names::of_topic(topic), None, WriteUrgency::Soon);
    }

    /// A Node with another uid than the stored one is kept back until `remember_cluster` confirms its cluster.
    pub(crate) fn remember_node(&self, fields: &NodeFields) {
        let content = names::write_node_fields(fields).to_string().into_bytes();
        if self.inner.cluster.borrow().as_ref().is_some_and(|stored_cluster| stored_cluster.node != fields.uid) {
            self.inner.other_node.replace(Some(content));
        } else {
            self.change(names::NODE_RECORD.to_owned(), Some(content), WriteUrgency::Soon);
        }
    }

    fn change(&self, name: String, content: Option<Vec<u8>>, urgency: WriteUrgency) {
        // The cluster has sent it again, so it is not left over from an object that no longer exists.
        self.inner.unclaimed.borrow_mut().remove(&name);
        self.inner.pending.borrow_mut().insert(name, content);
        let wait = match urgency {
            WriteUrgency::Soon => STORE_WRITE_DELAY,
            WriteUrgency::Later => SHARED_WRITE_DELAY,
        };
        let due = rt::now() + wait;
        self.inner.due.set(Some(self.inner.due.get().map_or(due, |before| before.min(due))));
        self.inner.changed.notify();
    }

    /// Whether the stored pods are in use.
    pub(crate) fn counts(&self) -> bool {
        self.inner.counts.get()
    }

    pub(crate) fn stored(&self) -> StoredObjects {
        self.inner.stored.borrow().clone()
    }

    /// Writes pending changes when they are due; never returns.
    pub(crate) async fn run(self) {
        let mut retry = Backoff::new(FIRST_STORE_RETRY_DELAY, MAX_STORE_RETRY_DELAY);
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

    /// Writes pending changes now, at shutdown. Limited in time in case the disk hangs.
    pub(crate) async fn flush(&self) {
        let all_written = async {
            while self.write().await {
                let is_done = self.inner.pending.borrow().is_empty() && self.inner.journal.borrow().is_some();
                if is_done {
                    break;
                }
            }
        };
        let _ = rt::deadline(SHUTDOWN_FLUSH_TIMEOUT, all_written).await;
    }

    /// False on failure.
    async fn write(&self) -> bool {
        let seen = self.inner.changed.changes();
        let Some(mut journal) = self.inner.journal.take() else {
            // Another batch is being written.
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

    fn note(&self, journal: &Journal, batch: Batch, done: std::io::Result<CommitResult>) -> bool {
        let mut stored = self.inner.stored.borrow_mut();
        (stored.records, stored.bytes) = (journal.records(), journal.length());
        match done {
            Ok(CommitResult { bytes, left_out, damaged, secrets }) => {
                if let Some(secrets) = secrets {
                    log!(info, "offline store key read", secrets = secrets);
                    stored.secrets = secrets;
                }
                stored.fault = None;
                stored.written += bytes;
                if bytes > 0 {
                    stored.changed = Some(clock::now());
                }
                stored.left_out += left_out;
                stored.damaged += damaged;
                true
            }
            Err(error) => {
                let fault = format!("write: {error}");
                if stored.fault.as_ref() != Some(&fault) {
                    log!(error, "failed to write offline store", error = ErrorChain(&error));
                }
                stored.fault = Some(fault);
                // Changes made in the meantime are newer.
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
