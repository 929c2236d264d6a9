//! Pod sources: manifest files, pods put on this node, a URL, and the API server of a cluster. Each sends its complete
//! set whenever that changes.

pub(crate) mod api;
mod api_pods;
pub(crate) mod disabled_fields;
mod field_names;
pub(crate) mod local_pods;
pub(crate) mod merge;
mod received_pods;
pub(crate) mod static_file;
pub mod static_pod;
pub(crate) mod unread_records;
pub(crate) mod url_pods;
mod whole_manifest;
