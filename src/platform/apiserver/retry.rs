//! Whether a request is made once more at once. Pure.

use std::time::Duration;

use crate::platform::apiserver::ApiError;

/// How long to wait before the next try; `None`: whoever asked is told. `left` is what is left of the request's time.
///
/// A connection that ended says nothing against the next one, if the request may be made twice. A server that names a
/// time is asked again after that and a little more, so that not all of a fleet come back at once.
pub(super) fn wait(error: &ApiError, idempotent: bool, tries: u32, left: Duration, random: u32) -> Option<Duration> {
    let wait = match error {
        ApiError::NeverSent if tries < TRIES => Duration::ZERO,
        ApiError::Lost(_) if idempotent && tries < 2 => Duration::ZERO,
        ApiError::Refused(status) if error.is_retryable() && tries < TRIES => {
            crate::types::time::jitter(status.retry_after?, 0.5, random)
        }
        _ => return None,
    };
    (wait < left).then_some(wait)
}

/// In all (client-go: ten retries).
const TRIES: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::apiserver::Status;

    const LEFT: Duration = Duration::from_secs(10);

    fn refused(code: u16, retry_after: Option<u64>) -> ApiError {
        let retry_after = retry_after.map(Duration::from_secs);
        ApiError::Refused(Box::new(Status { code, retry_after, ..Status::default() }))
    }

    #[test]
    fn a_server_that_names_a_time_is_asked_again_after_it() {
        for code in [429, 500, 503] {
            assert_eq!(wait(&refused(code, Some(2)), false, 1, LEFT, 0), Some(Duration::from_secs(2)));
            assert_eq!(wait(&refused(code, Some(2)), false, 1, LEFT, u32::MAX), Some(Duration::from_secs(3)));
            assert_eq!(wait(&refused(code, None), true, 1, LEFT, 0), None);
        }
        assert_eq!(wait(&refused(404, Some(1)), true, 1, LEFT, 0), None);
        assert_eq!(wait(&refused(429, Some(1)), true, TRIES, LEFT, 0), None);
    }

    #[test]
    fn nobody_waits_for_longer_than_the_request_has() {
        assert_eq!(wait(&refused(429, Some(11)), true, 1, LEFT, 0), None);
    }

    #[test]
    fn what_may_have_had_an_effect_is_made_twice_only_if_that_is_the_same() {
        let lost = ApiError::Lost("reset".into());
        assert_eq!(wait(&lost, true, 1, LEFT, 0), Some(Duration::ZERO));
        assert_eq!(wait(&lost, true, 2, LEFT, 0), None);
        assert_eq!(wait(&lost, false, 1, LEFT, 0), None);
        assert_eq!(wait(&ApiError::NeverSent, false, 1, LEFT, 0), Some(Duration::ZERO));
        assert_eq!(wait(&ApiError::Timeout, true, 1, LEFT, 0), None);
    }
}
