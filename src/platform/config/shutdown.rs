//! Settings of graceful node shutdown. Pure.

use std::time::Duration;

use serde_json::Value;

use super::check::{Problem, conflict};
use super::fields::Fields;
use crate::types::api::SYSTEM_CRITICAL_PRIORITY;
use crate::types::sorted::SortOnce;

/// The grace period of pods from this priority up to that of the next phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShutdownPhase {
    pub(crate) priority: i32,
    pub(crate) grace: Duration,
}

const TOTAL: &str = "shutdownGracePeriod";
const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";

/// The phases in order of priority; empty if graceful node shutdown is off.
pub(super) fn read(fields: &Fields<'_>) -> Result<Vec<ShutdownPhase>, Problem> {
    let [total, critical] = [TOTAL, CRITICAL].map(|path| fields.duration(path).unwrap_or_default());
    for (path, period) in [(TOTAL, total), (CRITICAL, critical)] {
        if !period.is_zero() && period < Duration::from_secs(1) {
            return Err(conflict(path, format!("expected 0 or at least 1s, found {period:?}")));
        }
    }
    if critical > total {
        return Err(conflict(CRITICAL, format!("expected no more than {TOTAL}")));
    }
    let listed = fields.at(BY_PRIORITY).and_then(Value::as_array).filter(|listed| !listed.is_empty());
    let Some(listed) = listed else { return Ok(of_total(total, critical)) };
    if !total.is_zero() {
        return Err(conflict(BY_PRIORITY, format!("must not be set with {TOTAL}")));
    }
    let phase = |one: &Value| {
        let int = |name| one.get(name).and_then(Value::as_i64).unwrap_or_default();
        let priority = i32::try_from(int("priority")).unwrap_or_default();
        let grace = Duration::from_secs(u64::try_from(int("shutdownGracePeriodSeconds")).unwrap_or_default());
        ShutdownPhase { priority, grace }
    };
    let mut phases: Vec<ShutdownPhase> = listed.iter().map(phase).collect();
    phases.sort_once_by_key(|phase| phase.priority);
    Ok(phases)
}

/// Critical pods get the last part of the total.
fn of_total(total: Duration, critical: Duration) -> Vec<ShutdownPhase> {
    let whole = |time: Duration| Duration::from_secs(time.as_secs());
    match total.is_zero() {
        true => Vec::new(),
        false => vec![
            ShutdownPhase { priority: 0, grace: whole(total.saturating_sub(critical)) },
            ShutdownPhase { priority: SYSTEM_CRITICAL_PRIORITY, grace: whole(critical) },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(given: &Value, expected: Result<&[(i32, u64)], &str>) {
        let found = read(&Fields(given.as_object().unwrap()));
        let phase = |&(priority, grace): &(i32, u64)| ShutdownPhase { priority, grace: Duration::from_secs(grace) };
        let expected = expected.map(|phases| phases.iter().map(phase).collect::<Vec<_>>());
        assert_eq!(
            found.map_err(|Problem { path, fault }| format!("{path}: {fault}")),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn critical_pods_get_the_last_part_of_the_total() {
        check(&json!({}), Ok(&[]));
        check(&json!({ TOTAL: "0s", CRITICAL: "0s", BY_PRIORITY: [] }), Ok(&[]));
        check(&json!({ TOTAL: "30s" }), Ok(&[(0, 30), (2_000_000_000, 0)]));
        check(&json!({ TOTAL: "30.5s", CRITICAL: "10s" }), Ok(&[(0, 20), (2_000_000_000, 10)]));
    }

    #[test]
    fn phases_are_sorted_by_priority() {
        let phase =
            |priority: i32, seconds: u64| json!({ "priority": priority, "shutdownGracePeriodSeconds": seconds });
        let given = json!({ BY_PRIORITY: [phase(1000, 20), phase(-5, 10), {}] });
        check(&given, Ok(&[(-5, 10), (0, 0), (1000, 20)]));
    }

    #[test]
    fn conflicting_settings_are_refused() {
        let listed = json!([{ "priority": 1, "shutdownGracePeriodSeconds": 1 }]);
        let both = "shutdownGracePeriodByPodPriority: must not be set with shutdownGracePeriod";
        check(&json!({ TOTAL: "10s", BY_PRIORITY: listed }), Err(both));
        let short = "shutdownGracePeriod: expected 0 or at least 1s, found 500ms";
        check(&json!({ TOTAL: "500ms" }), Err(short));
        let more = "shutdownGracePeriodCriticalPods: expected no more than shutdownGracePeriod";
        check(&json!({ CRITICAL: "10s" }), Err(more));
    }
}
