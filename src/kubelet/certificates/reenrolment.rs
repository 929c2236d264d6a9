//! Prepares the re-enrolment of this node, while its certificate is valid: a key, its public half on the Node object,
//! and the token that requests are made with once the certificate has expired.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::inspect::{MAX_INSPECTED_FILE_BYTES, read_kubeconfig};
use super::kubeconfig;
use super::reenrolment_key::ReenrolmentPaths;
use crate::platform::apiserver::{ApiError, Client, Patch, Request};
use crate::platform::config::SecretName;
use crate::platform::host::file;
use crate::platform::rt;
use crate::types::api::Bytes;
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

/// The annotation of a Node: the public key (SubjectPublicKeyInfo) in DER and base64.
const KEY_ANNOTATION: &str = "coracle.dev/reenrolment-key";
/// A node that is away for long needs what it got last.
const REENROLMENT_REFRESH_INTERVAL: Duration = Duration::from_secs(24 * 3600);
const MIN_REENROLMENT_RETRY: Duration = Duration::from_secs(15);
const MAX_REENROLMENT_RETRY: Duration = Duration::from_secs(4 * 3600);

pub(crate) struct Reenrolment {
    pub(crate) client: Client,
    pub(crate) node_name: String,
    pub(crate) secret: SecretName,
    pub(crate) paths: ReenrolmentPaths,
    /// Of the node.
    pub(crate) kubeconfig: PathBuf,
}

impl Reenrolment {
    /// Never returns. Once a day, and after failures with a back-off.
    pub(crate) async fn run(self) {
        let mut delays = Backoff::new(MIN_REENROLMENT_RETRY, MAX_REENROLMENT_RETRY);
        let mut reported = String::new();
        loop {
            let delay = match self.prepare().await {
                Ok(()) => {
                    reported.clear();
                    delays.reset();
                    REENROLMENT_REFRESH_INTERVAL
                }
                Err(error) => {
                    if reported != error {
                        log!(warn, "re-enrolment not prepared", error = error);
                        reported = error;
                    }
                    delays.next_wait()
                }
            };
            rt::sleep(delay).await;
        }
    }

    async fn prepare(&self) -> Result<(), String> {
        let paths = self.paths.clone();
        let key = rt::slow(move || paths.ensure_key()).await?;
        self.announce(&Bytes(key.public_key()?).to_base64()).await?;
        let paths = self.paths.clone();
        rt::blocking(move || paths.settle(&key)).await?;
        let token = self.token().await?;
        let (path, kubeconfig) = (self.paths.kubeconfig(), self.kubeconfig.clone());
        rt::blocking(move || write_kubeconfig(&path, &kubeconfig, &token)).await
    }

    /// Puts the public key on the Node, unless it is there.
    async fn announce(&self, public: &str) -> Result<(), String> {
        let path = format!("/api/v1/nodes/{}", self.node_name);
        let failed = |doing: &str, error: &ApiError| format!("{doing} node {}: {}", self.node_name, ErrorChain(error));
        let node = self.client.send(&Request::get(&*path)).await.and_then(|response| response.json());
        let node: Value = node.map_err(|error| failed("get", &error))?;
        let annotations = node.pointer("/metadata/annotations");
        if annotations.and_then(|annotations| annotations.get(KEY_ANNOTATION)).and_then(Value::as_str) == Some(public) {
            return Ok(());
        }
        let patch = json!({ "metadata": { "annotations": { KEY_ANNOTATION: public } } });
        let sent = self.client.send(&Request::patch(path.clone(), Patch::Merge, &patch)).await;
        sent.map(drop).map_err(|error| failed("annotate", &error))
    }

    async fn token(&self) -> Result<String, String> {
        let SecretName { namespace, name } = &self.secret;
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let secret = self.client.send(&Request::get(path)).await.and_then(|response| response.json());
        let secret: Value = secret.map_err(|error| format!("get secret {namespace}/{name}: {}", ErrorChain(&error)))?;
        let token = secret.pointer("/data/token").and_then(Value::as_str).and_then(Bytes::from_base64);
        let token = token.and_then(|bytes| String::from_utf8(bytes.0).ok()).filter(|token| is_token(token));
        token.ok_or_else(|| format!("secret {namespace}/{name}: expected a token in data.token, found none"))
    }
}

/// A token of the API: one word.
fn is_token(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Writes the kubeconfig with the token, unless it is there. Blocks.
fn write_kubeconfig(path: &Path, of_node: &Path, token: &str) -> Result<(), String> {
    let mut faults = Vec::new();
    let cluster = read_kubeconfig(of_node, &mut faults);
    let cluster = cluster.ok_or_else(|| faults.pop().unwrap_or_else(|| format!("no {}", of_node.display())))?;
    let text = kubeconfig::of_token(&cluster, token);
    if file::read_all(path, MAX_INSPECTED_FILE_BYTES).is_ok_and(|written| written == text.as_bytes()) {
        return Ok(());
    }
    file::replace(path, text.as_bytes()).map_err(|error| format!("write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::platform::rt::TestFolder;

    #[test]
    fn kubeconfig_has_the_cluster_of_the_node_and_the_token_only() {
        let folder = TestFolder::new("reenrolment-kubeconfig");
        let (own, path) = (folder.0.join("kubelet.conf"), folder.0.join("kubeconfig"));
        assert!(write_kubeconfig(&path, &own, "t").unwrap_err().ends_with("kubelet.conf"));
        let user = "users: [{name: u, user: {client-certificate: /c.pem, client-key: /c.pem}}]\n";
        fs::write(
            &own,
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\n{user}\
            clusters: [{{name: k, cluster: {{server: 'https://10.0.0.1:6443'}}}}]\n\
            contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n"
            ),
        )
        .unwrap();
        write_kubeconfig(&path, &own, "secret-token").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("https://10.0.0.1:6443") && text.contains("token: secret-token"), "{text}");
        assert!(!text.contains("c.pem"), "{text}");
        assert!(is_token("a.b-c_d") && !is_token("") && !is_token("a b") && !is_token("a\nb"));
    }
}
