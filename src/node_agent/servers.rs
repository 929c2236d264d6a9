//! The servers of the agent: the local socket, the kubelet API, the read-only port, the status page and healthz.

use std::rc::Rc;

use super::handles::Handles;
use crate::control::server::{
    KubeletApiServer, LocalApi, LocalServer, PAGE_TOKEN, ReadOnlyServer, StatusPage, Streaming, health,
};
use crate::kubelet::certificates::{self, ServingCertificate, ServingCertificateCell, ServingSource};
use crate::kubelet::image_transfer::SharedImages;
use crate::platform::apiserver::Client;
use crate::platform::config::{Authorization, Config, Gate, ServingIdentity};
use crate::platform::rt;

pub(super) struct Servers {
    pub(super) local: LocalServer,
    /// The data behind the servers.
    pub(super) api: Rc<dyn LocalApi>,
    pub(super) streaming: Streaming,
    /// `None` without a cluster.
    pub(super) client: Option<Client>,
    /// For other nodes.
    pub(super) images: Option<SharedImages>,
}

impl Servers {
    pub(super) fn spawn(self, handles: &Handles) -> Vec<rt::Task<()>> {
        let Self { local, api, streaming, client, images } = self;
        let (config, health) = (&handles.config, &handles.health);
        let mut tasks = vec![rt::spawn(local.with_streaming(streaming.clone()).serve(Rc::clone(&api)))];
        if let Some(address) = config.identity.server.read_only {
            let server = ReadOnlyServer { address, health: health.clone(), api: Rc::clone(&api) };
            tasks.push(rt::spawn(server.serve()));
        }
        if opens_kubelet_api(config, client.is_some()) {
            let shown = ServingCertificateCell::default();
            let certificate = serving_certificate(handles, client.clone(), shown.clone());
            tasks.push(rt::spawn(certificates::keep_serving_certificate(certificate)));
            let server = KubeletApiServer::new(config, client, shown, health.clone(), Rc::clone(&api), streaming);
            tasks.push(rt::spawn(server.with_images(images).serve()));
        }
        if let Some(address) = config.health.status_page {
            let token = config.root_dir.join(PAGE_TOKEN);
            let page = StatusPage::new(address, &config.node.name, token, api, health.clone());
            tasks.push(rt::spawn(page.serve()));
        }
        tasks.extend(config.health.healthz.map(|address| rt::spawn(health::serve(address, health.clone()))));
        tasks
    }
}

/// Whether the kubelet API is served. Without any way to authenticate, it is not.
fn opens_kubelet_api(config: &Config, in_cluster: bool) -> bool {
    let identity = &config.identity;
    let has_clients = in_cluster || identity.client_ca_file.is_some() || identity.server.anonymous;
    let opens = identity.server.enabled && has_clients;
    if opens && !in_cluster && identity.server.authorization != Authorization::AlwaysAllow {
        log!(warn, "kubelet API denies all requests: authorization.mode is Webhook, and there is no cluster");
    }
    opens
}

fn serving_certificate(handles: &Handles, client: Option<Client>, cell: ServingCertificateCell) -> ServingCertificate {
    ServingCertificate {
        node_name: handles.config.node.name.clone(),
        source: serving_source(handles, client),
        cell,
        statuses: Rc::clone(&handles.certificates),
        inbox: handles.inbox.clone(),
    }
}

fn serving_source(handles: &Handles, client: Option<Client>) -> ServingSource {
    let identity = &handles.config.identity;
    let directory = identity.cert_dir.clone();
    match (&identity.serving, client) {
        (ServingIdentity::Files { certificate, key }, _) => {
            ServingSource::Files { certificate: certificate.clone(), key: key.clone() }
        }
        (ServingIdentity::Cluster, Some(client)) => {
            let dns_only = handles.config.gates.is_on(Gate::AllowDnsOnlyNodeCsr);
            let status_inputs = Rc::clone(&handles.status_inputs);
            ServingSource::Cluster { client, status_inputs, directory, dns_only }
        }
        (ServingIdentity::Cluster, None) => {
            log!(warn, "serverTLSBootstrap has no effect without a cluster");
            ServingSource::SelfSigned { directory }
        }
        (ServingIdentity::SelfSigned, _) => ServingSource::SelfSigned { directory },
    }
}
