//! The pulls of next versions, as the node shows them. Pure: the moment is an argument.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::kubelet::images::{PullUnderWay, PullsUnderWay};
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
    /// The last attempt did not fail: windows and budgets allow no pull.
    pub(super) is_held: bool,
    /// Other pods of the same owner are replaced first.
    pub(super) waits_for_turn: bool,
    /// The present version, or the manifest of the next one, may have the node wait.
    pub(super) may_be_held: bool,
    /// The images are there: the next version waits until the node may stop the present one.
    pub(super) is_pulled: bool,
    /// Why the last attempt failed, or what it waits for.
    pub(super) failure: Option<String>,
    /// When the next attempt is due; `None` while one is under way.
    pub(super) retry: Option<Instant>,
}

impl NextVersionPulls {
    /// When the next attempt is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.pulls.values().filter_map(|pull| pull.retry).min()
    }

    /// Whether the images of the next version of the pod are being pulled now.
    pub(super) fn is_pulling(&self, present: &PodUid) -> bool {
        self.pulls.values().any(|pull| pull.present == *present && pull.retry.is_none())
    }

    /// What the next version of the pod waits for, as one line; `None` if it has none. What stands before ` (` is the
    /// short form.
    pub(crate) fn line(&self, present: &PodUid, now: Instant) -> Option<String> {
        let pull = self.pulls.values().find(|pull| pull.present == *present)?;
        let name = pull.pod.full_name();
        let under_way = self.under_way.list().into_iter().find(|one| one.pod == name);
        let mut line = match (&under_way, pull.retry) {
            (Some(one), _) if one.begun.is_none() => "waiting for its turn".to_owned(),
            (Some(one), _) => under_way_line(one, now),
            (None, None) if pull.is_pulled => "waiting for the update lock".to_owned(),
            (None, Some(_)) if pull.is_held => "waiting".to_owned(),
            (None, Some(retry)) => format!("pulling again in {}s", retry.saturating_duration_since(now).as_secs()),
            (None, None) => "pulling".to_owned(),
        };
        line.push_str(" (");
        if let Some(one) = &under_way {
            line.extend([&*one.image, ", "]);
        }
        let seconds = now.saturating_duration_since(pull.begun).as_secs();
        // Writing to a String cannot fail.
        let _ = write!(line, "{seconds}s so far, attempt {})", pull.attempts);
        if let Some(failure) = &pull.failure {
            line.extend([": ", &**failure]);
        }
        Some(line)
    }
}

/// Such as `pulling 43 %, 12.1 of 28.0 MB, 5 min left`; the runtime tells no progress.
fn under_way_line(pull: &PullUnderWay, now: Instant) -> String {
    let mut line = "pulling".to_owned();
    let Some(progress) = &pull.progress else { return line };
    let Some((here, all)) = progress.bytes() else { return line };
    let percent = here.saturating_mul(100).checked_div(all).unwrap_or_default();
    // Writing to a String cannot fail.
    let _ = write!(line, " {percent} %, {} of {} MB", megabytes(here), megabytes(all));
    let elapsed = now.saturating_duration_since(pull.begun.unwrap_or(now));
    if let Some(left) = progress.time_left(elapsed) {
        let (number, unit) = rounded(left);
        let _ = write!(line, ", {number} {unit} left");
    }
    line
}

/// In seconds, minutes or hours.
fn rounded(time: Duration) -> (u64, &'static str) {
    match time.as_secs() {
        seconds @ ..90 => (seconds, "s"),
        seconds @ 90..5400 => ((seconds + 30) / 60, "min"),
        seconds => ((seconds + 1800) / 3600, "h"),
    }
}

/// With one decimal.
fn megabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::image_transfer::Progress;

    #[test]
    fn progress_has_percent_megabytes_and_the_time_left() {
        let begun = Instant::now();
        let pull = |here, all| PullUnderWay {
            image: "app:2".to_owned(),
            pod: "web_default".to_owned(),
            requested: begun,
            begun: Some(begun),
            progress: Some(Arc::new(Progress::of(2_000_000, here, all))),
            intent: None,
        };
        let shown = |here, all, seconds| under_way_line(&pull(here, all), begun + Duration::from_secs(seconds));
        assert_eq!(shown(0, 0, 5), "pulling", "the manifest is not known yet");
        assert_eq!(shown(2_000_000, 28_000_000, 9), "pulling 7 %, 2.0 of 28.0 MB");
        // What came before this fetch has no part in its speed.
        assert_eq!(shown(12_100_000, 28_000_000, 190), "pulling 43 %, 12.1 of 28.0 MB, 5 min left");
        assert_eq!(shown(27_000_000, 28_000_000, 25), "pulling 96 %, 27.0 of 28.0 MB, 1 s left");
        assert_eq!(shown(2_100_000, 28_000_000, 60), "pulling 7 %, 2.1 of 28.0 MB, 4 h left");
    }
}
