//! One running process, watched until it ends: no polling, no timer.

use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use crate::kubelet::kuberuntime::{PodRuntime, Process};
use crate::platform::cri;
use crate::platform::host::pidfd;
use crate::platform::rt;
use crate::state::pods::{Observation, SyncEvent};
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

/// The runtime usually books an exit within some tens of milliseconds: so long it is asked often, with one small call.
const OFTEN: Duration = Duration::from_millis(3);
const SOON: Duration = Duration::from_millis(300);
/// After this the relist takes over.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for the process `pid` to end, then for the runtime to have seen it, and tells the sync loop what has become of
/// the pod.
pub(super) async fn run(runtime: Rc<PodRuntime>, inbox: Sender<SyncEvent>, pod: PodUid, process: Process, pid: u32) {
    if let Err(error) = pidfd::exited(pid).await {
        // Another process namespace than the runtime's, or an old kernel: the relist will see it.
        log!(debug, "process not watched", pod = pod, pid = pid, error = ErrorChain(&error));
        return;
    }
    // Boxed: what a look needs must not lie in memory for as long as the process runs.
    match Box::pin(follow(&runtime, &pod, &process)).await {
        Some(observation) => {
            // The loop is gone only when the process ends.
            let _ = inbox.send(SyncEvent::Observed(observation)).await;
        }
        None => {
            log!(warn, "the runtime has not noticed that a process ended", pod = pod, id = process.id(), pid = pid);
        }
    }
}

/// The kernel tells us and the runtime's shim at the same time; the runtime's own books follow when it has cleaned up.
async fn follow(runtime: &PodRuntime, pod: &PodUid, process: &Process) -> Option<Observation> {
    let mut later = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    let mut retry = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    let mut began = rt::now();
    while rt::elapsed(began) < PATIENCE {
        rt::sleep(if rt::elapsed(began) < SOON { OFTEN } else { later.next_wait() }).await;
        match look(runtime, pod, process).await {
            Ok(None) => {}
            Ok(Some(observation)) => return Some(observation),
            Err(error) => {
                log!(debug, "pod not observed", pod = pod, error = ErrorChain(&error));
                rt::sleep(retry.next_wait()).await;
                // It was not asked in vain: it did not answer.
                began = rt::now();
            }
        }
    }
    None
}

async fn look(runtime: &PodRuntime, pod: &PodUid, process: &Process) -> Result<Option<Observation>, cri::Error> {
    if runtime.is_running(process).await? {
        return Ok(None);
    }
    runtime.observe_pod(pod).await.map(Some)
}
