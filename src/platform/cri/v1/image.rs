//! Image and image file system messages. Pure.

use std::fmt;

use super::PodSandboxConfig;
use crate::protocol::protobuf::{Field, Slot, message};
use crate::types::sorted::SortedMap;

/// Text that Debug does not show.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(pub String);

message! {
    pub struct ImageSpec {
        /// A reference, or the runtime's id of the image.
        1 => image: String,
        2 => annotations: SortedMap<String, String>,
        /// The reference as the pod spells it; only in a container's configuration.
        18 => user_specified_image: String,
        19 => runtime_handler: String,
        /// The digest of an image that is mounted as a volume; only in a container's status.
        20 => image_ref: String,
    }

    pub struct ImageFilter {
        1 => image: Option<ImageSpec>,
    }

    pub struct ListImagesRequest {
        1 => filter: Option<ImageFilter>,
    }

    pub struct Image {
        1 => id: String,
        2 => repo_tags: Vec<String>,
        3 => repo_digests: Vec<String>,
        4 => size: u64,
        /// `None` if the image's user is given by name.
        5 => uid: Option<i64>,
        6 => username: String,
        7 => spec: Option<ImageSpec>,
        /// Image garbage collection must not remove it.
        8 => pinned: bool,
    }

    pub struct ListImagesResponse {
        1 => images: Vec<Image>,
    }

    pub struct ImageStatusRequest {
        1 => image: Option<ImageSpec>,
        2 => verbose: bool,
    }

    pub struct ImageStatusResponse {
        /// `None` if the runtime does not have the image.
        1 => image: Option<Image>,
        2 => info: SortedMap<String, String>,
    }

    pub struct AuthConfig {
        1 => username: String,
        2 => password: Secret,
        3 => auth: Secret,
        4 => server_address: String,
        5 => identity_token: Secret,
        6 => registry_token: Secret,
    }

    pub struct PullImageRequest {
        1 => image: Option<ImageSpec>,
        2 => auth: Option<AuthConfig>,
        3 => sandbox_config: Option<PodSandboxConfig>,
    }

    pub struct PullImageResponse {
        /// An image id or digest.
        1 => image_ref: String,
    }

    pub struct RemoveImageRequest {
        1 => image: Option<ImageSpec>,
    }

    pub struct RemoveImageResponse {}

    pub struct ImageFsInfoRequest {}

    pub struct FilesystemIdentifier {
        1 => mountpoint: String,
    }

    pub struct FilesystemUsage {
        1 => timestamp: i64,
        2 => fs_id: Option<FilesystemIdentifier>,
        3 => used_bytes: Option<u64>,
        4 => inodes_used: Option<u64>,
    }

    pub struct ImageFsInfoResponse {
        1 => image_filesystems: Vec<FilesystemUsage>,
        2 => container_filesystems: Vec<FilesystemUsage>,
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "\"***\"" })
    }
}

impl Field for Secret {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        self.0.put(number, out);
    }

    fn slot(&mut self) -> Option<Slot<'_>> {
        self.0.slot()
    }

    #[cfg(test)]
    fn json(&self) -> Option<serde_json::Value> {
        self.0.json()
    }
}
