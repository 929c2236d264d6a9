//! Back-off after failed pulls. Pure: time is an argument.

use std::time::{Duration, Instant};

use crate::types::api::PodUid;
use crate::types::sorted::SortedMap;
use crate::types::time::Backoff;

/// As upstream (`backOffPeriod`, `MaxImageBackOff`), so that a user sees the same times between two attempts.
const FIRST_PULL_BACKOFF: Duration = Duration::from_secs(10);
const MAX_PULL_BACKOFF: Duration = Duration::from_secs(300);
/// Failures older than this are forgotten.
const PULL_FAILURE_TTL: Duration = Duration::from_secs(2 * MAX_PULL_BACKOFF.as_secs());

/// The recent failures by pod and image.
#[derive(Debug, Default)]
pub(super) struct PullBackoff {
    failures: SortedMap<(PodUid, String), Failure>,
}

#[derive(Debug)]
pub(super) struct Failure {
    waits: Backoff,
    wait: Duration,
    failed: Instant,
    /// Reason and message, such as `ErrImagePull: ...`.
    pub(super) text: String,
    /// Fingerprint of the pod's pull secrets at that time.
    pub(super) secrets: u64,
}

impl Failure {
    /// Earliest time of the next pull.
    pub(super) fn until(&self) -> Instant {
        self.failed + self.wait
    }
}

impl PullBackoff {
    /// The last failure, while its back-off lasts.
    pub(super) fn last(&self, pod: &PodUid, image: &str, now: Instant) -> Option<&Failure> {
        // Linear search: a lookup by key would need to allocate one each time, and few pulls fail.
        let (_, failure) = self.failures.iter().find(|((uid, name), _)| uid == pod && name == image)?;
        (now < failure.until()).then_some(failure)
    }

    pub(super) fn failed(&mut self, pod: &PodUid, image: &str, text: String, secrets: u64, now: Instant) {
        self.forget_old(now);
        let failure = self.failures.entry((pod.clone(), image.to_owned())).or_insert_with(|| Failure {
            waits: Backoff::new(FIRST_PULL_BACKOFF, MAX_PULL_BACKOFF),
            wait: Duration::ZERO,
            failed: now,
            text: String::new(),
            secrets,
        });
        failure.secrets = secrets;
        failure.wait = failure.waits.next_wait();
        failure.failed = now;
        failure.text = text;
    }

    pub(super) fn forget(&mut self, pod: &PodUid) {
        self.failures.retain(|(uid, _), _| uid != pod);
    }

    /// Drops old failures. A success does not reset the back-off, so that a flapping registry is asked less and less
    /// often.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.failures.retain(|_, failure| now.saturating_duration_since(failure.failed) <= PULL_FAILURE_TTL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: &str = "registry.invalid/none/such:1";

    fn wait(backoff: &PullBackoff, now: Instant) -> Option<u64> {
        backoff.last(&PodUid::from("u"), IMAGE, now).map(|failure| (failure.until() - now).as_secs())
    }

    #[test]
    fn backoff_doubles_from_ten_seconds_to_five_minutes() {
        let mut backoff = PullBackoff::default();
        let mut now = Instant::now();
        assert_eq!(wait(&backoff, now), None);
        for seconds in [10, 20, 40, 80, 160, 300, 300] {
            backoff.failed(&PodUid::from("u"), IMAGE, "x".to_owned(), 7, now);
            assert_eq!(wait(&backoff, now), Some(seconds));
            now += Duration::from_secs(seconds);
            assert_eq!(wait(&backoff, now), None);
        }
    }

    #[test]
    fn failure_older_than_ten_minutes_is_forgotten() {
        let mut backoff = PullBackoff::default();
        let start = Instant::now();
        for _ in 0..6 {
            backoff.failed(&PodUid::from("u"), IMAGE, "x".to_owned(), 7, start);
        }
        let later = start + Duration::from_secs(601);
        backoff.failed(&PodUid::from("u"), IMAGE, "x".to_owned(), 7, later);
        assert_eq!(wait(&backoff, later), Some(10));
        backoff.forget_old(later + Duration::from_secs(601));
        assert!(backoff.failures.is_empty());
    }

    #[test]
    fn other_pods_and_images_do_not_wait() {
        let mut backoff = PullBackoff::default();
        let now = Instant::now();
        backoff.failed(&PodUid::from("u"), IMAGE, "ErrImagePull: no route".to_owned(), 7, now);
        assert!(backoff.last(&PodUid::from("v"), IMAGE, now).is_none());
        assert!(backoff.last(&PodUid::from("u"), "other", now).is_none());
        backoff.forget(&PodUid::from("v"));
        assert_eq!(backoff.last(&PodUid::from("u"), IMAGE, now).unwrap().text, "ErrImagePull: no route");
        backoff.forget(&PodUid::from("u"));
        assert!(backoff.last(&PodUid::from("u"), IMAGE, now).is_none());
    }
}
