//! The runtime's events, if it supports them. Each names a pod to observe.
//!
//! Pods are observed concurrently. Events that arrive during an observation of their pod cause one more.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use crate::control::pleg::Observer;
use crate::platform::rt;
use crate::state::pods::SyncEvent;
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

/// Reads events until the stream ends. Without events, the exit watches and the relists notice the same changes later.
pub(super) async fn run(observer: Observer, inbox: Sender<SyncEvent>) {
    let mut events = match observer.runtime.events().await {
        Ok(events) => events,
        Err(error) if error.is_unimplemented() => return wait_forever().await,
        Err(error) => {
            log!(debug, "runtime has no event stream", error = ErrorChain(&error));
            return;
        }
    };
    let mut looks = RunningObservations { observer, inbox, under_way: SortedMap::new() };
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
        looks.observe(pod);
    }
}

/// Never returns, so that a runtime without events is not asked again before it restarts.
async fn wait_forever() {
    std::future::pending().await
}

/// The running observations. Dropping it ends them.
struct RunningObservations {
    observer: Observer,
    inbox: Sender<SyncEvent>,
    under_way: SortedMap<PodUid, RunningObservation>,
}

struct RunningObservation {
    /// Further events arrived since the observation started.
    again: Rc<Cell<bool>>,
    task: rt::Task<()>,
}

impl RunningObservations {
    fn observe(&mut self, pod: PodUid) {
        self.under_way.retain(|_, look| !look.task.is_finished());
        if let Some(look) = self.under_way.get(&pod) {
            look.again.set(true);
            return;
        }
        let again = Rc::new(Cell::new(false));
        let task = observe_pod(self.observer.clone(), self.inbox.clone(), pod.clone(), Rc::clone(&again));
        self.under_way.insert(pod, RunningObservation { again, task: rt::spawn(task) });
    }
}

/// Observes the pod until an observation started after its last event.
async fn observe_pod(observer: Observer, inbox: Sender<SyncEvent>, pod: PodUid, again: Rc<Cell<bool>>) {
    let mut retry = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    loop {
        again.set(false);
        match observer.observe_pod(&pod).await {
            Ok(observation) => {
                // The loop is gone only when the process ends.
                let _ = inbox.send(SyncEvent::Observed(observation)).await;
                if !again.get() {
                    return;
                }
            }
            Err(error) => {
                log!(debug, "failed to observe pod", pod = pod, error = ErrorChain(&error));
                rt::sleep(retry.next_wait()).await;
            }
        }
    }
}
