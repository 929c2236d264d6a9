//! The manifests that a command line names: files, directories and standard input.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::control::pod_sources::static_file::is_manifest;
use crate::types::api::yaml::MAX_BYTES;
use crate::types::sorted::SortOnce;

/// A manifest, by the name that messages use.
#[derive(Debug)]
pub(super) struct ManifestFile {
    pub(super) name: String,
    pub(super) text: io::Result<Vec<u8>>,
    /// In a manifest directory the agent does not read a file of this name.
    pub(super) is_skipped: bool,
}

/// The files in order; those of a directory by name, without its hidden files and subdirectories.
pub(super) fn read_all(paths: &[PathBuf]) -> Vec<ManifestFile> {
    let mut files = Vec::new();
    for path in paths {
        match in_directory(path) {
            None => files.push(read_one(path)),
            Some(Ok(inside)) => files.extend(inside.iter().map(|path| read_one(path))),
            Some(Err(error)) => {
                let name = path.display().to_string();
                files.push(ManifestFile { name, text: Err(error), is_skipped: false });
            }
        }
    }
    files
}

fn read_one(path: &Path) -> ManifestFile {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
    let is_skipped = !is_stdin && path.file_name().is_some_and(|name| !is_manifest(name));
    ManifestFile { name, text: read(path), is_skipped }
}

/// The files of a directory; `None` if it is no directory.
fn in_directory(path: &Path) -> Option<io::Result<Vec<PathBuf>>> {
    if path == Path::new("-") || !path.is_dir() {
        return None;
    }
    let list = || {
        let mut inside = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
        let is_hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        inside.retain(|path| path.is_file() && !is_hidden(path));
        inside.sort_once();
        if inside.is_empty() { Err(io::Error::other("there is no file in this directory")) } else { Ok(inside) }
    };
    Some(list())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = Vec::new();
    if path == Path::new("-") {
        io::stdin().take(limit).read_to_end(&mut text)?;
    } else {
        File::open(path)?.take(limit).read_to_end(&mut text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_gives_its_files_by_name() {
        let dir = std::env::temp_dir().join(format!("coracle-manifests-{}", std::process::id()));
        fs::create_dir_all(dir.join("inner")).unwrap();
        for name in ["b.yaml", "a.yaml", ".hidden", "a.yaml.bak"] {
            fs::write(dir.join(name), name).unwrap();
        }
        let files = read_all(&[dir.clone(), dir.join("none.yaml")]);
        fs::remove_dir_all(&dir).unwrap();
        let seen: Vec<(String, bool, bool)> = files
            .into_iter()
            .map(|file| (file.name.rsplit('/').next().unwrap().to_owned(), file.text.is_ok(), file.is_skipped))
            .collect();
        let expected =
            [("a.yaml", true, false), ("a.yaml.bak", true, true), ("b.yaml", true, false), ("none.yaml", false, false)];
        assert_eq!(seen, expected.map(|(name, is_read, is_skipped)| (name.to_owned(), is_read, is_skipped)));
    }
}
