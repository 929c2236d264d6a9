//! Writes several files, all or none.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::platform::host::directories;

/// Files staged under temporary names, synced to disk, until all are renamed. Files not renamed are removed on drop.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// The target paths.
    targets: Vec<PathBuf>,
}

impl Staged {
    pub(super) fn add(&mut self, path: &Path, mode: u32, text: &str) -> Result<(), String> {
        self.targets.push(path.to_owned());
        let write = || {
            if let Some(folder) = path.parent() {
                directories::make(folder, 0o755)?;
            }
            let staged = beside(path, "new");
            let _ = fs::remove_file(&staged);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(staged)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|error| format!("write {}: {error}", path.display()))
    }

    /// The temporary path of the file for `path`.
    pub(super) fn path(path: &Path) -> PathBuf {
        beside(path, "new")
    }

    /// Renames every file to its target. If one fails, all are reverted.
    pub(super) fn put(mut self) -> Result<Vec<PathBuf>, String> {
        let places = std::mem::take(&mut self.targets);
        let mut done: Vec<&Path> = Vec::new();
        for target in &places {
            if let Err(error) = put_one(target) {
                done.iter().for_each(|target| take_back(target));
                self.targets = places.clone();
                return Err(format!("write {}: {error}", target.display()));
            }
            done.push(target);
        }
        for target in &places {
            let _ = fs::remove_file(beside(target, "old"));
            // A rename whose directory was not synced reaches the disk with the next sync.
            let _ = target.parent().and_then(|folder| File::open(folder).ok()).map(|folder| folder.sync_all());
        }
        Ok(places)
    }
}

/// Keeps a backup of the existing file until all are renamed.
fn put_one(path: &Path) -> io::Result<()> {
    match fs::rename(path, beside(path, "old")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::rename(beside(path, "new"), path).inspect_err(|_| take_back(path))
}

fn take_back(path: &Path) {
    let old = beside(path, "old");
    // The caller already returns the error that led here.
    let _ = if old.exists() { fs::rename(old, path) } else { fs::remove_file(path) };
}

fn beside(path: &Path, kind: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{kind}"))
}

impl Drop for Staged {
    fn drop(&mut self) {
        for target in &self.targets {
            let _ = fs::remove_file(beside(target, "new"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("coracle-staged-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn files(&self) -> Vec<(String, String)> {
            let mut files: Vec<_> = fs::read_dir(&self.0)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.is_file())
                .map(|path| {
                    let name = path.file_name().unwrap().to_string_lossy().into_owned();
                    (name, fs::read_to_string(path).unwrap())
                })
                .collect();
            files.sort();
            files
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn files_appear_all_at_once_and_leave_no_temporary_ones() {
        let folder = Folder::new("put");
        fs::write(folder.0.join("b"), "before").unwrap();
        let mut staged = Staged::default();
        staged.add(&folder.0.join("a"), 0o600, "secret").unwrap();
        staged.add(&folder.0.join("b"), 0o644, "after").unwrap();
        assert_eq!(fs::read_to_string(folder.0.join("b")).unwrap(), "before");
        assert!(!folder.0.join("a").exists());
        staged.put().unwrap();
        assert_eq!(folder.files(), pairs(&[("a", "secret"), ("b", "after")]));
        assert_eq!(fs::metadata(folder.0.join("a")).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn dropped_files_are_removed() {
        let folder = Folder::new("dropped");
        fs::write(folder.0.join("b"), "before").unwrap();
        let mut staged = Staged::default();
        staged.add(&folder.0.join("a"), 0o600, "secret").unwrap();
        staged.add(&folder.0.join("b"), 0o644, "after").unwrap();
        assert!(staged.add(&folder.0.join("b/c"), 0o644, "").is_err());
        drop(staged);
        assert_eq!(folder.files(), pairs(&[("b", "before")]));
    }

    #[test]
    fn failed_rename_reverts_the_others() {
        let folder = Folder::new("back");
        fs::write(folder.0.join("b"), "before").unwrap();
        // A file cannot be renamed over a non-empty directory.
        fs::create_dir_all(folder.0.join(".c.old/full")).unwrap();
        fs::write(folder.0.join("c"), "before").unwrap();
        let mut staged = Staged::default();
        for name in ["a", "b", "c"] {
            staged.add(&folder.0.join(name), 0o644, "after").unwrap();
        }
        let error = staged.put().unwrap_err();
        assert!(error.starts_with(&format!("write {}/c: ", folder.0.display())), "{error}");
        assert_eq!(folder.files(), pairs(&[("b", "before"), ("c", "before")]));
    }
}
