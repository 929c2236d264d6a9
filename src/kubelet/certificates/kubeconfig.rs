//! Writes the kubeconfigs of the node's own credentials and of the bootstrap token. Pure.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::platform::apiserver::{Kubeconfig, Pem};
use crate::types::api::{Bytes, to_yaml};

/// A kubeconfig for `cluster` that takes certificate and key from the file `pair`.
pub(super) fn of_pair(cluster: &Kubeconfig, pair: &Path) -> String {
    let pair = pair.to_string_lossy();
    let user = json!({ "client-certificate": pair, "client-key": pair });
    // The names from client-go's `writeKubeconfigFromBootstrapping`.
    text(cluster, &EntryNames { cluster: "default-cluster", user: "default-auth", context: "default-context" }, user)
}

/// First line of a kubeconfig whose token is for the first certificate only.
pub(crate) const BOOTSTRAP_ONCE: &str = "# Written by coracle join. Coracle removes it when it has its certificate.\n";

/// A kubeconfig with a bootstrap token, as kubeadm writes it.
pub(crate) fn of_token(cluster: &Kubeconfig, token: &str) -> String {
    let naming = EntryNames {
        cluster: "kubernetes",
        user: "tls-bootstrap-token-user",
        context: "tls-bootstrap-token-user@kubernetes",
    };
    text(cluster, &naming, json!({ "token": token }))
}

/// Names of the entries in a kubeconfig.
struct EntryNames {
    cluster: &'static str,
    user: &'static str,
    context: &'static str,
}

fn text(from: &Kubeconfig, naming: &EntryNames, user: Value) -> String {
    let mut cluster = Map::new();
    cluster.insert("server".to_owned(), from.server.clone().into());
    match &from.authority {
        Some(Pem::Data(data)) => {
            cluster.insert("certificate-authority-data".to_owned(), Bytes(data.clone()).to_base64().into());
        }
        Some(Pem::File(path)) => {
            cluster.insert("certificate-authority".to_owned(), path.to_string_lossy().into());
        }
        None => {}
    }
    if from.insecure {
        cluster.insert("insecure-skip-tls-verify".to_owned(), true.into());
    }
    // Upstream drops these fields here. Without them the server may be unreachable or fail verification.
    for (field, value) in [("tls-server-name", &from.server_name), ("proxy-url", &from.proxy)] {
        if let Some(value) = value {
            cluster.insert(field.to_owned(), value.clone().into());
        }
    }
    to_yaml(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": naming.cluster, "cluster": cluster }],
        "contexts": [{
            "name": naming.context,
            "context": { "cluster": naming.cluster, "namespace": "default", "user": naming.user },
        }],
        "current-context": naming.context,
        "users": [{ "name": naming.user, "user": user }],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::apiserver::Token;

    fn cluster() -> Kubeconfig {
        Kubeconfig {
            server: "https://10.0.0.1:6443".to_owned(),
            authority: Some(Pem::Data(b"authority".to_vec())),
            server_name: None,
            insecure: false,
            proxy: None,
            certificate: None,
            token: Some(Token::Data("secret".to_owned())),
            exec: None,
        }
    }

    #[test]
    fn kubeconfig_matches_upstreams() {
        let text = of_pair(&cluster(), Path::new("/var/lib/kubelet/pki/kubelet-client-current.pem"));
        let expected = "\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: YXV0aG9yaXR5
    server: https://10.0.0.1:6443
  name: default-cluster
contexts:
- context:
    cluster: default-cluster
    namespace: default
    user: default-auth
  name: default-context
current-context: default-context
kind: Config
users:
- name: default-auth
  user:
    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem
    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem
";
        assert_eq!(text, expected);
    }

    #[test]
    fn all_cluster_fields_are_kept() {
        let from = Kubeconfig {
            authority: Some(Pem::File("/etc/kubernetes/pki/ca.crt".into())),
            server_name: Some("api".to_owned()),
            insecure: true,
            proxy: Some("http://p:3128".to_owned()),
            ..cluster()
        };
        let pair = Path::new("/p.pem");
        let read = Kubeconfig::read(of_pair(&from, pair).as_bytes(), Path::new("/")).unwrap();
        let file = || Pem::File(pair.to_owned());
        assert_eq!(read, Kubeconfig { token: None, certificate: Some((file(), file())), ..from });
    }

    #[test]
    fn bootstrap_kubeconfig_has_the_token() {
        let read = Kubeconfig::read(of_token(&cluster(), "secret").as_bytes(), Path::new("/")).unwrap();
        assert_eq!(read, cluster());
    }
}
