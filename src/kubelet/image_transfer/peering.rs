//! Connections to other nodes that share images.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::peers::{AvoidedPeers, Peer, PeerWaits, Peers};
use crate::kubelet::image_transfer::shared_images::SharedImages;
use crate::platform::apiserver::Access;
use crate::platform::net::{AnyCertificate, Connect, Deadline, tls_config_as};
use crate::platform::registry::{Mirror, Registry};
use crate::types::error::ErrorChain;

/// Images from other nodes and for them. Clones share the state.
#[derive(Clone, Debug)]
pub(crate) struct Peering {
    pub(super) shared: SharedImages,
    /// Whether this node serves others.
    shares: bool,
    /// Other nodes, as `host:port`.
    nodes: Vec<String>,
    /// With the client certificate of this node.
    kubeconfig: PathBuf,
    avoided: AvoidedPeers,
}

/// The repository in the path of a request. Peers serve blobs by digest alone, and need not know the image's name.
const REPOSITORY: &str = "images";

impl Peering {
    pub(crate) fn new(shared: SharedImages, shares: bool, nodes: Vec<String>, kubeconfig: PathBuf) -> Self {
        Self { shared, shares, nodes, kubeconfig, avoided: AvoidedPeers::default() }
    }

    /// Keeps the whole blobs of a directory for other nodes, if this node shares. Blocks.
    pub(super) fn keep(&self, blobs: &Path) -> io::Result<()> {
        if self.shares { self.shared.keep(blobs) } else { Ok(()) }
    }

    /// The other nodes; `None` if there are none, or this node has no client certificate. Blocks.
    pub(super) fn open(self, cancelled: &Arc<AtomicBool>) -> Option<Peers> {
        if self.nodes.is_empty() {
            return None;
        }
        let unusable = |error: &dyn std::fmt::Display| {
            log!(warn, "no client certificate for other nodes", path = self.kubeconfig.display(), error = error);
        };
        let access = Access::load(&self.kubeconfig).map_err(|error| unusable(&ErrorChain(&error))).ok()?;
        let Some(identity) = access.client_identity() else {
            unusable(&"the kubeconfig has none");
            return None;
        };
        // The digests protect the content, and no CA signs a node's own serving certificate.
        let tls = tls_config_as(Arc::new(AnyCertificate), identity).map_err(|error| unusable(&error)).ok()?;
        let peer = |node: &String| {
            let deadline = Arc::new(Deadline::new());
            let connect = Connect {
                tls: Arc::clone(&tls),
                proxies: Arc::default(),
                cancelled: Arc::clone(cancelled),
                deadline: Some(Arc::clone(&deadline)),
            };
            let mirror = Mirror { base: format!("https://{node}/v2"), ..Mirror::default() };
            Peer::new(Registry::new(mirror, REPOSITORY, None, connect), deadline)
        };
        let waits = PeerWaits::of(self.nodes.len());
        Some(Peers::new(self.nodes.iter().map(peer).collect(), self.shared, self.avoided, waits))
    }
}
