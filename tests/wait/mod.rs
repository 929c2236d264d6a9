//! Waits of the tests for conditions that nothing signals, such as files and answers of the agent.

use std::time::{Duration, Instant};

/// Long enough for a busy machine. A test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Polls until `look` returns a value. Its last error is the failure's message.
#[track_caller]
pub(crate) fn wait<T>(look: impl FnMut() -> Result<T, String>) -> T {
    wait_at(POLL, look)
}

/// As `wait`, with this pause after each look, which may start a program.
#[track_caller]
pub(crate) fn wait_at<T>(pause: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) => assert!(Instant::now() < end, "waited in vain: {why}"),
        }
        std::thread::sleep(pause);
    }
}

/// Polls until the condition holds.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    wait(|| if holds() { Ok(()) } else { Err(what.to_owned()) });
}
