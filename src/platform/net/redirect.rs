//! Which redirects a GET follows. Pure.

use super::Url;

/// Limit of redirects for one request (net/http: `defaultCheckRedirect`).
pub(super) const MAX_HTTP_REDIRECTS: usize = 10;

/// The target of a redirect response to a request for `at`, and whether its location is relative; `None` if it is not a
/// redirect to follow. A redirect to another host than that of `first` is not.
pub(super) fn redirect(first: &Url, at: &Url, status: u16, location: Option<&str>) -> Option<(Url, bool)> {
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = location?;
    let next = at.join(location)?;
    let is_relative = !location.contains("//");
    next.host.eq_ignore_ascii_case(&first.host).then_some((next, is_relative))
}
