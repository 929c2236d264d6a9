//! The user of a request, as Kubernetes defines it. Pure.

use ring::digest;

use crate::protocol::x509::Certificate;
use crate::types::sorted::SortedMap;

/// v1.UserInfo of `authentication.k8s.io`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: SortedMap<String, Vec<String>>,
}

impl User {
    pub(super) fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self { name: "system:anonymous".to_owned(), groups, ..Self::default() }
    }

    /// The user of a client certificate (apiserver: `CommonNameUserConversion`); `None` without a common name.
    pub(super) fn of_certificate(certificate: &Certificate, der: &[u8]) -> Option<Self> {
        if certificate.common_name.is_empty() {
            return None;
        }
        let digest = digest::digest(&digest::SHA256, der);
        let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let id = ("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("X509SHA256={digest}")]);
        let user = Self {
            name: certificate.common_name.clone(),
            uid: String::new(),
            groups: certificate.organizations.clone(),
            extra: SortedMap::from([id]),
        };
        Some(user.authenticated())
    }

    /// Adds the group of all authenticated users.
    pub(super) fn authenticated(mut self) -> Self {
        const ALL: &str = "system:authenticated";
        let is_told = self.groups.iter().any(|group| group == ALL || group == "system:unauthenticated");
        if !is_told {
            self.groups.push(ALL.to_owned());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_names_a_user_and_groups() {
        let certificate = Certificate {
            common_name: "kube-apiserver".to_owned(),
            organizations: vec!["system:masters".to_owned()],
            ..Certificate::default()
        };
        let user = User::of_certificate(&certificate, b"").unwrap();
        assert_eq!(
            (&*user.name, &*user.groups[0], &*user.groups[1]),
            ("kube-apiserver", "system:masters", "system:authenticated")
        );
        let id = &user.extra["authentication.kubernetes.io/credential-id"][0];
        assert_eq!(id, "X509SHA256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(User::of_certificate(&Certificate::default(), b""), None);
    }
}
