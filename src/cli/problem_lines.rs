//! A problem of the node or of a pod, as lines of text. Pure.

use super::events::in_one_line;
use super::pod_row::age;
use crate::control::server::NodeProblem;
use crate::types::api::{Time, decode};

/// The cause with its times, then the advice. `now`: Unix seconds.
pub(super) fn problem_lines(problem: &NodeProblem, now: i64) -> Vec<String> {
    let NodeProblem { subject, cause, advice, since, next_retry, .. } = problem;
    let mut line = format!("{subject}: {}", in_one_line(cause));
    if let Some(since) = unix_seconds(since) {
        line.push_str(&format!(", for {}", age(now.saturating_sub(since).max(0))));
    }
    if let Some(next) = unix_seconds(next_retry).filter(|next| *next > now) {
        line.push_str(&format!(", next try in {}", age(next.saturating_sub(now))));
    }
    let advice = (!advice.is_empty()).then(|| format!("  -> {}", in_one_line(advice)));
    std::iter::once(line).chain(advice).collect()
}

/// The Unix time of an RFC 3339 text; `None` if it is empty or something else.
fn unix_seconds(time: &str) -> Option<i64> {
    let time: Time = decode(time.into()).ok()?.value;
    Some(time.unix_seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_cause_times_and_advice() {
        let problem = NodeProblem {
            subject: "pod default/web".to_owned(),
            cause: "CrashLoopBackOff: container main\nexits with code 1".to_owned(),
            advice: "see its log".to_owned(),
            since: "2027-01-15T07:55:00Z".to_owned(),
            next_retry: "2027-01-15T08:00:20Z".to_owned(),
            ..NodeProblem::default()
        };
        let line = "pod default/web: CrashLoopBackOff: container main exits with code 1, for 5m, next try in 20s";
        assert_eq!(problem_lines(&problem, 1_800_000_000), [line, "  -> see its log"]);
    }

    #[test]
    fn past_retries_unknown_times_and_empty_advice_are_left_out() {
        let problem = NodeProblem {
            subject: "manifest".to_owned(),
            cause: "web.yaml: no".to_owned(),
            since: "yesterday".to_owned(),
            next_retry: "2027-01-15T08:00:00Z".to_owned(),
            ..NodeProblem::default()
        };
        assert_eq!(problem_lines(&problem, 1_800_000_000), ["manifest: web.yaml: no"]);
    }
}
