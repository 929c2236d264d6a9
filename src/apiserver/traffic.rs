//! What goes over the wire to the API server and back, counted as the kernel takes and gives it. Pure.

use std::cell::Cell;

/// Bytes with what TLS adds, without the headers of TCP and below.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    sent: Cell<u64>,
    received: Cell<u64>,
    connections: Cell<u64>,
}

impl Traffic {
    pub(super) fn sent(&self, len: usize) {
        add(&self.sent, len);
    }

    pub(super) fn received(&self, len: usize) {
        add(&self.received, len);
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

    /// Connections that were made.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.get()
    }
}

fn add(count: &Cell<u64>, len: usize) {
    count.set(count.get().saturating_add(u64::try_from(len).unwrap_or(u64::MAX)));
}
