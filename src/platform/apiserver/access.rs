//! Server address, TLS configuration and credentials. Loaded for each connection, so that changed files take effect.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::exec_credential::ExecPlugin;
use super::kubeconfig::{Kubeconfig, KubeconfigSource, Pem, Token};
use super::tls;
use crate::platform::host::file::read_all;
use crate::platform::net::{Proxy, Url};
use crate::types::api::UriScheme;

/// The address of the server, the trusted CAs, and the client's credentials.
#[derive(Clone)]
pub(crate) struct Access {
    pub(super) url: Url,
    /// `None` for plain HTTP.
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The kubeconfig's, which precedes that of the environment.
    pub(super) proxy: Option<Proxy>,
    pub(super) token: Option<String>,
    /// The file of the token.
    pub(super) token_file: Option<PathBuf>,
    /// The token is that of a plugin.
    pub(super) plugin_token: bool,
    /// The trusted CA certificates.
    pub(super) trusted: Vec<CertificateDer<'static>>,
    /// The digests of the trusted CA certificates.
    pub(super) authorities: Vec<String>,
}

/// The file that prevents connecting, and the problem.
#[derive(Debug)]
pub(crate) enum AccessError {
    Read {
        path: PathBuf,
        cause: io::Error,
    },
    /// One line.
    Wrong {
        path: PathBuf,
        problem: String,
    },
}

/// A kubeconfig that was read.
pub(super) enum Loaded {
    Access(Box<Access>),
    /// Its user's credential is that of a plugin.
    Plugin {
        kubeconfig: Box<Kubeconfig>,
        plugin: Box<ExecPlugin>,
        /// The cluster's CA, if the plugin needs it.
        authority: Option<Vec<u8>>,
    },
}

/// Upper bound on a kubeconfig, certificate or token.
const MAX_CREDENTIAL_FILE_BYTES: u64 = 1 << 20;

impl Access {
    /// Loads the kubeconfig and the files that it refers to. Blocks. The credential of a plugin is missing: see
    /// [`ExecCredentials::access`](super::ExecCredentials::access).
    pub(crate) fn load(path: &Path) -> Result<Self, AccessError> {
        Self::new(&read_kubeconfig(&path.into())?, path)
    }

    /// As [`Self::load`], unless the credential is that of a plugin.
    pub(super) fn load_unless_exec(source: &KubeconfigSource) -> Result<Loaded, AccessError> {
        let (mut kubeconfig, path) = (read_kubeconfig(source)?, source.name());
        // As in client-go, a token of the kubeconfig precedes that of a plugin.
        let Some(plugin) = kubeconfig.exec.take().filter(|_| kubeconfig.token.is_none()) else {
            return Ok(Loaded::Access(Box::new(Self::new(&kubeconfig, &path)?)));
        };
        let authority = kubeconfig.authority.as_ref().filter(|_| plugin.needs_authority());
        let authority = authority.map(|pem| load(pem, &path, AUTHORITY_DATA_FIELD)).transpose()?.map(|(_, pem)| pem);
        Ok(Loaded::Plugin { kubeconfig: Box::new(kubeconfig), plugin, authority })
    }

    /// Loads the files that a kubeconfig refers to; `path` names the kubeconfig in errors. Blocks.
    pub(crate) fn new(kubeconfig: &Kubeconfig, path: &Path) -> Result<Self, AccessError> {
        let wrong = |problem: String| AccessError::Wrong { path: path.to_owned(), problem };
        let address = |field: &str, text: &str| {
            let url = Url::parse(text).filter(|url| url.target.split('?').nth(1).is_none());
            url.ok_or_else(|| wrong(format!("{field}: expected https://HOST:PORT, found {text:?}")))
        };
        let url = address("server", &kubeconfig.server)?;
        let proxy = kubeconfig.proxy.as_deref().map(|proxy| {
            // Its value may have a password.
            let wrong = || wrong("proxy-url: expected http, https or socks5://HOST:PORT".to_owned());
            Some(proxy).filter(|proxy| proxy.contains("://")).and_then(Proxy::parse).ok_or_else(wrong)
        });
        let proxy = proxy.transpose()?;
        let (token, token_file) = match &kubeconfig.token {
            Some(Token::Data(token)) => (Some(token.clone()), None),
            Some(Token::File(path)) => (Some(read_token(path)?), Some(path.clone())),
            None => (None, None),
        };
        let mut trusted = Vec::new();
        let tls = match url.scheme {
            UriScheme::Http => None,
            UriScheme::Https => {
                let name = kubeconfig.server_name.as_ref().unwrap_or(&url.host);
                let name = ServerName::try_from(name.clone())
                    .map_err(|_| wrong(format!("tls-server-name: expected a DNS name or address, found {name:?}")))?;
                let (config, authorities) = client_config(kubeconfig, path)?;
                trusted = authorities;
                Some((Arc::new(config), name))
            }
        };
        let authorities = trusted.iter().map(digest).collect();
        Ok(Self { url, tls, proxy, token, token_file, plugin_token: false, trusted, authorities })
    }

