//! Images that were pulled before their pod started, and are not pulled again when it starts. Pure: time is an
//! argument.

use std::time::{Duration, Instant};

use super::WantedImage;
use crate::types::api::{PodUid, PullPolicy};

/// Pulls with the policy `Always` that a start of a container still has to use.
#[derive(Debug, Default)]
pub(super) struct EarlyPulls(Vec<EarlyPull>);

#[derive(Debug)]
struct EarlyPull {
    pod: PodUid,
    /// `None` for an image volume.
    container: Option<String>,
    image: String,
    pulled: Instant,
}

/// A later start asks the registry again.
const EARLY_PULL_TTL: Duration = Duration::from_secs(600);

impl EarlyPulls {
    pub(super) fn add(&mut self, pod: &PodUid, wanted: WantedImage<'_>, now: Instant) {
        self.0.retain(|pull| now.saturating_duration_since(pull.pulled) < EARLY_PULL_TTL && !pull.is_of(pod, wanted));
        if wanted.policy == Some(PullPolicy::Always) {
            let (container, image) = (wanted.container.map(str::to_owned), wanted.image.to_owned());
            self.0.push(EarlyPull { pod: pod.clone(), container, image, pulled: now });
        }
    }

    /// True once after the image was pulled for this container.
    pub(super) fn take(&mut self, pod: &PodUid, wanted: WantedImage<'_>, now: Instant) -> bool {
        let Some(at) = self.0.iter().position(|pull| pull.is_of(pod, wanted)) else { return false };
        now.saturating_duration_since(self.0.swap_remove(at).pulled) < EARLY_PULL_TTL
    }
}

impl EarlyPull {
    fn is_of(&self, pod: &PodUid, wanted: WantedImage<'_>) -> bool {
        self.pod == *pod && self.container.as_deref() == wanted.container && self.image == wanted.image
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_pull_counts_once_and_for_ten_minutes() {
        let now = Instant::now();
        let wanted = |policy| WantedImage { image: "a:1", policy: Some(policy), container: Some("main") };
        let (always, present) = (wanted(PullPolicy::Always), wanted(PullPolicy::IfNotPresent));
        let (uid, other) = (PodUid::from("u"), PodUid::from("v"));
        let mut pulls = EarlyPulls::default();
        pulls.add(&uid, present, now);
        assert!(!pulls.take(&uid, present, now), "only pulls with the policy Always are remembered");
        for _ in 0..2 {
            pulls.add(&uid, always, now);
        }
        assert!(!pulls.take(&other, always, now));
        assert!(!pulls.take(&uid, WantedImage { container: Some("side"), ..always }, now));
        assert!(pulls.take(&uid, always, now));
        assert!(!pulls.take(&uid, always, now));
        pulls.add(&uid, always, now);
        assert!(!pulls.take(&uid, always, now + EARLY_PULL_TTL));
        pulls.add(&uid, always, now);
        pulls.add(&other, always, now + EARLY_PULL_TTL);
        assert_eq!(pulls.0.len(), 1, "the old one was dropped");
    }
}
