//! Determines how the previous process ended.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::beat_file::LastBeat;
use super::stall::{Stall, StallFile};
use crate::platform::host::clock;
use crate::platform::rt;

/// The last stall. If it ended the previous process, logs it and marks it in the record.
pub(super) fn load_last_stall(file: &StallFile, beat_path: &Path) -> Option<Stall> {
    let now = Now { time: clock::now().to_string(), since_boot: clock::since_boot(), boot_id: clock::boot_id() };
    let beat = LastBeat::read(beat_path);
    if beat.is_some() {
        // Evaluate it only once.
        let _ = fs::remove_file(beat_path);
    }
    let (stall, is_new) = judge(file.read(), beat, now);
    if let Some(stall) = stall.as_ref().filter(|_| is_new) {
        log!(warn, "previous process stalled", at = stall.time, seconds = stall.seconds, what = stall.description());
        let (file, stall) = (file.clone(), stall.clone());
        // The work runs without its future: a slow disk does not delay the start.
        drop(rt::blocking(move || file.write(&stall)));
    }
    stall
}

struct Now {
    time: String,
    since_boot: Duration,
    boot_id: String,
}

/// The last stall, from the written record and the last beat of a process without an orderly end. The bool is true if
/// this start is the first to report it.
fn judge(written: Option<Stall>, beat: Option<LastBeat>, now: Now) -> (Option<Stall>, bool) {
    let silent = beat.map(|beat| (beat, now.since_boot.saturating_sub(beat.at)));
    let silent = silent.filter(|(beat, silence)| silence >= &beat.limit);
    match (written, silent) {
        (Some(stall), _) if stall.next_start.is_none() && stall.moved_again_after_seconds.is_none() => {
            (Some(Stall { next_start: Some(now.time), ..stall }), true)
        }
        // The process had no time to write a record.
        (_, Some((beat, silence))) => {
            let stall = Stall {
                time: now.time.clone(),
                boot_id: now.boot_id,
                pid: beat.pid,
                seconds: silence.as_secs(),
                next_start: Some(now.time),
                ..Stall::default()
            };
            (Some(stall), true)
        }
        (written, None) => (written, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "2026-11-20T20:24:00Z";

    fn judged(written: Option<&Stall>, beat_seconds_ago: Option<u64>) -> (Option<Stall>, bool) {
        let now = Now { time: START.to_owned(), since_boot: Duration::from_secs(1000), boot_id: "b".to_owned() };
        let beat = beat_seconds_ago.map(|ago| LastBeat {
            pid: 7,
            at: Duration::from_secs(1000 - ago),
            limit: Duration::from_secs(60),
        });
        judge(written.cloned(), beat, now)
    }

    fn written() -> Stall {
        Stall { doing: "taking in manifests".to_owned(), seconds: 37, ..Stall::default() }
    }

    #[test]
    fn no_stall_is_reported_without_one() {
        assert_eq!(judged(None, None), (None, false));
        // Killed, and restarted at once.
        assert_eq!(judged(None, Some(59)), (None, false));
    }

    #[test]
    fn written_stall_is_reported_once() {
        for beat in [None, Some(90)] {
            let (stall, is_new) = judged(Some(&written()), beat);
            assert_eq!(stall, Some(Stall { next_start: Some(START.to_owned()), ..written() }));
            assert!(is_new);
            assert_eq!(judged(stall.as_ref(), None), (stall, false));
        }
    }

    #[test]
    fn stall_that_was_over_did_not_end_the_process() {
        let over = Stall { moved_again_after_seconds: Some(41), ..written() };
        assert_eq!(judged(Some(&over), None), (Some(over), false));
    }

    #[test]
    fn process_killed_without_a_record_is_known_by_its_last_beat() {
        let over = Stall { moved_again_after_seconds: Some(41), ..written() };
        for earlier in [None, Some(&over)] {
            let (stall, is_new) = judged(earlier, Some(65));
            let stall = stall.unwrap();
            assert_eq!((stall.seconds, stall.pid, stall.doing.as_str()), (65, 7, ""));
            assert_eq!(stall.next_start.as_deref(), Some(START));
            assert!(is_new);
        }
    }
}
