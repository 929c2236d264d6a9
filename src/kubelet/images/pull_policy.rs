//! Pull policies. Pure.

use crate::types::api::PullPolicy;

/// Whether to look for a present image first. `Always` asks the registry in any case.
pub(super) fn checks_presence_first(policy: PullPolicy) -> bool {
    match policy {
        PullPolicy::Always => false,
        PullPolicy::IfNotPresent | PullPolicy::Never => true,
    }
}

/// Whether the policy allows pulls.
pub(super) fn pulls(policy: PullPolicy) -> bool {
    match policy {
        PullPolicy::Always | PullPolicy::IfNotPresent => true,
        PullPolicy::Never => false,
    }
}

/// Whether a present image may be used while its registry is unreachable.
///
/// The upstream kubelet does not do this: with `Always`, a node without its registry can start nothing.
/// `IfNotPresent` gets here if the image is not present, or may not be used without asking the registry.
pub(super) fn may_use_present(policy: PullPolicy) -> bool {
    match policy {
        PullPolicy::Always => true,
        PullPolicy::IfNotPresent | PullPolicy::Never => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_always_skips_the_lookup_and_may_fall_back() {
        for (policy, looks, asks, does_without) in [
            (PullPolicy::Always, false, true, true),
            (PullPolicy::IfNotPresent, true, true, false),
            (PullPolicy::Never, true, false, false),
        ] {
            assert_eq!(
                (checks_presence_first(policy), pulls(policy), may_use_present(policy)),
                (looks, asks, does_without)
            );
        }
    }
}
