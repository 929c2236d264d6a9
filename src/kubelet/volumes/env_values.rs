//! Values of environment variables from files in volumes (`fileKeyRef`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{EnvFileError, MAX_ENV_FILES_BYTES, MAX_ENV_VALUES_BYTES};
use super::{env_file, sub_path};
use crate::types::api::FileKeySelector;
use crate::types::sorted::{SortOnce, SortedMap};

/// The value of an environment variable that comes from a file.
#[derive(Debug)]
pub(crate) struct FileValue {
    pub(crate) file: String,
    /// `None` if the file does not set it; or why it cannot be read.
    pub(crate) value: Result<Option<String>, EnvFileError>,
}

/// A variable with the root of its volume, if the pod has the volume.
pub(super) type FileVariable = (Option<PathBuf>, FileKeySelector);

/// The values of `variables`. Each file is read and parsed once.
pub(super) fn file_values(variables: Vec<FileVariable>) -> Vec<FileValue> {
    let (mut files_left, mut values_left) = (MAX_ENV_FILES_BYTES, MAX_ENV_VALUES_BYTES);
    let mut by_file: Vec<(usize, FileVariable)> = variables.into_iter().enumerate().collect();
    by_file.sort_once_by(|(_, (one, key)), (_, (other, other_key))| (one, &key.path).cmp(&(other, &other_key.path)));
    let mut values = Vec::with_capacity(by_file.len());
    for same_file in
        by_file.chunk_by(|(_, (one, key)), (_, (other, other_key))| (one, &key.path) == (other, &other_key.path))
    {
        let mut found: SortedMap<&str, _> = same_file.iter().map(|(_, (_, key))| (key.key.as_str(), None)).collect();
        let Some((_, first)) = same_file.first() else { continue };
        let (file, read) = read_file(first, &mut files_left);
        let read = read.and_then(|text| env_file::find(&text, &mut found));
        values.extend(same_file.iter().map(|(index, (_, key))| {
            let value = match found.get(key.key.as_str()) {
                Some(Some(value)) => match values_left.checked_sub(value.len()) {
                    Some(left) => {
                        values_left = left;
                        Ok(Some(value.clone()))
                    }
                    None => Err(EnvFileError::ValuesTooLarge),
                },
                _ => read.clone().map(|()| None),
            };
            (*index, FileValue { file: file.clone(), value })
        }));
    }
    values.sort_once_by_key(|(index, _)| *index);
    values.into_iter().map(|(_, value)| value).collect()
}

/// The path of the file for messages, and its text.
fn read_file((root, key): &FileVariable, left: &mut usize) -> (String, Result<String, EnvFileError>) {
    let Some(root) = root else {
        return (key.path.clone(), Err(EnvFileError::NoVolume { volume: key.volume_name.clone() }));
    };
    let text = if *left == 0 {
        Err(EnvFileError::FilesTooLarge)
    } else {
        let text = sub_path::read(root, Path::new(&key.path), MAX_ENV_FILE_BYTES);
        // A file that is no text is read, too.
        *left = left.saturating_sub(text.as_ref().map_or(MAX_ENV_FILE_BYTES, String::len));
        text.map_err(|error| EnvFileError::Read(Arc::new(error)))
    };
    (root.join(&key.path).display().to_string(), text)
}

/// Looks up a variable in an environment file, for the fuzz targets: a value is part of the text.
pub fn check_env_file(text: &str, key: &str) {
    let mut found = SortedMap::from([(key, None)]);
    drop(env_file::find(text, &mut found));
    for (_, value) in found {
        assert!(value.is_none_or(|value| value.len() <= text.len() + 1), "a value is longer than its file");
    }
}

/// Size limit of an environment file, which a container may write.
const MAX_ENV_FILE_BYTES: usize = 1 << 20;
