//! AppArmor support of the host. Pure.

use super::Rejection;
use crate::types::api::{Pod, Reason, SecurityProfile, SecurityProfileType};

/// Whether the pod has an AppArmor profile.
pub(super) fn is_wanted(pod: &Pod) -> bool {
    profiles(pod).any(|profile| profile.kind != Some(SecurityProfileType::Unconfined))
}

/// As upstream, a profile that is not loaded is the runtime's error when the container starts, which is retried.
pub(super) fn check(is_enabled: bool) -> Result<(), Rejection> {
    let message = || "Cannot enforce AppArmor: AppArmor is not enabled on the host".to_owned();
    if is_enabled { Ok(()) } else { Err(Rejection { reason: Reason::APP_ARMOR, message: message() }) }
}

fn profiles(pod: &Pod) -> impl Iterator<Item = &SecurityProfile> {
    let of_pod = pod.spec.security_context.iter().filter_map(|context| context.app_armor_profile.as_ref());
    let contexts = pod.spec.all_containers().filter_map(|container| container.security_context.as_ref());
    of_pod.chain(contexts.filter_map(|context| context.app_armor_profile.as_ref()))
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
    fn host_without_app_armor_enforces_no_profile() {
        assert!(is_wanted(&confined(profile(SecurityProfileType::Localhost, Some("not-loaded-yet")))));
        assert_eq!(check(true), Ok(()));
        let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        assert_eq!(check(false).unwrap_err().message, message);
    }
}
