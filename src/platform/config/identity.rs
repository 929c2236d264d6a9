//! The node's certificates, and the settings of its server. Pure.

use std::path::PathBuf;

use super::check::Problem;
use super::effective::conflict;
use super::fields::Fields;
use super::flags::Given;
use super::server::{self, ServerSettings};

/// The settings of credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The credentials for requesting the first client certificate.
    pub(crate) bootstrap_kubeconfig: Option<PathBuf>,
    /// Whether to renew the client certificate before it expires.
    pub(crate) rotate_certificates: bool,
    pub(crate) serving: ServingIdentity,
    /// The CA of client certificates for the node's server.
    pub(crate) client_ca_file: Option<PathBuf>,
    pub(crate) server: ServerSettings,
}

/// The source of the node's serving certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServingIdentity {
    /// Self-signed.
    #[default]
    SelfSigned,
    /// Requested from the cluster by a CSR.
    Cluster,
    Files {
        certificate: PathBuf,
        key: PathBuf,
    },
}

pub(super) fn read(fields: &Fields<'_>, given: &Given) -> Result<Identity, Problem> {
    let path = |name: &str| fields.text(name).map(PathBuf::from);
    let serving = match (path("tlsCertFile"), path("tlsPrivateKeyFile")) {
        (Some(certificate), Some(key)) => ServingIdentity::Files { certificate, key },
        (None, None) if fields.bool("serverTLSBootstrap") == Some(true) => ServingIdentity::Cluster,
        (None, None) => ServingIdentity::SelfSigned,
        (Some(_), None) => return Err(conflict("tlsCertFile", "requires tlsPrivateKeyFile".to_owned())),
        (None, Some(_)) => return Err(conflict("tlsPrivateKeyFile", "requires tlsCertFile".to_owned())),
    };
    Ok(Identity {
        bootstrap_kubeconfig: given.bootstrap_kubeconfig.clone(),
        rotate_certificates: fields.bool("rotateCertificates") == Some(true),
        serving,
        client_ca_file: path("authentication.x509.clientCAFile"),
        server: server::read(fields),
    })
}
