//! Repairs cached CNI results of a sandbox that a power failure has truncated.
//!
//! libcni reads the cached result first and fails if it is corrupt, so no runtime can stop the sandbox. Without the
//! file it continues. The file is a small JSON object with the sandbox's network setup.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::platform::cri::{self, RuntimeService};
use crate::platform::host::file;
use crate::platform::rt;
use crate::types::error::ErrorChain;

/// `cri` is that of the sandbox's pod.
pub(super) async fn stop_sandbox(cri: &RuntimeService, id: &str) -> Result<(), cri::Error> {
    match ignore_not_found(cri.stop_pod_sandbox(id).await) {
        Err(error) if has_removed_corrupt(&error, id).await => ignore_not_found(cri.stop_pod_sandbox(id).await),
        result => result,
    }
}

/// `cri` is that of the sandbox's pod.
pub(super) async fn remove_sandbox(cri: &RuntimeService, id: &str) -> Result<(), cri::Error> {
    match ignore_not_found(cri.remove_pod_sandbox(id).await) {
        Err(error) if has_removed_corrupt(&error, id).await => ignore_not_found(cri.remove_pod_sandbox(id).await),
        result => result,
    }
}

/// A missing container or sandbox is already stopped or removed.
pub(super) fn ignore_not_found(result: Result<(), cri::Error>) -> Result<(), cri::Error> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

/// Whether a corrupt result was removed that may have caused the error.
async fn has_removed_corrupt(error: &cri::Error, sandbox: &str) -> bool {
    if error.status().is_none() || error.outcome_unknown() {
        return false;
    }
    let sandbox = sandbox.to_owned();
    rt::blocking(move || remove_unreadable(Path::new(RESULTS), &sandbox)).await.unwrap_or_else(|error| {
        log!(warn, "failed to check cached CNI results", folder = RESULTS, error = ErrorChain(&error));
        false
    })
}

/// Removes corrupt results of the sandbox from `folder`; true if there were any.
fn remove_unreadable(folder: &Path, sandbox: &str) -> io::Result<bool> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    let mut removed = false;
    for entry in entries {
        let entry = entry?;
        if is_of(&entry, sandbox) && !is_readable(&entry)? {
            fs::remove_file(entry.path())?;
            log!(warn, "removed corrupt cached CNI result", file = entry.path().display(), sandbox = sandbox);
            removed = true;
        }
    }
    Ok(removed)
}

/// The file names are `<network>-<sandbox>-<interface>`.
fn is_of(entry: &DirEntry, sandbox: &str) -> bool {
    let name = entry.file_name();
    let parts = name.to_str().and_then(|name| name.split_once(sandbox));
    !sandbox.is_empty() && parts.is_some_and(|(network, rest)| network.ends_with('-') && rest.starts_with('-'))
}

fn is_readable(entry: &DirEntry) -> io::Result<bool> {
    if !entry.file_type()?.is_file() {
        return Ok(true);
    }
    let text = file::read_head(&entry.path(), MAX_NETWORK_RESULT_BYTES)?;
    Ok(matches!(serde_json::from_slice(&text), Ok(Value::Object(_))))
}

/// libcni's cache directory, the same for all runtimes.
const RESULTS: &str = "/var/lib/cni/results";
const MAX_NETWORK_RESULT_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_corrupt_results_of_the_sandbox_are_removed() {
        let folder = std::env::temp_dir().join(format!("coracle-results-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("create a temporary directory");
        let files = [
            ("pods-abc-eth0", "", true),
            ("pods-abc-eth1", "\0\0\0\0", true),
            ("pods-abc-eth2", "{\"kind\": \"cniCacheV1\", ", true),
            ("pods-abc-eth3", "{\"kind\": \"cniCacheV1\"}", false),
            ("pods-abcd-eth0", "", false),
            ("abc-eth0", "", false),
            ("pods-abc", "", false),
        ];
        for (name, text, _) in files {
            fs::write(folder.join(name), text).expect("write a temporary file");
        }
        let results = [
            remove_unreadable(&folder, "abc").ok(),
            remove_unreadable(&folder, "abc").ok(),
            remove_unreadable(&folder, "").ok(),
            remove_unreadable(&folder.join("nothing"), "abc").ok(),
        ];
        let left: Vec<bool> = files.iter().map(|(name, ..)| folder.join(name).exists()).collect();
        fs::remove_dir_all(&folder).expect("remove the temporary directory");
        assert_eq!(results, [Some(true), Some(false), Some(false), Some(false)]);
        assert_eq!(left, files.map(|(_, _, goes)| !goes));
    }
}
