//! The key that vouches for requests of a node whose certificate has expired, and the token that they are made with.

use std::io;
use std::path::{Path, PathBuf};

use super::key::{Key, KeyError};
use crate::platform::host::file;
use crate::types::api::Bytes;

/// The annotation of a CertificateSigningRequest: the signature of the bytes in `spec.request`, in base64.
pub(super) const SIGNATURE_ANNOTATION: &str = "coracle.dev/reenrolment-signature";
const MAX_KEY_BYTES: u64 = 1 << 16;

/// The files of a node's re-enrolment, which `coracle leave` removes.
#[derive(Clone, Debug)]
pub(crate) struct ReenrolmentPaths {
    directory: PathBuf,
}

impl ReenrolmentPaths {
    pub(crate) fn new(root_dir: &Path) -> Self {
        Self { directory: root_dir.join("coracle/reenrolment") }
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.directory.join("key.pem")
    }

    /// With the token.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// Whether a request can be made with the token, and signed. Blocks.
    pub(super) fn are_complete(&self) -> bool {
        self.key().exists() && self.kubeconfig().exists()
    }

    /// The key; `None` if there is none. Blocks.
    pub(super) fn read_key(&self) -> Result<Option<Key>, String> {
        let path = self.key();
        match file::read_all(&path, MAX_KEY_BYTES) {
            Ok(text) => Key::from_pem(&text).map(Some).map_err(|error| format!("{}: {error}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("read {}: {error}", path.display())),
        }
    }

    /// The key, made at the first call. A damaged one is replaced: the valid certificate vouches for the next. Blocks.
    pub(super) fn ensure_key(&self) -> Result<Key, String> {
        match self.read_key() {
            Ok(Some(key)) => return Ok(key),
            Ok(None) => {}
            Err(error) => log!(warn, "re-enrolment key cannot be used, replacing it", error = error),
        }
        let key = Key::generate().map_err(|error| error.to_string())?;
        let path = self.key();
        let failed = |error: io::Error| format!("write {}: {error}", path.display());
        file::replace(&path, key.to_pem().as_bytes()).map_err(failed)?;
        Ok(key)
    }
}

/// The value of [`SIGNATURE_ANNOTATION`] for a request in PEM.
pub(super) fn signature(key: &Key, request: &[u8]) -> Result<String, KeyError> {
    key.sign(request).map(|signature| Bytes(signature).to_base64())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::platform::rt::TestFolder;

    #[test]
    fn key_is_made_once_and_only_root_reads_it() {
        let folder = TestFolder::new("reenrolment-key");
        let paths = ReenrolmentPaths::new(&folder.0);
        assert!(paths.read_key().unwrap().is_none() && !paths.are_complete());
        let key = paths.ensure_key().unwrap();
        assert_eq!(paths.ensure_key().unwrap().public_key(), key.public_key());
        assert_eq!(fs::metadata(paths.key()).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(paths.key(), "damaged").unwrap();
        assert!(paths.read_key().is_err());
        assert_ne!(paths.ensure_key().unwrap().public_key(), key.public_key());
        fs::write(paths.kubeconfig(), "").unwrap();
        assert!(paths.are_complete());
    }
}
