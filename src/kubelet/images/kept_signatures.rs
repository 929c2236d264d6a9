//! Signatures that were verified, kept so that the node can verify an image again without its registry.
//!
//! A file for each image, by the runtime's id: `coracle/image-signatures/sha256-HEX`. It holds what a registry or an
//! archive has said, no verdict: the policy judges it each time. Beside it, `archive-sha256-HEX` holds what an import of an
//! archive has found.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::kubelet::image_archives::manifest::ManifestError;
use crate::kubelet::image_archives::{MAX_LAYOUT_RECORD_BYTES, layout_record_name};
use crate::kubelet::image_signatures::Evidence;
use crate::platform::cri::v1::Image;
use crate::platform::host::file::{read_all, replace_within};
use crate::platform::rt;

#[derive(Clone, Debug)]
pub(super) struct KeptSignatures(PathBuf);

const MAX_KEPT_SIGNATURES_BYTES: u64 = 4 << 20;
/// Repositories that an image may come from.
const MAX_KEPT_REPOSITORIES: usize = 8;

impl KeptSignatures {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// What is known about the image with this id from this repository. A damaged file counts as missing.
    pub(super) async fn of(&self, id: &str, repository: &str) -> Option<Evidence> {
        let (path, repository) = (self.path(id)?, repository.to_owned());
        rt::blocking(move || {
            let entries = read(&path);
            entries.iter().find(|entry| is_of(entry, &repository))?.get("evidence").and_then(Evidence::from_json)
        })
        .await
    }

    /// What the archive says from which the image came.
    pub(super) async fn of_archive(&self, id: &str) -> Option<Result<Evidence, ManifestError>> {
        let path = self.0.join(layout_record_name(hex_of(id)?));
        rt::blocking(move || Some(Evidence::of_archive(&read_all(&path, MAX_LAYOUT_RECORD_BYTES).ok()?))).await
    }

    /// Replaces what is known about the image from this repository.
    pub(super) async fn keep(&self, id: &str, repository: &str, evidence: &Evidence) -> io::Result<()> {
        let path = self.path(id).ok_or(io::ErrorKind::InvalidInput)?;
        let (repository, entry) = (repository.to_owned(), evidence.to_json());
        rt::blocking(move || {
            let kept_file = read(&path);
            let others =
                kept_file.into_iter().filter(|entry| !is_of(entry, &repository)).take(MAX_KEPT_REPOSITORIES - 1);
            let entry = json!({"repository": repository, "evidence": entry});
            let entries: Vec<Value> = std::iter::once(entry).chain(others).collect();
            replace_within(&path, json!(entries).to_string().as_bytes(), MAX_KEPT_SIGNATURES_BYTES)
        })
        .await
    }

    pub(super) async fn files(&self) -> Vec<PathBuf> {
        let here = self.0.clone();
        let list = move || fs::read_dir(here).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        rt::blocking(list).await
    }

    /// Removes those of `files` that are of no image. They were listed before the images, so that what a pull keeps in
    /// between stays.
    pub(super) async fn retain(&self, mut files: Vec<PathBuf>, images: &[Image]) {
        let hex = |file: &PathBuf| {
            let name = file.file_name()?.to_str()?;
            Some(name.strip_prefix("archive-").unwrap_or(name).strip_prefix("sha256-")?.to_owned())
        };
        files.retain(|file| {
            let hex = hex(file);
            !images.iter().any(|image| hex.as_deref() == hex_of(&image.id))
        });
        if let Err(error) = rt::blocking(move || files.into_iter().try_for_each(fs::remove_file)).await {
            log!(warn, "failed to remove kept signatures", directory = self.0.display(), error = error);
        }
    }

    /// `None` if the id is not a digest.
    fn path(&self, id: &str) -> Option<PathBuf> {
        Some(self.0.join(["sha256-", hex_of(id)?].concat()))
    }
}

/// The digits of an image's id, which some runtimes write without the algorithm.
pub(super) fn hex_of(id: &str) -> Option<&str> {
    let hex = id.strip_prefix("sha256:").unwrap_or(id);
    (hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(hex)
}

fn is_of(entry: &Value, repository: &str) -> bool {
    entry.get("repository").and_then(Value::as_str) == Some(repository)
}

fn read(path: &std::path::Path) -> Vec<Value> {
    let text = read_all(path, MAX_KEPT_SIGNATURES_BYTES).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}
