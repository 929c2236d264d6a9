//! Users, sysctls and profiles.

use super::*;

#[track_caller]
fn check_pod_context(context: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<String> = wanted.iter().map(|wanted| ["spec.securityContext.", wanted.as_ref()].concat()).collect();
    check_spec(json!({"securityContext": context}), &wanted);
}

#[track_caller]
fn check_context(context: Value, wanted: &[impl AsRef<str>]) {
    let wanted: Vec<String> = wanted.iter().map(|wanted| ["securityContext.", wanted.as_ref()].concat()).collect();
    check_container(json!({"securityContext": context}), &wanted);
}

#[test]
fn user_and_group_ids_have_31_bits() {
    let most = i32::MAX;
    let ids = json!({"runAsUser": 0, "runAsGroup": most});
    passes_container(json!({"securityContext": ids}));
    passes_spec(json!({"securityContext": {"runAsUser": most, "fsGroup": 0, "supplementalGroups": [0, most]}}));
    let range = "must be from 0 to 2147483647";
    check_context(
        json!({"runAsUser": -1, "runAsGroup": 2_147_483_648_i64}),
        &[format!("runAsGroup: 2147483648: {range}"), format!("runAsUser: -1: {range}")],
    );
    check_pod_context(
        json!({"runAsUser": -1, "runAsGroup": -2, "fsGroup": -3, "supplementalGroups": [1, -4]}),
        &[
            format!("fsGroup: -3: {range}"),
            format!("runAsGroup: -2: {range}"),
            format!("runAsUser: -1: {range}"),
            format!("supplementalGroups[1]: -4: {range}"),
        ],
    );
}

#[test]
fn sysctls_are_unique_and_in_the_pods_namespaces() {
    let sysctls = |names: &[&str]| {
        let list: Vec<Value> = names.iter().map(|name| json!({"name": name, "value": "1"})).collect();
        json!({"sysctls": list})
    };
    passes_spec(json!({"securityContext": sysctls(&["kernel.shm_rmid_forced", "net.ipv4.ip_forward", "vm/x"])}));
    check_pod_context(
        sysctls(&["", "a b", "kernel.sem", "kernel.sem"]),
        &[
            "sysctls[0].name: required",
            "sysctls[1].name: \"a b\": must be a sysctl such as net.ipv4.ip_forward: at most 253 lower case letters, \
             digits, '-' or '_', in parts between '.' or '/'",
            "sysctls[3].name: \"kernel.sem\": duplicate",
        ],
    );
    let names = ["kernel.msgmax", "net/core/somaxconn", "fs.mqueue.msg_max", "kernel.pid_max", "vm.swappiness"];
    check_spec(
        json!({"hostNetwork": true, "securityContext": sysctls(&names)}),
        &["spec.securityContext.sysctls[1].name: \"net/core/somaxconn\": not when hostNetwork is true"],
    );
    check_spec(
        json!({"hostIPC": true, "securityContext": sysctls(&names)}),
        &[
            "spec.securityContext.sysctls[0].name: \"kernel.msgmax\": not when hostIPC is true",
            "spec.securityContext.sysctls[2].name: \"fs.mqueue.msg_max\": not when hostIPC is true",
        ],
    );
}

