//! Builds every part, hands out the channels, waits for the end.

use std::cell::RefCell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use async_channel::{Receiver, Sender};

use crate::control::cluster::{EventSender, SyncScheduler};
use crate::control::pod_sources::api::ApiSource;
use crate::control::pod_sources::local_pods::{self, LocalPods};
use crate::control::pod_sources::merge::Sources;
use crate::control::pod_sources::static_file;
use crate::control::pod_sources::url_pods::{self, PublicKey, UrlPods};
use crate::control::pod_sources::versions::Versions;
use crate::control::server::{
    KubeletApiServer, LocalApi, LocalServer, Pulse, ReadOnlyServer, StatusPage, Streaming, SyncHealth, Watchdog,
    health, systemd,
};
use crate::control::sync_loop::{self, LoopEnd, NodeLocalApi, NodeState, NodeStats, Part, SyncLoop};
use crate::kubelet::certificates::{
    self, CertificateStatuses, ClientCertificate, Names, Places, ServingCertificate, ServingCertificateCell,
    ServingSource, Store,
};
use crate::kubelet::container_manager::{ContainerManager, Settings, kernel_parameters};
use crate::kubelet::csi::{Csi, CsiNodeRegistration};
use crate::kubelet::devices::{Devices, PodResourcesServer};
use crate::kubelet::images::{ImageArchives, Images, Importer};
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::node::{Facts, Machine, NodeProfile, NodeRegistration, NodeSettings, StatusInputs};
use crate::kubelet::offline::{KeyPlaces, OFFLINE, OfflineStore};
use crate::kubelet::resource_managers::{self, ResourceManagers, Topology};
use crate::kubelet::stats::Stats;
use crate::platform::apiserver::{Client, Gate, Source};
use crate::platform::cgroups::HIERARCHY;
use crate::platform::config::{Authorization, Config, KernelParameters, ServingIdentity};
use crate::platform::cri::{ImageService, RuntimeService};
use crate::platform::host::{file, signals};
use crate::platform::net::{Dialer, Url};
use crate::platform::plugin_manager;
use crate::platform::rpc;
use crate::platform::rt;
use crate::state::pods::{EventRing, NodeEvent, SourceName, SyncEvent};
use crate::types::api::{CPU, EventKind, MEMORY, Reason};
use crate::types::error::ErrorChain;

/// Runs the node agent until it is asked to end. Pods are left running.
pub(crate) fn run(config: Config) -> ExitCode {
    let ended = match signals::termination() {
        Ok(ended) => ended,
        Err(error) => return failed("wait for signals", &error),
    };
    rt::block_on(serve(Rc::new(config), ended))
}

