//! Work of a thread on a volume, which a pod that terminates no longer waits for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_channel::Sender;

/// Whether the pod still needs the volume, and whether a mount is in progress, which must be unmounted with the pod.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_given_up: bool,
    is_mounting: bool,
    /// Closed when the mount has finished.
    mounted: Option<Sender<()>>,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.lock().is_given_up
    }

    /// Begins mounting; `None` if the volume was given up. Mounting ends when the guard is dropped.
    pub(super) fn mount(&self) -> Option<Mount<'_>> {
        let mut state = self.lock();
        if state.is_given_up {
            return None;
        }
        state.is_mounting = true;
        Some(Mount(self))
    }

    /// Gives the volume up, and does not wait.
    pub(super) fn give_up(&self) {
        self.lock().is_given_up = true;
    }

    /// Gives the volume up; returns once no mount is in progress.
    pub(super) async fn gives_up(&self) {
        let (sender, receiver) = async_channel::bounded::<()>(1);
        {
            let mut state = self.lock();
            state.is_given_up = true;
            if !state.is_mounting {
                return;
            }
            state.mounted = Some(sender);
        }
        // Nothing is ever sent; the channel only closes.
        let _ = receiver.recv().await;
    }
}

/// Guard of a mount in progress.
pub(super) struct Mount<'a>(&'a Progress);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_mounting = false;
        state.mounted = None;
    }
}