#[test]
fn only_localhost_profiles_have_a_path() {
    for field in ["seccompProfile", "appArmorProfile"] {
        check_context(json!({field: {}}), &[format!("{field}.type: required")]);
        let path = format!("{field}.localhostProfile");
        for good in [json!({"type": "RuntimeDefault"}), json!({"type": "Localhost", "localhostProfile": "a/b.json"})] {
            passes_container(json!({"securityContext": {field: good}}));
            passes_spec(json!({"securityContext": {field: good}}));
        }
        let missing = json!({field: {"type": "Localhost"}});
        check_context(missing.clone(), &[format!("{path}: required: the type is \"Localhost\"")]);
        check_pod_context(missing, &[format!("{path}: required: the type is \"Localhost\"")]);
        check_context(
            json!({field: {"type": "Unconfined", "localhostProfile": "a"}}),
            &[format!("{path}: must not be set unless the type is \"Localhost\"")],
        );
    }
    let seccomp = |file: &str| json!({"seccompProfile": {"type": "Localhost", "localhostProfile": file}});
    check_context(seccomp("/a"), &["seccompProfile.localhostProfile: \"/a\": must be a relative path"]);
    check_context(seccomp("a/../b"), &["seccompProfile.localhostProfile: \"a/../b\": must not contain '..'"]);
    let app_armor = |name: &str| json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": name}});
    let path = "appArmorProfile.localhostProfile";
    check_context(app_armor(""), &[format!("{path}: required: the type is \"Localhost\"")]);
    check_context(app_armor(" a"), &[format!("{path}: \" a\": must not begin or end with white space")]);
    check_context(
        app_armor(&"a".repeat(4096)),
        &[format!("{path}: \"{}\"…: must be at most 4095 characters", "a".repeat(256))],
    );
}

#[test]
fn unmasked_proc_needs_a_user_namespace() {
    let spec = |host_users: bool| {
        let mut spec = container(json!({"securityContext": {"procMount": "Unmasked"}}));
        spec["hostUsers"] = json!(host_users);
        spec
    };
    passes_spec(spec(false));
    passes_container(json!({"securityContext": {"procMount": "Default"}}));
    check_spec(
        spec(true),
        &["spec.containers[0].securityContext.procMount: \"Unmasked\": only when hostUsers is false"],
    );
}

#[test]
fn privileged_containers_must_allow_privilege_escalation() {
    passes_container(json!({"securityContext": {
        "allowPrivilegeEscalation": false, "privileged": false, "capabilities": {"add": ["NET_ADMIN"]},
    }}));
    passes_container(json!({"securityContext": {"allowPrivilegeEscalation": true, "privileged": true}}));
    check_context(
        json!({"allowPrivilegeEscalation": false, "privileged": true, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}),
        &[
            "allowPrivilegeEscalation: must not be false when privileged is true",
            "allowPrivilegeEscalation: must not be false when the capability CAP_SYS_ADMIN is added",
        ],
    );
}

#[test]
fn host_pid_excludes_shared_process_namespace() {
    passes_spec(json!({"shareProcessNamespace": true}));
    passes_spec(json!({"shareProcessNamespace": false, "hostPID": true}));
    check_spec(
        json!({"shareProcessNamespace": true, "hostPID": true}),
        &["spec.shareProcessNamespace: must not be set when hostPID is true"],
    );
}

#[test]
fn windows_options_and_unknown_values_are_refused() {
    passes_spec(json!({"securityContext": {"seLinuxChangePolicy": "MountOption"}}));
    check_pod_context(
        json!({"seLinuxChangePolicy": "Never"}),
        &["seLinuxChangePolicy: \"Never\": must be \"MountOption\" or \"Recursive\""],
    );
    let mut spec = container(json!({"securityContext": {"windowsOptions": {"runAsUserName": "x"}}}));
    spec["securityContext"] = json!({"windowsOptions": {}});
    passes_spec(spec.clone());
    spec["os"] = json!({"name": "linux"});
    check_spec(
        spec,
        &[
            "spec.containers[0].securityContext.windowsOptions: must not be set for a Linux pod",
            "spec.securityContext.windowsOptions: must not be set for a Linux pod",
        ],
    );
}

#[test]
fn app_armor_annotations_are_validated() {
    let key = "container.apparmor.security.beta.kubernetes.io/c";
    for accepted in ["localhost/mine", ""] {
        check(json!({"metadata": {"annotations": {key: accepted}}}), &[] as &[&str]);
    }
    let wanted = "must be \"runtime/default\", \"unconfined\" or \"localhost/\" and the name of a profile";
    check(
        json!({"metadata": {"annotations": {key: "mine"}}}),
        &[format!("metadata.annotations[{key:?}]: \"mine\": {wanted}")],
    );
}
