//! Resumable pulls: Coracle fetches an image itself and hands it to the runtime's import tool.
//!
//! ```text
//!   Fetcher::pull -> thread: Job::run -> coracle/fetch/IMAGE/blobs/sha256/HEX.part -> HEX
//!                 -> the layout as a tar -> ctr, or as a directory -> skopeo
//! ```
//!
//! Dropping the future of a pull ends its thread; the next pull of the image continues with the parts.

mod error;
mod job;
mod layout;
mod part_file;
mod peers;

use std::cell::RefCell;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::CertificateDer;

use self::error::FetchError;
use self::job::Job;
pub(crate) use self::job::Progress;
use self::layout::Layout;
use self::manifest::Descriptor;
use self::peers::Peers;
use super::archives::{ImportTool, import_layout};
use super::image_name::{Reference, reference};
use super::manifest;
use super::shared_images::SharedImages;
use crate::platform::cri::v1::{AuthConfig, ImageSpec};
use crate::platform::cri::{ImageService, RuntimeService};
use crate::platform::host::{clock, file, program};
use crate::platform::net::{
    AnyCertificate, Connect, ProxySettings, SILENCE, believing, tls_config, tls_config_as, with_system,
};
use crate::platform::registry::{Login, Mirror, Registry, mirrors};
use crate::platform::rt;
use crate::protocol::pem;
use crate::protocol::sha256::sha256;
use crate::types::error::ErrorChain;
use crate::types::sorted::{SortedMap, SortedSet};

/// Fetches images.
pub(crate) struct Fetcher {
    directory: PathBuf,
    /// containerd's directory with a `hosts.toml` for each registry.
    hosts: PathBuf,
    /// The runtime's endpoint for images.
    endpoint: PathBuf,
    images: ImageService,
    runtime: RuntimeService,
    proxies: Arc<ProxySettings>,
    peering: Option<Peering>,
    /// Pulls in progress by directory, so that two pods do not fetch the same image at the same time.
    busy: RefCell<SortedMap<String, Rc<rt::Semaphore>>>,
}

/// Paths of the fetcher.
#[derive(Clone, Debug)]
pub(crate) struct FetchPlaces {
    pub(crate) directory: PathBuf,
    pub(crate) hosts: PathBuf,
    pub(crate) endpoint: PathBuf,
    pub(crate) proxies: ProxySettings,
    /// Other nodes.
    pub(crate) peering: Option<Peering>,
}

/// Images from and for other nodes.
#[derive(Clone, Debug)]
pub(crate) struct Peering {
    pub(crate) shared: SharedImages,
    /// Whether this node gives to others.
    pub(crate) gives: bool,
    /// Other nodes, as `host:port`.
    pub(crate) nodes: Vec<String>,
    /// The file of this node's client certificate and key.
    pub(crate) certificate: PathBuf,
}

/// Parts that no pull has used for this long, in seconds, are removed.
const UNUSED: i64 = 7 * 24 * 3600;
/// First and longest wait after a failure inside a pull.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Number and interval of checks until the runtime lists an imported image.
const SHOWN: (usize, Duration) = (40, Duration::from_millis(250));
const LIST_LIMIT: Duration = Duration::from_secs(60);
const MOST_FILE: u64 = 4 << 20;

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fetcher({})", self.directory.display())
    }
}

impl Fetcher {
    pub(crate) fn new(places: FetchPlaces, images: ImageService, runtime: RuntimeService) -> Self {
        let FetchPlaces { directory, hosts, endpoint, proxies, peering } = places;
        let (proxies, busy) = (Arc::new(proxies), RefCell::default());
        Self { directory, hosts, endpoint, images, runtime, proxies, peering, busy }
    }

    /// Makes the image present in the runtime; returns its id, or one line about the failure.
    pub(super) async fn pull(
        &self,
        image: &str,
        auth: Option<&AuthConfig>,
        progress: Arc<Progress>,
    ) -> Result<String, String> {
        let name = reference(image).map_err(|error| error.to_string())?;
        let runtime = self.runtime.version().await.map_err(|error| ErrorChain(&error).to_string())?.runtime_name;
        let tool = ImportTool::of(&runtime, &self.endpoint)
            .ok_or_else(|| format!("no tool is known that imports for the runtime {runtime}"))?;
        let key: String = sha256(image.as_bytes()).chars().take(32).collect();
        let turn =
            Rc::clone(self.busy.borrow_mut().entry(key.clone()).or_insert_with(|| Rc::new(rt::Semaphore::new(1))));
        let turn_held = turn.acquire().await;
        self.busy.borrow_mut().retain(|other, turn| *other == key || Rc::strong_count(turn) > 1);
        self.sweep(&key).await;
        let layout = Layout(self.directory.join(&key));
        let present = self.present(&tool).await;
        let top = self.fetch(&name, auth, layout.clone(), present, progress).await?;
        let names = name.all_names(&top.digest.to_string());
        self.import(&tool, &layout, top, names.clone()).await?;
        let id = self.shown(image).await?;
        let (done, peering) = (layout.clone(), self.peering.clone());
        let finish = move || {
            let kept =
                peering.filter(|peering| peering.gives).map_or(Ok(()), |peering| peering.shared.keep(&done.blobs()));
            fs::remove_dir_all(done.0).and(kept)
        };
        if let Err(error) = rt::blocking(finish).await {
            log!(warn, "failed to remove fetched image", directory = layout.0.display(), error = error);
        }
        drop(turn_held);
        Ok(id)
    }

