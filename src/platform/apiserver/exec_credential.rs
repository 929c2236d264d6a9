//! What the kubelet tells an exec credential plugin, and the credential that the plugin returns
//! (client.authentication.k8s.io). Pure.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::types::api::{Bytes, ExecConfig, KubeconfigCluster, Time, decode};

/// The plugin of a kubeconfig's user.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ExecPlugin {
    /// A name without `/` is looked up in `PATH`.
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    api_version: String,
    /// How to install the program.
    pub(super) install_hint: String,
    /// The cluster for the plugin, without its CA; `None` if the plugin does not need it.
    cluster: Option<Value>,
}

/// A plugin's credential: a token, or a client certificate with its key, or both.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ExecCredential {
    pub(super) token: Option<String>,
    pub(super) pair: Option<(Vec<u8>, Vec<u8>)>,
    /// When it expires; `None` if it is valid until the server refuses it.
    pub(super) expires: Option<Time>,
}

/// Why a plugin's response is invalid, without its secrets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InvalidExecResponse {
    NoJson,
    Field { name: &'static str, expected: String },
}

const API_VERSIONS: [&str; 2] = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
const EXEC_CREDENTIAL_KIND: &str = "ExecCredential";
/// The extension of a cluster that is passed to plugins.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

impl ExecPlugin {
    /// `user` is the user's name, for errors. A relative path starts at `folder`.
    pub(super) fn new(
        config: ExecConfig,
        cluster: &KubeconfigCluster,
        user: &str,
        folder: &Path,
    ) -> Result<Self, String> {
        let bad = |what: String| Err(format!("user {user:?}: exec.{what}"));
        if !API_VERSIONS.contains(&&*config.api_version) {
            let [first, second] = API_VERSIONS;
            return bad(format!("apiVersion: expected {first} or {second}, found {:?}", config.api_version));
        }
        match config.interactive_mode.as_str() {
            "Never" | "IfAvailable" => {}
            "Always" => return bad("interactiveMode: Always is not supported, the kubelet has no terminal".to_owned()),
            "" if config.api_version != "client.authentication.k8s.io/v1" => {}
            other => return bad(format!("interactiveMode: expected Never or IfAvailable, found {other:?}")),
        }
        if config.command.is_empty() {
            return bad("command: expected a program, found nothing".to_owned());
        }
        let program = match config.command.contains('/') {
            true => folder.join(&config.command),
            false => PathBuf::from(&config.command),
        };
        Ok(Self {
            program,
            args: config.args,
            env: config.env.into_iter().map(|variable| (variable.name, variable.value)).collect(),
            api_version: config.api_version,
            install_hint: config.install_hint.trim().to_owned(),
            cluster: config.provide_cluster_info.then(|| cluster_info(cluster)),
        })
    }

    /// Whether the plugin gets the cluster's CA.
    pub(super) fn needs_authority(&self) -> bool {
        self.cluster.is_some()
    }

    /// The value of `KUBERNETES_EXEC_INFO`.
    pub(super) fn info(&self, authority: Option<&[u8]>) -> String {
        let mut spec = json!({"interactive": false});
        if let (Some(mut cluster), Some(spec)) = (self.cluster.clone(), spec.as_object_mut()) {
            if let (Some(authority), Some(fields)) = (authority, cluster.as_object_mut()) {
                fields.insert("certificate-authority-data".to_owned(), json!(Bytes(authority.to_vec()).to_base64()));
            }
            spec.insert("cluster".to_owned(), cluster);
        }
        json!({"kind": EXEC_CREDENTIAL_KIND, "apiVersion": self.api_version, "spec": spec}).to_string()
    }

    pub(super) fn read_response(&self, output: &[u8]) -> Result<ExecCredential, InvalidExecResponse> {
        let wrong = |name, expected: &str| InvalidExecResponse::Field { name, expected: expected.to_owned() };
        let response: Value = serde_json::from_slice(output).map_err(|_| InvalidExecResponse::NoJson)?;
        let text = |path: &str| response.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
        if text("/kind") != Some(EXEC_CREDENTIAL_KIND) {
            return Err(wrong("kind", EXEC_CREDENTIAL_KIND));
        }
        if text("/apiVersion") != Some(&self.api_version) {
            return Err(wrong("apiVersion", &self.api_version));
        }
        let token = text("/status/token").map(str::to_owned);
        if token.as_ref().is_some_and(|token| !token.chars().all(|c| c.is_ascii_graphic())) {
            return Err(wrong("status.token", "a token on one line"));
        }
        let pem = |path| text(path).map(|text| text.as_bytes().to_vec());
        let pair = match (pem("/status/clientCertificateData"), pem("/status/clientKeyData")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) if token.is_some() => None,
            (None, None) => return Err(wrong("status", "a token, or a client certificate and key")),
            _ => return Err(wrong("status", "both of clientCertificateData and clientKeyData")),
        };
        let expires = match response.pointer("/status/expirationTimestamp") {
            None | Some(Value::Null) => None,
            Some(timestamp) => {
                let time = decode(timestamp.clone()).map_err(|_| wrong("status.expirationTimestamp", "a time"))?;
                Some(time.value)
            }
        };
        Ok(ExecCredential { token, pair, expires })
    }
}

