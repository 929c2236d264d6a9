//! The key that vouches for requests of a node whose certificate has expired, and the token that they are made with.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::key::Key;
use super::tpm_key::TpmKey;
use crate::platform::host::file;

/// The annotation of a CertificateSigningRequest: the signature of the bytes in `spec.request`, in base64.
pub(super) const SIGNATURE_ANNOTATION: &str = "coracle.dev/reenrolment-signature";
const MAX_KEY_BYTES: u64 = 1 << 16;

/// The files of a node's re-enrolment, which `coracle leave` removes.
#[derive(Clone, Debug)]
pub(crate) struct ReenrolmentPaths {
    directory: PathBuf,
    /// The device of the TPM; `None`: the key is in a file.
    tpm: Option<PathBuf>,
}

/// The private key, or where it is.
#[derive(Clone, Debug)]
pub(super) enum ReenrolmentKey {
    File(Key),
    Tpm(TpmKey),
}

impl ReenrolmentKey {
    /// The DER of the SubjectPublicKeyInfo.
    pub(super) fn public_key(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::File(key) => key.public_key().map_err(|error| error.to_string()),
            Self::Tpm(key) => Ok(key.public.clone()),
        }
    }

    /// Blocks, for up to some seconds.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::File(key) => key.sign(message).map_err(|error| error.to_string()),
            Self::Tpm(key) => key.sign(message),
        }
    }
}

impl ReenrolmentPaths {
    pub(crate) fn new(root_dir: &Path, tpm: Option<PathBuf>) -> Self {
        Self { directory: root_dir.join("coracle/reenrolment"), tpm }
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.directory.join("key.pem")
    }

    /// The public key of the TPM, once it is on the Node object. There is no private key in a file then.
    pub(crate) fn tpm_key(&self) -> PathBuf {
        self.directory.join("tpm-key.der")
    }

    /// With the token.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    /// Whether a request can be made with the token, and signed. Blocks.
    pub(super) fn are_complete(&self) -> bool {
        (self.key().exists() || self.tpm_key().exists()) && self.kubeconfig().exists()
    }

    /// The key that is on the Node object; `None` if there is none. Blocks.
    pub(super) fn read_key(&self) -> Result<Option<ReenrolmentKey>, String> {
        let path = self.tpm_key();
        match file::read_all(&path, MAX_KEY_BYTES) {
            Ok(public) => {
                let device = self.tpm.clone();
                let device = device.ok_or("the key is in the TPM, and the configuration names none")?;
                Ok(Some(ReenrolmentKey::Tpm(TpmKey { device, public })))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(self.read_file()?.map(ReenrolmentKey::File)),
            Err(error) => Err(format!("read {}: {error}", path.display())),
        }
    }

    fn read_file(&self) -> Result<Option<Key>, String> {
        let path = self.key();
        match file::read_all(&path, MAX_KEY_BYTES) {
            Ok(text) => Key::from_pem(&text).map(Some).map_err(|error| format!("{}: {error}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("read {}: {error}", path.display())),
        }
    }

    /// The key of the TPM, else of a file, made at the first call. A damaged file is replaced: the valid certificate vouches
    /// for the next key. Blocks.
    pub(super) fn ensure_key(&self) -> Result<ReenrolmentKey, String> {
        match self.tpm.as_deref().map_or(Ok(None), TpmKey::read) {
            Ok(Some(key)) => return Ok(ReenrolmentKey::Tpm(key)),
            Ok(None) => {}
            // It has worked before.
            Err(error) if self.tpm_key().exists() => return Err(error),
            Err(error) => log!(warn, "TPM cannot be used, the re-enrolment key is in a file", error = error),
        }
        match self.read_file() {
            Ok(Some(key)) => return Ok(ReenrolmentKey::File(key)),
            Ok(None) => {}
            Err(error) => log!(warn, "re-enrolment key cannot be used, replacing it", error = error),
        }
        let key = Key::generate().map_err(|error| error.to_string())?;
        let path = self.key();
        let failed = |error: io::Error| format!("write {}: {error}", path.display());
        file::replace(&path, key.to_pem().as_bytes()).map_err(failed)?;
        Ok(ReenrolmentKey::File(key))
    }

    /// Notes which key is on the Node object now. Blocks.
    ///
    /// A power cut before it leaves the former key, whose signature would be refused, until the next start with a valid
    /// certificate.
    pub(super) fn settle(&self, key: &ReenrolmentKey) -> Result<(), String> {
        let path = self.tpm_key();
        let other = match key {
            ReenrolmentKey::File(_) => path,
            ReenrolmentKey::Tpm(key) => {
                if !file::read_all(&path, MAX_KEY_BYTES).is_ok_and(|stored_public| stored_public == key.public) {
                    file::replace(&path, &key.public).map_err(|error| format!("write {}: {error}", path.display()))?;
                }
                self.key()
            }
        };
        match fs::remove_file(&other) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("remove {}: {error}", other.display()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::platform::rt::TestFolder;

    #[test]
    fn key_is_made_once_and_only_root_reads_it() {
        let folder = TestFolder::new("reenrolment-key");
        let paths = ReenrolmentPaths::new(&folder.0, Some(folder.0.join("no-tpm")));
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
