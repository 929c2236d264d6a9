//! Where a manifest comes from, and the node that reads it. Pure.

use std::sync::Arc;

use crate::kubelet::sealed_secrets::BoardKey;
use crate::state::pods::SourceName;

/// The file and node of a manifest, which are part of its pods' identity.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    pub(crate) source: SourceName,
    pub(crate) path: &'a str,
    pub(crate) node_name: &'a str,
    /// When the manifest was first seen: RFC 3339 with nanoseconds.
    pub(crate) config_seen: &'a str,
    /// Opens sealed Secrets, or why the node has no key. `None`: they stay sealed.
    pub(crate) board_key: Option<&'a Result<BoardKey, String>>,
}

/// The node that reads manifests.
#[derive(Clone, Debug)]
pub(crate) struct ManifestNode {
    pub(crate) name: String,
    /// Opens sealed Secrets. The error says why the node has no key.
    pub(crate) board_key: Arc<Result<BoardKey, String>>,
}

impl ManifestNode {
    pub(crate) fn origin<'a>(&'a self, source: SourceName, path: &'a str, config_seen: &'a str) -> Origin<'a> {
        Origin { source, path, node_name: &self.name, config_seen, board_key: Some(&self.board_key) }
    }

    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), board_key: Arc::new(Err("no key in this test".to_owned())) }
    }
}
