//! Security contexts of sandboxes and containers. Pure.

use super::config_error::{ConfigError, ContainerName};
use crate::kubelet::node::NodeSettings;
use crate::platform::cri::v1;
use crate::types::api::{
    Capabilities, Container, Pod, PodSpec, ProcMount, SeLinuxOptions, SecurityContext, SecurityProfile,
    SecurityProfileType, SupplementalGroupsPolicy,
};

/// The user configured in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImageUser {
    Uid(i64),
    Name(String),
}

/// The security context of a container; `target` is the container id of an ephemeral container's target.
pub(crate) fn container_security_context(
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
    target: Option<&str>,
    node: &NodeSettings,
) -> Result<v1::LinuxContainerSecurityContext, ConfigError> {
    let effective = Effective::new(pod, container);
    effective.check_non_root(image_user, || ContainerName::new(pod, container))?;
    let container_context = effective.of_container;
    let mut namespaces = namespace_options(&pod.spec);
    if let (Some(id), v1::NamespaceMode::Container) = (target, namespaces.pid) {
        namespaces.pid = v1::NamespaceMode::Target;
        namespaces.target_id = id.to_owned();
    }
    let (apparmor, apparmor_name) = apparmor(effective.apparmor);
    let mut context = v1::LinuxContainerSecurityContext {
        capabilities: container_context.capabilities.as_ref().map(capabilities),
        privileged: container_context.privileged.unwrap_or(false),
        namespace_options: Some(namespaces),
        selinux_options: effective.selinux.map(selinux),
        run_as_user: effective.run_as_user,
        run_as_group: effective.run_as_group,
        readonly_rootfs: container_context.read_only_root_filesystem.unwrap_or(false),
        supplemental_groups: supplemental_groups(&pod.spec),
        supplemental_groups_policy: groups_policy(&pod.spec),
        no_new_privs: container_context.allow_privilege_escalation == Some(false),
        seccomp: Some(seccomp(effective.seccomp, node)?),
        apparmor,
        apparmor_profile: apparmor_name,
        ..v1::LinuxContainerSecurityContext::default()
    };
    if container_context.proc_mount != Some(ProcMount::Unmasked) {
        let everywhere = MASKED_PATHS.iter().map(|path| (*path).to_owned());
        context.masked_paths = everywhere.chain(node.masked_paths.iter().cloned()).collect();
        context.readonly_paths = READ_ONLY_PATHS.map(str::to_owned).to_vec();
    }
    match image_user {
        _ if effective.run_as_user.is_some() => {}
        ImageUser::Uid(uid) => context.run_as_user = Some(*uid),
        ImageUser::Name(name) => context.run_as_username.clone_from(name),
    }
    Ok(context)
}

/// The security context of the sandbox: its user, and the namespaces shared by the containers.
pub(crate) fn sandbox_security_context(spec: &PodSpec) -> v1::LinuxSandboxSecurityContext {
    let pod_context = spec.security_context.as_deref();
    v1::LinuxSandboxSecurityContext {
        namespace_options: Some(namespace_options(spec)),
        selinux_options: pod_context.and_then(|pod_context| pod_context.se_linux_options.as_deref()).map(selinux),
        run_as_user: pod_context.and_then(|pod_context| pod_context.run_as_user),
        run_as_group: pod_context.and_then(|pod_context| pod_context.run_as_group),
        supplemental_groups: supplemental_groups(spec),
        supplemental_groups_policy: groups_policy(spec),
        privileged: spec.all_containers().any(|container| {
            container.security_context.as_ref().is_some_and(|context| context.privileged == Some(true))
        }),
        // Independent of the containers: the pause process needs nothing that the default profile blocks.
        seccomp: Some(v1::SecurityProfile::default()),
        ..v1::LinuxSandboxSecurityContext::default()
    }
}

/// The effective settings of a container: its own, else the pod's.
struct Effective<'a> {
    of_container: &'a SecurityContext,
    run_as_user: Option<i64>,
    run_as_group: Option<i64>,
    run_as_non_root: bool,
    selinux: Option<&'a SeLinuxOptions>,
    seccomp: Option<&'a SecurityProfile>,
    apparmor: Option<&'a SecurityProfile>,
}

impl<'a> Effective<'a> {
    fn new(pod: &'a Pod, container: &'a Container) -> Self {
        static NONE: SecurityContext = NO_CONTEXT;
        let container_context = container.security_context.as_deref().unwrap_or(&NONE);
        let pod = pod.spec.security_context.as_deref();
        Self {
            of_container: container_context,
            run_as_user: container_context.run_as_user.or_else(|| pod?.run_as_user),
            run_as_group: container_context.run_as_group.or_else(|| pod?.run_as_group),
            run_as_non_root: container_context.run_as_non_root.or_else(|| pod?.run_as_non_root).unwrap_or(false),
            selinux: container_context.se_linux_options.as_deref().or_else(|| pod?.se_linux_options.as_deref()),
            seccomp: container_context.seccomp_profile.as_ref().or_else(|| pod?.seccomp_profile.as_ref()),
            apparmor: container_context.app_armor_profile.as_ref().or_else(|| pod?.app_armor_profile.as_ref()),
        }
    }

