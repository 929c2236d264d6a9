//! Restarts of containers on a user's request.
//!
//! A request names running instances. It is done once they no longer run, whatever stopped them.

use super::{PodWorkers, State};
use crate::state::pods::RestartRequest;

impl PodWorkers {
    /// Restarts containers of a pod. Instances that have exited, or are exiting, need no request.
    pub(crate) fn restart(&mut self, request: RestartRequest) {
        let RestartRequest { uid, containers, running } = request;
        let Some(entry) = self.workers.get_mut(&uid).filter(|entry| entry.worker.state == State::Sync) else { return };
        log!(info, "restarting containers on request", pod = uid, containers = containers.join(", "));
        self.backoff.forgive(&uid, &containers);
        entry.worker.start_requested(&containers);
        entry.to_restart.extend(running);
        self.touch(&uid);
    }
}