fn cluster_info(cluster: &KubeconfigCluster) -> Value {
    let mut info = json!({"server": cluster.server});
    let Some(fields) = info.as_object_mut() else { return info };
    for (name, text) in [("tls-server-name", &cluster.tls_server_name), ("proxy-url", &cluster.proxy_url)] {
        if !text.is_empty() {
            fields.insert(name.to_owned(), json!(text));
        }
    }
    let flags = [
        ("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify),
        ("disable-compression", cluster.disable_compression),
    ];
    for (name, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
        fields.insert(name.to_owned(), json!(true));
    }
    let mut extensions = cluster.extensions.as_array().into_iter().flatten();
    let exec_extension = extensions.find(|extension| extension.get("name").is_some_and(|name| name == EXEC_EXTENSION));
    if let Some(config) = exec_extension.and_then(|extension| extension.get("extension")) {
        fields.insert("config".to_owned(), config.clone());
    }
    info
}

impl fmt::Display for InvalidExecResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJson => f.write_str("output is not JSON"),
            Self::Field { name, expected } => write!(f, "{name}: expected {expected}"),
        }
    }
}

// Arguments, environment and credentials may be secret.

impl fmt::Debug for ExecPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExecPlugin({})", self.program.display())
    }
}

impl fmt::Debug for ExecCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExecCredential(until {:?})", self.expires)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "client.authentication.k8s.io/v1";

    fn plugin(config: Value, cluster: Value) -> Result<ExecPlugin, String> {
        let config = decode(config).unwrap().value;
        let cluster = decode(cluster).unwrap().value;
        ExecPlugin::new(config, &cluster, "u", Path::new("/etc"))
    }

    fn plain() -> ExecPlugin {
        plugin(json!({"apiVersion": V1, "command": "aws", "interactiveMode": "Never"}), json!({})).unwrap()
    }

    #[test]
    fn command_with_a_slash_starts_at_the_kubeconfig() {
        let program = |command: &str| {
            let config = json!({"apiVersion": V1, "command": command, "interactiveMode": "IfAvailable"});
            plugin(config, json!({})).unwrap().program
        };
        assert_eq!(program("aws"), Path::new("aws"));
        assert_eq!(program("./bin/aws"), Path::new("/etc/./bin/aws"));
        assert_eq!(program("/bin/aws"), Path::new("/bin/aws"));
    }

    #[test]
    fn plugins_that_cannot_be_used_are_refused() {
        let versions = "expected client.authentication.k8s.io/v1 or client.authentication.k8s.io/v1beta1";
        for (api_version, mode, command, line) in [
            (
                "client.authentication.k8s.io/v1alpha1",
                "Never",
                "a",
                format!("apiVersion: {versions}, found \"client.authentication.k8s.io/v1alpha1\""),
            ),
            (V1, "", "a", "interactiveMode: expected Never or IfAvailable, found \"\"".to_owned()),
            (V1, "Always", "a", "interactiveMode: Always is not supported, the kubelet has no terminal".to_owned()),
            (V1, "Never", "", "command: expected a program, found nothing".to_owned()),
        ] {
            let config = json!({"apiVersion": api_version, "command": command, "interactiveMode": mode});
            assert_eq!(plugin(config, json!({})), Err(format!("user \"u\": exec.{line}")));
        }
        let older = json!({"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "a", "env": null});
        assert!(plugin(older, json!({})).is_ok());
    }

    #[test]
    fn plugin_gets_the_cluster_only_if_it_asks_for_it() {
        let info = |plugin: &ExecPlugin| -> Value { serde_json::from_str(&plugin.info(Some(b"ca"))).unwrap() };
        let expected = json!({"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": false}});
        assert_eq!(info(&plain()), expected);
        let cluster = json!({
            "server": "https://h:1", "tls-server-name": "api", "proxy-url": "http://p:3",
            "extensions": [
                {"name": "other", "extension": 1},
                {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
            ],
        });
        let config = json!({
            "apiVersion": V1, "command": "a", "interactiveMode": "Never", "provideClusterInfo": true,
        });
        let expected = json!({
            "server": "https://h:1", "tls-server-name": "api", "proxy-url": "http://p:3",
            "certificate-authority-data": "Y2E=", "config": {"audience": "a"},
        });
        assert_eq!(info(&plugin(config, cluster).unwrap())["spec"]["cluster"], expected);
    }

    #[test]
    fn response_has_a_token_or_a_certificate_with_its_key() {
        let read = |status: Value| {
            let response = json!({"kind": "ExecCredential", "apiVersion": V1, "status": status});
            plain().read_response(response.to_string().as_bytes())
        };
        let found = read(json!({"token": "t", "expirationTimestamp": "2030-01-02T03:04:05Z"})).unwrap();
        assert_eq!((found.token.as_deref(), found.expires.map(Time::unix_seconds)), (Some("t"), Some(1_893_553_445)));
        let found = read(json!({"clientCertificateData": "c", "clientKeyData": "k"})).unwrap();
        assert_eq!((found.token, found.pair), (None, Some((b"c".to_vec(), b"k".to_vec()))));
        for (status, line) in [
            (json!({}), "status: expected a token, or a client certificate and key"),
            (json!({"clientKeyData": "k"}), "status: expected both of clientCertificateData and clientKeyData"),
            (json!({"token": "a b"}), "status.token: expected a token on one line"),
            (json!({"token": "t", "expirationTimestamp": "soon"}), "status.expirationTimestamp: expected a time"),
        ] {
            assert_eq!(read(status).unwrap_err().to_string(), line);
        }
    }

    #[test]
    fn response_of_another_kind_or_version_is_refused() {
        let read = |text: &str| plain().read_response(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(read("token"), "output is not JSON");
        assert_eq!(read("{}"), "kind: expected ExecCredential");
        let older = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1"}"#;
        assert_eq!(read(older), format!("apiVersion: expected {V1}"));
    }

    #[test]
    fn debug_output_hides_secrets() {
        let env = json!([{"name": "PASSWORD", "value": "secret"}]);
        let config =
            json!({"apiVersion": V1, "command": "a", "args": ["secret"], "env": env, "interactiveMode": "Never"});
        assert_eq!(format!("{:?}", plugin(config, json!({})).unwrap()), "ExecPlugin(a)");
    }
}
