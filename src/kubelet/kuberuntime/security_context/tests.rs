use super::super::golden;
use super::*;
use crate::types::api::PodSecurityContext;

fn pod(own: PodSecurityContext) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = "web".to_owned();
    pod.metadata.namespace = "default".to_owned();
    pod.metadata.uid = "u1".into();
    pod.spec.security_context = Some(Box::new(own));
    pod
}

fn container(own: SecurityContext) -> Container {
    Container { name: "main".to_owned(), security_context: Some(Box::new(own)), ..Container::default() }
}

fn convert(
    pod: &Pod,
    container: &Container,
    user: &ImageUser,
) -> Result<v1::LinuxContainerSecurityContext, ConfigError> {
    container_security_context(pod, container, user, None, &golden::node())
}

fn profile(kind: SecurityProfileType, path: &str) -> Option<SecurityProfile> {
    Some(SecurityProfile { kind: Some(kind), localhost_profile: Some(path.to_owned()) })
}

#[test]
fn container_settings_override_the_pods() {
    let pod = pod(PodSecurityContext {
        run_as_user: Some(1),
        run_as_group: Some(2),
        seccomp_profile: profile(SecurityProfileType::RuntimeDefault, ""),
        app_armor_profile: profile(SecurityProfileType::Localhost, "strict"),
        ..PodSecurityContext::default()
    });
    let own = SecurityContext {
        run_as_user: Some(0),
        seccomp_profile: profile(SecurityProfileType::Localhost, "a/b.json"),
        ..SecurityContext::default()
    };
    let context = convert(&pod, &container(own), &ImageUser::Uid(9)).unwrap();
    assert_eq!((context.run_as_user, context.run_as_group), (Some(0), Some(2)));
    assert_eq!(context.seccomp.unwrap().localhost_ref, "/var/lib/kubelet/seccomp/a/b.json");
    assert_eq!(context.apparmor.unwrap().localhost_ref, "strict");
    assert_eq!(context.apparmor_profile, "localhost/strict");
}

#[test]
fn image_user_applies_without_run_as_user() {
    let pod = Pod::default();
    let named = ImageUser::Name("www".to_owned());
    let context = convert(&pod, &Container::default(), &named).unwrap();
    assert_eq!((context.run_as_user, context.run_as_username.as_str()), (None, "www"));
    let own = SecurityContext { run_as_user: Some(5), ..SecurityContext::default() };
    let context = convert(&pod, &container(own), &named).unwrap();
    assert_eq!((context.run_as_user, context.run_as_username.as_str()), (Some(5), ""));
}

#[test]
fn run_as_non_root_rejects_root_and_unknown_users() {
    let pod = pod(PodSecurityContext { run_as_non_root: Some(true), ..PodSecurityContext::default() });
    let plain = container(SecurityContext::default());
    let zero = container(SecurityContext { run_as_user: Some(0), ..SecurityContext::default() });
    let free = container(SecurityContext { run_as_non_root: Some(false), ..SecurityContext::default() });
    let of = "(pod: \"web_default(u1)\", container: main)";
    for (container, user, expected) in [
        (&plain, ImageUser::Uid(0), format!("container has runAsNonRoot and image will run as root {of}")),
        (&zero, ImageUser::Uid(7), format!("container's runAsUser breaks non-root policy {of}")),
        (
            &plain,
            ImageUser::Name("www".to_owned()),
            format!(
                "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root {of}"
            ),
        ),
    ] {
        let error = convert(&pod, container, &user).unwrap_err();
        assert_eq!((error.to_string(), error.reason().as_str()), (expected, "CreateContainerConfigError"));
    }
    assert!(convert(&pod, &plain, &ImageUser::Uid(7)).is_ok());
    assert!(convert(&pod, &free, &ImageUser::Uid(0)).is_ok());
}

#[test]
fn seccomp_is_unconfined_by_default_unless_configured() {
    let node = NodeSettings { seccomp_default: true, ..golden::node() };
    assert_eq!(seccomp(None, &golden::node()).unwrap().profile_type, v1::ProfileType::Unconfined);
    assert_eq!(seccomp(None, &node).unwrap().profile_type, v1::ProfileType::RuntimeDefault);
    let no_path = profile(SecurityProfileType::Localhost, "");
    assert_eq!(seccomp(no_path.as_ref(), &node), Err(ConfigError::NoSeccompPath));
}

#[test]
fn unmasked_proc_masks_only_the_nodes_paths() {
    let own = SecurityContext { proc_mount: Some(ProcMount::Unmasked), ..SecurityContext::default() };
    let context = convert(&Pod::default(), &container(own), &ImageUser::Uid(0)).unwrap();
    assert!(context.masked_paths.is_empty() && context.readonly_paths.is_empty());
    let node = NodeSettings { masked_paths: vec!["/sys/hot".to_owned()], ..golden::node() };
    let context =
        container_security_context(&Pod::default(), &Container::default(), &ImageUser::Uid(0), None, &node).unwrap();
    assert_eq!(context.masked_paths.last().unwrap(), "/sys/hot");
}

#[test]
fn ephemeral_container_shares_its_targets_pid_namespace() {
    let target = |pod: &Pod| {
        container_security_context(pod, &Container::default(), &ImageUser::Uid(0), Some("c1"), &golden::node())
            .unwrap()
            .namespace_options
            .unwrap()
    };
    let mut pod = Pod::default();
    assert_eq!((target(&pod).pid, target(&pod).target_id.as_str()), (v1::NamespaceMode::Target, "c1"));
    pod.spec.share_process_namespace = Some(true);
    assert_eq!((target(&pod).pid, target(&pod).target_id.as_str()), (v1::NamespaceMode::Pod, ""));
}
