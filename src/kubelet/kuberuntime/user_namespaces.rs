//! Assigns id ranges to pods with user namespaces. The range is stored in the pod's directory, where every kubelet
//! finds it.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::kubelet::kuberuntime::error::SandboxError;
use crate::kubelet::kuberuntime::handler;
use crate::kubelet::kuberuntime::user_namespace::{BadRanges, UserRange, UserRangeError, UserRanges};
use crate::platform::cri::v1;
use crate::platform::host::{directories, file};
use crate::platform::rt;
use crate::state::objects::Objects;
use crate::types::api::Pod;
use crate::types::owned::View;

/// The file name in a pod's directory.
const USER_NAMESPACE_FILE: &str = "userns";
const MAX_USER_NAMESPACE_FILE_BYTES: usize = 4096;

/// Assigns the ranges.
pub(super) struct UserNamespaces {
    /// The directory of all pods.
    pods: PathBuf,
    ids_per_pod: u32,
    /// Runtime handlers with user namespaces.
    handlers: RefCell<Vec<String>>,
    /// Serializes the assignments, so that no range is assigned twice.
    assignment: rt::Semaphore,
}

impl UserNamespaces {
    pub(super) fn new(pods: &Path, ids_per_pod: u32) -> Self {
        Self { pods: pods.to_owned(), ids_per_pod, handlers: RefCell::default(), assignment: rt::Semaphore::new(1) }
    }

    pub(super) fn set_handlers(&self, handlers: Vec<String>) {
        self.handlers.replace(handlers);
    }

    /// The user namespace of a pod; `None` for a pod in the host's.
    pub(super) async fn of_pod(
        &self,
        pod: &Pod,
        objects: &View<Objects>,
    ) -> Result<Option<v1::UserNamespace>, SandboxError> {
        if pod.spec.host_users != Some(false) {
            return Ok(None);
        }
        let handler = handler(pod, &objects.read())?;
        if !self.handlers.borrow().contains(&handler) {
            return Err(SandboxError::NoUserNamespaces { handler });
        }
        let (pods, uid, length) = (self.pods.clone(), pod.metadata.uid.to_string(), self.ids_per_pod);
        let assignment = self.assignment.acquire().await;
        let range = rt::blocking(move || own_or_new(&pods, &uid, || subordinate_ids(length))).await;
        drop(assignment);
        range.map(|range| Some(range.namespace())).map_err(SandboxError::UserRange)
    }
}

fn own_or_new(
    pods: &Path,
    uid: &str,
    ranges: impl FnOnce() -> Result<UserRanges, BadRanges>,
) -> Result<UserRange, UserRangeError> {
    let mapping_file = pods.join(uid).join(USER_NAMESPACE_FILE);
    match file::read_head(&mapping_file, MAX_USER_NAMESPACE_FILE_BYTES) {
        Ok(text) => match UserRange::read(&text) {
            Some(range) => return Ok(range),
            None => directories::set_aside(&mapping_file).map_err(UserRangeError::io("set aside", &mapping_file))?,
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(UserRangeError::io("read", &mapping_file)(error)),
    }
    let ranges = ranges().map_err(UserRangeError::Ranges)?;
    let range = ranges.free(&used(pods)?).ok_or(UserRangeError::Full)?;
    file::replace(&mapping_file, range.written().as_bytes()).map_err(UserRangeError::io("write", &mapping_file))?;
    Ok(range)
}

/// The ranges of all pods with a directory. An error if one cannot be read: two pods with the same ids could reach each
/// other's files. A damaged file counts as no range, as its pod gets another one with its next sandbox.
fn used(pods: &Path) -> Result<Vec<UserRange>, UserRangeError> {
    let mut ranges = Vec::new();
    let entries = match fs::read_dir(pods) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ranges),
        entries => entries.map_err(UserRangeError::io("list", pods))?,
    };
    for entry in entries {
        let directory = entry.map_err(UserRangeError::io("list", pods))?.path();
        let mapping_file = directory.join(USER_NAMESPACE_FILE);
        match file::read_head(&mapping_file, MAX_USER_NAMESPACE_FILE_BYTES) {
            Ok(text) => ranges.extend(UserRange::read(&text)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(UserRangeError::io("read", &mapping_file)(error)),
        }
    }
    Ok(ranges)
}

fn subordinate_ids(length: u32) -> Result<UserRanges, BadRanges> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    UserRanges::new(&text("/etc/subuid"), &text("/etc/subgid"), length)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn pod_keeps_its_own_range_until_its_directory_is_removed() {
        let scratch = Scratch(std::env::temp_dir().join(format!("coracle-user-ranges-{}", std::process::id())));
        let two = || UserRanges::new("kubelet:65536:131072", "kubelet:65536:131072", 65_536);
        let give = |uid: &str| own_or_new(&scratch.0, uid, two).map(|range| range.first);
        for uid in ["a", "b"] {
            fs::create_dir_all(scratch.0.join(uid)).unwrap();
        }
        assert_eq!(give("a").unwrap(), 65_536);
        assert_eq!(give("b").unwrap(), 131_072);
        assert_eq!(give("a").unwrap(), 65_536);
        assert!(matches!(give("c"), Err(UserRangeError::Full)));
        fs::remove_dir_all(scratch.0.join("a")).unwrap();
        assert_eq!(give("c").unwrap(), 65_536);
        // A truncated file counts as no range; its content is lost.
        fs::write(scratch.0.join("b/userns"), "{").unwrap();
        assert_eq!(give("b").unwrap(), 131_072);
        // Those of another pod may be any that are free.
        fs::remove_dir_all(scratch.0.join("c")).unwrap();
        fs::create_dir_all(scratch.0.join("d/userns")).unwrap();
        fs::write(scratch.0.join("stray file"), "").unwrap();
        let error = give("e").unwrap_err().to_string();
        assert!(error.contains("d/userns"), "{error}");
        fs::remove_dir_all(scratch.0.join("d")).unwrap();
        assert_eq!(give("e").unwrap(), 65_536);
    }
}
