//! The identity behind a request: a client certificate's subject, a token's owner, or anonymous.

use rustls::pki_types::CertificateDer;

use super::der;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub user: String,
    pub groups: Vec<String>,
}

impl Identity {
    pub(crate) fn new(user: &str, groups: &[&str]) -> Self {
        Self { user: user.to_owned(), groups: groups.iter().map(|&group| group.to_owned()).collect() }
    }

    pub(crate) fn node(name: &str) -> Self {
        Self::new(&format!("system:node:{name}"), &["system:nodes"])
    }

    /// A bootstrap user, which may only request a certificate. `id` is the first half of its token.
    pub(crate) fn bootstrap(id: &str) -> Self {
        let groups = ["system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"];
        Self::new(&format!("system:bootstrap:{id}"), &groups)
    }

    pub(crate) fn admin() -> Self {
        Self::new("kubernetes-admin", &["system:masters"])
    }

    pub(crate) fn anonymous() -> Self {
        Self::new("system:anonymous", &["system:unauthenticated"])
    }

    /// The subject of a verified certificate.
    pub(crate) fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Self> {
        let subject = der::certificate_subject(certificate)?;
        Some(Self { user: subject.common_name?, groups: subject.organizations })
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The node name, if this is a kubelet.
    pub(crate) fn node_name(&self) -> Option<&str> {
        self.user.strip_prefix("system:node:").filter(|_| self.is_in("system:nodes"))
    }

    /// Adds the group of all authenticated users.
    pub(crate) fn authenticated(mut self) -> Self {
        if !self.is_in("system:authenticated") && !self.is_in("system:unauthenticated") {
            self.groups.push("system:authenticated".to_owned());
        }
        self
    }
}
