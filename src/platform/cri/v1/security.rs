//! Security settings: users, namespaces, profiles, capabilities. Pure.

use crate::protocol::protobuf::{message, open_enum};

open_enum! {
    /// The owner of a container's namespace.
    pub enum NamespaceMode {
        Pod = 0,
        Container = 1,
        Node = 2,
        /// The namespace of the container `target_id`.
        Target = 3,
    }

    pub enum SupplementalGroupsPolicy {
        /// Also the groups of the image's user.
        Merge = 0,
        Strict = 1,
    }

    pub enum ProfileType {
        RuntimeDefault = 0,
        Unconfined = 1,
        Localhost = 2,
    }
}

message! {
    pub struct IdMapping {
        1 => host_id: u32,
        2 => container_id: u32,
        3 => length: u32,
    }

    /// The mode is `Pod` or `Node`; the mappings apply to `Pod`.
    pub struct UserNamespace {
        1 => mode: NamespaceMode,
        2 => uids: Vec<IdMapping>,
        3 => gids: Vec<IdMapping>,
    }

    pub struct NamespaceOption {
        /// `Pod` or `Node`.
        1 => network: NamespaceMode,
        2 => pid: NamespaceMode,
        /// `Pod` or `Node`.
        3 => ipc: NamespaceMode,
        4 => target_id: String,
        5 => userns_options: Option<UserNamespace>,
    }

    /// A seccomp or AppArmor profile.
    pub struct SecurityProfile {
        1 => profile_type: ProfileType,
        /// The path of a seccomp profile or the name of an AppArmor profile, for `Localhost`.
        2 => localhost_ref: String,
    }

    pub struct SeLinuxOption {
        1 => user: String,
        2 => role: String,
        3 => r#type: String,
        4 => level: String,
    }

    /// Capabilities by name without `CAP_`, or `ALL`.
    pub struct Capability {
        1 => add_capabilities: Vec<String>,
        2 => drop_capabilities: Vec<String>,
        3 => add_ambient_capabilities: Vec<String>,
    }

    pub struct LinuxSandboxSecurityContext {
        1 => namespace_options: Option<NamespaceOption>,
        2 => selinux_options: Option<SeLinuxOption>,
        3 => run_as_user: Option<i64>,
        /// Only with `run_as_user`.
        8 => run_as_group: Option<i64>,
        4 => readonly_rootfs: bool,
        5 => supplemental_groups: Vec<i64>,
        11 => supplemental_groups_policy: SupplementalGroupsPolicy,
        /// Whether the pod will have a privileged container.
        6 => privileged: bool,
        9 => seccomp: Option<SecurityProfile>,
        10 => apparmor: Option<SecurityProfile>,
        /// For runtimes without `seccomp`.
        7 => seccomp_profile_path: String,
    }

    pub struct LinuxContainerSecurityContext {
        1 => capabilities: Option<Capability>,
        2 => privileged: bool,
        3 => namespace_options: Option<NamespaceOption>,
        4 => selinux_options: Option<SeLinuxOption>,
        /// Not with `run_as_username`.
        5 => run_as_user: Option<i64>,
        /// Only with `run_as_user` or `run_as_username`.
        12 => run_as_group: Option<i64>,
        6 => run_as_username: String,
        7 => readonly_rootfs: bool,
        8 => supplemental_groups: Vec<i64>,
        17 => supplemental_groups_policy: SupplementalGroupsPolicy,
        11 => no_new_privs: bool,
        13 => masked_paths: Vec<String>,
        14 => readonly_paths: Vec<String>,
        15 => seccomp: Option<SecurityProfile>,
        16 => apparmor: Option<SecurityProfile>,
        /// For runtimes without `apparmor`.
        9 => apparmor_profile: String,
        /// For runtimes without `seccomp`.
        10 => seccomp_profile_path: String,
    }

    /// The user of a container's first process.
    pub struct LinuxContainerUser {
        1 => uid: i64,
        2 => gid: i64,
        3 => supplemental_groups: Vec<i64>,
    }

    pub struct ContainerUser {
        1 => linux: Option<LinuxContainerUser>,
    }
}