/// The same, until `ended`: everything of the agent but what takes the process's signals.
pub(crate) async fn serve(config: Rc<Config>, ended: impl Future<Output = ()>) -> ExitCode {
    log!(info, "starting", version = env!("CARGO_PKG_VERSION"), node = config.node.name);
    // Binding comes first: it also tells whether another one runs here already.
    let local = match LocalServer::bind(&config.process.local_socket) {
        Ok(local) => local,
        Err(error) => return failed("open the local socket", &error),
    };
    let started = rt::now();
    let health = SyncHealth::new(config.pods.sync_frequency, started);
    let mut facts = Facts::read(Path::new("/"));
    facts.read_storage(&config.root_dir);
    if let Some(fault) = over_reserved(&config, &facts) {
        log!(error, "not started", error = fault);
        return ExitCode::FAILURE;
    }
    if !see_to_kernel_parameters(&config) {
        return ExitCode::FAILURE;
    }
    let topology = Topology::read(Path::new("/"));
    let root_dir = config.root_dir.clone();
    let states = rt::blocking(move || resource_managers::read_states(&root_dir)).await;
    let nodes = resource_managers::read_memory(Path::new("/"), facts.memory_bytes);
    let guarded = config.eviction.kept(facts.memory_bytes, facts.storage_bytes);
    let kept = [&config.reserved.system, &config.reserved.kube, &guarded];
    let kept = kept.iter().filter_map(|list| u64::try_from(list.get(MEMORY)?.value()).ok()).sum();
    let managers = ResourceManagers::new(&config, topology, states.cpus);
    let managers = match managers.and_then(|managers| managers.with_memory(&config, &nodes, kept, states.memory)) {
        Ok(managers) => managers,
        Err(fault) => {
            log!(error, "not started", error = fault);
            return ExitCode::FAILURE;
        }
    };
    let groups = Rc::new(container_manager(&config, &facts).with_placements(managers.placements()));
    // A process in the root group, as on a machine without systemd, cannot tell by its own.
    facts.swap_limits |= groups.limits_swap();
    let node = NodeSettings::new(&config, &facts);
    let profile = NodeProfile::new(&config, &facts, &Machine::read(Path::new("/")), &node);
    let addresses = node.node_ips.iter().map(ToString::to_string).collect();
    let (sender, inbox) = async_channel::bounded(sync_loop::INBOX);
    let starting = NodeEvent::new(EventKind::Normal, Reason::STARTING, "Starting kubelet.");
    // The inbox is empty yet.
    let _ = sender.try_send(SyncEvent::NodeHappened(starting));
    let (runtime_service, image_service) = runtime_services(&config);
    let archive_record = config.root_dir.join("coracle/image-archives.json");
    let (archives, woken) = ImageArchives::open(&archive_record).await;
    let importer = Importer {
        directory: config.images.archives.clone(),
        record: archive_record,
        endpoint: config.runtime.image_endpoint.clone(),
        images: image_service.clone(),
        runtime: runtime_service.clone(),
        archives: archives.clone(),
        woken,
        inbox: sender.clone(),
    };
    let images = Images::new(image_service.clone(), &config, sender.clone()).with_archives(archives);
    let runtime = PodRuntime::new(runtime_service, images, node, Rc::default(), sender.clone());
    let runtime = Rc::new(runtime.with_placements(managers.placements()));
    let (placements, allocatable) = (managers.placements(), managers.allocatable());
    let dialer = runtime.dialer();
    let streaming = Streaming { cri: runtime.cri(), dialer: dialer.clone() };
    let (url_dialer, api_dialer) = (dialer.clone(), Dialer::of_api_server());
    let gate = Gate::new(SyncScheduler::first(&config.cluster.sync.mode), config.cluster.sync.bytes_per_day);
    let cluster = config
        .cluster
        .kubeconfig
        .clone()
        .map(|path| Client::behind(gate, Source::Kubeconfig(path), api_dialer.clone()));
    let exchanges = cluster
        .clone()
        .map(|client| SyncScheduler::new(client, config.cluster.sync.mode.clone(), &config.process.local_socket));
    let store = match &cluster {
        Some(_) => Some(OfflineStore::open(config.root_dir.join(OFFLINE), key_places(&config)).await),
        None => None,
    };
    let file = config.static_pods.path.as_ref().map(|_| SourceName::File);
    let url_pods = match url_pods(&config) {
        Ok(url_pods) => url_pods,
        Err(error) => {
            log!(error, "not started", error = error);
            return ExitCode::FAILURE;
        }
    };
    let url = url_pods.as_ref().map(|_| SourceName::Http);
    let sources = file.into_iter().chain([SourceName::Local]).chain(url);
    let sources: Vec<SourceName> = sources.chain(cluster.as_ref().map(|_| SourceName::Api)).collect();
    let books = Rc::new(RefCell::new(NodeState::new(Sources::new(&sources))));
    books.borrow_mut().store.clone_from(&store);
    let directory = config.root_dir.join("coracle/versions");
    books.borrow_mut().versions = rt::blocking(move || Versions::open(directory)).await;
    let (turn, turns) = async_channel::bounded(1);
    let watchdog = Watchdog::start(&config, health.pulse(), sender.clone(), turn);
    let figured = Rc::clone(&runtime);
    let csi = Csi::new(&config.root_dir, &config.node.name, sender.clone(), cluster.clone());
    let services = (runtime.cri(), image_service.clone());
    let stats = Stats::new(&runtime.node, runtime.dirs.clone(), services, Rc::clone(&csi));
    let (seen, dirs) = (runtime.seen(), runtime.dirs.clone());
    let pulls = runtime.pulls_under_way();
    let event_sender = cluster.clone().map(|client| {
        let ring = Rc::new(RefCell::new(EventRing::with_queue(rt::random())));
        books.borrow_mut().events = Rc::clone(&ring);
        EventSender::start(client, &config.node.name, &config.cluster.reporting, ring)
    });
    let devices = Devices::open(&config.root_dir, config.devices.clone(), sender.clone()).await;
    let inbox = (sender.clone(), inbox);
    csi.find_present(&config.root_dir.join("pods")).await;
    let given = (managers, Rc::clone(&devices), Rc::clone(&csi));
    let sync_loop = SyncLoop::new(&config, runtime, groups, given, Rc::clone(&books), health.clone(), inbox);
    let sync_loop = match cluster.as_ref().zip(store.as_ref()) {
        Some((client, store)) => sync_loop.in_cluster(client, store, &config.node.name),
        None => sync_loop,
    };
    let news: Rc<StatusInputs> = Rc::default();
    let sync_loop = sync_loop.sending_events(event_sender).telling(Rc::clone(&news));
    let news_of_node = Rc::clone(&news);
    let node_keeper = cluster.clone().map(|client| NodeRegistration {
        client,
        profile: profile.known_before(devices.is_known_node()),
        reporting: config.cluster.reporting.clone(),
        news: Rc::clone(&news),
        images: image_service,
        inbox: sender.clone(),
    });
    let certificates = Rc::new(CertificateStatuses::default());
    let figures = NodeStats {
        books: Rc::clone(&books),
        runtime: figured,
        stats,
        cluster: cluster.clone(),
        certificates: Rc::clone(&certificates),
    };
    let (local_pods, asked_of_local_pods) = LocalPods::new();
    let (config_shown, watchdog_shown) = (Rc::clone(&config), watchdog.clone());
    let listed = Rc::clone(&books);
    let view = NodeLocalApi {
        books,
        seen,
        dirs,
        config: config_shown,
        addresses,
        processors: facts.cpus,
        health: health.clone(),
        watchdog: watchdog_shown,
        pulls,
        cluster: cluster.clone(),
        exchanges: exchanges.clone(),
        certificates: Rc::clone(&certificates),
        figures: Rc::new(figures),
        local_pods,
        inbox: sender.clone(),
        started,
    };
    let view: Rc<dyn LocalApi> = Rc::new(view);
    let sync_loop = rt::spawn(sync_loop.run());
    let mut tasks = vec![
        rt::spawn(take_turns(turns, health.pulse())),
        rt::spawn(local.with_streaming(streaming.clone()).serve(Rc::clone(&view))),
    ];
    if let Some(address) = config.identity.server.read_only {
        let door = ReadOnlyServer { address, health: health.clone(), api: Rc::clone(&view) };
        tasks.push(rt::spawn(door.serve()));
    }
    if is_asked(&config, cluster.is_some()) {
        let shown = ServingCertificateCell::default();
        let source = serving_source(&config, cluster.clone(), news_of_node);
        let book = Rc::clone(&certificates);
        tasks.push(serving_certificate(&config, source, shown.clone(), book, sender.clone()));
        let door = KubeletApiServer::new(&config, cluster.clone(), shown, health.clone(), Rc::clone(&view), streaming);
        tasks.push(rt::spawn(door.serve()));
    }
    if let Some(address) = config.health.status_page {
        let page = StatusPage::new(address, &config.node.name, view, health.clone());
        tasks.push(rt::spawn(page.serve()));
    }
    let registry = config.root_dir.join("plugins_registry");
    tasks.push(rt::spawn(plugin_manager::run(registry, vec![devices.taker(), csi.taker()])));
    let csi_keeper = |client| CsiNodeRegistration { client, csi, news: Rc::clone(&news) };
    tasks.extend(cluster.clone().map(csi_keeper).map(|keeper| rt::spawn(keeper.run())));
    let pod_resources = PodResourcesServer {
        root: config.root_dir.clone(),
        devices: Rc::clone(&devices),
        pods: Box::new(move || listed.borrow().active_pods()),
        placements,
        allocatable,
    };
    tasks.push(rt::spawn(pod_resources.serve()));
    tasks.push(rt::spawn(devices.run()));
    tasks.extend(config.health.healthz.map(|address| rt::spawn(health::serve(address, health))));
    tasks.extend(exchanges.map(|exchanges| rt::spawn(exchanges.run())));
    tasks.extend(node_keeper.into_iter().flat_map(NodeRegistration::start));
    let api_source = |(client, store)| ApiSource {
        client,
        node: config.node.name.clone(),
        news: Rc::clone(&news),
        store,
        inbox: sender.clone(),
    };
    tasks.extend(cluster.clone().zip(store.clone()).map(api_source).map(|source| rt::spawn(source.run())));
    let writer = store.clone().map(|store| rt::spawn(store.run()));
    let keep = |client| client_certificate(&config, client, api_dialer, certificates, sender.clone());
    tasks.extend(cluster.map(keep));
    tasks.push(rt::spawn(importer.run()));
    tasks.extend(file_source(&config, sender.clone()));
    tasks.extend(url_pods.map(|pods| rt::spawn(url_pods::run(pods, url_dialer, sender.clone()))));
    let directory = config.root_dir.join("coracle/pods");
    tasks.push(rt::spawn(local_pods::run(directory, config.node.name.clone(), asked_of_local_pods, sender)));
    systemd::ready();
    let asked = async {
        ended.await;
        None
    };
    let end = rt::either(asked, async { Some(sync_loop.await) }).await;
    systemd::stopping();
    match end {
        Some(LoopEnd::Spins { rounds, part }) => {
            let part = part.map_or("events", Part::name);
            watchdog.note_spin(rounds, part);
            log!(error, "sync loop went round without waiting, restart needed", rounds = rounds, part = part);
        }
        Some(LoopEnd::NoSenders) => log!(error, "sync loop has no senders left, restart needed"),
        None => {}
    }
    watchdog.end();
    log!(info, "ending, the pods run on");
    drop(tasks);
    if let Some(store) = store {
        store.flush().await;
    }
    drop(writer);
    if end.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Shows the watchdog that tasks other than the sync loop run. At rest nobody asks but the watchdog.
async fn take_turns(asked: Receiver<()>, pulse: Arc<Pulse>) {
    while asked.recv().await.is_ok() {
        pulse.turn();
    }
}

fn key_places(config: &Config) -> KeyPlaces {
    KeyPlaces {
        credentials: std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from),
        file: config.offline.key_file.clone(),
        plain: config.offline.plain_secrets,
    }
}

