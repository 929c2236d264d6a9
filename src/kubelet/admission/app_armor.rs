//! AppArmor support of the host. Pure.

use super::Rejection;
use crate::types::api::{Pod, Reason, SecurityProfile, SecurityProfileType};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AppArmor {
    pub(super) is_enabled: bool,
    /// Names of the loaded profiles; `None` if they cannot be read.
    pub(super) profiles: Option<Vec<String>>,
}

/// Whether the pod has an AppArmor profile.
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

/// Profile names in the kernel's list, which has lines such as `/usr/bin/man (enforce)`.
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
    fn only_pods_with_a_profile_need_app_armor() {
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
    fn localhost_profile_must_be_loaded() {
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
    fn loaded_profiles_are_parsed() {
        assert_eq!(loaded("/usr/bin/man (enforce)\nmine (x) (complain)\n\n"), ["/usr/bin/man", "mine (x)"]);
    }
}
