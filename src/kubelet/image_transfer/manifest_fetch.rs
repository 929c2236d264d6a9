//! Fetches the manifests of an image, without its layers.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::job::Job;
use super::job_thread::{JobInputs, JobWork, fetch_on_thread};
use super::layout::Layout;
use super::progress::Progress;
use super::space::{Claims, Space, make_private};
use super::{FetchError, Passage, login};
use crate::kubelet::image_archives::image_name::Reference;
use crate::kubelet::image_archives::manifest::Descriptor;
use crate::platform::cri::v1::AuthConfig;
use crate::platform::net::ProxySettings;
use crate::state::pods::TagTarget;
use crate::types::sorted::SortedSet;

#[derive(Debug)]
pub(crate) struct ManifestFetch {
    /// For the time of a fetch.
    directory: PathBuf,
    /// containerd's directory with a `hosts.toml` for each registry.
    hosts: PathBuf,
    proxies: Arc<ProxySettings>,
    /// Fetches so far.
    count: AtomicU64,
    claims: Claims,
}

impl ManifestFetch {
    /// Removes what an earlier process has left in `directory`.
    pub(crate) fn new(directory: PathBuf, hosts: PathBuf, proxies: Arc<ProxySettings>) -> Self {
        // It is rarely there, and small.
        let _ = fs::remove_dir_all(&directory);
        Self { directory, hosts, proxies, count: AtomicU64::new(0), claims: Claims::default() }
    }

    /// The target of the image's tag.
    pub(crate) async fn target(
        &self,
        image: &Reference,
        auth: Option<&AuthConfig>,
        passage: Passage<'_>,
    ) -> Result<TagTarget, FetchError> {
        let work = |job: &mut Job| {
            let (top, manifest, _) = job.manifest()?;
            Ok(vec![top, manifest])
        };
        match &*self.run(image, auth, passage, Box::new(work)).await? {
            [top, manifest] => Ok(TagTarget { digest: top.digest.to_string(), manifest: manifest.digest.to_string() }),
            _ => Err(FetchError::NoResult),
        }
    }

    /// Does the work in a directory of its own, which is removed afterwards.
    pub(super) async fn run(
        &self,
        image: &Reference,
        auth: Option<&AuthConfig>,
        passage: Passage<'_>,
        work: JobWork,
    ) -> Result<Vec<Descriptor>, FetchError> {
        let key = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        let layout = Layout(self.directory.join(&key));
        let (directory, pod) = (self.directory.clone(), passage.pod.to_owned());
        let progress = Arc::new(Progress::default());
        let claimed = self.claims.claimed(&progress);
        let inputs = JobInputs {
            name: image.clone(),
            hosts: self.hosts.clone(),
            proxies: Arc::clone(&self.proxies),
            login: login(auth),
            layout: layout.clone(),
            space: Space { directory: directory.clone(), key, pod, busy: Vec::new(), pressure: None, claimed },
            present: SortedSet::new(),
            progress,
            peering: None,
            alive: async_channel::bounded(1).0,
        };
        let work = move |job: &mut Job| {
            make_private(&directory)?;
            let fetched = work(job);
            fs::remove_dir_all(&layout.0)?;
            fetched
        };
        fetch_on_thread(inputs, passage, Box::new(work)).await
    }
}
