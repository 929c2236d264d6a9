//! How the offline store keeps its secrets. Pure.

use std::path::{Path, PathBuf};

use super::flag_values::FlagValues;

/// The offline store: `--offline-key-file` and `--offline-plain-secrets`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfflineSettings {
    /// The key for secrets, created if it is missing; `None`: no key from a file.
    pub(crate) key_file: Option<PathBuf>,
    /// Without a key, secrets are stored in plain.
    pub(crate) plain_secrets: bool,
}

impl Default for OfflineSettings {
    fn default() -> Self {
        Self { key_file: Some(PathBuf::from("/var/lib/kubelet/coracle/store-key")), plain_secrets: false }
    }
}

pub(super) fn read(flags: &FlagValues, root_dir: &Path) -> OfflineSettings {
    let key_file = flags.offline_key_file.clone().unwrap_or_else(|| root_dir.join("coracle/store-key"));
    OfflineSettings {
        key_file: (!key_file.as_os_str().is_empty()).then_some(key_file),
        plain_secrets: flags.offline_plain_secrets,
    }
}
