//! The thread of a fetch: its servers, its end by a window or a budget, and its cancellation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_channel::Sender;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::CertificateDer;

use super::Passage;
use super::error::FetchError;
use super::job::Job;
use super::layout::Layout;
use super::peering::Peering;
use super::progress::Progress;
use super::space::Space;
use crate::kubelet::image_archives::image_name::Reference;
use crate::kubelet::image_archives::manifest::Descriptor;
use crate::platform::host::{clock, file};
use crate::platform::net::{AnyCertificate, Connect, ProxySettings, tls_config, trusting, with_system};
use crate::platform::registry::{Login, Mirror, Registry, mirrors};
use crate::platform::rt;
use crate::protocol::pem;
use crate::types::sorted::SortedSet;

/// What a thread gets.
pub(super) struct JobInputs {
    pub(super) name: Reference,
    /// containerd's directory with a `hosts.toml` for each registry.
    pub(super) hosts: PathBuf,
    pub(super) proxies: Arc<ProxySettings>,
    pub(super) login: Option<Login>,
    pub(super) layout: Layout,
    pub(super) space: Space,
    /// Blobs that the runtime has.
    pub(super) present: SortedSet<String>,
    pub(super) progress: Arc<Progress>,
    pub(super) peering: Option<Peering>,
    pub(super) alive: Sender<()>,
}

/// First and longest wait after a failure inside a fetch.
const FETCH_WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Interval of checks of the budget during a fetch.
const BUDGET_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const MAX_FETCHED_FILE_BYTES: u64 = 4 << 20;

/// What a thread does with its job: the descriptors that it has fetched.
pub(super) type JobWork = Box<dyn FnOnce(&mut Job) -> Result<Vec<Descriptor>, FetchError> + Send>;

/// Does the work on a thread, which ends when the future is dropped, or the budget of `passage` ends.
pub(super) async fn fetch_on_thread(
    inputs: JobInputs,
    passage: Passage<'_>,
    work: JobWork,
) -> Result<Vec<Descriptor>, FetchError> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let _cancels = CancelOnDrop(Arc::clone(&cancelled));
    let boot = clock::boot_id();
    let (meter, is_urgent) = (passage.budget.meter(), passage.is_urgent);
    let (sender, result) = async_channel::bounded(1);
    let run = move || {
        let JobInputs { name, hosts, proxies, login, layout, space, present, progress, peering, alive } = inputs;
        let connect = |mirror: &Mirror| {
            let (proxies, cancelled) = (Arc::clone(&proxies), Arc::clone(&cancelled));
            let tls = tls_config(verifier(mirror)?).map_err(FetchError::Tls)?;
            Ok(Connect { tls, proxies, cancelled, deadline: None })
        };
        let servers = servers(&name.registry, &name.path, login, &hosts, connect);
        let peers = peering.and_then(|peering| peering.open(&cancelled));
        let fetched = servers.and_then(|servers| {
            let machine = std::env::consts::ARCH;
            let mut job = Job {
                servers,
                reference: name.reference().to_owned(),
                layout,
                space,
                present,
                machine,
                boot,
                cancelled,
                progress,
                meter: Arc::clone(&meter),
                is_urgent,
                peers,
                waits: FETCH_WAITS,
            };
            work(&mut job)
        });
        meter.settle();
        // Fails if the fetch was cancelled.
        let _ = sender.try_send(fetched);
        drop(alive);
    };
    // A thread of its own: a slow link takes hours, and the pools have few threads.
    rt::thread("image-fetch", run).map_err(FetchError::StartThread)?;
    let ended = async { result.recv().await.unwrap_or(Err(FetchError::NoResult)) };
    let fetched = rt::either(ended, stopped(passage)).await;
    passage.budget.charge();
    fetched
}

/// Ends when the fetch has to stop, because a window closes or the cluster's budget is used up.
async fn stopped<T>(Passage { budget, is_urgent, .. }: Passage<'_>) -> Result<T, FetchError> {
    if !budget.is_limited() {
        return std::future::pending().await;
    }
    loop {
        rt::sleep(BUDGET_CHECK_INTERVAL).await;
        if budget.stop().is_some() && !is_urgent {
            return Err(FetchError::Held);
        }
    }
}

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The servers to try, mirrors first.
fn servers(
    registry: &str,
    repository: &str,
    login: Option<Login>,
    hosts: &Path,
    connect: impl Fn(&Mirror) -> Result<Connect, FetchError>,
) -> Result<Vec<Registry>, FetchError> {
    let folders = host_folders(registry).map(|name| hosts.join(name));
    let directory = folders.into_iter().find(|folder| folder.join(HOSTS_FILE).exists());
    let directory = directory.unwrap_or_default();
    let text = file::read_all(&directory.join(HOSTS_FILE), MAX_FETCHED_FILE_BYTES).ok();
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let mirrors_in_order = mirrors(registry, text.as_deref(), &directory);
    let of = |mirror: Mirror| {
        let connect = connect(&mirror)?;
        Ok(Registry::new(mirror, repository, login.clone(), connect))
    };
    mirrors_in_order.into_iter().map(of).collect()
}

const HOSTS_FILE: &str = "hosts.toml";

/// The names of a registry's folder, in containerd's order: `host_port_`, since a folder's name has no colon on Windows,
/// then the registry itself, then the folder of all registries.
fn host_folders(registry: &str) -> [String; 3] {
    let without_colon = registry.rsplit_once(':').map(|(host, port)| format!("{host}_{port}_"));
    [without_colon.unwrap_or_else(|| registry.to_owned()), registry.to_owned(), "_default".to_owned()]
}

fn verifier(mirror: &Mirror) -> Result<Arc<dyn ServerCertVerifier>, FetchError> {
    match authorities(mirror)? {
        // The registry itself uses plain HTTP, so certificates of redirects are not verified; the digests protect the
        // content.
        roots if mirror.skip_verify || roots.is_empty() && mirror.base.starts_with("http:") => {
            Ok(Arc::new(AnyCertificate))
        }
        roots => trusting(&roots).map_err(|error| unusable(format!("for {}", mirror.base), error)),
    }
}

/// The system's CAs, and those for this server.
fn authorities(mirror: &Mirror) -> Result<Vec<CertificateDer<'static>>, FetchError> {
    let mut certificates = Vec::new();
    for path in &mirror.authorities {
        let file_name = || path.display().to_string();
        let text = file::read_all(path, MAX_FETCHED_FILE_BYTES).map_err(|error| unusable(file_name(), error))?;
        certificates.extend(pem::certificates(&text).map_err(|error| unusable(file_name(), error.0))?);
    }
    with_system(&certificates).map_err(|error| unusable("of the system".to_owned(), error))
}

fn unusable(which: String, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> FetchError {
    FetchError::Authorities { which, cause: cause.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_a_registry_are_in_containerds_order() {
        assert_eq!(host_folders("r.io:5000"), ["r.io_5000_", "r.io:5000", "_default"]);
        assert_eq!(host_folders("docker.io"), ["docker.io", "docker.io", "_default"]);
        assert_eq!(host_folders("[::1]:5000"), ["[::1]_5000_", "[::1]:5000", "_default"]);
    }
}
