//! Where the key for secrets and tokens comes from: a credential of the service manager, a file, or nowhere.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::seal::{Key, SHORTEST, Seal};
use crate::host::file::read_all;

/// Where a key may be, and what is done without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlaces {
    /// `$CREDENTIALS_DIRECTORY`, where the service manager puts what it was given for this service alone.
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) file: PathBuf,
    /// Without a key they are written all the same.
    pub(crate) plain: bool,
}

/// The name of the credential.
const CREDENTIAL: &str = "coracle-store-key";
const LARGEST: u64 = 64 << 10;

impl KeyPlaces {
    /// The first key that there is, and what is shown of it. One that cannot be used is told of, and no other one is looked
    /// for in its place. Blocks.
    pub(super) fn seal(&self) -> (Seal, String) {
        let credential = self.credentials.as_ref().map(|folder| (folder.join(CREDENTIAL), false));
        for (path, is_checked) in credential.into_iter().chain([(self.file.clone(), true)]) {
            match read(&path, is_checked) {
                Ok(Some(key)) => return (Seal::Key(key), format!("sealed with {}", path.display())),
                Ok(None) => {}
                Err(fault) => return (Seal::Memory, format!("kept in memory only: {}: {fault}", path.display())),
            }
        }
        match self.plain {
            true => (Seal::Plain, "in plain".to_owned()),
            false => (Seal::Memory, format!("kept in memory only: there is no key in {}", self.file.display())),
        }
    }
}

fn read(path: &Path, is_checked: bool) -> Result<Option<Key>, String> {
    let mode = match path.metadata() {
        Ok(metadata) => metadata.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if is_checked && mode & 0o077 != 0 {
        return Err(format!("expected mode 0600, found {:04o}", mode & 0o7777));
    }
    let bytes = read_all(path, LARGEST).map_err(|error| error.to_string())?;
    let key = Key::derive(&bytes);
    key.map(Some).ok_or_else(|| format!("expected {SHORTEST} bytes or more, found {}", bytes.len()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_credential_comes_first_then_the_file_then_nothing() {
        let folder = std::env::temp_dir().join(format!("coracle-store-key-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut places = KeyPlaces { credentials: Some(folder.clone()), file: folder.join("key"), plain: false };
        let mut said = Vec::new();
        let mut look = |places: &KeyPlaces| {
            let (seal, shown) = places.seal();
            let kind = match seal {
                Seal::Key(_) => "key",
                Seal::Plain => "plain",
                Seal::Memory => "memory",
            };
            said.push(format!("{kind}: {}", shown.replace(&folder.display().to_string(), "")));
        };
        look(&places);
        places.plain = true;
        look(&places);
        fs::write(&places.file, [7; SHORTEST]).unwrap();
        fs::set_permissions(&places.file, fs::Permissions::from_mode(0o640)).unwrap();
        look(&places);
        fs::set_permissions(&places.file, fs::Permissions::from_mode(0o600)).unwrap();
        look(&places);
        fs::write(folder.join(CREDENTIAL), "short").unwrap();
        look(&places);
        fs::write(folder.join(CREDENTIAL), [8; SHORTEST]).unwrap();
        look(&places);
        fs::remove_dir_all(&folder).unwrap();
        let expected = [
            "memory: kept in memory only: there is no key in /key",
            "plain: in plain",
            "memory: kept in memory only: /key: expected mode 0600, found 0640",
            "key: sealed with /key",
            "memory: kept in memory only: /coracle-store-key: expected 32 bytes or more, found 5",
            "key: sealed with /coracle-store-key",
        ];
        assert_eq!(said, expected);
    }
}
