//! `/debug/flags/v`: sets the verbosity of the log. The setting lasts until the next start.

use crate::control::server::http::{Response, Status};
use crate::protocol::http1::Request;
use crate::types::log;

const VERBOSITY_PATH: &str = "/debug/flags/v";
/// A number.
const MAX_FLAG_BYTES: u64 = 64;

/// Upper bound on the body, if the request has one.
pub(super) fn body_limit(request: &Request) -> Option<u64> {
    (request.method == "PUT" && request.path == VERBOSITY_PATH).then_some(MAX_FLAG_BYTES)
}

/// `None` for any other path. `enabled`: `enableDebugFlagsHandler`.
pub(super) fn debug_flags(request: &Request, enabled: bool) -> Option<Response> {
    if request.path != VERBOSITY_PATH {
        return None;
    }
    if !enabled {
        return Some(Response::text(Status::MethodNotAllowed, "flags endpoint is disabled.\n"));
    }
    if request.method != "PUT" {
        return Some(Response::text(Status::NotAcceptable, "unsupported http method"));
    }
    let text = String::from_utf8_lossy(&request.content);
    let text = text.trim();
    Some(match text.parse::<u32>() {
        Ok(verbosity) => {
            log::set_verbosity(u8::try_from(verbosity).unwrap_or(u8::MAX));
            Response::text(Status::Ok, format!("successfully set klog.logging.verbosity to {text}"))
        }
        Err(error) => Response::text(
            Status::BadRequest,
            format!("failed to set klog.logging.verbosity: expected a number, found {text:?}: {error}"),
        ),
    })
}
