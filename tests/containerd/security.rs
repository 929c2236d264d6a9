//! Users, privileges and confinement of containers, and pods that the node rejects.

use std::fs;

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

/// The output of a script in a container with these security contexts of container and pod.
#[track_caller]
fn said(node: &Node, name: &str, script: &str, of_container: &str, of_pod: &str) -> Vec<String> {
    let fields = format!("securityContext: {{{of_container}}}");
    let pod = Manifest::new(name).spec("restartPolicy: Never").spec(&format!("securityContext: {{{of_pod}}}"));
    node.apply(&pod.container_with("main", script, &fields));
    node.wait_until("the script has ended", |pods| pods.has(name, |pod| pod.container("main").exit_code().is_some()));
    node.container_log(name, "main").into_iter().map(|line| line.text).collect()
}

/// A script that prints credentials and confinement of the process.
const STATUS: &str =
    "grep -E '^(Groups|CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\\t ' ' '; id -u; id -g";

#[test]
fn security_contexts_set_users_groups_and_capabilities() {
    let node = Node::start();
    let plain = said(&node, "plain", STATUS, "", "");
    assert!(plain.contains(&"Seccomp: 0".to_owned()) && plain.contains(&"NoNewPrivs: 0".to_owned()), "{plain:?}");
    let of_pod = "runAsUser: 1000, runAsGroup: 1001, fsGroup: 2000, supplementalGroups: [2001], \
                  seccompProfile: {type: RuntimeDefault}";
    let narrow = "capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}, allowPrivilegeEscalation: false";
    let expected =
        ["Groups: 1001 2000 2001 ", "CapEff: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2", "1000", "1001"];
    assert_eq!(said(&node, "narrow", STATUS, narrow, of_pod), expected);
    // The container's security context overrides the pod's.
    let own = said(&node, "own", STATUS, "runAsUser: 0, seccompProfile: {type: Unconfined}", of_pod);
    assert!(own.contains(&"0".to_owned()) && own.contains(&"Seccomp: 0".to_owned()), "{own:?}");
    let wide = said(&node, "wide", STATUS, "privileged: true", "");
    assert!(wide.iter().any(|line| line.starts_with("CapEff: ") && line.ends_with("ffff")), "{wide:?}");
}

#[test]
fn read_only_and_masked_paths_cannot_be_written() {
    let node = Node::start();
    let script = "touch /x 2>/dev/null && echo root; (echo 1 > /proc/sys/kernel/domainname) 2>/dev/null && echo sys; \
                  [ -s /proc/keys ] && echo keys; echo done";
    assert_eq!(said(&node, "closed", script, "readOnlyRootFilesystem: true", ""), ["done"]);
    assert_eq!(said(&node, "open", "touch /x && echo root", "", ""), ["root"]);
}

#[test]
fn localhost_seccomp_profile_blocks_system_calls() {
    let node = Node::start();
    let folder = node.folder().join("pods/seccomp/mine");
    fs::create_dir_all(&folder).unwrap();
    let profile = r#"{"defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}"#;
    fs::write(folder.join("no-mkdir.json"), profile).unwrap();
    let local = "seccompProfile: {type: Localhost, localhostProfile: mine/no-mkdir.json}";
    assert_eq!(said(&node, "local", "mkdir /d 2>/dev/null || echo refused", local, ""), ["refused"]);
    assert_eq!(said(&node, "without", "mkdir /d && echo made", "", ""), ["made"]);
}

#[test]
fn unsafe_sysctls_need_the_nodes_permission() {
    let mut node = Node::with_runtime();
    node.configure_agent("allowedUnsafeSysctls: ['kernel.msg*']\n");
    node.start_agent();
    let sysctls = "sysctls: [{name: kernel/shm_rmid_forced, value: '1'}, {name: kernel.msgmax, value: '4242'}]";
    let script = "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/kernel/msgmax";
    assert_eq!(said(&node, "allowed", script, "", sysctls), ["1", "4242"]);
    let forbidden = "securityContext: {sysctls: [{name: net.core.somaxconn, value: '10'}]}";
    check_rejected(
        &node,
        Manifest::new("forbidden").spec(forbidden),
        "SysctlForbidden",
        "forbidden sysctl: \"net.core.somaxconn\" not allowlisted",
    );
}

#[test]
fn pod_with_unsupported_confinement_is_rejected() {
    let node = Node::start();
    if fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|enabled| enabled.starts_with('Y')) {
        // The profile may still be loaded: the runtime refuses each start until then.
        let profile = "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: no-such-profile}}";
        node.apply(&Manifest::new("confined").spec(profile).container("main", STAY));
        node.wait_until("the start to be tried", |pods| {
            pods.has("confined", |pod| pod.phase() != "Failed") && node.agent_log().contains("no-such-profile")
        });
    } else {
        let profile = "securityContext: {appArmorProfile: {type: RuntimeDefault}}";
        let message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        check_rejected(&node, Manifest::new("confined").spec(profile), "AppArmor", message);
    }
}

#[test]
fn strict_supplemental_groups_need_runtime_support() {
    let node = Node::start();
    let strict = "securityContext: {supplementalGroups: [7], supplementalGroupsPolicy: Strict}";
    let pod = Manifest::new("strict").spec(strict).spec("restartPolicy: Never");
    if node.ctr(&["version"]).contains("Version:  1.") {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        check_rejected(&node, pod, "SupplementalGroupsPolicyNotSupported", message);
    } else {
        node.apply(&pod.container("main", "id -G"));
        node.wait_for_output("strict", "main", "0 7");
    }
}

#[test]
fn user_namespaces_need_runtime_support() {
    let node = Node::start();
    node.apply(&Manifest::new("users").spec("hostUsers: false").container("main", "cat /proc/self/uid_map"));
    if node.ctr(&["version"]).contains("Version:  1.") {
        let message = "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support";
        wait_for("the event", PATIENCE, || node.events("users").find("FailedCreatePodSandBox", message).map(drop));
        assert_eq!(node.tasks_of("users"), []);
    } else {
        let mapped = |text: &str| text.split_whitespace().collect::<Vec<_>>()[..] == ["0", "65536", "65536"];
        wait_for("the users", PATIENCE, || {
            node.container_log("users", "main").iter().any(|line| mapped(&line.text)).then_some(())
        });
    }
}

/// Checks that the pod failed with this reason and message and that the runtime created nothing for it.
#[track_caller]
pub(crate) fn check_rejected(node: &Node, pod: Manifest, reason: &str, message: &str) {
    let name = pod.name().to_owned();
    node.apply(&pod.container("main", STAY));
    let pods = node.wait_until("the pod has failed", |pods| pods.has(&name, |pod| pod.phase() == "Failed"));
    let status = &pods.get(&name).unwrap().json()["status"];
    assert_eq!(status["reason"], reason);
    assert_eq!(status["message"], format!("Pod was rejected: {message}"));
    let told = node.events(&name).find(reason, message).map(|event| event.0["type"].clone());
    assert_eq!(told, Some("Warning".into()));
    assert_eq!(node.tasks_of(&name), []);
}
