//! How long a web pod does not answer while a new version with another image replaces it.

use std::time::Duration;

use crate::Effort;
use crate::report::Report;
use crate::web_update::longest_gap;

const PULL: Duration = Duration::from_secs(30);

pub(crate) fn measure(_: &Effort, report: &mut Report) {
    let gap = longest_gap(PULL).as_secs_f64();
    report.row("no answer during an update, pull of 30 s", format!("{gap:.2} s"), "at most 1.5", gap <= 1.5);
}