/// False if nothing may start with the kernel as it is.
fn see_to_kernel_parameters(config: &Config) -> bool {
    let root = Path::new("/proc/sys");
    match config.process.kernel_parameters {
        KernelParameters::Leave => true,
        KernelParameters::Check => {
            let faults: Vec<String> = kernel_parameters::check(root).iter().map(ToString::to_string).collect();
            if !faults.is_empty() {
                log!(error, "not started", error = format!("protectKernelDefaults: {}", faults.join("; ")));
            }
            faults.is_empty()
        }
        KernelParameters::Set => {
            for fault in kernel_parameters::set(root) {
                log!(warn, "kernel parameter not as it should be", error = fault);
            }
            true
        }
    }
}

/// A reservation that the machine cannot keep.
fn over_reserved(config: &Config, facts: &Facts) -> Option<String> {
    let capacity = facts.allocatable(&[]);
    [CPU, MEMORY].into_iter().find_map(|name| {
        let reserved = [&config.reserved.system, &config.reserved.kube].map(|list| list.get(name).copied());
        let [system, kube] = reserved.map(Option::unwrap_or_default);
        let (wanted, has) = (system.plus(kube), capacity.get(name)?);
        let unknown = has.is_zero();
        (wanted > *has && !unknown)
            .then(|| format!("systemReserved and kubeReserved: {wanted} of {name} for both, but the machine has {has}"))
    })
}

