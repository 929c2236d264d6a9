//! When an image is looked for, and when it is pulled. Pure.

use crate::api::PullPolicy;

/// Whether the runtime is asked for the image before anything else. `Always` asks the registry in any case.
pub(super) fn looks_first(policy: PullPolicy) -> bool {
    match policy {
        PullPolicy::Always => false,
        PullPolicy::IfNotPresent | PullPolicy::Never => true,
    }
}

/// Whether the image is pulled, given that it is present or not.
pub(super) fn should_pull(policy: PullPolicy, present: bool) -> bool {
    match policy {
        PullPolicy::Always => true,
        PullPolicy::IfNotPresent => !present,
        PullPolicy::Never => false,
    }
}

/// Whether a present image may stand in for one that could not be pulled.
///
/// The upstream kubelet says no: with `Always` a node without its registry starts nothing again. A node that prefers to
/// go on with what it has says yes here.
pub(super) fn present_will_do(policy: PullPolicy) -> bool {
    match policy {
        PullPolicy::Always | PullPolicy::IfNotPresent | PullPolicy::Never => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_pulled_always_or_when_it_is_missing_or_never() {
        for (policy, when_present, when_missing) in [
            (PullPolicy::Always, true, true),
            (PullPolicy::IfNotPresent, false, true),
            (PullPolicy::Never, false, false),
        ] {
            assert_eq!(should_pull(policy, true), when_present, "{policy}");
            assert_eq!(should_pull(policy, false), when_missing, "{policy}");
        }
    }

    #[test]
    fn only_always_goes_to_the_registry_without_a_look() {
        assert!(!looks_first(PullPolicy::Always));
        assert!(looks_first(PullPolicy::IfNotPresent));
        assert!(looks_first(PullPolicy::Never));
    }
}
