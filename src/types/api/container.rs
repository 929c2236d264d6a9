//! A container: its ports, environment, mounts and hooks. Pure.

use super::env_vars::EnvVars;
use super::pod::RestartPolicy;
use super::probe::{Lifecycle, Probe};
use super::quantity::Quantity;
use super::resources::ResourceRequirements;
use super::security::SecurityContext;
use super::texts::Texts;

object! {
    pub struct Container {
        @always {
            name: String,
            resources: ResourceRequirements,
        }
        image: String,
        command: Texts,
        args: Texts,
        working_dir: String,
        ports: Vec<ContainerPort>,
        env_from: Vec<EnvFromSource>,
        env: EnvVars,
        resize_policy: Vec<ContainerResizePolicy>,
        restart_policy: Option<RestartPolicy>,
        restart_policy_rules: Vec<ContainerRestartRule>,
        volume_mounts: Vec<VolumeMount>,
        volume_devices: Vec<VolumeDevice>,
        liveness_probe: Option<Box<Probe>>,
        readiness_probe: Option<Box<Probe>>,
        startup_probe: Option<Box<Probe>>,
        lifecycle: Option<Box<Lifecycle>>,
        termination_message_path: String,
        termination_message_policy: TerminationMessagePolicy,
        image_pull_policy: Option<PullPolicy>,
        security_context: Option<Box<SecurityContext>>,
        stdin: bool,
        stdin_once: bool,
        tty: bool,
        /// Ephemeral containers only: the container whose process namespace it joins.
        target_container_name: String,
    }
}

words! {
    pub enum PullPolicy {
        Always = "Always",
        IfNotPresent = "IfNotPresent",
        Never = "Never",
    }
}

words! {
    #[derive(Default)]
    pub enum TerminationMessagePolicy {
        FallbackToLogsOnError = "FallbackToLogsOnError",
        #[default]
        File = "File",
    }
}

object! {
    pub struct ContainerPort {
        name: String,
        host_port: i32,
        container_port: i32,
        protocol: Protocol,
        host_ip: String = "hostIP",
    }
}

words! {
    #[derive(Default, Hash, PartialOrd, Ord)]
    pub enum Protocol {
        Sctp = "SCTP",
        #[default]
        Tcp = "TCP",
        Udp = "UDP",
    }
}

object! {
    pub struct EnvVar {
        @always {
            name: String,
        }
        value: String,
        value_from: Option<Box<ValueFrom>>,
    }
}

/// The source of an environment variable's value.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueFrom {
    pub source: EnvVarSource,
}

one_of! {
    pub enum EnvVarSource {
        ConfigMapKey(KeySelector) = "configMapKeyRef",
        Field(ObjectFieldSelector) = "fieldRef",
        FileKey(FileKeySelector) = "fileKeyRef",
        ResourceField(ResourceFieldSelector) = "resourceFieldRef",
        SecretKey(KeySelector) = "secretKeyRef",
    }
}

one_of_object!(ValueFrom { @one source: EnvVarSource, default None });

object! {
    /// Selects one key of a ConfigMap or a Secret.
    pub struct KeySelector {
        name: String,
        key: String,
        optional: Option<bool>,
    }
}

object! {
    pub struct ObjectFieldSelector {
        api_version: String,
        field_path: String,
    }
}

object! {
    pub struct FileKeySelector {
        volume_name: String,
        path: String,
        key: String,
        optional: Option<bool>,
    }
}

object! {
    pub struct ResourceFieldSelector {
        container_name: String,
        resource: String,
        divisor: Quantity,
    }
}

/// Makes every key of a ConfigMap or a Secret an environment variable.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvFromSource {
    pub prefix: String,
    pub source: EnvFromRef,
}

one_of! {
    pub enum EnvFromRef {
        ConfigMap(OptionalReference) = "configMapRef",
        Secret(OptionalReference) = "secretRef",
    }
}

one_of_object!(EnvFromSource { prefix: String, @one source: EnvFromRef, default None });

