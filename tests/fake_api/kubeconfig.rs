//! Kubeconfig files for clients of the server.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::FakeApi;
use super::certificates::{Certified, Validity};
use super::identity::Identity;

/// The credentials of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// A client certificate from the server's CA, valid for a day.
    Certificate(Identity),
    ExpiredCertificate(Identity),
    /// A certificate and key in a file beside the kubeconfig, like a kubelet's own.
    CertificateInFile(Identity),
    /// A token, which the server may or may not know.
    Token(String),
    Nothing,
}

impl Credentials {
    pub(crate) fn of_node(name: &str) -> Self {
        Self::Certificate(Identity::node(name))
    }
}

impl FakeApi {
    /// Writes a kubeconfig into a directory.
    pub(crate) fn kubeconfig(&self, dir: &Path, credentials: &Credentials) -> PathBuf {
        let path = dir.join("kubeconfig");
        let text = self.kubeconfig_text(dir, credentials);
        fs::write(&path, text).unwrap();
        path
    }

    /// A client certificate with this validity.
    pub(crate) fn client_certificate(&self, identity: &Identity, validity: Validity) -> Certified {
        self.shared.authority().issue_client(identity, validity)
    }

    /// A certificate from the server's CA for another server on this machine.
    pub(crate) fn certificate_of_localhost(&self) -> Certified {
        let now = self.look(|world| world.now());
        self.shared.authority().issue_server(&[Ipv4Addr::LOCALHOST.into()], &["localhost"], Validity::a_day(now))
    }

    fn kubeconfig_text(&self, dir: &Path, credentials: &Credentials) -> String {
        let now = self.look(|world| world.now());
        let inline = |certified: &Certified| {
            let (certificate, key) = (certified.certificate_pem(), certified.key_pem());
            let (certificate, key) = (STANDARD.encode(certificate), STANDARD.encode(key));
            format!("    client-certificate-data: {certificate}\n    client-key-data: {key}\n")
        };
        let user = match credentials {
            Credentials::Certificate(identity) => inline(&self.client_certificate(identity, Validity::a_day(now))),
            Credentials::ExpiredCertificate(identity) => {
                inline(&self.client_certificate(identity, Validity::expired(now)))
            }
            Credentials::CertificateInFile(identity) => {
                let certified = self.client_certificate(identity, Validity::a_day(now));
                let path = dir.join("client.pem");
                fs::write(&path, certified.certificate_pem() + &certified.key_pem()).unwrap();
                let path = path.display();
                format!("    client-certificate: {path}\n    client-key: {path}\n")
            }
            Credentials::Token(token) => format!("    token: {token}\n"),
            Credentials::Nothing => String::new(),
        };
        let user = if user.is_empty() { "  user: {}\n".to_owned() } else { format!("  user:\n{user}") };
        let authority = if self.uses_tls() {
            format!("    certificate-authority-data: {}\n", STANDARD.encode(self.authority_pem()))
        } else {
            String::new()
        };
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n{authority}    server: {}\n  name: default-cluster\n\
             contexts:\n- context:\n    cluster: default-cluster\n    namespace: default\n    user: default-auth\n  \
             name: default-context\ncurrent-context: default-context\npreferences: {{}}\nusers:\n- name: default-auth\n\
             {user}",
            self.url()
        )
    }
}
