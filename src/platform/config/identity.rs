//! The node's certificates, and the settings of its server. Pure.

use std::path::{Path, PathBuf};

use super::check::{Problem, conflict};
use super::coracle_file::ReenrolmentSettings;
use super::fields::Fields;
use super::flag_values::FlagValues;
use super::join_file::JOIN_FILE_PATH;
use super::server::{self, ServerSettings};

/// Credentials of the node: `rotateCertificates`, `serverTLSBootstrap`, `tlsCertFile`, `tlsPrivateKeyFile`,
/// `authentication.x509` and the fields of [`ServerSettings`]; `--cert-dir`, `--bootstrap-kubeconfig` and `--join-file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) cert_dir: PathBuf,
    /// Credentials for requesting the first client certificate.
    pub(crate) bootstrap_kubeconfig: Option<PathBuf>,
    /// The file that names a cluster to join; it may be missing.
    pub(crate) join_file: Option<PathBuf>,
    /// `None`: the node does not prepare for the expiry of its certificate.
    pub(crate) reenrolment: Option<ReenrolmentSettings>,
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

impl Default for Identity {
    fn default() -> Self {
        Self {
            cert_dir: PathBuf::from("/var/lib/kubelet/pki"),
            bootstrap_kubeconfig: None,
            join_file: Some(PathBuf::from(JOIN_FILE_PATH)),
            reenrolment: None,
            rotate_certificates: false,
            serving: ServingIdentity::default(),
            client_ca_file: None,
            server: ServerSettings::default(),
        }
    }
}

pub(super) fn read(fields: &Fields<'_>, flags: &FlagValues, root_dir: &Path) -> Result<Identity, Problem> {
    let path = |name: &str| fields.text(name).map(PathBuf::from);
    let serving = match (path("tlsCertFile"), path("tlsPrivateKeyFile")) {
        (Some(certificate), Some(key)) => ServingIdentity::Files { certificate, key },
        (None, None) if fields.bool("serverTLSBootstrap") == Some(true) => ServingIdentity::Cluster,
        (None, None) => ServingIdentity::SelfSigned,
        (Some(_), None) => return Err(conflict("tlsCertFile", "requires tlsPrivateKeyFile".to_owned())),
        (None, Some(_)) => return Err(conflict("tlsPrivateKeyFile", "requires tlsCertFile".to_owned())),
    };
    Ok(Identity {
        cert_dir: flags.cert_dir.clone().unwrap_or_else(|| root_dir.join("pki")),
        bootstrap_kubeconfig: flags.bootstrap_kubeconfig.clone(),
        join_file: flags.join_file.clone().unwrap_or_else(|| Some(PathBuf::from(JOIN_FILE_PATH))),
        // Of another file.
        reenrolment: None,
        rotate_certificates: fields.bool("rotateCertificates") == Some(true),
        serving,
        client_ca_file: path("authentication.x509.clientCAFile"),
        server: server::read(fields),
    })
}
