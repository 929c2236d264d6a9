//! Pull errors, and their waiting reasons. Pure.

use std::fmt;

use super::PresentImage;
use super::registry_outages;
use super::service::ImageError;
use crate::kubelet::image_signatures::Refusal;
use crate::state::pods::Waiting;
use crate::types::api::Reason;
use crate::types::error::ErrorChain;

#[derive(Debug)]
pub(super) enum PullError {
    /// One error for each credential tried.
    Failed(Vec<ImageError>),
    /// The window has closed, or a budget is used up. What was fetched is kept.
    Held,
    /// The image has become present in another way.
    Came(PresentImage),
    /// The signature policy does not accept the image.
    Refused(Refusal),
    /// `registryPullQPS` does not allow the pull now.
    Throttled,
}

impl PullError {
    /// Whether the registry could not be reached, which only the text of the runtime's error shows.
    pub(super) fn is_unreachable(&self) -> bool {
        let Self::Failed(errors) = self else { return false };
        let messages = errors.iter().filter_map(|error| match error {
            ImageError::Runtime(_) => Some(error.to_string()),
            ImageError::Call(_) => None,
        });
        registry_outages::is_unreachable(&messages.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for PullError {
    /// In the format of Go's aggregate errors: each text once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors = match self {
            Self::Failed(errors) => errors,
            Self::Held => return f.write_str("pull held"),
            Self::Came(_) => return f.write_str("the image has come in another way"),
            Self::Refused(refusal) => return write!(f, "{}: {refusal}", Reason::SIGNATURE_VALIDATION_FAILED),
            Self::Throttled => return f.write_str("pull QPS exceeded"),
        };
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(|error| ErrorChain(error).to_string()) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        match texts.as_slice() {
            [text] => f.write_str(text),
            texts => write!(f, "[{}]", texts.join(", ")),
        }
    }
}

impl std::error::Error for PullError {}

impl From<ImageError> for PullError {
    fn from(error: ImageError) -> Self {
        Self::Failed(vec![error])
    }
}

/// The result of a failed pull.
pub(super) struct FailedPull {
    pub(super) waiting: Waiting,
    /// The registry could not be reached.
    pub(super) is_unreachable: bool,
}

impl From<Waiting> for FailedPull {
    fn from(waiting: Waiting) -> Self {
        Self { waiting, is_unreachable: false }
    }
}

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
    use crate::protocol::grpc::{Code, Status};

    #[track_caller]
    fn check(error: &str, reason: Reason, message: &str) {
        assert_eq!(waiting("a/b:1", error), Waiting::new(reason, message));
    }

    fn runtime_error(message: &str) -> ImageError {
        ImageError::Runtime(Status::new(Code::Unknown, message))
    }

    #[test]
    fn only_the_runtime_tells_that_a_registry_is_unreachable() {
        let away = || runtime_error("dial tcp 192.0.2.7:443: connect: connection refused");
        assert!(PullError::from(away()).is_unreachable());
        assert!(PullError::Failed(vec![runtime_error("not found"), away()]).is_unreachable());
        assert!(!PullError::Failed(vec![runtime_error("403 Forbidden"), away()]).is_unreachable());
        assert!(!PullError::Throttled.is_unreachable());
    }

    #[test]
    fn errors_of_several_credentials_are_aggregated() {
        assert_eq!(PullError::Failed(vec![runtime_error("a"), runtime_error("a")]).to_string(), "a");
        assert_eq!(
            PullError::Failed(vec![runtime_error("a"), runtime_error("b"), runtime_error("a")]).to_string(),
            "[a, b]"
        );
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
