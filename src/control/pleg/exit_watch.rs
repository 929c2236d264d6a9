//! Watches one running process until it exits, without polling.

use std::rc::Rc;
use std::time::Duration;

use crate::control::pleg::Observer;
use crate::control::pleg::observations::Observations;
use crate::kubelet::kuberuntime::Process;
use crate::platform::host::pidfd;
use crate::platform::rt;
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

/// The runtime usually reports an exit within some tens of milliseconds: for the first [`EXIT_OBSERVATION_DELAY`] it is
/// polled with one small call.
const EXIT_CHECK_INTERVAL: Duration = Duration::from_millis(3);
const EXIT_OBSERVATION_DELAY: Duration = Duration::from_millis(300);
/// After this the relist takes over.
const EXIT_WATCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits for the process `pid` to exit and for the runtime to report it, then observes the pod.
pub(super) async fn run(observer: Observer, observations: Rc<Observations>, pod: PodUid, process: Process, pid: u32) {
    if let Err(error) = pidfd::exited(pid).await {
        // A different pid namespace than the runtime's, or an old kernel: the relist will notice the exit.
        log!(debug, "failed to watch process", pod = pod, pid = pid, error = ErrorChain(&error));
        return;
    }
    // Boxed, so that the memory for the calls is not held for as long as the process runs.
    if Box::pin(is_reported(&observer, &pod, &process)).await {
        observations.observe(&pod);
    } else {
        log!(warn, "runtime did not report the exit of a process", pod = pod, id = process.id(), pid = pid);
    }
}

/// The kernel notifies this process and the runtime's shim at the same time. The runtime reports the exit only after
/// its cleanup.
async fn is_reported(observer: &Observer, pod: &PodUid, process: &Process) -> bool {
    let mut later = Backoff::new(Duration::from_millis(20), Duration::from_millis(500));
    let mut retry = Backoff::new(Duration::from_millis(100), Duration::from_secs(10));
    let mut began = rt::now();
    while rt::elapsed(began) < EXIT_WATCH_TIMEOUT {
        rt::sleep(if rt::elapsed(began) < EXIT_OBSERVATION_DELAY { EXIT_CHECK_INTERVAL } else { later.next_wait() })
            .await;
        match observer.runtime.is_running(pod, process).await {
            Ok(true) => {}
            Ok(false) => return true,
            Err(error) => {
                log!(debug, "failed to observe pod", pod = pod, error = ErrorChain(&error));
                rt::sleep(retry.next_wait()).await;
                // The call failed: the time to wait for the runtime starts again.
                began = rt::now();
            }
        }
    }
    false
}
