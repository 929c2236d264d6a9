//! HTTP/1 requests to the servers.

use coracle::protocol::http1::{MAX_REQUEST_HEAD_BYTES, Request};

/// What follows a request must not change it, an incomplete request must not be taken, and the path must be absolute.
pub(crate) fn check(data: &[u8]) {
    let Ok(Some((request, used))) = Request::take(data) else { return };
    assert!(used <= data.len() && used <= MAX_REQUEST_HEAD_BYTES + 6);
    assert!(request.path.starts_with('/') && !request.path.contains('\0'));
    let (head, _) = data.split_at(used);
    assert_eq!(Request::take(head), Ok(Some((request, used))));
    let (part, _) = head.split_at(used - 1);
    assert_eq!(Request::take(part), Ok(None));
}
