//! Observations of pods whose containers have started or exited: one at a time for each pod, with a pause between them.
//!
//! Each observation, and the status after it, is work for all containers of the pod. Without a pause, a pod whose
//! containers start one after another would cost work with the square of their number.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use crate::control::pleg::Observer;
use crate::platform::rt;
use crate::state::pods::{ObservedPod, SyncEvent};
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

/// The pause for each container and sandbox that the runtime has of the pod. It keeps the work for containers that start
/// or exit one after another in proportion to their number.
const PAUSE_PER_CONTAINER: Duration = Duration::from_millis(10);
const MAX_OBSERVATION_PAUSE: Duration = Duration::from_secs(10);
/// How long a failed observation is repeated. After this the relist takes over.
const OBSERVATION_TIMEOUT: Duration = Duration::from_secs(120);

/// The observations under way. Dropping it ends them.
pub(super) struct Observations {
    observer: Observer,
    inbox: Sender<SyncEvent>,
    under_way: RefCell<SortedMap<PodUid, RunningObservation>>,
}

struct RunningObservation {
    /// Something has happened since the observation started.
    again: Rc<Cell<bool>>,
    task: rt::Task<()>,
}

impl Observations {
    pub(super) fn new(observer: Observer, inbox: Sender<SyncEvent>) -> Self {
        Self { observer, inbox, under_way: RefCell::default() }
    }

    /// Observes the pod at once, or after the pause that follows its last observation.
    pub(super) fn observe(&self, pod: &PodUid) {
        let mut under_way = self.under_way.borrow_mut();
        under_way.retain(|_, look| !look.task.is_finished());
        if let Some(look) = under_way.get(pod) {
            look.again.set(true);
            return;
        }
        let again = Rc::new(Cell::new(false));
        let task = observe_pod(self.observer.clone(), self.inbox.clone(), pod.clone(), Rc::clone(&again));
        under_way.insert(pod.clone(), RunningObservation { again, task: rt::spawn(task) });
    }
}

/// Observes the pod until an observation started after its last event.
async fn observe_pod(observer: Observer, inbox: Sender<SyncEvent>, pod: PodUid, again: Rc<Cell<bool>>) {
    let mut retry = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    let mut succeeded = rt::now();
    while rt::elapsed(succeeded) < OBSERVATION_TIMEOUT {
        again.set(false);
        match observer.observe_pod(&pod).await {
            Ok(observation) => {
                retry.reset();
                let pause = pause(&observation.pod);
                // The loop is gone only when the process ends.
                let _ = inbox.send(SyncEvent::Observed(observation)).await;
                rt::sleep(pause).await;
                if !again.get() {
                    return;
                }
                succeeded = rt::now();
            }
            Err(error) => {
                log!(debug, "failed to observe pod", pod = pod, error = ErrorChain(&error));
                rt::sleep(retry.next_wait()).await;
            }
        }
    }
}

fn pause(pod: &ObservedPod) -> Duration {
    let size = u32::try_from(pod.sandboxes.len() + pod.containers.len()).unwrap_or(u32::MAX);
    PAUSE_PER_CONTAINER.saturating_mul(size).min(MAX_OBSERVATION_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pods::{ContainerState, ObservedContainer};

    #[test]
    fn pause_grows_with_the_containers_up_to_a_limit() {
        let pause_of = |count: usize| {
            let mut pod = ObservedPod::new("u".into(), "default", "web");
            let one = ObservedContainer::seen("c", "main", "s", ContainerState::Created);
            pod.containers.extend(std::iter::repeat_n(one, count));
            pause(&pod)
        };
        assert_eq!(pause_of(0), Duration::ZERO);
        assert_eq!(pause_of(2), Duration::from_millis(20));
        assert_eq!(pause_of(100_000), MAX_OBSERVATION_PAUSE);
    }
}
