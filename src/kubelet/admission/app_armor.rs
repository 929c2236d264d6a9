//! Whether the host can confine a pod as it asks for. Pure.

use super::Rejection;
use crate::types::api::{Pod, Reason, SecurityProfile, SecurityProfileType};

/// What the host says of AppArmor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AppArmor {
    pub(super) is_enabled: bool,
    /// The names of the profiles that are loaded; `None` if that cannot be told.
    pub(super) profiles: Option<Vec<String>>,
}

/// Whether anything of the pod is to be confined.
pub(super) fn is_wanted(pod: &Pod) -> bool {
    profiles(pod).any(|profile| profile.kind != Some(SecurityProfileType::Unconfined))
}

pub(super) fn check(pod: &Pod, host: &AppArmor) -> Result<(), Rejection> {
    let refused =
        |why: &str| Err(Rejection { reason: Reason::APP_ARMOR, message: format!("Cannot enforce AppArmor: {why}") });
    if !host.is_enabled {
        return refused("AppArmor is not enabled on the host");
    }
    let local = profiles(pod).filter(|profile| profile.kind == Some(SecurityProfileType::Localhost));
    for name in local.filter_map(|profile| profile.localhost_profile.as_ref()) {
        if host.profiles.as_ref().is_some_and(|loaded| !loaded.contains(name)) {
            return refused(&format!("profile {name:?} is not loaded"));
        }
    }
    Ok(())
}

fn profiles(pod: &Pod) -> impl Iterator<Item = &SecurityProfile> {
    let of_pod = pod.spec.security_context.iter().filter_map(|context| context.app_armor_profile.as_ref());
    let contexts = pod.spec.all_containers().filter_map(|container| container.security_context.as_ref());
    of_pod.chain(contexts.filter_map(|context| context.app_armor_profile.as_ref()))
}

/// The names in the kernel's list of profiles: `/usr/bin/man (enforce)`.
pub(super) fn loaded(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.rsplit_once(" (").map(|(name, _)| name.to_owned()));
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{Container, PodSecurityContext, SecurityContext};

    fn profile(kind: SecurityProfileType, name: Option<&str>) -> Option<SecurityProfile> {
        Some(SecurityProfile { kind: Some(kind), localhost_profile: name.map(str::to_owned) })
    }

    fn confined(app_armor_profile: Option<SecurityProfile>) -> Pod {
        let context = SecurityContext { app_armor_profile, ..SecurityContext::default() };
        let container = Container { security_context: Some(Box::new(context)), ..Container::default() };
        let mut pod = Pod::default();
        pod.spec.containers = vec![container];
        pod
    }

    fn host(profiles: Option<&[&str]>) -> AppArmor {
        let profiles = profiles.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        AppArmor { is_enabled: true, profiles }
    }

    #[test]
    fn only_a_pod_that_is_to_be_confined_needs_it() {
        assert!(!is_wanted(&Pod::default()));
        assert!(!is_wanted(&confined(profile(SecurityProfileType::Unconfined, None))));
        assert!(is_wanted(&confined(profile(SecurityProfileType::RuntimeDefault, None))));
        let app_armor_profile = profile(SecurityProfileType::RuntimeDefault, None);
        let context = PodSecurityContext { app_armor_profile, ..PodSecurityContext::default() };
        let mut pod = Pod::default();
        pod.spec.security_context = Some(Box::new(context));
        assert!(is_wanted(&pod));
    }

    #[test]
    fn a_profile_of_the_host_must_be_loaded() {
        let message = |pod: &Pod, host: &AppArmor| check(pod, host).err().map(|rejection| rejection.message);
        let default = confined(profile(SecurityProfileType::RuntimeDefault, None));
        let disabled = Some("Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned());
        assert_eq!(message(&default, &AppArmor::default()), disabled);
        assert_eq!(message(&default, &host(Some(&[]))), None);
        let local = confined(profile(SecurityProfileType::Localhost, Some("mine")));
        let missing = Some("Cannot enforce AppArmor: profile \"mine\" is not loaded".to_owned());
        assert_eq!(message(&local, &host(Some(&["other"]))), missing);
        assert_eq!(message(&local, &host(Some(&["mine"]))), None);
        assert_eq!(message(&local, &host(None)), None);
    }

    #[test]
    fn profiles_are_read_off_the_kernels_list() {
        assert_eq!(loaded("/usr/bin/man (enforce)\nmine (x) (complain)\n\n"), ["/usr/bin/man", "mine (x)"]);
    }
}