fn container_manager(config: &Config, facts: &Facts) -> ContainerManager {
    if config.cgroups.per_qos && !facts.cgroup_v2 {
        log!(
            warn,
            "no cgroup v2 with its memory controller: pods have no control groups of their own, and what is reserved is \
             not enforced; the limits of their containers are the runtime's to keep"
        );
    }
    ContainerManager::new(Path::new(HIERARCHY), Settings::new(config, facts))
}

/// The runtime, and who has its images: mostly the same.
fn runtime_services(config: &Config) -> (RuntimeService, ImageService) {
    let client = rpc::Client::new(&config.runtime.endpoint.to_string_lossy());
    let image_client = if config.runtime.image_endpoint == config.runtime.endpoint {
        client.clone()
    } else {
        rpc::Client::new(&config.runtime.image_endpoint.to_string_lossy())
    };
    let timeout = config.runtime.request_timeout;
    (RuntimeService::new(client, timeout), ImageService::new(image_client, timeout))
}

/// Looks after what this node shows to its cluster.
fn client_certificate(
    config: &Config,
    client: Client,
    dialer: Dialer,
    book: Rc<CertificateStatuses>,
    inbox: Sender<SyncEvent>,
) -> rt::Task<()> {
    let settings = ClientCertificate {
        names: Names::of_node(&config.node.name),
        places: Places {
            kubeconfig: config.cluster.kubeconfig.clone().unwrap_or_default(),
            bootstrap_kubeconfig: config.identity.bootstrap_kubeconfig.clone(),
            store: Store::new(config.identity.cert_dir.clone(), "kubelet-client"),
        },
        rotates: config.identity.rotate_certificates,
        client,
        dialer,
        book,
        inbox,
    };
    rt::spawn(certificates::keep_client_certificate(settings))
}

