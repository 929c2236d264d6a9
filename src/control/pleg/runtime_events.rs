//! The runtime's events, if it supports them. Each names a pod to observe.
//!
//! Pods are observed concurrently. Events that arrive during an observation of their pod cause one more.

use std::rc::Rc;

use crate::control::pleg::Observer;
use crate::control::pleg::observations::Observations;
use crate::types::error::ErrorChain;

/// Reads events until the stream ends. Without events, the exit watches and the relists notice the same changes later.
pub(super) async fn run(observer: Observer, observations: Rc<Observations>) {
    let mut events = match observer.runtime.events().await {
        Ok(events) => events,
        Err(error) if error.is_unimplemented() => return wait_forever().await,
        Err(error) => {
            log!(debug, "runtime has no event stream", error = ErrorChain(&error));
            return;
        }
    };
    loop {
        let pod = match events.next_pod().await {
            Ok(Some(pod)) => pod,
            Ok(None) => return,
            Err(error) if error.is_unimplemented() => return wait_forever().await,
            Err(error) => {
                log!(debug, "runtime event stream ended", error = ErrorChain(&error));
                return;
            }
        };
        observations.observe(&pod);
    }
}

/// Never returns, so that a runtime without events is not asked again before it restarts.
async fn wait_forever() {
    std::future::pending().await
}
