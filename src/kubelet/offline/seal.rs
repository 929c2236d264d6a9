//! The protection of secrets and tokens in the offline store, and the source of their key: a credential of the service
//! manager, a file, or a new file.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom as _, SystemRandom};

use super::key::{Key, MIN_KEY_BYTES};
use crate::kubelet::sealed_secrets::BoardKey;
use crate::platform::host::file::{read_all, replace};

/// How secrets and tokens are kept.
#[derive(Debug)]
pub(super) enum Seal {
    Key(Key),
    /// In plain text, by configuration.
    Plain,
    /// Not stored, because there is no key.
    Memory,
    /// The key could not be read. It is read again before the next Secret is written.
    Unread(KeyPlaces),
}

/// Where to look for a key, and what to do without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlaces {
    /// `$CREDENTIALS_DIRECTORY`, with the credentials that systemd passes to this service.
    pub(crate) credentials: Option<PathBuf>,
    /// Created if it does not exist. `None`: only the credential is used.
    pub(crate) file: Option<PathBuf>,
    /// Without a key, store secrets in plain text and create no key.
    pub(crate) plain: bool,
}

const CREDENTIAL: &str = "coracle-store-key";
const MAX_SEALED_KEY_BYTES: u64 = 64 << 10;

impl Seal {
    /// Decrypts the content; `None` if it was encrypted with another key or for another record, or there is no key.
    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Key(key) => key.open(name, sealed),
            Self::Plain | Self::Memory | Self::Unread(_) => None,
        }
    }
}

impl KeyPlaces {
    /// How secrets are kept, and the description for `coracle status`. Blocks.
    pub(super) fn seal(&self) -> (Seal, String) {
        match self.key_material() {
            Ok((material, path)) => {
                (Key::derive(&material).map_or(Seal::Memory, Seal::Key), format!("sealed with {}", path.display()))
            }
            Err(NoKey::Plain) => (Seal::Plain, "in plain".to_owned()),
            Err(NoKey::NotConfigured) => (Seal::Memory, "kept in memory only: no key file is configured".to_owned()),
            Err(NoKey::Unusable(path, fault)) => {
                (Seal::Memory, format!("kept in memory only: {}: {fault}", path.display()))
            }
            Err(NoKey::Unread(path, fault)) => {
                let shown = format!("kept in memory until {} can be read: {fault}", path.display());
                (Seal::Unread(self.clone()), shown)
            }
            Err(NoKey::NotMade(path, fault)) => {
                let shown = format!("kept in memory: failed to make {}: {fault}", path.display());
                (Seal::Unread(self.clone()), shown)
            }
        }
    }

    /// The key of sealed Secrets, from the same material; the error is one line. Blocks.
    pub(crate) fn board_key(&self) -> Result<BoardKey, String> {
        let (material, _) = self.key_material().map_err(|no_key| no_key.to_string())?;
        Ok(BoardKey::derive(&material))
    }

    /// The first key found, else a new one in the file. An invalid key is reported and never replaced.
    fn key_material(&self) -> Result<(Vec<u8>, PathBuf), NoKey> {
        let credential = self.credentials.as_ref().map(|folder| (folder.join(CREDENTIAL), false));
        for (path, is_checked) in credential.into_iter().chain(self.file.iter().map(|path| (path.clone(), true))) {
            if let Some(material) = read(&path, is_checked)? {
                return Ok((material, path));
            }
        }
        match &self.file {
            _ if self.plain => Err(NoKey::Plain),
            None => Err(NoKey::NotConfigured),
            Some(path) => match make(path) {
                Ok(material) => Ok((material, path.clone())),
                Err(fault) => Err(NoKey::NotMade(path.clone(), fault)),
            },
        }
    }
}

/// Creates a key and syncs it before its first use. A power failure leaves a complete file or none.
fn make(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; MIN_KEY_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
    replace(path, &bytes)?;
    log!(info, "created key for offline store", file = path.display());
    Ok(bytes)
}

