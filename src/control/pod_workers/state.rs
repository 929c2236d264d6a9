//! The life of one pod worker: sync, terminating, terminated, finished. Pure.
//!
//! ```text
//!         Terminate
//!   Sync -----------> Terminating ---------> Terminated ---------> Finished
//!         Completed                Stopped               Cleaned
//! ```
//!
//! No transition leads backwards: a terminating pod never syncs again.

use std::time::Duration;

/// The state of a pod worker, which determines its next work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The worker keeps bringing the pod closer to its spec.
    Sync,
    /// The worker stops the containers, then the sandboxes. `grace` is the containers' grace period.
    Terminating { grace: Duration },
    /// Nothing of the pod runs. The worker unmounts its volumes.
    Terminated,
    /// The pod is forgotten when no source wants it any more.
    Finished,
}

/// An input of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The pod must end: removed by its source, evicted or rejected.
    Terminate { grace: Duration },
    /// The containers have exited and none will restart. Sidecars may still run.
    Completed { grace: Duration },
    /// No container and no sandbox of the pod runs.
    Stopped,
    /// The volumes are unmounted.
    Cleaned,
}

impl State {
    /// The state after `input`. Inputs without a transition leave the state unchanged.
    pub(crate) fn next(self, input: Input) -> Self {
        match (self, input) {
            (Self::Sync, Input::Terminate { grace }) => Self::Terminating { grace },
            // A second request may only shorten the grace period.
            (Self::Terminating { grace: old }, Input::Terminate { grace }) => {
                Self::Terminating { grace: old.min(grace) }
            }
            // Its main containers are down, but its sidecars and its sandbox are not.
            (Self::Sync, Input::Completed { grace }) => Self::Terminating { grace },
            (Self::Terminating { .. }, Input::Stopped) => Self::Terminated,
            (Self::Terminated, Input::Cleaned) => Self::Finished,
            (state, _) => state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: [Input; 5] = [
        Input::Terminate { grace: Duration::from_secs(30) },
        Input::Terminate { grace: Duration::from_secs(2) },
        Input::Completed { grace: Duration::from_secs(5) },
        Input::Stopped,
        Input::Cleaned,
    ];

    fn rank(state: State) -> u8 {
        match state {
            State::Sync => 0,
            State::Terminating { .. } => 1,
            State::Terminated => 2,
            State::Finished => 3,
        }
    }

    /// Calls `check` with the states before and after each step of every sequence of up to `length` inputs.
    fn every_sequence(state: State, length: u8, check: &impl Fn(State, Input, State)) {
        if length == 0 {
            return;
        }
        for input in INPUTS {
            let next = state.next(input);
            check(state, input, next);
            every_sequence(next, length - 1, check);
        }
    }

    #[test]
    fn no_input_sequence_goes_back_or_skips_a_state() {
        every_sequence(State::Sync, 6, &|before, input, after| {
            let step = rank(after).checked_sub(rank(before));
            assert!(matches!(step, Some(0 | 1)), "{before:?} went to {after:?} on {input:?}");
        });
    }

    #[test]
    fn second_terminate_only_shortens_the_grace_period() {
        every_sequence(State::Sync, 6, &|before, input, after| {
            if let (State::Terminating { grace: old }, State::Terminating { grace: new }) = (before, after) {
                assert!(new <= old, "{input:?} made the grace longer: {old:?} to {new:?}");
            }
        });
    }
}
