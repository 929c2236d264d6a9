//! `/v2/...`: the content of images, for other nodes of the cluster (`images.share`).

use std::io::{Seek as _, SeekFrom};

use crate::control::server::connections::{FilePart, Reply};
use crate::control::server::http::{Response, Status};
use crate::kubelet::images::{SharedAnswer, SharedImages, SharedRequest};
use crate::platform::rt;
use crate::protocol::http1::Request;

use super::user::User;

/// Only nodes are clients: they check digests and pull secrets themselves.
pub(super) fn is_node(user: &User) -> bool {
    user.name.starts_with("system:node:") && user.groups.iter().any(|group| group == "system:nodes")
}

pub(super) fn is_of_images(path: &str) -> bool {
    path == "/v2" || path.starts_with("/v2/")
}

pub(super) fn shared_images(request: &Request, shared: &SharedImages) -> Reply {
    let is_head = request.method == "HEAD";
    if request.method != "GET" && !is_head {
        return Reply::Whole(Response::not_allowed());
    }
    let asked = SharedRequest {
        path: request.path.clone(),
        range: request.header("range").map(str::to_owned),
        is_node: request.header("coracle-node").is_some(),
    };
    let shared = shared.clone();
    Reply::File(Box::pin(rt::blocking(move || part_of(shared.answer(&asked), is_head))))
}

/// Blocking.
fn part_of(answer: SharedAnswer, is_head: bool) -> Result<FilePart, Response> {
    let (status, headers, mut file, from, count, held) = match answer {
        SharedAnswer::Content { status, headers, file, from, count, held } => {
            (status, headers, file, from, count, held)
        }
        SharedAnswer::Short(status, text) => {
            let status = match status {
                200 => Status::Ok,
                400 => Status::BadRequest,
                429 => Status::TooManyRequests,
                503 => Status::ServiceUnavailable,
                _ => Status::NotFound,
            };
            return Err(Response { status, ..Response::json(text.into_bytes()) });
        }
    };
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {count}\r\nConnection: close\r\n\r\n");
    let sought = file.seek(SeekFrom::Start(from));
    sought.map_err(|_| Response::text(Status::InternalServerError, "500 Internal Server Error\n"))?;
    Ok(FilePart { head: head.into_bytes(), body: (!is_head).then_some((file, count)), held: Some(held) })
}
