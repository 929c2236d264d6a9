//! `POST /sync` on the local socket: `coracle sync`.

use super::connections::Reply;
use super::http::{Response, Status};
use super::json_list::json;
use super::local_api::LocalApi;
use crate::protocol::http1::Request;

/// `None` for any other path.
pub(super) fn sync(request: &Request, api: &dyn LocalApi) -> Option<Reply> {
    if request.path != "/sync" {
        return None;
    }
    if request.method != "POST" {
        return Some(Reply::Whole(Response::not_allowed()));
    }
    let response = api.sync(request.query_value("wait").is_some_and(|wait| wait == "true"));
    Some(Reply::Slow(Box::pin(async {
        match response.await {
            Ok(status) => Response::json(json(&status)),
            Err(why) => Response::text(Status::Conflict, why + "\n"),
        }
    })))
}
