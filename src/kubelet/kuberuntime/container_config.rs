//! The container configuration for the runtime. Pure.

use super::config_error::ConfigError;
use super::environment::Environment;
use super::labels::{container_annotations, container_labels};
use super::pod_index::PodIndex;
use super::resources::container_resources;
use super::security_context::{ImageUser, container_security_context};
use crate::kubelet::node::NodeSettings;
use crate::platform::cri::v1::{
    ContainerConfig, ContainerMetadata, ImageSpec, KeyValue, LinuxContainerConfig, Mount, Signal,
};
use crate::types::api::Container;

#[derive(Debug)]
pub(crate) struct ContainerInput<'a> {
    pub(crate) index: &'a PodIndex<'a>,
    pub(crate) container: &'a Container,
    pub(crate) is_init: bool,
    pub(crate) restart_count: u32,
    /// The runtime's image id.
    pub(crate) image_ref: &'a str,
    pub(crate) image_user: &'a ImageUser,
    pub(crate) environment: Environment,
    /// Volumes first, then `/etc/hosts` and the termination log.
    pub(crate) mounts: Vec<Mount>,
    /// Container id of an ephemeral container's target.
    pub(crate) target: Option<&'a str>,
    pub(crate) node: &'a NodeSettings,
}

pub(crate) fn container_config(input: ContainerInput<'_>) -> Result<ContainerConfig, ConfigError> {
    let ContainerInput { index, container, node, environment, .. } = input;
    let pod = index.pod;
    let security_context = container_security_context(pod, container, input.image_user, input.target, node)?;
    // The kernel limits environment and arguments together (execve(2)).
    let mut bytes = environment.bytes();
    let command = environment.expand_all(&container.command, &mut bytes)?;
    let args = environment.expand_all(&container.args, &mut bytes)?;
    Ok(ContainerConfig {
        metadata: Some(ContainerMetadata { name: container.name.clone(), attempt: input.restart_count }),
        image: Some(ImageSpec {
            image: input.image_ref.to_owned(),
            user_specified_image: container.image.clone(),
            ..ImageSpec::default()
        }),
        command,
        args,
        working_dir: container.working_dir.clone(),
        mounts: input.mounts,
        labels: container_labels(pod, container),
        annotations: container_annotations(pod, container, input.restart_count),
        log_path: log_path(&container.name, input.restart_count),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        linux: Some(LinuxContainerConfig {
            resources: Some(container_resources(index, container, input.is_init, node)),
            security_context: Some(security_context),
        }),
        stop_signal: stop_signal(container),
        envs: environment.into_variables().into_iter().map(variable).collect(),
        ..ContainerConfig::default()
    })
}

/// The log of the container instance with this restart count, relative to the pod's log directory.
fn log_path(container: &str, restart_count: u32) -> String {
    format!("{container}/{restart_count}.log")
}

/// A signal unknown to CRI counts as unset.
fn stop_signal(container: &Container) -> Signal {
    let name = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    name.and_then(Signal::from_name).unwrap_or_default()
}

fn variable((key, value): (String, Vec<u8>)) -> KeyValue {
    KeyValue { key, value }
}
