//! Cancels work between two of its steps.

use std::convert::Infallible;
use std::pin::Pin;

use async_channel::{Receiver, Sender};

use crate::platform::rt;

/// The sender's side of a cancellation.
#[derive(Debug)]
pub(crate) struct Cancel {
    /// Nothing is ever sent; closing it is the signal: it reaches every watch, a message only one.
    sender: Sender<Infallible>,
    receiver: Receiver<Infallible>,
}

/// The worker's side of a cancellation.
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

    /// Returns when the work is cancelled.
    pub(crate) async fn cancelled(&self) {
        // Always an error: no value is ever sent.
        let _ = self.0.recv().await;
    }

    /// As [`Self::cancelled`], for work that keeps it.
    pub(crate) fn to_cancelled(&self) -> Pin<Box<dyn Future<Output = ()>>> {
        let watch = self.clone();
        Box::pin(async move { watch.cancelled().await })
    }
}

/// `None` if the work is cancelled before it is done.
pub(super) async fn unless_cancelled<T>(cancel: Option<&CancelWatch>, work: impl Future<Output = T>) -> Option<T> {
    let cancelled = async {
        match cancel {
            Some(cancel) => cancel.cancelled().await,
            None => std::future::pending().await,
        }
        None
    };
    rt::either(cancelled, async { Some(work.await) }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_watch_reports_and_returns_at_once() {
        let cancel = Cancel::new();
        let watch = cancel.watch();
        assert!(!watch.is_cancelled());
        cancel.cancel();
        assert!(watch.is_cancelled());
        rt::block_on(watch.cancelled());
    }
}
