//! Images and image archives in `/images` and `/status`. Pure.

use crate::types::api::record;

record! {
    /// One image of `/images`.
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
}

record! {
    /// The response of `/images`.
    pub(crate) struct Images {
        pub(crate) images: Vec<ImageEntry>,
    }
}

record! {
    /// An image archive.
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
}

record! {
    /// The image archives.
    pub(crate) struct ArchivesStatus {
        pub(crate) directory: String,
        pub(crate) files: Vec<ArchiveStatus>,
        /// Why the directory cannot be read.
        pub(crate) message: String,
    }
}

record! {
    /// An image that pods need and the runtime does not have.
    pub(crate) struct MissingImage {
        pub(crate) image: String,
        pub(crate) pods: Vec<String>,
    }
}
