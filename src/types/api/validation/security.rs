//! Validates security contexts: users, groups, sysctls, profiles. Pure.

use super::faults::Faults;
use super::file_paths;
use super::names::SYSCTL_NAME;
use super::scope::Scope;
use crate::types::api::decode::Path;
use crate::types::api::{
    PodSecurityContext, PodSpec, ProcMount, SecurityContext, SecurityProfile, SecurityProfileType, Sysctl,
};
use crate::types::sorted::Seen;

/// The kernel's longest path (`PATH_MAX`), without its terminating NUL.
const MAX_PROFILE_BYTES: usize = 4095;

pub(super) fn check_pod(spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    if spec.share_process_namespace == Some(true) && spec.host_pid {
        faults.forbidden(&path.key("shareProcessNamespace"), "when hostPID is true");
    }
    let Some(context) = &spec.security_context else { return };
    let path = path.key("securityContext");
    check_pod_context(context, spec, &path, faults);
}

fn check_pod_context(context: &PodSecurityContext, spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    check_id(context.fs_group, &path.key("fsGroup"), faults);
    check_id(context.run_as_group, &path.key("runAsGroup"), faults);
    check_id(context.run_as_user, &path.key("runAsUser"), faults);
    for (index, group) in context.supplemental_groups.iter().enumerate() {
        check_id(Some(*group), &path.key("supplementalGroups").index(index), faults);
    }
    check_sysctls(&context.sysctls, spec, &path.key("sysctls"), faults);
    check_seccomp(context.seccomp_profile.as_ref(), &path.key("seccompProfile"), faults);
    check_app_armor(context.app_armor_profile.as_ref(), &path.key("appArmorProfile"), faults);
    if let Some(policy) = &context.se_linux_change_policy {
        if !["MountOption", "Recursive"].contains(&policy.as_str()) {
            let wanted = "must be \"MountOption\" or \"Recursive\"";
            faults.invalid(&path.key("seLinuxChangePolicy"), policy, wanted);
        }
    }
    if context.windows_options.is_some() && is_linux(spec) {
        faults.forbidden(&path.key("windowsOptions"), "for a Linux pod");
    }
}

fn is_linux(spec: &PodSpec) -> bool {
    spec.os.as_ref().is_some_and(|os| os.name == "linux")
}

fn check_id(id: Option<i64>, path: &Path<'_>, faults: &mut Faults) {
    if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        faults.out_of_range(path, id, format_args!("must be from 0 to {}", i32::MAX));
    }
}

fn check_sysctls(sysctls: &[Sysctl], spec: &PodSpec, path: &Path<'_>, faults: &mut Faults) {
    let mut names = Seen::default();
    for (index, sysctl) in sysctls.iter().enumerate() {
        let name = sysctl.name.as_str();
        let path = path.index(index);
        let path = path.key("name");
        faults.required_name(&path, name, &SYSCTL_NAME);
        if !name.is_empty() && !names.insert(name) {
            faults.duplicate(&path, name);
        }
        match namespace(name) {
            Some(Namespace::Ipc) if spec.host_ipc => faults.invalid(&path, name, "not when hostIPC is true"),
            Some(Namespace::Net) if spec.host_network => faults.invalid(&path, name, "not when hostNetwork is true"),
            Some(Namespace::Ipc | Namespace::Net) | None => {}
        }
    }
}

/// Kernel namespaces that isolate sysctls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

fn namespace(sysctl: &str) -> Option<Namespace> {
    let mut parts = sysctl.split(['.', '/']);
    match (parts.next()?, parts.next(), parts.next()) {
        ("net", Some(_), _) => Some(Namespace::Net),
        ("fs", Some("mqueue"), Some(_)) => Some(Namespace::Ipc),
        ("kernel", Some(name), None) => IPC.contains(&name).then_some(Namespace::Ipc),
        _ => None,
    }
}

const IPC: [&str; 10] =
    ["msg", "msgmax", "msgmnb", "msgmni", "sem", "shm", "shm_rmid_forced", "shmall", "shmmax", "shmmni"];

pub(super) fn check_container(context: &SecurityContext, scope: &Scope<'_>, path: &Path<'_>, faults: &mut Faults) {
    check_id(context.run_as_group, &path.key("runAsGroup"), faults);
    check_id(context.run_as_user, &path.key("runAsUser"), faults);
    check_seccomp(context.seccomp_profile.as_ref(), &path.key("seccompProfile"), faults);
    check_app_armor(context.app_armor_profile.as_ref(), &path.key("appArmorProfile"), faults);
    if context.proc_mount == Some(ProcMount::Unmasked) && scope.host_users() {
        faults.invalid(&path.key("procMount"), ProcMount::Unmasked.as_str(), "only when hostUsers is false");
    }
    if context.allow_privilege_escalation == Some(false) {
        let path = path.key("allowPrivilegeEscalation");
        if context.privileged == Some(true) {
            faults.other(&path, "must not be false when privileged is true");
        }
        let mut added = context.capabilities.iter().flat_map(|capabilities| capabilities.add.iter());
        if added.any(|capability| capability == "CAP_SYS_ADMIN") {
            faults.other(&path, "must not be false when the capability CAP_SYS_ADMIN is added");
        }
    }
    if context.windows_options.is_some() && is_linux(scope.spec) {
        faults.forbidden(&path.key("windowsOptions"), "for a Linux pod");
    }
}

fn check_seccomp(profile: Option<&SecurityProfile>, path: &Path<'_>, faults: &mut Faults) {
    let Some(profile) = profile else { return };
    let Some(kind) = profile.kind else { return faults.required(&path.key("type")) };
    let path = path.key("localhostProfile");
    match (kind, &profile.localhost_profile) {
        (SecurityProfileType::Localhost, None) => faults.required_as(&path, LOCALHOST),
        (SecurityProfileType::Localhost, Some(file)) => file_paths::descending(file, &path, faults),
        (_, Some(_)) => faults.forbidden(&path, NOT_LOCALHOST),
        (_, None) => {}
    }
}

fn check_app_armor(profile: Option<&SecurityProfile>, path: &Path<'_>, faults: &mut Faults) {
    let Some(profile) = profile else { return };
    let Some(kind) = profile.kind else { return faults.required(&path.key("type")) };
    let path = path.key("localhostProfile");
    match (kind, profile.localhost_profile.as_deref()) {
        (SecurityProfileType::Localhost, None | Some("")) => faults.required_as(&path, LOCALHOST),
        (SecurityProfileType::Localhost, Some(name)) if name.trim() != name => {
            faults.invalid(&path, name, "must not begin or end with white space");
        }
        (SecurityProfileType::Localhost, Some(name)) if name.len() > MAX_PROFILE_BYTES => {
            faults.invalid(&path, name, format_args!("must be at most {MAX_PROFILE_BYTES} characters"));
        }
        (SecurityProfileType::Localhost, Some(_)) | (_, None) => {}
        (_, Some(_)) => faults.forbidden(&path, NOT_LOCALHOST),
    }
}

const LOCALHOST: &str = "the type is \"Localhost\"";
const NOT_LOCALHOST: &str = "unless the type is \"Localhost\"";
