//! The pod sources other than the API server: manifests, a URL, and pods put on the node.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use async_channel::{Receiver, Sender};

use super::StartError;
use super::handles::Handles;
use crate::control::pod_sources::local_pods::{self, LocalPodRequest, LocalPods};
use crate::control::pod_sources::static_file;
use crate::control::pod_sources::static_pod::ManifestNode;
use crate::control::pod_sources::url_pods::{self, ManifestPlace, Trust, UrlPods};
use crate::kubelet::image_credentials::NodeCredentials;
use crate::kubelet::image_transfer::{ArtifactFetch, LinkBudget};
use crate::kubelet::images::{ARTIFACT_SCHEME, Artifacts};
use crate::kubelet::offline::KeyPlaces;
use crate::platform::config::Config;
use crate::platform::host::file;
use crate::platform::net::{Dialer, ProxySettings, Url};
use crate::platform::rt;
use crate::protocol::ed25519::{EXPECTED_PUBLIC_KEY, PublicKey};
use crate::state::pods::{SourceName, SyncEvent};
use crate::types::text::without_credentials;

pub(super) struct PodSources {
    pub(super) node: ManifestNode,
    url: Option<UrlPods>,
    /// Connects to the URL.
    pub(super) dialer: Dialer,
    pub(super) local: LocalPods,
    requests: Receiver<LocalPodRequest>,
}

impl PodSources {
    /// Blocks for a moment: the node's key may have to be made.
    pub(super) fn open(config: &Config, proxies: ProxySettings, budget: Rc<LinkBudget>) -> Result<Self, StartError> {
        let node = ManifestNode { name: config.node.name.clone(), board_key: Arc::new(key_paths(config).board_key()) };
        let dialer = Dialer::of_server(proxies);
        let url = url_pods(config, node.clone(), &dialer, budget).map_err(StartError::Settings)?;
        let (local, requests) = LocalPods::new();
        Ok(Self { node, url, dialer, local, requests })
    }

    /// The enabled sources, with the API server if `in_cluster`.
    pub(super) fn names(&self, config: &Config, in_cluster: bool) -> Vec<SourceName> {
        let file = config.static_pods.path.as_ref().map(|_| SourceName::File);
        let url = self.url.as_ref().map(|_| SourceName::Http);
        let api = in_cluster.then_some(SourceName::Api);
        file.into_iter().chain([SourceName::Local]).chain(url).chain(api).collect()
    }

    pub(super) fn spawn(self, handles: &Handles) -> Vec<rt::Task<()>> {
        let (config, inbox) = (&handles.config, &handles.inbox);
        let mut tasks = Vec::new();
        tasks.extend(file_source(config, self.node.clone(), inbox.clone()));
        tasks.extend(self.url.map(|pods| {
            let status_inputs = Rc::clone(&handles.status_inputs);
            rt::spawn(url_pods::run(pods, self.dialer, inbox.clone(), status_inputs))
        }));
        let directory = config.root_dir.join("coracle/pods");
        tasks.push(rt::spawn(local_pods::run(directory, self.node, self.requests, inbox.clone())));
        tasks
    }
}

fn file_source(config: &Config, node: ManifestNode, inbox: Sender<SyncEvent>) -> Option<rt::Task<()>> {
    let path = config.static_pods.path.clone()?;
    log!(info, "watching manifests", path = path.display());
    let frequency = config.static_pods.check_frequency;
    Some(rt::spawn(static_file::run(path, node, frequency, static_file::boot_over(), inbox)))
}

/// Fetches artifacts, with the parts in `directory`, which is below the agent's.
pub(super) fn artifacts(config: &Config, directory: &str, dialer: &Dialer, budget: Rc<LinkBudget>) -> Artifacts {
    let (directory, hosts) = (config.root_dir.join(directory), config.images.fetch.hosts_directory.clone());
    Artifacts {
        fetch: ArtifactFetch::new(directory, hosts, dialer.proxies(), budget),
        credentials: NodeCredentials::of(config),
    }
}

/// Where the node's key is, of the offline store and of sealed Secrets.
pub(super) fn key_paths(config: &Config) -> KeyPlaces {
    KeyPlaces {
        credentials: std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from),
        file: config.offline.key_file.clone(),
        plain: config.offline.plain_secrets,
    }
}

/// The URL source, if one is configured. The error is one line that names the invalid setting.
fn url_pods(
    config: &Config,
    node: ManifestNode,
    dialer: &Dialer,
    budget: Rc<LinkBudget>,
) -> Result<Option<UrlPods>, String> {
    let Some(source) = &config.static_pods.url else { return Ok(None) };
    let location = match source.url.strip_prefix(ARTIFACT_SCHEME) {
        Some(artifact) => {
            let artifacts = artifacts(config, "coracle/pods-from-registry", dialer, budget);
            let artifacts = Artifacts { fetch: artifacts.fetch.for_manifests(), ..artifacts };
            ManifestPlace::Registry(artifact.to_owned(), Box::new(artifacts))
        }
        None => ManifestPlace::Server(
            Url::parse(&source.url)
                .ok_or_else(|| format!("staticPodURL: {:?} is no URL", without_credentials(&source.url)))?,
        ),
    };
    let key = match &source.public_key {
        Some(path) => {
            let text = file::read_all(path, 1 << 16);
            let text = text.map_err(|error| format!("--manifest-public-key: {}: {error}", path.display()))?;
            let key = PublicKey::parse(&text);
            Some(key.ok_or_else(|| format!("--manifest-public-key: {}: {}", path.display(), EXPECTED_PUBLIC_KEY))?)
        }
        None => None,
    };
    let shown = without_credentials(&source.url);
    log!(info, "pods from a URL", url = shown, signed = key.is_some());
    let trust = |key| Trust {
        key,
        audiences: vec![audience(&source.url).to_owned(), format!("node/{}", config.node.name)],
        takes_plain: source.plain_signatures,
    };
    Ok(Some(UrlPods {
        place: location,
        configured: source.url.clone(),
        headers: source.headers.clone(),
        every: source.every,
        limit: url_pods::URL_RESPONSE_TIMEOUT,
        authorities: source.authorities.clone(),
        trust: key.map(trust),
        kept: config.root_dir.join("coracle/pods-from-url"),
        serial: config.root_dir.join("coracle/pods-from-url.serial"),
        node,
    }))
}

/// The URL without its query, which may contain credentials.
fn audience(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or(url)
}