/// Whether the node's own server is opened: where nobody could come in, there is none.
fn is_asked(config: &Config, in_cluster: bool) -> bool {
    let identity = &config.identity;
    let somebody = in_cluster || identity.client_ca_file.is_some() || identity.server.anonymous;
    let opens = identity.server.enabled && somebody;
    if opens && !in_cluster && identity.server.authorization != Authorization::AlwaysAllow {
        log!(
            warn,
            "the node's server refuses everybody: authorization.mode is Webhook, and there is no cluster to ask"
        );
    }
    opens
}

fn serving_source(config: &Config, client: Option<Client>, news: Rc<StatusInputs>) -> ServingSource {
    let directory = config.identity.cert_dir.clone();
    match (&config.identity.serving, client) {
        (ServingIdentity::Files { certificate, key }, _) => {
            ServingSource::Files { certificate: certificate.clone(), key: key.clone() }
        }
        (ServingIdentity::Cluster, Some(client)) => ServingSource::Cluster { client, news, directory },
        (ServingIdentity::Cluster, None) => {
            log!(warn, "serverTLSBootstrap has no effect: there is no cluster to ask for a certificate");
            ServingSource::OwnMaking { directory }
        }
        (ServingIdentity::SelfSigned, _) => ServingSource::OwnMaking { directory },
    }
}

/// Looks after what this node shows to who asks it.
fn serving_certificate(
    config: &Config,
    source: ServingSource,
    shown: ServingCertificateCell,
    book: Rc<CertificateStatuses>,
    inbox: Sender<SyncEvent>,
) -> rt::Task<()> {
    let node_name = config.node.name.clone();
    let settings = ServingCertificate { node_name, source, shown, book, inbox };
    rt::spawn(certificates::keep_serving_certificate(settings))
}

fn file_source(config: &Config, sender: Sender<SyncEvent>) -> Option<rt::Task<()>> {
    let path = config.static_pods.path.clone()?;
    log!(info, "pods from manifests", path = path.display());
    let boot_over = static_file::boot_over();
    Some(rt::spawn(static_file::run(
        path,
        config.node.name.clone(),
        config.static_pods.check_frequency,
        boot_over,
        sender,
    )))
}

/// The source of pods at a URL, if there is one; else one line about what is wrong with its settings.
fn url_pods(config: &Config) -> Result<Option<UrlPods>, String> {
    let Some(source) = &config.static_pods.url else { return Ok(None) };
    let url = Url::parse(&source.url).ok_or_else(|| format!("staticPodURL: {:?} is no URL", source.url))?;
    let key = match &source.public_key {
        Some(path) => {
            let text = file::read_all(path, 1 << 16);
            let text = text.map_err(|error| format!("--manifest-public-key: {}: {error}", path.display()))?;
            let key = PublicKey::parse(&text);
            Some(key.ok_or_else(|| format!("--manifest-public-key: {}: {}", path.display(), url_pods::EXPECTED))?)
        }
        None => None,
    };
    log!(info, "pods from a URL", url = source.url, signed = key.is_some());
    Ok(Some(UrlPods {
        url,
        shown: source.url.clone(),
        headers: source.headers.clone(),
        every: source.every,
        limit: url_pods::LIMIT,
        authorities: source.authorities.clone(),
        key,
        kept: config.root_dir.join("coracle/pods-from-url"),
        node_name: config.node.name.clone(),
    }))
}

fn failed(doing: &str, error: &(dyn std::error::Error + 'static)) -> ExitCode {
    log!(error, "not started", tried = doing, error = ErrorChain(error));
    ExitCode::FAILURE
}
