//! The images of the node at the local door: which there are, and the removal of one.

use serde::{Deserialize, Serialize};

use super::connections::Reply;
use super::http::{Response, Status};
use super::local::LocalApi;
use crate::wire::http1::Request;

/// One image of `/images`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ImageEntry {
    pub(crate) id: String,
    pub(crate) tags: Vec<String>,
    pub(crate) digests: Vec<String>,
    pub(crate) size_bytes: u64,
    /// The runtime never removes it to make room.
    pub(crate) pinned: bool,
    /// Who would miss it, as `default/web-node1`.
    pub(crate) pods: Vec<String>,
}

/// The answer of `/images`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Images {
    pub(crate) images: Vec<ImageEntry>,
}

/// `None`: the request is about something else.
pub(super) fn images(request: &Request, api: &dyn LocalApi) -> Option<Reply> {
    if request.path != "/images" {
        return None;
    }
    Some(match (&*request.method, request.asks("image")) {
        ("GET", None) => {
            let images = api.images();
            Reply::Later(Box::pin(async move {
                match images.await {
                    Ok(images) => Response::json(serde_json::to_vec(&Images { images }).unwrap_or_default()),
                    Err(error) => Response::text(Status::InternalServerError, error + "\n"),
                }
            }))
        }
        ("DELETE", Some(image)) => {
            let removed = api.remove_image(image);
            Reply::Later(Box::pin(async move {
                match removed.await {
                    Ok(id) => Response::text(Status::Ok, id + "\n"),
                    Err(error) => Response::text(Status::BadRequest, error + "\n"),
                }
            }))
        }
        ("DELETE", None) => Reply::Whole(Response::text(Status::BadRequest, "expected ?image=NAME\n")),
        _ => Reply::Whole(Response::not_allowed()),
    })
}
