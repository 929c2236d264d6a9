//! Security contexts of pods and containers. Pure.

use serde_json::Value;

use super::texts::Texts;

object! {
    pub struct PodSecurityContext {
        se_linux_options: Option<Box<SeLinuxOptions>>,
        windows_options: Option<Box<Value>>,
        run_as_user: Option<i64>,
        run_as_group: Option<i64>,
        run_as_non_root: Option<bool>,
        supplemental_groups: Vec<i64>,
        supplemental_groups_policy: Option<SupplementalGroupsPolicy>,
        fs_group: Option<i64>,
        fs_group_change_policy: Option<FsGroupChangePolicy>,
        sysctls: Vec<Sysctl>,
        seccomp_profile: Option<SecurityProfile>,
        app_armor_profile: Option<SecurityProfile>,
        se_linux_change_policy: Option<String>,
    }
}

object! {
    pub struct SecurityContext {
        capabilities: Option<Capabilities>,
        privileged: Option<bool>,
        se_linux_options: Option<Box<SeLinuxOptions>>,
        windows_options: Option<Box<Value>>,
        run_as_user: Option<i64>,
        run_as_group: Option<i64>,
        run_as_non_root: Option<bool>,
        read_only_root_filesystem: Option<bool>,
        allow_privilege_escalation: Option<bool>,
        proc_mount: Option<ProcMount>,
        seccomp_profile: Option<SecurityProfile>,
        app_armor_profile: Option<SecurityProfile>,
    }
}

object! {
    pub struct Capabilities {
        add: Texts,
        drop: Texts,
    }
}

object! {
    pub struct SeLinuxOptions {
        user: String,
        role: String,
        kind: String = "type",
        level: String,
    }
}

object! {
    /// A seccomp or an AppArmor profile.
    pub struct SecurityProfile {
        /// Required: an absent type must not mean "unconfined".
        kind: Option<SecurityProfileType> = "type",
        localhost_profile: Option<String>,
    }
}

words! {
    pub enum SecurityProfileType {
        Localhost = "Localhost",
        RuntimeDefault = "RuntimeDefault",
        Unconfined = "Unconfined",
    }
}

words! {
    #[derive(Default)]
    pub enum ProcMount {
        #[default]
        Default = "Default",
        Unmasked = "Unmasked",
    }
}

words! {
    #[derive(Default)]
    pub enum SupplementalGroupsPolicy {
        #[default]
        Merge = "Merge",
        Strict = "Strict",
    }
}

words! {
    #[derive(Default)]
    pub enum FsGroupChangePolicy {
        #[default]
        Always = "Always",
        OnRootMismatch = "OnRootMismatch",
    }
}

object! {
    pub struct Sysctl {
        name: String,
        value: String,
    }
}

impl SecurityProfile {
    /// Parses the value of the deprecated AppArmor annotation; `None` if it is invalid.
    pub fn of_annotation(value: &str) -> Option<Self> {
        let (kind, name) = match value {
            "runtime/default" => (SecurityProfileType::RuntimeDefault, None),
            "unconfined" => (SecurityProfileType::Unconfined, None),
            value => (SecurityProfileType::Localhost, Some(value.strip_prefix("localhost/")?.to_owned())),
        };
        Some(Self { kind: Some(kind), localhost_profile: name })
    }
}
