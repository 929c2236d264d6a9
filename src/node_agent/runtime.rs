//! The container runtime: its clients, and the pods and images in it.

use std::rc::Rc;
use std::sync::Arc;

use async_channel::Sender;

use crate::control::server::Streaming;
use crate::kubelet::allocation::Allocations;
use crate::kubelet::image_archives::{ImageArchives, Importer, RuntimeVerifiers};
use crate::kubelet::image_transfer::{FetchPlaces, Fetcher, LinkBudget, ManifestFetch, Peering, SharedImages};
use crate::kubelet::images::{Images, SignatureGate, SignaturePlaces};
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::node::NodeSettings;
use crate::platform::apiserver::Client;
use crate::platform::config::{Amount, Config, FeatureGates, Gate, Signal, Threshold};
use crate::platform::cri::{ImageService, RuntimeService};
use crate::platform::net::ProxySettings;
use crate::platform::{rpc, rt};
use crate::protocol::grpc;
use crate::state::pods::SyncEvent;

pub(super) struct Runtime {
    pub(super) pods: Rc<PodRuntime>,
    pub(super) image_service: ImageService,
    pub(super) importer: Importer,
    /// Images for other nodes; `None`: this node does not share.
    pub(super) shared: Option<SharedImages>,
}

/// Clients of the runtime service and the image service, which usually are the same process.
struct Services {
    runtime: RuntimeService,
    images: ImageService,
}

impl Runtime {
    pub(super) async fn open(
        config: &Config,
        settings: NodeSettings,
        inbox: &Sender<SyncEvent>,
        proxies: ProxySettings,
        cluster: Option<Client>,
    ) -> Self {
        let services = Services::of(config);
        let signatures = signature_places(config, &proxies);
        let record = config.root_dir.join("coracle/image-archives.json");
        let (archives, woken) = ImageArchives::open(&record, signatures.is_some()).await;
        let verifiers = RuntimeVerifiers(config.images.fetch.runtime_verifiers.clone());
        let importer = Importer {
            directory: config.images.archives.clone(),
            record,
            layouts: signatures.as_ref().map(SignaturePlaces::kept),
            endpoint: config.runtime.image_endpoint.clone(),
            verifiers: verifiers.clone(),
            images: services.images.clone(),
            runtime: services.runtime.clone(),
            archives: archives.clone(),
            woken,
            inbox: inbox.clone(),
        };
        let hosts = config.images.fetch.hosts_directory.clone();
        let manifests = config.root_dir.join("coracle/tag-lookup");
        let manifests = ManifestFetch::new(manifests, hosts, Arc::new(proxies.clone()));
        let (peering, shared) = peering(config).await;
        let places = FetchPlaces {
            directory: config.root_dir.join("coracle/fetch"),
            hosts: config.images.fetch.hosts_directory.clone(),
            endpoint: config.runtime.image_endpoint.clone(),
            verifiers,
            proxies,
            peering,
            pressure: disk_pressure(config),
        };
        let fetcher = config.images.fetch.is_resumable;
        let fetcher = fetcher.then(|| Fetcher::new(places, services.images.clone(), services.runtime.clone()));
        let images = Images::new(services.images.clone(), config, inbox.clone());
        let images =
            images.with_archives(archives).with_fetcher(fetcher).with_budget(LinkBudget::open(config, cluster));
        let gate = |places| SignatureGate::new(places, services.runtime.clone());
        let images = images.with_signatures(signatures.map(gate)).with_manifests(manifests);
        let pods = PodRuntime::new(services.runtime, images, settings, inbox.clone());
        let allocations = Rc::new(Allocations::open(&config.root_dir).await);
        let pods = pods.with_allocations(allocations);
        Self { pods: Rc::new(pods), image_service: services.images, importer, shared }
    }

    pub(super) fn streaming(&self, gates: &FeatureGates) -> Streaming {
        let translates_web_sockets = gates.is_on(Gate::ExtendWebSocketsToKubelet);
        Streaming { cri: self.pods.cri(), dialer: self.pods.dialer(), translates_web_sockets }
    }
}

/// `None` without a signature policy.
fn signature_places(config: &Config, proxies: &ProxySettings) -> Option<SignaturePlaces> {
    Some(SignaturePlaces {
        policy: config.images.fetch.signature_policy.clone()?,
        directory: config.root_dir.join("coracle"),
        hosts: config.images.fetch.hosts_directory.clone(),
        endpoint: config.runtime.image_endpoint.clone(),
        proxies: Arc::new(proxies.clone()),
    })
}

/// The free space of the node's file system below which its pods are evicted.
fn disk_pressure(config: &Config) -> Option<Amount> {
    let is_it = |threshold: &&Threshold| threshold.signal == Signal::NodeFsAvailable && threshold.grace.is_zero();
    config.eviction.thresholds.iter().find(is_it).map(|threshold| threshold.value)
}

/// Images from other nodes, and images for them.
async fn peering(config: &Config) -> (Option<Peering>, Option<SharedImages>) {
    let (fetch, directory) = (&config.images.fetch, config.root_dir.join("coracle"));
    if !fetch.shares {
        let kept = directory.join("share");
        // It may be large, and is rarely there.
        let _ = rt::blocking(move || std::fs::remove_dir_all(kept)).await;
    }
    if !fetch.shares && fetch.peers.is_empty() {
        return (None, None);
    }
    let Some(kubeconfig) = config.cluster.kubeconfig.clone() else {
        log!(warn, "images.share and images.peers have no effect without a cluster");
        return (None, None);
    };
    let shared = SharedImages::new(&directory);
    let peering = Peering::new(shared.clone(), fetch.shares, fetch.peers.clone(), kubeconfig);
    (Some(peering), fetch.shares.then_some(shared))
}

impl Services {
    fn of(config: &Config) -> Self {
        let (endpoint, image_endpoint) = (&config.runtime.endpoint, &config.runtime.image_endpoint);
        let client = rpc::Client::with_limit(&endpoint.to_string_lossy(), grpc::MAX_MESSAGE_BYTES);
        let image_client = match image_endpoint == endpoint {
            true => client.clone(),
            false => rpc::Client::with_limit(&image_endpoint.to_string_lossy(), grpc::MAX_MESSAGE_BYTES),
        };
        let timeout = config.runtime.request_timeout;
        Self { runtime: RuntimeService::new(client, timeout), images: ImageService::new(image_client, timeout) }
    }
}
