//! One problem of the node, and how many pods run as wanted. Pure.

use serde::Serialize;

use crate::kubelet::status::{PodHealth, PodProblem};
use crate::types::api::{Decode, DecodeContext, DecodeError, Input, decode_word, record};

record! {
    /// One thing that is not as it should be.
    pub(crate) struct NodeProblem {
        pub(crate) severity: Severity,
        /// What has the problem, such as `pod default/web`.
        pub(crate) subject: String,
        pub(crate) cause: String,
        /// What to do; empty if the cause says it.
        pub(crate) advice: String,
        /// RFC 3339; empty if unknown.
        pub(crate) since: String,
        /// When Coracle tries again, RFC 3339; empty if unknown.
        pub(crate) next_retry: String,
        /// Uid of the pod; empty for other subjects.
        pub(crate) pod: String,
    }
}

/// In the order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Severity {
    /// No pod can be started or stopped.
    Down,
    /// Something that the owner asked for does not happen.
    #[default]
    Failing,
    /// Pods run, but something needs attention.
    Warning,
}

impl Decode for Severity {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        decode_word(input, &[("down", Self::Down), ("failing", Self::Failing), ("warning", Self::Warning)])
    }
}

/// The health of the node. `coracle status` ends with 0, 3 or 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum NodeHealth {
    #[default]
    Ok,
    Degraded,
    Down,
}

impl Decode for NodeHealth {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        decode_word(input, &[("ok", Self::Ok), ("degraded", Self::Degraded), ("down", Self::Down)])
    }
}

record! {
    /// Number of pods by their health.
    #[derive(Copy, Eq)]
    pub(crate) struct PodCounts {
        pub(crate) running: u64,
        pub(crate) failing: u64,
        pub(crate) waiting: u64,
        pub(crate) done: u64,
        pub(crate) stopped: u64,
    }
}

impl PodCounts {
    pub(crate) fn add(&mut self, health: &PodHealth) {
        let count = match health {
            PodHealth::Running => &mut self.running,
            PodHealth::Failing(_) => &mut self.failing,
            PodHealth::Waiting => &mut self.waiting,
            PodHealth::Done => &mut self.done,
            PodHealth::Stopped => &mut self.stopped,
        };
        *count += 1;
    }
}

impl NodeProblem {
    /// `pod`: namespace and name. The detail is left out, because unauthenticated users see the list.
    pub(crate) fn of_pod(pod: &str, uid: String, problem: PodProblem) -> Self {
        let PodProblem { reason, cause, advice, since, next_retry, detail: _ } = problem;
        let (subject, cause) = (format!("pod {pod}"), format!("{reason}: {cause}"));
        Self { severity: Severity::Failing, subject, cause, advice, since, next_retry, pod: uid }
    }
}
