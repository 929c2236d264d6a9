//! When an image is looked for, and when it is pulled. Pure.

use crate::types::api::PullPolicy;

/// Whether the runtime is asked for the image before anything else. `Always` asks the registry in any case.
pub(super) fn looks_first(policy: PullPolicy) -> bool {
    match policy {
        PullPolicy::Always => false,
        PullPolicy::IfNotPresent | PullPolicy::Never => true,
    }
}

/// Whether the registry is ever asked.
pub(super) fn pulls(policy: PullPolicy) -> bool {
    match policy {
        PullPolicy::Always | PullPolicy::IfNotPresent => true,
        PullPolicy::Never => false,
    }
}

/// Whether a present image may stand in for one whose registry cannot be reached.
///
/// The upstream kubelet says no: with `Always` a node without its registry starts nothing again. `IfNotPresent` comes
/// here when the image is not present, or when it may not be used without the registry's word.
pub(super) fn present_will_do(policy: PullPolicy) -> bool {
    match policy {
        PullPolicy::Always => true,
        PullPolicy::IfNotPresent | PullPolicy::Never => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_always_goes_to_the_registry_without_a_look_and_may_do_without_it() {
        for (policy, looks, asks, does_without) in [
            (PullPolicy::Always, false, true, true),
            (PullPolicy::IfNotPresent, true, true, false),
            (PullPolicy::Never, true, false, false),
        ] {
            assert_eq!((looks_first(policy), pulls(policy), present_will_do(policy)), (looks, asks, does_without));
        }
    }
}