    /// Blobs that the runtime has, if its tool can list them.
    async fn present(&self, tool: &ImportTool) -> SortedSet<String> {
        let Some(command) = tool.list_blobs() else { return SortedSet::new() };
        match program::run(command, Vec::new(), LIST_LIMIT).await {
            Ok(listed) => String::from_utf8_lossy(&listed.stdout).lines().map(|line| line.trim().to_owned()).collect(),
            Err(error) => {
                log!(info, "failed to list the runtime's blobs, fetching all", error = ErrorChain(&error));
                SortedSet::new()
            }
        }
    }

    async fn fetch(
        &self,
        name: &Reference,
        auth: Option<&AuthConfig>,
        layout: Layout,
        present: SortedSet<String>,
        progress: Arc<Progress>,
    ) -> Result<Descriptor, String> {
        let login = auth.map(|auth| Login { username: auth.username.clone(), password: auth.password.0.clone() });
        let login = login.filter(|login| !login.username.is_empty());
        let cancelled = Arc::new(AtomicBool::new(false));
        let _cancels = CancelOnDrop(Arc::clone(&cancelled));
        let (hosts, repository, registry) = (self.hosts.clone(), name.path.clone(), name.registry.clone());
        let reference = name.reference().to_owned();
        let boot = clock::boot_id();
        let proxies = Arc::clone(&self.proxies);
        let peering = self.peering.clone();
        let (tell, told) = async_channel::bounded(1);
        let work = move || {
            let connect = |mirror: &Mirror| {
                let (proxies, cancelled) = (Arc::clone(&proxies), Arc::clone(&cancelled));
                Ok(Connect {
                    tls: tls_config(verifier(mirror)?).map_err(|error| error.to_string())?,
                    proxies,
                    cancelled,
                    silence: SILENCE,
                })
            };
            let peers = peering.and_then(|peering| peering.open(&repository, &cancelled));
            let servers = servers(&registry, &repository, login, &hosts, connect);
            let fetched = servers.and_then(|servers| {
                let machine = std::env::consts::ARCH;
                let mut job = Job {
                    servers,
                    reference,
                    layout,
                    present,
                    machine,
                    boot,
                    cancelled,
                    progress,
                    peers,
                    waits: WAITS,
                };
                job.run().map_err(|error| error.to_string())
            });
            // Fails if the pull was cancelled.
            let _ = tell.try_send(fetched);
        };
        rt::thread("image-fetch", work).map_err(|error| format!("start a thread: {error}"))?;
        told.recv().await.unwrap_or_else(|_| Err("the fetch has ended without a result".to_owned()))
    }

    async fn import(
        &self,
        tool: &ImportTool,
        layout: &Layout,
        top: Descriptor,
        names: Vec<String>,
    ) -> Result<(), String> {
        let (here, shown) = (layout.clone(), names.clone());
        let written = rt::blocking(move || here.write_index(&top, &shown)).await;
        written.map_err(|error| FetchError::from(error).to_string())?;
        let source = layout.clone();
        let tar = move |mut stdin: ChildStdin| {
            // The tool reports a truncated archive itself.
            let _ = source.write_tar(&mut stdin);
        };
        import_layout(tool, &layout.0, &names, tar).await
    }

    /// Waits until the runtime lists the image.
    async fn shown(&self, image: &str) -> Result<String, String> {
        let spec = ImageSpec { image: image.to_owned(), ..ImageSpec::default() };
        for _ in 0..SHOWN.0 {
            let found = self.images.image_status(&spec).await.map_err(|error| ErrorChain(&error).to_string())?;
            if let Some(found) = found {
                return Ok(found.id);
            }
            rt::sleep(SHOWN.1).await;
        }
        Err("it is imported, but the runtime does not list it".to_owned())
    }

