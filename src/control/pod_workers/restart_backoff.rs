//! Crash-loop back-off: how long an exited container waits before its next start. Pure: the moment is an argument.
//!
//! As in the upstream kubelet: the first restart is immediate, then 10 s after the exit, doubled each time up to a
//! limit. The back-off of a container that has run for more than twice the upstream limit is reset. Only the monotonic
//! time at which this process observed the exit counts: the wall clock of a board may be wrong.

use std::time::{Duration, Instant};

use crate::types::api::PodUid;
use crate::types::sorted::SortedMap;

/// As upstream (`backOffPeriod`).
const FIRST_RESTART_BACKOFF: Duration = Duration::from_secs(10);
/// Longest limit that a node may set. A run of twice this length resets the back-off.
/// Upstream resets after twice the limit of the node (`HasExpiredFunc`), which nearly every run exceeds if it is short.
const MAX_RESTART_BACKOFF: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(crate) struct RestartBackoff {
    first: Duration,
    limit: Duration,
    entries: SortedMap<Key, Entry>,
}

/// A container of a pod. A container with another image or other resources is a different one, with its own back-off.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) pod: PodUid,
    pub(crate) container: String,
    pub(crate) definition: u64,
}

#[derive(Debug)]
struct Entry {
    wait: Duration,
    /// When the container was last started.
    updated: Instant,
    /// The instance whose exit was observed last, and when.
    exit: Option<(String, Instant)>,
}

impl RestartBackoff {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { first: FIRST_RESTART_BACKOFF, limit, entries: SortedMap::new() }
    }

    /// With another first wait.
    pub(crate) fn starting_at(self, first: Duration) -> Self {
        Self { first, ..self }
    }

    /// When the container may start again. `instance` is the id of the exited instance.
    pub(crate) fn not_before(&mut self, key: &Key, instance: &str, now: Instant) -> Option<Instant> {
        let entry = self.entries.get_mut(key)?;
        let exit = match &entry.exit {
            Some((id, moment)) if id == instance => *moment,
            Some(_) | None => {
                entry.exit = Some((instance.to_owned(), now));
                now
            }
        };
        let ran_long = exit.saturating_duration_since(entry.updated) > MAX_RESTART_BACKOFF * 2;
        (!ran_long).then(|| exit + entry.wait)
    }

    /// Records a restart, which lengthens the next wait.
    pub(crate) fn restarts(&mut self, key: Key, now: Instant) {
        let first = self.first.min(self.limit);
        let limit = self.limit;
        self.entries
            .entry(key)
            .and_modify(|entry| {
                let exit = entry.exit.as_ref().map_or(now, |(_, time)| *time);
                let ran_long = exit.saturating_duration_since(entry.updated) > MAX_RESTART_BACKOFF * 2;
                entry.wait = if ran_long { first } else { (entry.wait * 2).min(limit) };
                entry.updated = now;
            })
            .or_insert(Entry { wait: first, updated: now, exit: None });
    }

    /// The container's current wait.
    pub(crate) fn wait(&self, key: &Key) -> Option<Duration> {
        self.entries.get(key).map(|entry| entry.wait)
    }

    /// Resets the back-off of containers that a user restarts.
    pub(crate) fn forgive(&mut self, pod: &PodUid, containers: &[String]) {
        self.entries.retain(|key, _| key.pod != *pod || !containers.contains(&key.container));
    }

    pub(crate) fn forget(&mut self, pod: &PodUid) {
        self.entries.retain(|key, _| key.pod != *pod);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(definition: u64) -> Key {
        Key { pod: PodUid::from("u"), container: "main".to_owned(), definition }
    }

    /// The waits in seconds of a container that exits right after each start.
    fn crash(backoff: &mut RestartBackoff, times: u32, mut now: Instant) -> Vec<u64> {
        let mut waits = Vec::new();
        for n in 0..times {
            let start = backoff.not_before(&key(1), &n.to_string(), now).unwrap_or(now);
            waits.push(start.duration_since(now).as_secs());
            now = start;
            backoff.restarts(key(1), now);
        }
        waits
    }

    #[test]
    fn first_restart_is_immediate_and_waits_double_up_to_the_limit() {
        let mut backoff = RestartBackoff::new(Duration::from_secs(300));
        assert_eq!(crash(&mut backoff, 8, Instant::now()), [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn node_may_set_a_lower_limit() {
        let mut backoff = RestartBackoff::new(Duration::from_secs(15));
        assert_eq!(crash(&mut backoff, 4, Instant::now()), [0, 10, 15, 15]);
        let mut backoff = RestartBackoff::new(Duration::from_secs(60)).starting_at(Duration::from_secs(1));
        assert_eq!(crash(&mut backoff, 8, Instant::now()), [0, 1, 2, 4, 8, 16, 32, 60]);
        let mut backoff = RestartBackoff::new(Duration::from_secs(1));
        assert_eq!(crash(&mut backoff, 3, Instant::now()), [0, 1, 1]);
    }

    #[test]
    fn wait_counts_from_the_first_observation_of_the_exit() {
        let mut backoff = RestartBackoff::new(Duration::from_secs(300));
        let start = Instant::now();
        backoff.restarts(key(1), start);
        let exit = start + Duration::from_secs(1);
        let allowed = Some(exit + Duration::from_secs(10));
        assert_eq!(backoff.not_before(&key(1), "a", exit), allowed);
        assert_eq!(backoff.not_before(&key(1), "a", exit + Duration::from_secs(5)), allowed);
    }

    #[test]
    fn run_of_more_than_ten_minutes_resets_the_back_off() {
        let mut backoff = RestartBackoff::new(Duration::from_secs(300));
        let start = Instant::now();
        backoff.restarts(key(1), start);
        backoff.restarts(key(1), start);
        let exit = start + Duration::from_secs(601);
        assert_eq!(backoff.not_before(&key(1), "a", exit), None);
        backoff.restarts(key(1), exit);
        assert_eq!(backoff.wait(&key(1)), Some(Duration::from_secs(10)));
    }

    #[test]
    fn changed_definition_has_its_own_back_off() {
        let mut backoff = RestartBackoff::new(Duration::from_secs(300));
        let now = Instant::now();
        backoff.restarts(key(1), now);
        assert_eq!(backoff.not_before(&key(2), "a", now), None);
    }

    #[test]
    fn forgotten_pod_leaves_no_entries() {
        let mut backoff = RestartBackoff::new(Duration::from_secs(300));
        backoff.restarts(key(1), Instant::now());
        backoff.forget(&PodUid::from("u"));
        assert!(backoff.entries.is_empty());
    }
}
