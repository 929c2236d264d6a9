//! Discovers a cluster, verifies it, and reads the configuration for its nodes.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kubelet::certificates::discovery::{
    BootstrapToken, ClusterInfoError, Pin, pinned_authority, verified_kubeconfig,
};
use crate::platform::apiserver::{Access, ApiError, Kubeconfig, Pem, Request, SingleRequests, Token};
use crate::platform::net::{Dialer, ProxySettings};
use crate::platform::rt;
use crate::types::error::ErrorChain;

/// The parameters of a discovery.
#[derive(Debug)]
pub(super) struct DiscoveryQuery {
    /// `https://host:port`.
    pub(super) server: String,
    pub(super) token: BootstrapToken,
    /// Empty: any server that knows the token is trusted.
    pub(super) pins: Vec<Pin>,
    pub(super) node_name: String,
    /// How long to retry while the server is unreachable or has not signed with the token yet.
    pub(super) patience: Duration,
}

/// The cluster's data for a new node.
#[derive(Debug)]
pub(super) struct Cluster {
    /// With the token.
    pub(super) kubeconfig: Kubeconfig,
    /// CA certificates in PEM.
    pub(super) authority: Vec<u8>,
    /// The nodes' KubeletConfiguration.
    pub(super) kubelet_config: String,
    /// The proxy in between, if the environment names one.
    pub(super) proxy: Option<String>,
}

const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const KUBELET_CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/kubelet-config";
const DISCOVERY_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Runs the discovery; `progress` gets a line while it waits.
pub(super) async fn discover(question: &DiscoveryQuery, progress: &dyn Fn(&str)) -> Result<Cluster, String> {
    let (kubeconfig, authority) = meet(question, progress).await?;
    let kubeconfig = Kubeconfig { token: Some(Token::Data(question.token.reveal())), ..kubeconfig };
    let client = client(&kubeconfig)?;
    let id = question.token.id();
    let config = client.send(&Request::get(KUBELET_CONFIG)).await.and_then(|response| response.json());
    let config = config.map_err(|error| match error.code() {
        Some(401) => format!("the API server does not accept token {id:?} for authentication, or it has expired"),
        _ => format!("read the cluster's kubelet-config: {}", ErrorChain(&error)),
    })?;
    let kubelet_config = config.pointer("/data/kubelet").and_then(Value::as_str);
    let kubelet_config = kubelet_config.ok_or("the cluster's kubelet-config has no configuration in it")?.to_owned();
    check_name(&client, &question.node_name).await?;
    let proxy = client.proxy().filter(|_| kubeconfig.proxy.is_none());
    Ok(Cluster { kubeconfig, authority, kubelet_config, proxy })
}

/// The cluster and its CA, after verification.
async fn meet(question: &DiscoveryQuery, progress: &dyn Fn(&str)) -> Result<(Kubeconfig, Vec<u8>), String> {
    let unknown = Kubeconfig::of_server(&question.server);
    let anybody = client(&Kubeconfig { insecure: true, ..unknown.clone() })?;
    let text = patiently(question, progress, &anybody).await?;
    let cluster_info =
        Kubeconfig::of_only_cluster(text.as_bytes()).map_err(|error| format!("cluster-info: {error}"))?;
    let Some(Pem::Data(bundle)) = cluster_info.authority.clone() else {
        return Err("cluster-info: expected certificate-authority-data, found nothing".to_owned());
    };
    let authority = pinned_authority(&bundle, &question.pins).map_err(|error| error.to_string())?;
    let kubeconfig = Kubeconfig { authority: Some(Pem::Data(authority.clone())), ..cluster_info };
    if !question.pins.is_empty() {
        // The first connection was not verified and may have relayed another cluster's signed answer.
        let known = client(&Kubeconfig { authority: Some(Pem::Data(authority.clone())), ..unknown })?;
        let again = known.send(&Request::get(CLUSTER_INFO)).await.and_then(|response| response.json());
        let again = again.map_err(|error| ErrorChain(&error).to_string())?;
        if again.pointer("/data/kubeconfig").and_then(Value::as_str) != Some(&text) {
            return Err("the server returned two different cluster-infos, try again".to_owned());
        }
    }
    Ok((kubeconfig, authority))
}

/// The verified kubeconfig in cluster-info. The cluster signs with a new token a moment after it was created.
async fn patiently(
    question: &DiscoveryQuery,
    progress: &dyn Fn(&str),
    client: &SingleRequests,
) -> Result<String, String> {
    let end = Instant::now() + question.patience;
    let mut shown = String::new();
    loop {
        let (why, may_pass) = match client.send(&Request::get(CLUSTER_INFO)).await.and_then(|response| response.json())
        {
            Ok(info) => match verified_kubeconfig(&info, &question.token) {
                Ok(kubeconfig) => return Ok(kubeconfig),
                Err(error) => (error.to_string(), matches!(error, ClusterInfoError::NoSuchToken { .. })),
            },
            Err(error) => (described(&error), error.is_retryable()),
        };
        if !may_pass || Instant::now() + DISCOVERY_RETRY_DELAY >= end {
            return Err(why);
        }
        if shown != why {
            progress(&format!("waiting: {why}"));
            shown = why;
        }
        rt::sleep(DISCOVERY_RETRY_DELAY).await;
    }
}

fn described(error: &ApiError) -> String {
    match error.code() {
        Some(404) => ClusterInfoError::NoKubeconfig.to_string(),
        Some(401 | 403) => "the API server does not allow anonymous access to cluster-info".to_owned(),
        _ => ErrorChain(error).to_string(),
    }
}

/// Refuses the name of an existing ready node, as kubeadm does: two nodes with the same name would conflict.
async fn check_name(client: &SingleRequests, name: &str) -> Result<(), String> {
    let node = match client.send(&Request::get(format!("/api/v1/nodes/{name}"))).await {
        Ok(response) => response.json().map_err(|error| ErrorChain(&error).to_string())?,
        // Without permission to read it, the check is skipped.
        Err(error) if error.is_not_found() || error.is_forbidden() => return Ok(()),
        Err(error) => return Err(format!("get node {name}: {}", ErrorChain(&error))),
    };
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let is_ready = conditions.into_iter().flatten().any(|condition| {
        condition.get("type").is_some_and(|kind| kind == "Ready")
            && condition.get("status").is_some_and(|is| is == "True")
    });
    match is_ready {
        true => Err(format!(
            "the cluster has a node {name} that is ready: choose another name (--node-name), or delete it \
             (kubectl delete node {name})"
        )),
        false => Ok(()),
    }
}

fn client(kubeconfig: &Kubeconfig) -> Result<SingleRequests, String> {
    let access = Access::new(kubeconfig, Path::new("cluster-info")).map_err(|error| ErrorChain(&error).to_string())?;
    Ok(SingleRequests::new(access, Dialer::of_server(ProxySettings::from_environment())))
}
