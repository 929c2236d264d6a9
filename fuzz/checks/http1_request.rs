//! The requests that the doors hear.

use coracle::protocol::http1::{MOST_HEAD, Request};

/// A request is the same whatever follows it, nothing of it is taken before it is whole, and its path is one.
pub(crate) fn check(data: &[u8]) {
    let Ok(Some((request, used))) = Request::take(data) else { return };
    assert!(used <= data.len() && used <= MOST_HEAD + 6);
    assert!(request.path.starts_with('/') && !request.path.contains('\0'));
    let (head, _) = data.split_at(used);
    assert_eq!(Request::take(head), Ok(Some((request, used))));
    let (part, _) = head.split_at(used - 1);
    assert_eq!(Request::take(part), Ok(None));
}