    /// The same server without the client's credentials. Those of others are not sent in plain text over a network.
    pub(super) fn without_credentials(self) -> Result<Self, rustls::Error> {
        let is_local = self.url.host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        if self.tls.is_none() && !is_local {
            return Err(rustls::Error::General("expected https for the tokens of others, found http".to_owned()));
        }
        let trust = match self.trusted.is_empty() {
            true => tls::Trust::Anybody,
            false => tls::Trust::Authorities(self.trusted.clone()),
        };
        let tls = match self.tls {
            Some((_, name)) => Some((Arc::new(tls::client_config(trust, None)?), name)),
            None => None,
        };
        Ok(Self { tls, token: None, token_file: None, plugin_token: false, ..self })
    }

    /// The client certificate and key, if there are any.
    pub(crate) fn client_identity(&self) -> Option<Arc<dyn ResolvesClientCert>> {
        let (config, _) = self.tls.as_ref()?;
        config.client_auth_cert_resolver.has_certs().then(|| Arc::clone(&config.client_auth_cert_resolver))
    }
}

fn read_kubeconfig(source: &KubeconfigSource) -> Result<Kubeconfig, AccessError> {
    let mut files = Vec::new();
    for path in &source.files {
        match read(path) {
            Ok(text) => files.push((text, path.parent().unwrap_or(Path::new("/")).to_owned())),
            Err(AccessError::Read { cause, .. })
                if source.files.len() > 1 && cause.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Kubeconfig::merge(&files, source.context.as_deref())
        .map_err(|bad| AccessError::Wrong { path: source.name(), problem: bad.to_string() })
}

const AUTHORITY_DATA_FIELD: &str = "certificate-authority-data";

/// The TLS configuration, and the trusted CAs.
fn client_config(
    kubeconfig: &Kubeconfig,
    path: &Path,
) -> Result<(ClientConfig, Vec<CertificateDer<'static>>), AccessError> {
    let wrong = |problem: String| AccessError::Wrong { path: path.to_owned(), problem };
    let trust = match (&kubeconfig.authority, kubeconfig.insecure) {
        (_, true) => tls::Trust::Anybody,
        (None, false) => {
            return Err(wrong("certificate-authority: expected the cluster's CA, found nothing".to_owned()));
        }
        (Some(authority), false) => {
            let (origin, pem) = load(authority, path, AUTHORITY_DATA_FIELD)?;
            tls::Trust::Authorities(certificates(&pem).ok_or_else(|| origin.wrong(NO_CERTIFICATES))?)
        }
    };
    let authorities = match &trust {
        tls::Trust::Anybody => Vec::new(),
        tls::Trust::Authorities(list) => list.clone(),
    };
    let identity = match &kubeconfig.certificate {
        None => None,
        Some((certificate, key)) => {
            let (origin, pem) = load(certificate, path, "client-certificate-data")?;
            let chain = certificates(&pem).ok_or_else(|| origin.wrong(NO_CERTIFICATES))?;
            let (origin, pem) = load(key, path, "client-key-data")?;
            let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| origin.wrong("expected a private key in PEM"))?;
            Some((chain, key))
        }
    };
    let config = tls::client_config(trust, identity);
    let config = config.map_err(|error| wrong(format!("failed to use certificate and key: {error}")))?;
    Ok((config, authorities))
}

/// SHA-256 in hexadecimal.
fn digest(certificate: &CertificateDer<'static>) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The location of a PEM: its file, or a field of the kubeconfig.
struct CredentialFiles {
    path: PathBuf,
    field: Option<&'static str>,
}

impl CredentialFiles {
    fn wrong(&self, problem: &str) -> AccessError {
        let problem = self.field.map_or_else(|| problem.to_owned(), |field| format!("{field}: {problem}"));
        AccessError::Wrong { path: self.path.clone(), problem }
    }
}

fn load(pem: &Pem, kubeconfig: &Path, field: &'static str) -> Result<(CredentialFiles, Vec<u8>), AccessError> {
    match pem {
        Pem::Data(data) => Ok((CredentialFiles { path: kubeconfig.to_owned(), field: Some(field) }, data.clone())),
        Pem::File(path) => Ok((CredentialFiles { path: path.clone(), field: None }, read(path)?)),
    }
}

const NO_CERTIFICATES: &str = "expected certificates in PEM";

fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let list: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    list.ok().filter(|list| !list.is_empty())
}

fn read(path: &Path) -> Result<Vec<u8>, AccessError> {
    read_all(path, MAX_CREDENTIAL_FILE_BYTES).map_err(|cause| AccessError::Read { path: path.to_owned(), cause })
}

/// Blocks.
pub(super) fn read_token(path: &Path) -> Result<String, AccessError> {
    let wrong = |problem: &str| AccessError::Wrong { path: path.to_owned(), problem: problem.to_owned() };
    let text = String::from_utf8(read(path)?).map_err(|_| wrong("expected a token"))?;
    match text.trim() {
        "" => Err(wrong("expected a token, found nothing")),
        token if token.chars().all(|c| c.is_ascii_graphic()) => Ok(token.to_owned()),
        _ => Err(wrong("expected a token on one line")),
    }
}

impl fmt::Debug for Access {
    // Hides the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access({})", self.url)
    }
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, .. } => write!(f, "read {}", path.display()),
            Self::Wrong { path, problem } => write!(f, "{}: {problem}", path.display()),
        }
    }
}

impl std::error::Error for AccessError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { cause, .. } => Some(cause),
            Self::Wrong { .. } => None,
        }
    }
}
