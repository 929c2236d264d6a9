//! Asks the container runtime.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::facts::{LeanFacts, RuntimeAnswer, RuntimeError, RuntimeFacts};
use super::lean::passes_groups;
use super::runtime::cni_directories;
use crate::kubelet::node::NodeInfo;
use crate::platform::config::{Config, RuntimeProfile};
use crate::platform::cri::{Error, ImageService, RuntimeService};
use crate::platform::{rpc, rt};
use crate::protocol::grpc;
use crate::types::error::ErrorChain;

/// For all questions together.
const RUNTIME_CHECK_TIMEOUT: Duration = Duration::from_secs(5);
const USUAL_SOCKETS: [&str; 3] =
    ["/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/k3s/containerd/containerd.sock"];

pub(super) fn read(config: &Config) -> RuntimeFacts {
    let endpoint = config.runtime.endpoint.as_path();
    let answer = if endpoint.exists() {
        let asked = rt::block_on(rt::deadline(RUNTIME_CHECK_TIMEOUT, ask(config)));
        let late = || RuntimeError::Other(format!("no answer within {} s", RUNTIME_CHECK_TIMEOUT.as_secs()));
        asked.unwrap_or_else(|_| Err(late()))
    } else {
        Err(RuntimeError::NoSocket)
    };
    RuntimeFacts {
        endpoint: endpoint.display().to_string(),
        response: Some(answer),
        other_sockets: USUAL_SOCKETS
            .iter()
            .filter(|path| Path::new(path).exists())
            .map(|&path| path.to_owned())
            .collect(),
    }
}

pub(super) fn lean(root: &Path, config: &Config, runtime: Option<&RuntimeAnswer>) -> LeanFacts {
    LeanFacts {
        is_asked_for: config.runtime.profile == RuntimeProfile::Lean,
        passes_groups: runtime.and_then(|response| response.passes_groups),
        environment: environment(&config.runtime.endpoint),
        memory_bytes: NodeInfo::read(root).memory_bytes,
    }
}

/// The environment of the process that listens on the socket.
fn environment(socket: &Path) -> Option<Vec<String>> {
    let peer = getsockopt(&UnixStream::connect(socket).ok()?, PeerCredentials).ok()?.pid();
    let text = std::fs::read(format!("/proc/{peer}/environ")).ok()?;
    let variables = text.split(|byte| *byte == 0).filter(|variable| !variable.is_empty());
    Some(variables.map(|variable| String::from_utf8_lossy(variable).into_owned()).collect())
}

async fn ask(config: &Config) -> Result<RuntimeAnswer, RuntimeError> {
    let client = |endpoint: &Path| rpc::Client::with_limit(&endpoint.to_string_lossy(), grpc::MAX_MESSAGE_BYTES);
    let runtime = RuntimeService::new(client(&config.runtime.endpoint), RUNTIME_CHECK_TIMEOUT);
    let version = runtime.version().await.map_err(|error| failure(&error))?;
    let mut response =
        RuntimeAnswer { name: version.runtime_name, version: version.runtime_version, ..RuntimeAnswer::default() };
    let status = runtime.status(true).await.map_err(|error| failure(&error))?;
    response.pause_image = status.sandbox_image();
    if let Some(config) = status.info.get("config") {
        (response.cni_config_directory, response.cni_plugin_directories) = cni_directories(config);
        response.passes_groups = passes_groups(config);
    }
    for condition in status.status.into_iter().flat_map(|status| status.conditions) {
        match condition.r#type.as_str() {
            "RuntimeReady" => (response.ready, response.message) = (Some(condition.status), condition.message),
            "NetworkReady" => {
                (response.network_ready, response.network_message) = (Some(condition.status), condition.message);
            }
            _ => {}
        }
    }
    let images = ImageService::new(client(&config.runtime.image_endpoint), RUNTIME_CHECK_TIMEOUT);
    // A runtime that does not list its images still runs pods.
    if let Ok(images) = images.list_images(None).await {
        response.has_pause_image = Some(match &response.pause_image {
            Some(name) => images.iter().any(|image| image.pinned || image.repo_tags.contains(name)),
            None => images.iter().any(|image| image.pinned),
        });
    }
    Ok(response)
}

fn failure(error: &Error) -> RuntimeError {
    if error.is_unimplemented() { RuntimeError::NoCri } else { RuntimeError::Other(ErrorChain(error).to_string()) }
}
