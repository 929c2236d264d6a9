//! Watches one running process until it exits, without polling.

use std::time::Duration;

use async_channel::Sender;

use crate::control::pleg::Observer;
use crate::kubelet::kuberuntime::Process;
use crate::platform::host::pidfd;
use crate::platform::{cri, rt};
use crate::state::pods::{Observation, SyncEvent};
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

/// The runtime usually reports an exit within some tens of milliseconds: until [`EXIT_OBSERVATION_DELAY`] it is polled with one small
/// call.
const OFTEN: Duration = Duration::from_millis(3);
const EXIT_OBSERVATION_DELAY: Duration = Duration::from_millis(300);
/// After this the relist takes over.
const EXIT_WATCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits for the process `pid` to exit and for the runtime to report it, then sends the pod's new state to the sync
/// loop.
pub(super) async fn run(observer: Observer, inbox: Sender<SyncEvent>, pod: PodUid, process: Process, pid: u32) {
    if let Err(error) = pidfd::exited(pid).await {
        // A different pid namespace than the runtime's, or an old kernel: the relist will notice the exit.
        log!(debug, "failed to watch process", pod = pod, pid = pid, error = ErrorChain(&error));
        return;
    }
    // Boxed, so that the observation's memory is not held for as long as the process runs.
    match Box::pin(follow(&observer, &pod, &process)).await {
        Some(observation) => {
            // The loop is gone only when the process ends.
            let _ = inbox.send(SyncEvent::Observed(observation)).await;
        }
        None => {
            log!(warn, "runtime did not report the exit of a process", pod = pod, id = process.id(), pid = pid);
        }
    }
}

/// The kernel notifies this process and the runtime's shim at the same time. The runtime reports the exit only after
/// its cleanup.
async fn follow(observer: &Observer, pod: &PodUid, process: &Process) -> Option<Observation> {
    let mut later = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    let mut retry = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    let mut began = rt::now();
    while rt::elapsed(began) < EXIT_WATCH_TIMEOUT {
        rt::sleep(if rt::elapsed(began) < EXIT_OBSERVATION_DELAY { OFTEN } else { later.next_wait() }).await;
        match observe(observer, pod, process).await {
            Ok(None) => {}
            Ok(Some(observation)) => return Some(observation),
            Err(error) => {
                log!(debug, "failed to observe pod", pod = pod, error = ErrorChain(&error));
                rt::sleep(retry.next_wait()).await;
                // The call failed: the time to wait for the runtime starts again.
                began = rt::now();
            }
        }
    }
    None
}

async fn observe(observer: &Observer, pod: &PodUid, process: &Process) -> Result<Option<Observation>, cri::Error> {
    if observer.runtime.is_running(pod, process).await? {
        return Ok(None);
    }
    observer.observe_pod(pod).await.map(Some)
}
