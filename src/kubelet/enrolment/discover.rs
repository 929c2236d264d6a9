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
use crate::types::time::Backoff;

/// The parameters of a discovery.
#[derive(Debug)]
pub(crate) struct DiscoveryQuery {
    /// `https://host:port`.
    pub(crate) server: String,
    pub(crate) token: BootstrapToken,
    /// Empty: any server that knows the token is trusted.
    pub(crate) pins: Vec<Pin>,
    pub(crate) node_name: String,
    /// How long to retry while the server is unreachable or has not signed with the token yet; `None`: for ever.
    pub(crate) patience: Option<Duration>,
}

/// The cluster's data for a new node.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// With the token.
    pub(crate) kubeconfig: Kubeconfig,
    /// CA certificates in PEM.
    pub(crate) authority: Vec<u8>,
    /// The nodes' KubeletConfiguration.
    pub(crate) kubelet_config: String,
    /// The proxy in between, if the environment names one.
    pub(crate) proxy: Option<String>,
}

const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
const KUBELET_CONFIG: &str = "/api/v1/namespaces/kube-system/configmaps/kubelet-config";
const DISCOVERY_RETRY_DELAY: Duration = Duration::from_secs(2);
/// While it is retried for ever.
const MAX_DISCOVERY_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Runs the discovery; `progress` gets a line while it waits.
pub(crate) async fn discover(question: &DiscoveryQuery, progress: &dyn Fn(&str)) -> Result<Cluster, String> {
    let mut retries = Retries::new(question.patience, progress);
    let (kubeconfig, authority) = meet(question, &mut retries).await?;
    let kubeconfig = Kubeconfig { token: Some(Token::Data(question.token.reveal())), ..kubeconfig };
    let client = client(&kubeconfig)?;
    let id = question.token.id();
    let refused = |error: &ApiError| match error.code() {
        Some(401) => format!("the API server does not accept token {id:?} for authentication, or it has expired"),
        _ => format!("read the cluster's kubelet-config: {}", ErrorChain(error)),
    };
    let config = retries.get(&client, KUBELET_CONFIG, refused).await?;
    let kubelet_config = config.pointer("/data/kubelet").and_then(Value::as_str);
    let kubelet_config = kubelet_config.ok_or("the cluster's kubelet-config has no configuration in it")?.to_owned();
    check_name(&client, &question.node_name).await?;
    let proxy = client.proxy().filter(|_| kubeconfig.proxy.is_none());
    Ok(Cluster { kubeconfig, authority, kubelet_config, proxy })
}

/// The cluster and its CA, after verification.
async fn meet(question: &DiscoveryQuery, retries: &mut Retries<'_>) -> Result<(Kubeconfig, Vec<u8>), String> {
    let unknown = Kubeconfig::of_server(&question.server);
    let anybody = client(&Kubeconfig { insecure: true, ..unknown.clone() })?;
    // The cluster signs with a new token a moment after it was created.
    let text = loop {
        let info = retries.get(&anybody, CLUSTER_INFO, described).await?;
        match verified_kubeconfig(&info, &question.token) {
            Ok(kubeconfig) => break kubeconfig,
            Err(error) => {
                retries.wait(error.to_string(), matches!(error, ClusterInfoError::NoSuchToken { .. })).await?;
            }
        }
    };
    let cluster_info =
        Kubeconfig::of_only_cluster(text.as_bytes()).map_err(|error| format!("cluster-info: {error}"))?;
    let Some(Pem::Data(bundle)) = cluster_info.authority.clone() else {
        return Err("cluster-info: expected certificate-authority-data, found nothing".to_owned());
    };
    let authority = pinned_authority(&bundle, &question.pins).map_err(|error| error.to_string())?;
    let kubeconfig = Kubeconfig { authority: Some(Pem::Data(authority.clone())), ..cluster_info };
    if !question.pins.is_empty() {
        // The first connection was not verified and may have relayed another cluster's signed answer.
        let verified_client = client(&Kubeconfig { authority: Some(Pem::Data(authority.clone())), ..unknown })?;
        let again = retries.get(&verified_client, CLUSTER_INFO, |error| ErrorChain(error).to_string()).await?;
        if again.pointer("/data/kubeconfig").and_then(Value::as_str) != Some(&text) {
            return Err("the server returned two different cluster-infos, try again".to_owned());
        }
    }
    Ok((kubeconfig, authority))
}

/// Retries what may pass, within the patience of the whole discovery.
struct Retries<'a> {
    /// `None`: for ever.
    end: Option<Instant>,
    delays: Backoff,
    progress: &'a dyn Fn(&str),
    /// The last line of progress.
    shown: String,
}

impl<'a> Retries<'a> {
    fn new(patience: Option<Duration>, progress: &'a dyn Fn(&str)) -> Self {
        let limit = if patience.is_some() { DISCOVERY_RETRY_DELAY } else { MAX_DISCOVERY_RETRY_DELAY };
        let delays = Backoff::new(DISCOVERY_RETRY_DELAY, limit);
        Self { end: patience.map(|patience| rt::now() + patience), delays, progress, shown: String::new() }
    }

    async fn get(
        &mut self,
        client: &SingleRequests,
        path: &str,
        described: impl Fn(&ApiError) -> String,
    ) -> Result<Value, String> {
        loop {
            match client.send(&Request::get(path)).await.and_then(|response| response.json()) {
                Ok(object) => return Ok(object),
                Err(error) => self.wait(described(&error), error.is_retryable()).await?,
            }
        }
    }

    /// Waits before another try. Fails with `why` if it cannot pass, or not in time.
    async fn wait(&mut self, why: String, may_pass: bool) -> Result<(), String> {
        let delay = self.delays.next_wait();
        if !may_pass || self.end.is_some_and(|end| rt::now() + delay >= end) {
            return Err(why);
        }
        if self.shown != why {
            (self.progress)(&format!("waiting: {why}"));
            self.shown = why;
        }
        rt::sleep(delay).await;
        Ok(())
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
