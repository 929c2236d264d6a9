//! The pulls of next versions, as the node shows them. Pure: the moment is an argument.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use crate::kubelet::images::PullsUnderWay;
use crate::types::api::{Pod, PodUid};
use crate::types::sorted::SortedMap;

/// The pulls for next versions, as the node shows them.
#[derive(Debug, Default)]
pub(crate) struct NextVersionPulls {
    /// By the uid of the next version.
    pub(super) pulls: SortedMap<PodUid, NextVersionPull>,
    pub(super) under_way: PullsUnderWay,
}

#[derive(Debug)]
pub(super) struct NextVersionPull {
    /// The version that runs.
    pub(super) present: PodUid,
    pub(super) pod: Arc<Pod>,
    pub(super) begun: Instant,
    pub(super) attempts: u32,
    /// Why the last attempt failed.
    pub(super) failure: Option<String>,
    /// When the next attempt is due; `None` while one is under way.
    pub(super) retry: Option<Instant>,
}

impl NextVersionPulls {
    /// When the next attempt is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pulls.values().filter_map(|pull| pull.retry).min()
    }

    /// What the next version of the pod waits for, as one line; `None` if it has none.
    pub(super) fn line(&self, present: &PodUid, now: Instant) -> Option<String> {
        let pull = self.pulls.values().find(|pull| pull.present == *present)?;
        let seconds = now.saturating_duration_since(pull.begun).as_secs();
        let mut line = String::from("pulling");
        let name = pull.pod.full_name();
        let under_way = self.under_way.list().into_iter().find(|one| one.pod == name);
        match (&under_way, pull.retry) {
            (Some(one), _) => {
                line.extend([" ", &*one.image]);
                if one.begun.is_none() {
                    line.push_str(", waits for its turn");
                }
            }
            (None, Some(retry)) => {
                let wait = retry.saturating_duration_since(now).as_secs();
                // Writing to a String cannot fail.
                let _ = write!(line, " again in {wait}s");
            }
            (None, None) => {}
        }
        if let Some((here, all)) = under_way.and_then(|one| one.progress?.bytes()) {
            let percent = here.saturating_mul(100).checked_div(all).unwrap_or_default();
            let (here, all) = (megabytes(here), megabytes(all));
            let _ = write!(line, ", {percent} %, {here} of {all} MB");
        }
        let _ = write!(line, ", {seconds}s so far, attempt {}", pull.attempts);
        if let Some(failure) = &pull.failure {
            line.extend([": ", &**failure]);
        }
        Some(line)
    }
}

/// With one decimal.
fn megabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}
