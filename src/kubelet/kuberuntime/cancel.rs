//! Asking work to end between two of its steps.

use std::convert::Infallible;

use async_channel::{Receiver, Sender};

/// Held by who may ask.
#[derive(Debug)]
pub(crate) struct Cancel {
    /// Nothing is ever sent; that it is closed is the message.
    sender: Sender<Infallible>,
    receiver: Receiver<Infallible>,
}

/// Held by who shall end.
#[derive(Clone, Debug)]
pub(crate) struct CancelWatch(Receiver<Infallible>);

impl Cancel {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = async_channel::bounded(1);
        Self { sender, receiver }
    }

    pub(crate) fn watch(&self) -> CancelWatch {
        CancelWatch(self.receiver.clone())
    }

    pub(crate) fn cancel(&self) {
        self.sender.close();
    }
}

impl CancelWatch {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns when the work shall end.
    pub(crate) async fn cancelled(&self) {
        // Only ever an error: there is no value to receive.
        let _ = self.0.recv().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rt;

    #[test]
    fn a_watch_sees_the_request_to_end_whenever_it_looks() {
        let cancel = Cancel::new();
        let watch = cancel.watch();
        assert!(!watch.is_cancelled());
        cancel.cancel();
        assert!(watch.is_cancelled());
        rt::block_on(watch.cancelled());
    }
}