object! {
    pub struct OptionalReference {
        name: String,
        optional: Option<bool>,
    }
}

object! {
    pub struct VolumeMount {
        name: String,
        read_only: bool,
        recursive_read_only: Option<RecursiveReadOnlyMode>,
        mount_path: String,
        sub_path: String,
        mount_propagation: Option<MountPropagation>,
        sub_path_expr: String,
    }
}

words! {
    pub enum RecursiveReadOnlyMode {
        Disabled = "Disabled",
        Enabled = "Enabled",
        IfPossible = "IfPossible",
    }
}

words! {
    pub enum MountPropagation {
        Bidirectional = "Bidirectional",
        HostToContainer = "HostToContainer",
        None = "None",
    }
}

object! {
    pub struct VolumeDevice {
        name: String,
        device_path: String,
    }
}

object! {
    pub struct ContainerResizePolicy {
        resource_name: String,
        restart_policy: ResizeRestartPolicy,
    }
}

words! {
    #[derive(Default)]
    pub enum ResizeRestartPolicy {
        #[default]
        NotRequired = "NotRequired",
        RestartContainer = "RestartContainer",
    }
}

object! {
    pub struct ContainerRestartRule {
        action: RestartRuleAction,
        exit_codes: Option<RestartRuleOnExitCodes>,
    }
}

words! {
    #[derive(Default)]
    pub enum RestartRuleAction {
        #[default]
        Restart = "Restart",
        RestartAllContainers = "RestartAllContainers",
    }
}

object! {
    pub struct RestartRuleOnExitCodes {
        operator: ExitCodesOperator,
        values: Vec<i32>,
    }
}

words! {
    #[derive(Default)]
    pub enum ExitCodesOperator {
        #[default]
        In = "In",
        NotIn = "NotIn",
    }
}

/// What the kubelet does with a container that exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterExit {
    /// Restart the container.
    Restart,
    /// Restart every container of the pod.
    RestartAll,
    /// Leave it exited.
    Stay,
}

impl AfterExit {
    /// `container_policy` and `rules` belong to the container, `pod` is the pod's policy. The rules apply only to a
    /// container with a policy of its own, and the first rule that matches decides (kubelet: `ContainerShouldRestart`).
    pub fn of(
        container_policy: Option<RestartPolicy>,
        rules: &[ContainerRestartRule],
        pod: RestartPolicy,
        code: i32,
    ) -> Self {
        let fitting = rules.iter().filter(|_| container_policy.is_some()).find(|rule| rule.fits(code));
        let restarts = match (fitting.map(|rule| rule.action), container_policy.unwrap_or(pod)) {
            (Some(RestartRuleAction::RestartAllContainers), _) => return Self::RestartAll,
            (Some(RestartRuleAction::Restart), _) | (None, RestartPolicy::Always) => true,
            (None, RestartPolicy::OnFailure) => code != 0,
            (None, RestartPolicy::Never) => false,
        };
        if restarts { Self::Restart } else { Self::Stay }
    }
}

impl ContainerRestartRule {
    fn fits(&self, code: i32) -> bool {
        self.exit_codes.as_ref().is_some_and(|codes| match codes.operator {
            ExitCodesOperator::In => codes.values.contains(&code),
            ExitCodesOperator::NotIn => !codes.values.contains(&code),
        })
    }
}

impl Container {
    /// What the kubelet does after the container exits with `code`, in a pod with restart policy `pod`.
    pub fn after_exit(&self, pod: RestartPolicy, code: i32) -> AfterExit {
        AfterExit::of(self.restart_policy, &self.restart_policy_rules, pod, code)
    }

    /// The names of the volumes that the container mounts, or has as block devices.
    pub fn used_volumes(&self) -> impl Iterator<Item = &str> {
        let mounts = self.volume_mounts.iter().map(|mount| mount.name.as_str());
        mounts.chain(self.volume_devices.iter().map(|device| device.name.as_str()))
    }

    /// An init container that keeps running beside the main containers.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == Some(RestartPolicy::Always)
    }
}
