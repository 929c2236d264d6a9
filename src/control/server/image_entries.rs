//! Images and image archives in `/images` and `/status`. Pure.

use serde::{Deserialize, Serialize};

/// One image of `/images`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ImageEntry {
    pub(crate) id: String,
    pub(crate) tags: Vec<String>,
    pub(crate) digests: Vec<String>,
    pub(crate) size_bytes: u64,
    /// Image garbage collection in the runtime never removes it.
    pub(crate) pinned: bool,
    /// The pods that use it, such as `default/web-node1`.
    pub(crate) pods: Vec<String>,
}

/// The response of `/images`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Images {
    pub(crate) images: Vec<ImageEntry>,
}

/// An image archive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ArchiveStatus {
    pub(crate) file: String,
    pub(crate) size_bytes: u64,
    /// Modification time, in nanoseconds since the epoch.
    pub(crate) modified_nanos: i64,
    /// `waiting`, `importing`, `imported`, `refused` or `failed`.
    pub(crate) state: String,
    /// Images imported from it. They stay when the archive is removed.
    pub(crate) images: Vec<String>,
    /// Why it was not imported.
    pub(crate) message: String,
}

/// The image archives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ArchivesStatus {
    pub(crate) directory: String,
    pub(crate) files: Vec<ArchiveStatus>,
    /// Why the directory cannot be read.
    pub(crate) message: String,
}

/// An image that pods need and the runtime does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MissingImage {
    pub(crate) image: String,
    pub(crate) pods: Vec<String>,
}
