//! Containers that begin anew because somebody wants them to.
//!
//! What is wanted goes by the instance that runs: it has been done when that one does not run any more, whatever has
//! ended it.

use super::{PodWorkers, State};
use crate::state::pods::RestartRequest;

impl PodWorkers {
    /// Somebody wants containers of a pod to begin anew. One that has ended meanwhile, or ends, is left to that.
    pub(crate) fn restart(&mut self, asked: RestartRequest) {
        let RestartRequest { uid, containers, running } = asked;
        let Some(entry) = self.workers.get_mut(&uid).filter(|entry| entry.worker.state == State::Sync) else { return };
        log!(info, "containers begin anew on request", pod = uid, containers = containers.join(", "));
        self.backoff.forgive(&uid, &containers);
        entry.worker.asked_to_start(&containers);
        entry.asked.extend(running);
        self.touch(&uid);
    }
}