    fn check_non_root(&self, image_user: &ImageUser, of: impl Fn() -> ContainerName) -> Result<(), ConfigError> {
        match (self.run_as_non_root, self.run_as_user, image_user) {
            (false, ..) => Ok(()),
            (true, Some(0), _) => Err(ConfigError::RunsAsRoot { of: of() }),
            (true, None, ImageUser::Uid(0)) => Err(ConfigError::ImageUserIsRoot { of: of() }),
            (true, None, ImageUser::Name(user)) => Err(ConfigError::ImageUserIsAName { user: user.clone(), of: of() }),
            (true, Some(_), _) | (true, None, ImageUser::Uid(_)) => Ok(()),
        }
    }
}

/// The namespaces that the containers of a pod share. User namespaces are set elsewhere, because their ids depend on
/// the node's other pods.
pub(crate) fn namespace_options(spec: &PodSpec) -> v1::NamespaceOption {
    use v1::NamespaceMode::{Container, Node, Pod};
    let pid = match (spec.host_pid, spec.share_process_namespace) {
        (true, _) => Node,
        (false, Some(true)) => Pod,
        (false, _) => Container,
    };
    let shared = |with_node| if with_node { Node } else { Pod };
    v1::NamespaceOption {
        network: shared(spec.host_network),
        pid,
        ipc: shared(spec.host_ipc),
        target_id: String::new(),
        userns_options: Some(v1::UserNamespace { mode: Node, ..v1::UserNamespace::default() }),
    }
}

/// The fsGroup, then the supplemental groups.
fn supplemental_groups(spec: &PodSpec) -> Vec<i64> {
    let Some(pod_context) = &spec.security_context else { return Vec::new() };
    pod_context.fs_group.into_iter().chain(pod_context.supplemental_groups.iter().copied()).collect()
}

fn groups_policy(spec: &PodSpec) -> v1::SupplementalGroupsPolicy {
    match spec.security_context.as_ref().and_then(|context| context.supplemental_groups_policy) {
        None | Some(SupplementalGroupsPolicy::Merge) => v1::SupplementalGroupsPolicy::Merge,
        Some(SupplementalGroupsPolicy::Strict) => v1::SupplementalGroupsPolicy::Strict,
    }
}

fn seccomp(profile: Option<&SecurityProfile>, node: &NodeSettings) -> Result<v1::SecurityProfile, ConfigError> {
    let plain = |profile_type| v1::SecurityProfile { profile_type, ..v1::SecurityProfile::default() };
    let Some((profile, kind)) = profile.and_then(|profile| Some((profile, profile.kind?))) else {
        let by_default =
            if node.seccomp_default { v1::ProfileType::RuntimeDefault } else { v1::ProfileType::Unconfined };
        return Ok(plain(by_default));
    };
    match (kind, profile.localhost_profile.as_deref()) {
        (SecurityProfileType::RuntimeDefault, _) => Ok(plain(v1::ProfileType::RuntimeDefault)),
        (SecurityProfileType::Unconfined, _) => Ok(plain(v1::ProfileType::Unconfined)),
        (SecurityProfileType::Localhost, None | Some("")) => Err(ConfigError::NoSeccompPath),
        (SecurityProfileType::Localhost, Some(path)) => {
            let path = node.seccomp_root.join(path).to_string_lossy().into_owned();
            Ok(v1::SecurityProfile { profile_type: v1::ProfileType::Localhost, localhost_ref: path })
        }
    }
}

/// The profile, and its string form for runtimes older than CRI 0.23.
fn apparmor(profile: Option<&SecurityProfile>) -> (Option<v1::SecurityProfile>, String) {
    let Some((profile, kind)) = profile.and_then(|profile| Some((profile, profile.kind?))) else {
        return (None, String::new());
    };
    let name = profile.localhost_profile.as_deref().unwrap_or_default();
    let (profile_type, word) = match kind {
        SecurityProfileType::RuntimeDefault => (v1::ProfileType::RuntimeDefault, "runtime/default".to_owned()),
        SecurityProfileType::Unconfined => (v1::ProfileType::Unconfined, "unconfined".to_owned()),
        SecurityProfileType::Localhost => (v1::ProfileType::Localhost, ["localhost/", name].concat()),
    };
    let localhost_ref = if kind == SecurityProfileType::Localhost { name.to_owned() } else { String::new() };
    (Some(v1::SecurityProfile { profile_type, localhost_ref }), word)
}

fn capabilities(capabilities: &Capabilities) -> v1::Capability {
    v1::Capability {
        add_capabilities: capabilities.add.to_vec(),
        drop_capabilities: capabilities.drop.to_vec(),
        add_ambient_capabilities: Vec::new(),
    }
}

fn selinux(options: &SeLinuxOptions) -> v1::SeLinuxOption {
    v1::SeLinuxOption {
        user: options.user.clone(),
        role: options.role.clone(),
        r#type: options.kind.clone(),
        level: options.level.clone(),
    }
}

const NO_CONTEXT: SecurityContext = SecurityContext {
    capabilities: None,
    privileged: None,
    se_linux_options: None,
    windows_options: None,
    run_as_user: None,
    run_as_group: None,
    run_as_non_root: None,
    read_only_root_filesystem: None,
    allow_privilege_escalation: None,
    proc_mount: None,
    seccomp_profile: None,
    app_armor_profile: None,
};

const MASKED_PATHS: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

const READ_ONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

#[cfg(test)]
mod tests;
