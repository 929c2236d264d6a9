//! Counts the bytes sent to and received from the API server. Pure.

use std::cell::Cell;

use crate::platform::rpc::Signal;

/// Bytes including TLS, without the headers of TCP and below.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    sent: Cell<u64>,
    received: Cell<u64>,
    /// Bytes of images that count against the same budget.
    images: Cell<u64>,
    connections: Cell<u64>,
    /// The total at which to notify `marked`.
    mark: Cell<Option<u64>>,
    pub(crate) marked: Signal,
}

impl Traffic {
    pub(super) fn sent(&self, len: usize) {
        add(&self.sent, len);
        self.check_mark();
    }

    pub(super) fn received(&self, len: usize) {
        add(&self.received, len);
        self.check_mark();
    }

    pub(super) fn connected(&self) {
        add(&self.connections, 1);
    }

    pub(crate) fn bytes_sent(&self) -> u64 {
        self.sent.get()
    }

    pub(crate) fn bytes_received(&self) -> u64 {
        self.received.get()
    }

    /// All bytes, with those of images that count.
    pub(crate) fn bytes(&self) -> u64 {
        self.sent.get().saturating_add(self.received.get()).saturating_add(self.images.get())
    }

    /// Counts bytes of images.
    pub(crate) fn images(&self, bytes: u64) {
        self.images.set(self.images.get().saturating_add(bytes));
        self.check_mark();
    }

    /// Notifies [`Self::marked`] once the total reaches `bytes`.
    pub(crate) fn mark(&self, bytes: Option<u64>) {
        self.mark.set(bytes);
        self.check_mark();
    }

    fn check_mark(&self) {
        if self.mark.get().is_some_and(|mark| self.bytes() >= mark) {
            self.mark.set(None);
            self.marked.notify();
        }
    }

    /// Number of connections made.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.get()
    }
}

fn add(count: &Cell<u64>, len: usize) {
    count.set(count.get().saturating_add(u64::try_from(len).unwrap_or(u64::MAX)));
}
