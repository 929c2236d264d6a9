//! Secrets stay out of the log, and their files are readable by the owner only.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::certificates::{Newcomer, TOKEN};
use super::pods::{PODS, mounted, pod};
use crate::fake_api::faults::WatchFault;

const VALUE: &str = "hidden-value";
const PASSWORD: &str = "hidden-password";

fn secret(name: &str, kind: &str, data: &Value) -> Value {
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": metadata, "data": data})
}

/// Every file below a folder, without links and pod mounts.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !entry.path().ends_with("pods/pods") {
            files(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

/// A run with every kind of secret, at the highest verbosity, with some failing requests.
#[test]
fn no_secret_is_logged_and_key_files_are_private() {
    let mut newcomer = Newcomer::approved();
    newcomer.give_bootstrap_credentials();
    let api = &newcomer.0.api;
    api.on("get", "*").malformed().times(2);
    api.on("create", "*/token").malformed().times(1);
    api.on("watch", "*/secrets").watch(WatchFault::Garbage { after: 1, bytes: b"{\n".to_vec() }).times(1);
    api.on("watch", PODS).watch(WatchFault::CutInEvent(1)).times(1);
    let account = json!({"name": "default", "namespace": "default"});
    api.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}));
    api.create(&secret("s", "Opaque", &json!({"p": STANDARD.encode(VALUE)})));
    let login = json!({"auths": {"registry.example": {"username": "u", "password": PASSWORD}}}).to_string();
    let config = json!({".dockerconfigjson": STANDARD.encode(login)});
    api.create(&secret("login", "kubernetes.io/dockerconfigjson", &config));
    newcomer.start_with(&["-v", "10"]);
    let sources = json!([{"serviceAccountToken": {"path": "token"}}, {"secret": {"name": "s"}}]);
    let mut spec = mounted(&json!({"name": "v", "projected": {"sources": sources}}));
    spec["serviceAccountName"] = json!("default");
    spec["imagePullSecrets"] = json!([{"name": "login"}]);
    let reference = json!({"secretKeyRef": {"name": "s", "key": "p"}});
    spec["containers"][0]["env"] = json!([{"name": "P", "valueFrom": reference}]);
    spec["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "s"}}]);
    newcomer.0.api.create(&pod("web", &spec));
    newcomer.0.wait_until_web_is_ready();
    let volume = "kubernetes.io~projected";
    let token = newcomer.0.volume_file(volume, "token").unwrap();
    assert_eq!(newcomer.0.volume_file(volume, "p").as_deref(), Some(VALUE));
    let other = "hidden-later";
    newcomer.0.api.update(&secret("s", "Opaque", &json!({"p": STANDARD.encode(other)})));
    newcomer.0.wait_for_file(volume, "p", other);

    let node = &newcomer.0.node;
    let asked: [&[&str]; 4] = [&["events"], &["status", "-o", "json"], &["pods", "-o", "json"], &["describe", "web"]];
    let said: Vec<String> = asked.iter().filter_map(|line| node.ask(line)).collect();
    let said = said.join("\n") + &node.log();
    let (_, bootstrap) = TOKEN.split_once('.').unwrap();
    let plain = [VALUE, PASSWORD, other, bootstrap, token.as_str()];
    let encoded = plain.map(|secret| STANDARD.encode(secret).trim_end_matches('=').to_owned());
    let asked_for = newcomer.0.api.count("create", "*/token");
    assert!(asked_for >= 2 && token.len() > 20, "{asked_for}");
    for secret in plain.iter().copied().chain(encoded.iter().map(String::as_str)) {
        // The last characters of base64 depend on what follows.
        let secret = secret.get(..secret.len() - 1).unwrap();
        let line = said.lines().find(|line| line.contains(secret));
        assert_eq!(line, None, "{secret} was said");
    }
    newcomer.assert_that_nothing_secret_was_said();

    let mut all = Vec::new();
    files(node.folder(), &mut all);
    let own = all.iter().filter(|file| !file.starts_with(node.folder().join("bootstrap")));
    let mut keys = 0;
    for file in own {
        let content = String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
        let is_key = content.contains("PRIVATE KEY");
        if is_key || plain.iter().any(|secret| content.contains(secret)) {
            keys += usize::from(is_key);
            let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{}", file.display());
        }
    }
    assert!(keys >= 1, "{all:?}");
    newcomer.0.api.delete("/api/v1/namespaces/default/pods/web");
    newcomer.0.api.wait_gone("/api/v1/namespaces/default/pods/web");
}
