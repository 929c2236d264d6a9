//! What `/images` and `/status` show of the node's images and of archives of images. Pure.

use serde::{Deserialize, Serialize};

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
