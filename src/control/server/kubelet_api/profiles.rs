//! `/debug/pprof`: says that there are no profiles. Pure.
//!
//! Upstream's profiles are those of Go's runtime.

use crate::control::server::http::{Response, Status};

/// `None` for any other path. `enabled`: `enableProfilingHandler`.
pub(super) fn profiles(path: &str, enabled: bool) -> Option<Response> {
    let rest = path.strip_prefix("/debug/pprof")?;
    if !rest.is_empty() && !rest.starts_with('/') {
        return None;
    }
    Some(match enabled {
        false => Response::text(Status::MethodNotAllowed, "profiling endpoint is disabled.\n"),
        true => Response::text(Status::NotImplemented, REFUSAL),
    })
}

const REFUSAL: &str = "profiles of Go's runtime do not exist here: use perf on the node, and /metrics for memory, \
    threads and the sync loop\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_refused_with_the_reason() {
        let status = |path, enabled| profiles(path, enabled).map(|response| response.status);
        for path in ["/debug/pprof", "/debug/pprof/", "/debug/pprof/heap"] {
            assert_eq!(status(path, true), Some(Status::NotImplemented), "{path}");
            assert_eq!(status(path, false), Some(Status::MethodNotAllowed), "{path}");
        }
        assert_eq!((status("/debug/pprofile", true), status("/debug/flags/v", true)), (None, None));
    }
}
