//! Imports a delta: finds the older layers in containerd's content store and gives the new image to `ctr`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

use super::archive_list::{ArchiveNames, Failure};
use super::delta::{DeltaFile, Sources, rebuild};
use super::import::{ARCHIVE_IMPORT_TIMEOUT, Tool, check, ctr, open, unread, unusable};
use crate::kubelet::image_archives::manifest::Digest;
use crate::platform::host::program;
use crate::platform::rt;

const DELTA_IMAGE_LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// Imports the delta at `path`; `None` if the file is not a delta. Returns the image names in it.
pub(super) async fn import_delta(tool: &Tool, path: PathBuf) -> Option<Result<ArchiveNames, Failure>> {
    let here = path.clone();
    let opened = rt::slow(move || open(&here).map_err(unusable).and_then(DeltaFile::open)).await;
    match opened.transpose()? {
        Ok(delta) => Some(import(tool, delta, path).await),
        Err(failure) => Some(Err(failure)),
    }
}

async fn import(tool: &Tool, delta: DeltaFile, path: PathBuf) -> Result<ArchiveNames, Failure> {
    let Tool::Ctr(endpoint) = tool else {
        return Err(Failure::Refused("it is a delta, which needs containerd".to_owned()));
    };
    let mut sources = Sources { present: blobs(endpoint, None).await?.into_iter().collect(), ..Sources::default() };
    for (layer, blob) in delta.needed(&sources.present) {
        let names = [Some(layer.to_string()), blob.map(|blob| blob.to_string())];
        let mut found = names.into_iter().flatten().find(|name| sources.present.contains(name));
        if found.is_none() {
            // containerd writes this label when it unpacks a layer.
            let filter = format!("labels.\"containerd.io/uncompressed\"==\"{layer}\"");
            found = blobs(endpoint, Some(&filter)).await?.into_iter().next();
        }
        let found = found.ok_or_else(|| Failure::Lacks(delta.lacks(&layer, &sources.present)))?;
        sources.old.insert(layer, found);
    }
    // The digest of the rebuilt manifest is not that of the registry's.
    let names = ArchiveNames { images: delta.names().to_vec(), digests: Vec::new() };
    let (sender, result) = async_channel::bounded(1);
    let from = endpoint.clone();
    let feed = move |mut stdin: ChildStdin| {
        let directory = path.parent().unwrap_or(Path::new("/"));
        let fetch = |blob: &str, target: &mut File| fetch(&from, blob, target);
        // The channel has capacity for one result.
        let _ = sender.try_send(rebuild(&delta, &sources, directory, &fetch, &mut stdin));
    };
    let ended = program::run_fed(ctr(endpoint, &["images", "import", "-"]), feed, ARCHIVE_IMPORT_TIMEOUT).await;
    match result.try_recv() {
        // If the image cannot be rebuilt, the tool fails too; report the delta's fault.
        Ok(Err(failure)) => Err(failure),
        Ok(Ok(written)) => check("ctr", ended).and_then(|()| written.ok_or_else(unread)).map(|()| names),
        Err(_) => check("ctr", ended).and(Err(unread())),
    }
}

/// The digests of containerd's blobs.
async fn blobs(endpoint: &Path, filter: Option<&str>) -> Result<Vec<String>, Failure> {
    let arguments: Vec<&str> = ["content", "list", "--quiet"].into_iter().chain(filter).collect();
    let listed = program::run(ctr(endpoint, &arguments), Vec::new(), DELTA_IMAGE_LIST_TIMEOUT).await;
    let text = listed.as_ref().map(|listed| String::from_utf8_lossy(&listed.stdout).into_owned()).unwrap_or_default();
    check("ctr", listed)?;
    let digests = text.lines().map(str::trim).filter(|line| Digest::parse(line).is_some());
    Ok(digests.map(str::to_owned).collect())
}

/// Writes a blob of containerd's. Blocks.
fn fetch(endpoint: &Path, blob: &str, target: &mut File) -> Result<(), Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::Failed(format!("ctr: content {blob}: {why}"));
    let mut command = ctr(endpoint, &["content", "get", blob]);
    let output = target.try_clone().map_err(|error| failed(&error))?;
    command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null());
    let status = command.status().map_err(|error| failed(&error))?;
    if status.success() { Ok(()) } else { Err(failed(&status)) }
}