    /// Removes parts that no pull has used for [`UNUSED`] seconds.
    async fn sweep(&self, but: &str) {
        let busy: Vec<String> = self.busy.borrow().keys().cloned().chain([but.to_owned()]).collect();
        let (directory, now) = (self.directory.clone(), clock::timestamp().as_second());
        let shared = self.peering.as_ref().map(|peering| peering.shared.clone());
        let prune = move || shared.map_or(Ok(()), |shared| shared.prune(now));
        let swept = rt::blocking(move || sweep(&directory, &busy, now).and_then(|()| prune())).await;
        if let Err(error) = swept {
            log!(info, "failed to remove unused image parts", directory = self.directory.display(), error = error);
        }
    }
}

impl Peering {
    /// The other nodes; `None` if there are none, or this node has no certificate. Blocks.
    fn open(self, repository: &str, cancelled: &Arc<AtomicBool>) -> Option<Peers> {
        if self.nodes.is_empty() {
            return None;
        }
        let unusable = |why: &dyn std::fmt::Display| {
            log!(
                warn,
                "failed to read client certificate for other nodes",
                file = self.certificate.display(),
                error = why
            );
        };
        let text = file::read_all(&self.certificate, MOST_FILE).map_err(|error| unusable(&error)).ok()?;
        let chain = pem::certificates(&text).map_err(|error| unusable(&error.0)).ok()?;
        let key = pem::private_key(&text).map_err(|error| unusable(&error.0)).ok()?;
        // Digests protect the content, and serving certificates of nodes are often self-signed.
        let tls = tls_config_as(Arc::new(AnyCertificate), chain, key).map_err(|error| unusable(&error)).ok()?;
        let node = |address: &String| {
            let connect = Connect {
                tls: Arc::clone(&tls),
                proxies: Arc::default(),
                cancelled: Arc::clone(cancelled),
                silence: NODE_SILENCE,
            };
            Registry::new(node_at(&format!("https://{address}/v2")), repository, None, connect)
        };
        Some(Peers::new(self.nodes.iter().map(node).collect(), self.shared, peers::WAITS))
    }
}

/// Another node as a server of the registry.
fn node_at(base: &str) -> Mirror {
    // It may answer with what it has so far.
    let headers = vec![("Coracle-Node".to_owned(), "1".to_owned())];
    Mirror { base: base.to_owned(), headers, ..Mirror::default() }
}

/// A node that is silent for this long is given up.
const NODE_SILENCE: Duration = Duration::from_secs(5);

struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn sweep(directory: &Path, busy: &[String], now: i64) -> io::Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // The blobs' directory changes with each blob; a part's own time with each byte.
        let blobs = Layout(entry.path()).blobs();
        let files = fs::read_dir(&blobs).into_iter().flatten().flatten().map(|file| file.path());
        let newest = files.chain([entry.path()]).filter_map(|path| Some(fs::metadata(path).ok()?.mtime())).max();
        let is_unused = newest.is_some_and(|newest| now.saturating_sub(newest) > UNUSED);
        if is_unused && !busy.contains(&name) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The servers to try, mirrors first.
fn servers(
    registry: &str,
    repository: &str,
    login: Option<Login>,
    hosts: &Path,
    connect: impl Fn(&Mirror) -> Result<Connect, String>,
) -> Result<Vec<Registry>, String> {
    let places = [registry.to_owned(), registry.replace(':', "_") + "_", "_default".to_owned()];
    let directory = places.iter().map(|place| hosts.join(place)).find(|place| place.join(HOSTS_FILE).exists());
    let directory = directory.unwrap_or_default();
    let text = file::read_all(&directory.join(HOSTS_FILE), MOST_FILE).ok();
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let all = mirrors(registry, text.as_deref(), &directory);
    let of = |mirror: Mirror| {
        let connect = connect(&mirror)?;
        Ok(Registry::new(mirror, repository, login.clone(), connect))
    };
    all.into_iter().map(of).collect()
}

const HOSTS_FILE: &str = "hosts.toml";

fn verifier(mirror: &Mirror) -> Result<Arc<dyn ServerCertVerifier>, String> {
    match authorities(mirror)? {
        // The registry itself uses plain HTTP, so certificates of redirects are not verified; the digests protect the
        // content.
        all if mirror.skip_verify || all.is_empty() && mirror.base.starts_with("http:") => Ok(Arc::new(AnyCertificate)),
        all => believing(&all).map_err(|error| format!("CA certificates for {}: {error}", mirror.base)),
    }
}

/// The system's CAs, and those for this server.
fn authorities(mirror: &Mirror) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut all = Vec::new();
    for path in &mirror.authorities {
        let unusable = |why: &dyn std::fmt::Display| format!("CA certificates {}: {why}", path.display());
        let text = file::read_all(path, MOST_FILE).map_err(|error| unusable(&error))?;
        all.extend(pem::certificates(&text).map_err(|error| unusable(&error.0))?);
    }
    with_system(&all).map_err(|error| format!("CA certificates of the system: {error}"))
}
