//! Fetches files of an OCI artifact, within the windows and budgets of images. The parts survive restarts.

use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use super::job::ArtifactChoice;
use super::job_thread::{JobInputs, fetch_on_thread};
use super::layout::Layout;
use super::progress::Progress;
use super::space::{Claims, Space, make_private};
use super::{FetchError, LinkBudget, Passage, Turn, key_of};
use crate::kubelet::image_archives::image_name::{Reference, reference};
use crate::kubelet::image_archives::manifest::Descriptor;
use crate::platform::host::file;
use crate::platform::net::ProxySettings;
use crate::platform::registry::Login;
use crate::platform::rt;
use crate::types::sorted::SortedSet;

pub(crate) struct ArtifactFetch {
    /// Of the parts.
    directory: PathBuf,
    /// containerd's directory with a `hosts.toml` for each registry.
    hosts: PathBuf,
    proxies: Arc<ProxySettings>,
    budget: Rc<LinkBudget>,
    /// Windows and budgets do not hold it, and what has not changed is not fetched again.
    is_for_manifests: bool,
    turn: Turn,
}

/// A file of the artifact, which matches its digest.
pub(crate) struct FetchedFile {
    pub(crate) blob: Descriptor,
    pub(crate) content: Vec<u8>,
}

impl ArtifactFetch {
    pub(crate) fn new(directory: PathBuf, hosts: PathBuf, proxies: Arc<ProxySettings>, budget: Rc<LinkBudget>) -> Self {
        Self { directory, hosts, proxies, budget, is_for_manifests: false, turn: Turn::new() }
    }

    pub(crate) fn for_manifests(self) -> Self {
        Self { is_for_manifests: true, ..self }
    }

    /// The files that `choose` returns. Each login is tried until one is accepted; none if there are none. The error is one
    /// line.
    pub(crate) async fn files(
        &self,
        artifact: &str,
        logins: Vec<Login>,
        choose: ArtifactChoice,
    ) -> Result<Vec<FetchedFile>, String> {
        let name = reference(artifact).map_err(|error| error.to_string())?;
        if let Some(hold) = self.budget.hold().filter(|_| !self.is_for_manifests) {
            return Err(hold.why);
        }
        let _turn = self.turn.free.acquire().await;
        let layout = Layout(self.directory.join(key_of(artifact)));
        self.remove_others(&layout).await?;
        let logins = if logins.is_empty() { vec![None] } else { logins.into_iter().map(Some).collect() };
        let mut last = FetchError::NoResult;
        for login in logins {
            match self.fetch(&name, &layout, login, choose).await {
                Ok(blobs) => return read(layout, blobs, self.is_for_manifests).await,
                Err(error) => last = error,
            }
        }
        Err(match (last, self.budget.hold()) {
            (FetchError::Held, Some(hold)) => hold.why,
            (error, _) => error.to_string(),
        })
    }

    async fn fetch(
        &self,
        name: &Reference,
        layout: &Layout,
        login: Option<Login>,
        choose: ArtifactChoice,
    ) -> Result<Vec<Descriptor>, FetchError> {
        let key = layout.0.file_name().map(|key| key.to_string_lossy().into_owned()).unwrap_or_default();
        let progress = Arc::new(Progress::default());
        // One fetch at a time.
        let claimed = Claims::default().claimed(&progress);
        let (directory, pod, busy) = (self.directory.clone(), String::new(), Vec::new());
        let space = Space { directory, key, pod, busy, pressure: None, claimed };
        let inputs = JobInputs {
            name: name.clone(),
            hosts: self.hosts.clone(),
            proxies: Arc::clone(&self.proxies),
            login,
            layout: layout.clone(),
            space,
            present: SortedSet::new(),
            progress,
            peering: None,
            alive: self.turn.next_thread().await?,
        };
        let passage = Passage { budget: &self.budget, is_urgent: self.is_for_manifests, pod: "" };
        fetch_on_thread(inputs, passage, Box::new(move |job| job.run_artifact(choose))).await
    }

    /// Removes the parts of other artifacts.
    async fn remove_others(&self, layout: &Layout) -> Result<(), String> {
        let (directory, own_layout) = (self.directory.clone(), layout.0.clone());
        let remove = move || {
            make_private(&directory)?;
            for entry in fs::read_dir(directory)?.flatten().filter(|entry| entry.path() != own_layout) {
                fs::remove_dir_all(entry.path())?;
            }
            Ok::<_, std::io::Error>(())
        };
        rt::blocking(remove).await.map_err(|error| format!("{}: {error}", self.directory.display()))
    }
}

/// Reads the blobs, and removes the others, or the whole layout.
async fn read(layout: Layout, blobs: Vec<Descriptor>, is_kept: bool) -> Result<Vec<FetchedFile>, String> {
    let place = layout.0.display().to_string();
    let read = move || {
        let file = |blob: Descriptor| {
            let content = file::read_all(&layout.blob(&blob.digest), blob.size)?;
            Ok::<_, std::io::Error>(FetchedFile { blob, content })
        };
        let files = blobs.into_iter().map(file).collect::<Result<Vec<_>, _>>()?;
        if !is_kept {
            fs::remove_dir_all(&layout.0)?;
            return Ok(files);
        }
        let is_own = |path: PathBuf| files.iter().any(|file| layout.blob(&file.blob.digest) == path);
        for entry in fs::read_dir(layout.blobs())?.flatten().filter(|entry| !is_own(entry.path())) {
            fs::remove_file(entry.path())?;
        }
        Ok::<_, std::io::Error>(files)
    };
    rt::blocking(read).await.map_err(|error| format!("{place}: {error}"))
}
