//! `/v2/`: blobs of images for other nodes of the cluster (`images.share`), as in the OCI distribution API.

use std::fmt;
use std::io::{Seek as _, SeekFrom};
use std::time::Duration;

use super::user::User;
use crate::control::server::connections::{FilePart, Reply};
use crate::control::server::http::{Response, Status};
use crate::kubelet::image_transfer::{SharedAnswer, SharedImages, SharedPart};
use crate::platform::rt;
use crate::protocol::http1::Request;

/// Number of bytes in an answer to a request for a range. The client asks again for the rest.
const MAX_RANGE_BYTES: u64 = 16 << 20;
/// Time limit of an answer. The connection of a client that reads more slowly is closed.
const SHARED_IMAGE_TIMEOUT: Duration = Duration::from_secs(300);

/// Whether the certificate is that of a node, whose name the API server has approved.
pub(super) fn is_node(user: &User) -> bool {
    user.name.starts_with("system:node:") && user.groups.iter().any(|group| group == "system:nodes")
}

pub(super) fn is_for_images(path: &str) -> bool {
    path == "/v2" || path.starts_with("/v2/")
}

/// `client` is the user's name.
pub(super) fn shared_images(request: &Request, shared: &SharedImages, client: &str) -> Reply {
    let is_head = request.method == "HEAD";
    if request.method != "GET" && !is_head {
        return Reply::Whole(Response::not_allowed());
    }
    let Some((_, digest)) = request.path.rsplit_once("/blobs/") else {
        return Reply::Whole(match request.path.as_str() {
            "/v2" | "/v2/" => Response::json(b"{}".to_vec()),
            _ => error(Status::NotFound, "UNSUPPORTED", &"only blobs by digest are served"),
        });
    };
    let Some(range) = request.header("range").map_or(Some(Range::ALL), Range::parse) else {
        return Reply::Whole(error(Status::BadRequest, "SIZE_INVALID", &"expected one range such as bytes=5-9"));
    };
    let (shared, digest, client) = (shared.clone(), digest.to_owned(), client.to_owned());
    let find = move || match shared.find(&digest, range.first, &client) {
        SharedAnswer::Part(part) => file_part(part, range, &digest, is_head),
        SharedAnswer::Claimed(claim) => {
            Err(error(Status::ServiceUnavailable, "UNAVAILABLE", &format_args!("fetching {claim}")))
        }
        SharedAnswer::Busy => Err(error(Status::TooManyRequests, "TOOMANYREQUESTS", &"other nodes are being served")),
        SharedAnswer::Absent => Err(error(Status::NotFound, "BLOB_UNKNOWN", &"not on this node")),
    };
    Reply::File(Box::pin(rt::blocking_for_client(find)))
}

/// One range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u64,
    /// `None`: the whole blob is requested.
    most: Option<u64>,
}

impl Range {
    const ALL: Self = Self { first: 0, most: None };

    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        let first = first.parse().ok()?;
        let last: u64 = if last.is_empty() { u64::MAX } else { last.parse().ok()? };
        let count = last.checked_sub(first)?.saturating_add(1);
        Some(Self { first, most: Some(count.min(MAX_RANGE_BYTES)) })
    }
}

/// Blocking.
fn file_part(part: SharedPart, range: Range, digest: &str, is_head: bool) -> Result<FilePart, Response> {
    let SharedPart { mut file, length, is_whole, client_share } = part;
    let available = length.saturating_sub(range.first);
    let (status, count, content_range) = match range.most {
        Some(most) => {
            let count = available.min(most);
            let last = range.first.saturating_add(count).saturating_sub(1);
            let total = if is_whole { length.to_string() } else { "*".to_owned() };
            ("206 Partial Content", count, format!("Content-Range: bytes {}-{last}/{total}\r\n", range.first))
        }
        None if is_whole => ("200 OK", available, String::new()),
        None => return Err(error(Status::NotFound, "BLOB_UNKNOWN", &"only a part is on this node")),
    };
    let sought = file.seek(SeekFrom::Start(range.first));
    sought.map_err(|_| Response::text(Status::InternalServerError, "500 Internal Server Error\n"))?;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nDocker-Content-Digest: {digest}\r\n\
         Accept-Ranges: bytes\r\n{content_range}Content-Length: {count}\r\nConnection: close\r\n\r\n"
    );
    let body = (!is_head).then_some((file, count));
    Ok(FilePart {
        head: head.into_bytes(),
        body,
        end: Some(rt::now() + SHARED_IMAGE_TIMEOUT),
        client_share: Some(client_share),
    })
}

fn error(status: Status, code: &str, message: &dyn fmt::Display) -> Response {
    let body = format!(r#"{{"errors":[{{"code":"{code}","message":"{message}"}}]}}"#);
    Response { status, ..Response::json(body.into_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_limited() {
        let range = |first, most| Some(Range { first, most: Some(most) });
        for (text, expected) in [
            ("bytes=0-", range(0, MAX_RANGE_BYTES)),
            ("bytes=5-9", range(5, 5)),
            ("bytes=5-5", range(5, 1)),
            ("bytes=0-99999999999", range(0, MAX_RANGE_BYTES)),
            ("bytes=0-18446744073709551615", range(0, MAX_RANGE_BYTES)),
            ("bytes=5-4", None),
            ("bytes=-5", None),
            ("bytes=0-1,3-4", None),
            ("bytes=x-", None),
            ("0-5", None),
        ] {
            assert_eq!(Range::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn only_nodes_are_nodes() {
        let user = |name: &str, group: &str| User {
            name: name.to_owned(),
            groups: vec![group.to_owned(), "system:authenticated".to_owned()],
            ..User::default()
        };
        assert!(is_node(&user("system:node:a", "system:nodes")));
        assert!(!is_node(&user("system:node:a", "system:masters")));
        assert!(!is_node(&user("admin", "system:nodes")));
        for (path, expected) in [("/v2", true), ("/v2/a/blobs/x", true), ("/v20", false), ("/pods", false)] {
            assert_eq!(is_for_images(path), expected, "{path}");
        }
    }
}
