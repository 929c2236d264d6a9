//! From what the runtime says of a failed pull to what is shown of the container. Pure.

use crate::state::pods::Waiting;
use crate::types::api::Reason;

/// `image` as the pod has it; `error` is the runtime's own text. A runtime marks two kinds of errors by the text's
/// beginning (k8s.io/cri-api/pkg/errors).
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
    fn what_the_runtime_marks_has_a_reason_of_its_own() {
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
    fn any_other_error_is_shown_as_it_is() {
        check("not found", Reason::ERR_IMAGE_PULL, "not found");
        check("pull: RegistryUnavailable", Reason::ERR_IMAGE_PULL, "pull: RegistryUnavailable");
    }
}
