//! Who the node is to a cluster: its certificates, and who may ask its own server. Pure.

use std::path::PathBuf;

use super::check::Problem;
use super::effective::conflict;
use super::fields::Fields;
use super::flags::Given;
use super::server::{self, ServerSettings};

/// The settings of credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Credentials that are good for asking for better ones.
    pub(crate) bootstrap_kubeconfig: Option<PathBuf>,
    /// The client certificate is replaced before it expires.
    pub(crate) rotate_certificates: bool,
    pub(crate) serving: ServingIdentity,
    /// Whose certificates the node's own server believes.
    pub(crate) client_ca_file: Option<PathBuf>,
    pub(crate) server: ServerSettings,
}

/// Where the certificate of the node's own server comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ServingIdentity {
    /// It signs one itself.
    #[default]
    SelfSigned,
    /// It asks the cluster for one.
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
        (Some(_), None) => return Err(conflict("tlsCertFile", "expected tlsPrivateKeyFile beside it".to_owned())),
        (None, Some(_)) => return Err(conflict("tlsPrivateKeyFile", "expected tlsCertFile beside it".to_owned())),
    };
    Ok(Identity {
        bootstrap_kubeconfig: given.bootstrap_kubeconfig.clone(),
        rotate_certificates: fields.bool("rotateCertificates") == Some(true),
        serving,
        client_ca_file: path("authentication.x509.clientCAFile"),
        server: server::read(fields),
    })
}
