//! Records of an earlier agent that the disk could not read at the start. They are read again after a while. Until then
//! it is unknown what their pods have done and which of them run, so no pod is an orphan.

use std::time::Duration;

use async_channel::{Receiver, Sender};

use crate::platform::rt;
use crate::state::pods::{SourceUpdate, SyncEvent};

pub(crate) struct UnreadRecords<T> {
    attempts: u32,
    read: Receiver<T>,
    /// What each source has reported meanwhile.
    held: Vec<SourceUpdate>,
    _task: rt::Task<()>,
}

const RECORD_READ_RETRY_DELAY: Duration = Duration::from_secs(30);
/// After these, a record that cannot be read counts as damaged.
pub(crate) const MAX_RECORD_READS: u32 = 10;

impl<T: Send + 'static> UnreadRecords<T> {
    /// `open` reads the records, which have been read once. It may block.
    pub(crate) fn new(open: impl FnOnce() -> T + Send + 'static, inbox: Sender<SyncEvent>) -> Self {
        let (sender, read) = async_channel::bounded(1);
        let task = rt::spawn(async move {
            rt::sleep(RECORD_READ_RETRY_DELAY).await;
            let records = rt::blocking(open).await;
            // Both fail only when the agent is ending.
            let _ = sender.send(records).await;
            let _ = inbox.send(SyncEvent::RecordsRead).await;
        });
        Self { attempts: 1, read, held: Vec::new(), _task: task }
    }

    /// Keeps what the source has reported. Until it comes again, the source is incomplete.
    pub(crate) fn hold(&mut self, update: &SourceUpdate) {
        self.held.retain(|held| held.source != update.source);
        self.held.push(update.clone());
    }

    /// What was read, once it is.
    pub(crate) fn take_read(&self) -> Option<T> {
        self.read.try_recv().ok()
    }

    pub(crate) const fn may_read_again(&self) -> bool {
        self.attempts < MAX_RECORD_READS
    }

    /// Reads the records once more.
    pub(crate) fn again(self, open: impl FnOnce() -> T + Send + 'static, inbox: Sender<SyncEvent>) -> Self {
        Self { attempts: self.attempts.saturating_add(1), held: self.held, ..Self::new(open, inbox) }
    }

    /// The updates to handle now that the records are read.
    pub(crate) fn into_held(self) -> Vec<SourceUpdate> {
        self.held
    }

    #[cfg(test)]
    pub(crate) fn set_read(&mut self, records: T) {
        let (sender, read) = async_channel::bounded(1);
        self.read = read;
        sender.try_send(records).expect("the channel has room");
    }
}