/// Why there is no key.
enum NoKey {
    Plain,
    NotConfigured,
    /// A read error, which may be temporary.
    Unread(PathBuf, io::Error),
    /// The content or mode of the file is invalid; one line.
    Unusable(PathBuf, String),
    NotMade(PathBuf, io::Error),
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("no key is made with --offline-plain-secrets"),
            Self::NotConfigured => f.write_str("no key file is configured (--offline-key-file)"),
            Self::Unread(path, fault) => write!(f, "{}: {fault}", path.display()),
            Self::Unusable(path, fault) => write!(f, "{}: {fault}", path.display()),
            Self::NotMade(path, fault) => write!(f, "failed to make {}: {fault}", path.display()),
        }
    }
}

fn read(path: &Path, is_checked: bool) -> Result<Option<Vec<u8>>, NoKey> {
    let unread = |error| NoKey::Unread(path.to_owned(), error);
    let mode = match path.metadata() {
        Ok(metadata) => metadata.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unread(error)),
    };
    let unusable = |fault| NoKey::Unusable(path.to_owned(), fault);
    if is_checked && mode & 0o077 != 0 {
        return Err(unusable(format!("expected mode 0600, found {:04o}", mode & 0o7777)));
    }
    let material = read_all(path, MAX_SEALED_KEY_BYTES).map_err(unread)?;
    if material.len() < MIN_KEY_BYTES {
        return Err(unusable(format!("expected {MIN_KEY_BYTES} bytes or more, found {}", material.len())));
    }
    Ok(Some(material))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn credential_is_used_before_the_file() {
        let folder = std::env::temp_dir().join(format!("coracle-store-key-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let key = folder.join("key");
        let mut places = KeyPlaces { credentials: Some(folder.clone()), file: None, plain: false };
        let mut said = Vec::new();
        let mut look = |key_paths: &KeyPlaces| {
            let (seal, shown) = key_paths.seal();
            let kind = match seal {
                Seal::Key(_) => "key",
                Seal::Plain => "plain",
                Seal::Memory => "memory",
                Seal::Unread(_) => "unread",
            };
            said.push(format!("{kind}: {}", shown.replace(&folder.display().to_string(), "")));
        };
        look(&places);
        places = KeyPlaces { file: Some(key.clone()), plain: true, ..places };
        look(&places);
        fs::write(&key, [7; MIN_KEY_BYTES]).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
        look(&places);
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        look(&places);
        fs::write(folder.join(CREDENTIAL), "short").unwrap();
        look(&places);
        fs::write(folder.join(CREDENTIAL), [8; MIN_KEY_BYTES]).unwrap();
        look(&places);
        fs::remove_dir_all(&folder).unwrap();
        let expected = [
            "memory: kept in memory only: no key file is configured",
            "plain: in plain",
            "memory: kept in memory only: /key: expected mode 0600, found 0640",
            "key: sealed with /key",
            "memory: kept in memory only: /coracle-store-key: expected 32 bytes or more, found 5",
            "key: sealed with /coracle-store-key",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn missing_key_is_created_once_for_this_user_only() {
        let folder = std::env::temp_dir().join(format!("coracle-store-key-made-{}", std::process::id()));
        let file = folder.join("coracle/store-key");
        let places = KeyPlaces { credentials: None, file: Some(file.clone()), plain: false };
        let sealed = match places.seal() {
            (Seal::Key(key), _) => key.seal("secret/a", b"hidden").unwrap(),
            (_, shown) => panic!("{shown}"),
        };
        let made = fs::read(&file).unwrap();
        assert_eq!((made.len(), fs::metadata(&file).unwrap().permissions().mode() & 0o777), (MIN_KEY_BYTES, 0o600));
        let (again, _) = places.seal();
        assert_eq!(again.open("secret/a", sealed.as_bytes()).as_deref(), Some(&b"hidden"[..]));
        assert_eq!(fs::read(&file).unwrap(), made);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn invalid_key_is_never_replaced() {
        let folder = std::env::temp_dir().join(format!("coracle-store-key-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("store-key");
        fs::write(&file, "short").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let (seal, _) = KeyPlaces { credentials: None, file: Some(file.clone()), plain: false }.seal();
        assert!(matches!(seal, Seal::Memory));
        assert_eq!(fs::read(&file).unwrap(), b"short");
        fs::remove_dir_all(&folder).unwrap();
    }
}
