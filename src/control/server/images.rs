//! The images of the node at the local door: which there are, and the removal of one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::connections::Reply;
use super::http::{Response, Status};
use super::local_api::LocalApi;
use crate::platform::rt;
use crate::protocol::http1::Request;

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

/// An archive of images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ArchiveStatus {
    pub(crate) file: String,
    pub(crate) size_bytes: u64,
    /// When it was written, in nanoseconds since 1970.
    pub(crate) modified_nanos: i64,
    /// `waiting`, `importing`, `imported`, `refused` or `failed`.
    pub(crate) state: String,
    /// What it has given; they stay.
    pub(crate) images: Vec<String>,
    /// Why it was not imported.
    pub(crate) message: String,
}

/// The archives of images.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ArchivesStatus {
    pub(crate) directory: String,
    pub(crate) files: Vec<ArchiveStatus>,
    /// Why the directory cannot be read.
    pub(crate) message: String,
}

/// An image that pods need and that the runtime does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MissingImage {
    pub(crate) image: String,
    pub(crate) pods: Vec<String>,
}

/// The status with what only the runtime knows: not at all if it takes its time.
pub(super) fn status(api: &dyn LocalApi) -> Reply {
    let (mut status, missing) = (api.status(), api.missing_images());
    Reply::Later(Box::pin(async move {
        status.missing_images = rt::deadline(RUNTIME_PATIENCE, missing).await.ok().and_then(Result::ok);
        Response::json(serde_json::to_vec(&status).unwrap_or_default())
    }))
}

const RUNTIME_PATIENCE: Duration = Duration::from_secs(1);

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
