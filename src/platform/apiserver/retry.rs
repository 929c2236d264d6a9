//! Decides whether a failed request is retried. Pure.

use std::time::Duration;

use crate::platform::apiserver::ApiError;

/// The delay before the next attempt; `None` to return the error. `time_left` is the rest of the request's limit.
///
/// After a lost connection, idempotent requests are retried on the next one. If the server asks for a delay, the retry
/// follows after it plus jitter, so that a fleet does not return all at once.
pub(super) fn wait(
    error: &ApiError,
    idempotent: bool,
    tries: u32,
    time_left: Duration,
    random: u32,
) -> Option<Duration> {
    let wait = match error {
        // At once: attempts to connect have a back-off of their own.
        ApiError::NeverSent if tries < MAX_REQUEST_TRIES => Duration::ZERO,
        ApiError::Lost(_) if idempotent && tries < 2 => Duration::ZERO,
        ApiError::Refused(status) if error.is_retryable() && tries < MAX_REQUEST_TRIES => {
            crate::types::time::jitter(status.retry_after?, 0.5, random)
        }
        _ => return None,
    };
    (wait < time_left).then_some(wait)
}

/// In total (client-go: ten retries).
const MAX_REQUEST_TRIES: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::apiserver::Status;
    use crate::platform::apiserver::exchange::Exchange;
    use crate::platform::rpc::Exchange as _;
    use crate::protocol::http2::{Ending, ErrorCode};

    const LEFT: Duration = Duration::from_secs(10);

    fn refused(code: u16, retry_after: Option<u64>) -> ApiError {
        let retry_after = retry_after.map(Duration::from_secs);
        ApiError::Refused(Box::new(Status { code, retry_after, ..Status::default() }))
    }

    #[test]
    fn retry_after_is_respected() {
        for code in [429, 500, 503] {
            assert_eq!(wait(&refused(code, Some(2)), false, 1, LEFT, 0), Some(Duration::from_secs(2)));
            assert_eq!(wait(&refused(code, Some(2)), false, 1, LEFT, u32::MAX), Some(Duration::from_secs(3)));
            assert_eq!(wait(&refused(code, None), true, 1, LEFT, 0), None);
        }
        assert_eq!(wait(&refused(404, Some(1)), true, 1, LEFT, 0), None);
        assert_eq!(wait(&refused(429, Some(1)), true, MAX_REQUEST_TRIES, LEFT, 0), None);
    }

    #[test]
    fn retries_stay_within_the_limit() {
        assert_eq!(wait(&refused(429, Some(11)), true, 1, LEFT, 0), None);
    }

    #[test]
    fn request_beyond_the_servers_limit_of_streams_is_repeated() {
        for code in [ErrorCode::PROTOCOL_ERROR, ErrorCode::REFUSED_STREAM] {
            let ending = match code {
                ErrorCode::REFUSED_STREAM => Ending::NotProcessed,
                code => Ending::ByPeer(code),
            };
            let error = Exchange::reset(ending);
            assert!(error.is_retryable());
            assert_eq!(wait(&error, true, 1, LEFT, 0), Some(Duration::ZERO));
        }
    }

    #[test]
    fn only_idempotent_requests_are_repeated() {
        let lost = ApiError::Lost("reset".into());
        assert_eq!(wait(&lost, true, 1, LEFT, 0), Some(Duration::ZERO));
        assert_eq!(wait(&lost, true, 2, LEFT, 0), None);
        assert_eq!(wait(&lost, false, 1, LEFT, 0), None);
        assert_eq!(wait(&ApiError::NeverSent, false, 1, LEFT, 0), Some(Duration::ZERO));
        assert_eq!(wait(&ApiError::Timeout, true, 1, LEFT, 0), None);
    }
}
