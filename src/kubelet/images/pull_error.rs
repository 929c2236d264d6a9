//! Waiting reasons for failed pulls. Pure.

use crate::state::pods::Waiting;
use crate::types::api::Reason;

/// `image` is the name in the pod spec, `error` the runtime's message. Runtimes mark two kinds of errors with a
/// prefix (k8s.io/cri-api/pkg/errors).
pub(super) fn waiting(image: &str, error: &str) -> Waiting {
    for (reason, what) in [
        (Reason::REGISTRY_UNAVAILABLE, "the registry is unavailable"),
        (Reason::SIGNATURE_VALIDATION_FAILED, "the signature validation failed"),
    ] {
        if let Some(rest) = error.strip_prefix(reason.as_str()) {
            return Waiting::new(reason, format!("image pull failed for {image} because {what}{rest}"));
        }
    }
    Waiting::new(Reason::ERR_IMAGE_PULL, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &str, reason: Reason, message: &str) {
        assert_eq!(waiting("a/b:1", error), Waiting::new(reason, message));
    }

    #[test]
    fn marked_error_has_its_own_reason() {
        check(
            "RegistryUnavailable: no route to host",
            Reason::REGISTRY_UNAVAILABLE,
            "image pull failed for a/b:1 because the registry is unavailable: no route to host",
        );
        check(
            "SignatureValidationFailed: no key",
            Reason::SIGNATURE_VALIDATION_FAILED,
            "image pull failed for a/b:1 because the signature validation failed: no key",
        );
    }

    #[test]
    fn other_error_is_shown_unchanged() {
        check("not found", Reason::ERR_IMAGE_PULL, "not found");
        check("pull: RegistryUnavailable", Reason::ERR_IMAGE_PULL, "pull: RegistryUnavailable");
    }
}
