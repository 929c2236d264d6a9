//! The API server client, and the tasks that exchange data with the API server.

use std::rc::Rc;

use super::handles::Handles;
use super::sources::key_paths;
use crate::control::cluster::{EventSender, SyncScheduler};
use crate::control::pod_sources::api::ApiSource;
use crate::control::server::{ApiEndpoint, OwnNodeSource};
use crate::kubelet::api_cache::ApiCache;
use crate::kubelet::certificates::{
    self, ClientCertificate, CredentialPaths, Names, Reenrolment, ReenrolmentPaths, ServingCertificateCell, Store,
};
use crate::kubelet::node::{NodeProfile, NodeRegistration, SYNC_ANNOTATION};
use crate::kubelet::offline::{API_ENDPOINT_STORE, OFFLINE, OfflineStore};
use crate::platform::apiserver::{Client, Gate};
use crate::platform::config::{Config, ReenrolmentSettings};
use crate::platform::cri::ImageService;
use crate::platform::net::{Dialer, ProxySettings};
use crate::platform::rt;
use crate::state::pods::EventRing;

#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    dialer: Dialer,
    /// Decides when the client may contact the API server.
    pub(super) scheduler: SyncScheduler,
    pub(super) store: OfflineStore,
    /// What components have read through the API endpoint; `None`: it is off.
    pub(super) api_cache: Option<ApiCache>,
}

impl Cluster {
    /// `None` without a kubeconfig.
    pub(super) async fn open(config: &Config, proxies: ProxySettings) -> Option<Self> {
        let kubeconfig = config.cluster.kubeconfig.clone()?;
        let sync = &config.cluster.sync;
        let gate = Gate::new(SyncScheduler::first(&sync.mode), sync.bytes_per_day);
        let dialer = Dialer::of_server(proxies).counting_lookups();
        let client = Client::behind(gate, kubeconfig, dialer.clone());
        let scheduler = SyncScheduler::new(client.clone(), sync.mode.clone(), &config.process.local_socket);
        let store = OfflineStore::open(config.root_dir.join(OFFLINE), key_paths(config)).await;
        let api_cache = match &config.api_endpoint {
            Some(settings) => {
                let reads = OfflineStore::open(config.root_dir.join(API_ENDPOINT_STORE), key_paths(config)).await;
                Some(ApiCache::new(reads, &settings.service_accounts, &store.tokens_for_api_server()))
            }
            None => None,
        };
        Some(Self { client, dialer, scheduler, store, api_cache })
    }

    /// Serves the API endpoint, if it is on.
    fn endpoint(&self, handles: &Handles, own_node: Rc<dyn OwnNodeSource>) -> Vec<rt::Task<()>> {
        let config = &handles.config;
        let (Some(settings), Some(cache)) = (&config.api_endpoint, &self.api_cache) else { return Vec::new() };
        let certificate = ServingCertificateCell::default();
        let files = ["api-endpoint.crt", "api-endpoint.key"].map(|file| config.identity.cert_dir.join(file));
        let name = config.node.name.clone();
        let (address, cell) = (settings.listen, certificate.clone());
        let endpoint = ApiEndpoint {
            address,
            certificate,
            tls: config.identity.server.tls.clone(),
            node: self.client.clone(),
            upstream: self.client.for_others(self.dialer.clone()),
            cache: cache.clone(),
            own_node,
            status_inputs: Rc::clone(&handles.status_inputs),
        };
        vec![
            rt::spawn(async move { certificates::keep_endpoint_certificate(&name, address.ip(), files, cell).await }),
            rt::spawn(endpoint.serve()),
            rt::spawn(cache.clone().run()),
        ]
    }

    /// A ring that queues its events for the API server.
    pub(super) fn event_ring(&self) -> EventRing {
        EventRing::with_queue(rt::random())
    }

    /// Starts sending events.
    pub(super) fn event_sender(&self, handles: &Handles) -> EventSender {
        let config = &handles.config;
        let (ring, noted) = (Rc::clone(&handles.events), Rc::clone(&handles.noted_events));
        EventSender::start(self.client.clone(), &config.node.name, &config.cluster.reporting, ring, noted)
    }

    /// `profile` is for the Node object, `images` for the images in the node status, `own_node` for the API endpoint.
    pub(super) fn spawn(
        self,
        handles: &Handles,
        profile: NodeProfile,
        images: ImageService,
        own_node: Rc<dyn OwnNodeSource>,
    ) -> Vec<rt::Task<()>> {
        let registration = NodeRegistration {
            client: self.client.clone(),
            profile,
            reporting: handles.config.cluster.reporting.clone(),
            status_inputs: Rc::clone(&handles.status_inputs),
            images,
            inbox: handles.inbox.clone(),
        };
        let api_source = ApiSource {
            client: self.client.clone(),
            node: handles.config.node.name.clone(),
            status_inputs: Rc::clone(&handles.status_inputs),
            store: self.store.clone(),
            inbox: handles.inbox.clone(),
        };
        let reenrolment = reenrolment(&handles.config, &self.client);
        let (certificates, inputs) = (Rc::clone(&handles.certificates), Rc::clone(&handles.status_inputs));
        inputs.report(SYNC_ANNOTATION, &handles.config.cluster.sync.mode.summary());
        let mut tasks = self.endpoint(handles, own_node);
        let certificate = client_certificate(handles, self.client, self.dialer);
        tasks.push(rt::spawn(self.scheduler.run()));
        tasks.extend(registration.start());
        tasks.push(rt::spawn(api_source.run()));
        tasks.push(rt::spawn(certificates::keep_client_certificate(certificate)));
        tasks.extend(reenrolment.map(|reenrolment| rt::spawn(reenrolment.run())));
        tasks.push(rt::spawn(async move { certificates.report_ends(&inputs).await }));
        tasks
    }
}

/// `None` if the cluster has nothing for it.
fn reenrolment(config: &Config, client: &Client) -> Option<Reenrolment> {
    let settings = config.identity.reenrolment.as_ref()?;
    Some(Reenrolment {
        client: client.clone(),
        node_name: config.node.name.clone(),
        secret: settings.secret.clone(),
        paths: reenrolment_paths(config, settings),
        kubeconfig: config.cluster.kubeconfig.clone()?,
    })
}

fn reenrolment_paths(config: &Config, settings: &ReenrolmentSettings) -> ReenrolmentPaths {
    ReenrolmentPaths::new(&config.root_dir, settings.tpm.clone())
}

fn client_certificate(handles: &Handles, client: Client, dialer: Dialer) -> ClientCertificate {
    let config = &handles.config;
    ClientCertificate {
        names: Names::of_node(&config.node.name),
        paths: CredentialPaths {
            kubeconfig: config.cluster.kubeconfig.clone().unwrap_or_default(),
            bootstrap_kubeconfig: config.identity.bootstrap_kubeconfig.clone(),
            store: Store::new(config.identity.cert_dir.clone(), "kubelet-client"),
            reenrolment: config.identity.reenrolment.as_ref().map(|settings| reenrolment_paths(config, settings)),
        },
        rotates: config.identity.rotate_certificates,
        client,
        dialer,
        statuses: Rc::clone(&handles.certificates),
        inbox: handles.inbox.clone(),
    }
}
