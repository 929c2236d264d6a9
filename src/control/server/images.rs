//! Images in the local API: lists, pulls and removes them.

use std::time::Duration;

use super::connections::Reply;
use super::http::{Response, Status};
use super::image_entries::Images;
use super::json_list::json;
use super::local_api::LocalApi;
use crate::platform::rt;
use crate::protocol::http1::Request;

/// The status, with the missing images if the runtime answers in time.
pub(super) fn status(api: &dyn LocalApi) -> Reply {
    let (mut status, missing) = (api.status(), api.missing_images());
    Reply::Later(Box::pin(async move {
        status.missing_images = rt::deadline(RUNTIME_PATIENCE, missing).await.ok().and_then(Result::ok);
        Response::json(json(&status))
    }))
}

/// The list of missing images asks the runtime once for each image. A page without them beats a page that hangs when the
/// runtime does.
const RUNTIME_PATIENCE: Duration = Duration::from_secs(1);

/// `None` for any other path.
pub(super) fn images(request: &Request, api: &dyn LocalApi) -> Option<Reply> {
    if request.path != "/images" {
        return None;
    }
    Some(match (&*request.method, request.query_value("image")) {
        ("GET", None) => {
            let images = api.images();
            Reply::Later(Box::pin(async move {
                match images.await {
                    Ok(images) => Response::json(json(&Images { images })),
                    Err(error) => Response::text(Status::InternalServerError, error + "\n"),
                }
            }))
        }
        ("DELETE", Some(image)) => {
            let removed = api.remove_image(image);
            // Large layers take longer than the server waits for other responses.
            Reply::Slow(Box::pin(async move {
                match removed.await {
                    Ok(id) => Response::text(Status::Ok, id + "\n"),
                    Err(error) => Response::text(Status::BadRequest, error + "\n"),
                }
            }))
        }
        ("POST", Some(image)) => {
            let pulled = api.pull_image(image);
            Reply::Slow(Box::pin(async move {
                match pulled.await {
                    Ok(id) => Response::json(serde_json::json!({ "result": id }).to_string().into_bytes()),
                    Err(error) => Response::text(Status::BadRequest, error + "\n"),
                }
            }))
        }
        ("POST" | "DELETE", None) => Reply::Whole(Response::text(Status::BadRequest, "expected ?image=NAME\n")),
        _ => Reply::Whole(Response::not_allowed()),
    })
}
