//! Credential providers that get tokens of service accounts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::joined::Joined;
use super::pods::{WEB, is_ready, pod};
use coracle::platform::cri::v1::PullImageRequest;

/// Writes the providers' configuration, and a provider that notes its requests. Returns the arguments of the agent.
fn provider(joined: &Joined, cache_type: &str) -> Vec<String> {
    let folder = joined.node.folder().join("providers");
    fs::create_dir_all(&folder).unwrap();
    let answer = json!({
        "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry", "cacheDuration": "1h", "auth": {"localhost": {"username": "u", "password": "p"}},
    });
    let script = format!("#!/bin/sh\n(cat; echo) >>{}\necho '{answer}'\n", asked(joined).display());
    fs::write(folder.join("login"), script).unwrap();
    fs::set_permissions(folder.join("login"), fs::Permissions::from_mode(0o755)).unwrap();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig",
        "providers": [{
            "name": "login", "matchImages": ["localhost"], "defaultCacheDuration": "0s",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "tokenAttributes": {
                "serviceAccountTokenAudience": "registry", "cacheType": cache_type, "requireServiceAccount": true,
                "requiredServiceAccountAnnotationKeys": ["example.com/role"],
            },
        }],
    });
    let path = joined.node.folder().join("providers.json");
    fs::write(&path, config.to_string()).unwrap();
    vec![
        format!("--image-credential-provider-config={}", path.display()),
        format!("--image-credential-provider-bin-dir={}", folder.display()),
    ]
}

fn asked(joined: &Joined) -> PathBuf {
    joined.node.folder().join("asked")
}

fn account(name: &str, annotations: &Value) -> Value {
    let meta = json!({"name": name, "namespace": "default", "annotations": annotations});
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
}

fn pulled_by(name: &str, account: &str) -> Value {
    let container = json!({"name": "main", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "Always"});
    pod(name, &json!({"serviceAccountName": account, "containers": [container]}))
}

fn requests(joined: &Joined) -> Vec<Value> {
    let text = fs::read_to_string(asked(joined)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn provider_gets_a_token_of_the_pods_service_account_once_for_all_its_pods() {
    let mut joined = Joined::new();
    let arguments = provider(&joined, "ServiceAccount");
    joined.api.allow("system:nodes", "request-serviceaccounts-token-audience", "registry");
    joined.api.create(&account("robot", &json!({"example.com/role": "reader"})));
    joined.start("", &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    for name in ["web", "db"] {
        joined.api.create(&pulled_by(name, "robot"));
        joined.api.wait(&WEB.replace("web", name), "the pod to be ready", is_ready);
    }
    let requests = requests(&joined);
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    assert!(request["serviceAccountToken"].as_str().is_some_and(|token| !token.is_empty()), "{request}");
    assert_eq!(request["serviceAccountAnnotations"], json!({"example.com/role": "reader"}));
    let pulls = joined.node.fake.requests::<PullImageRequest>("PullImage");
    let users: Vec<String> = pulls.into_iter().map(|pull| pull.auth.unwrap_or_default().username).collect();
    assert_eq!(users, ["u", "u"]);
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let tokens = joined.api.requests_of("POST", path);
    assert_eq!(tokens.len(), 2, "one for each pod");
}

#[test]
fn service_account_without_the_annotation_does_not_reach_the_provider() {
    let mut joined = Joined::new();
    let arguments = provider(&joined, "Token");
    joined.api.create(&account("plain", &json!({})));
    joined.start("", &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    joined.api.create(&pulled_by("web", "plain"));
    joined.api.wait(WEB, "the pod to be ready", is_ready);
    assert_eq!(requests(&joined), [] as [Value; 0]);
    let pulls = joined.node.fake.requests::<PullImageRequest>("PullImage");
    assert_eq!(pulls.into_iter().map(|pull| pull.auth.is_some()).collect::<Vec<_>>(), [false]);
}
