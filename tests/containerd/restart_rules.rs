//! Restart policies and rules of single containers.

use std::time::{Duration, Instant};

use super::node::{Manifest, Node, PATIENCE, wait_for};

/// A script that runs `first` in its first run and `then` in later runs.
fn ends_with(first: &str, then: &str) -> String {
    format!("if [ -e /v/ran ]; then {then}; fi; touch /v/ran; echo first; {first}")
}

fn with_volume(name: &str) -> Manifest {
    Manifest::new(name).spec("volumes: [{name: v, emptyDir: {}}]")
}

const MOUNT: &str = "volumeMounts: [{name: v, mountPath: /v}]";

#[test]
fn container_restarts_only_for_the_exit_codes_of_its_rules() {
    let node = Node::start();
    let rules = "restartPolicy: Never, \
                 restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]";
    let script = ends_with("exit 42", "exit 3");
    let pod = with_volume("ruled").spec("restartPolicy: Never");
    node.apply(&pod.container_with("main", &script, &format!("{MOUNT}, {rules}")));
    let pods =
        node.wait_until("the second run has ended for good", |pods| pods.has("ruled", |pod| pod.phase() == "Failed"));
    let main = pods.get("ruled").unwrap().container("main");
    assert_eq!((main.restarts(), main.exit_code(), main.last_exit_code()), (1, Some(3), Some(42)));
}

#[test]
fn restart_all_containers_rule_restarts_every_container() {
    let node = Node::start();
    let rules = "restartPolicy: Never, \
                 restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    let script = ends_with(
        "while [ ! -e /v/other ]; do sleep 0.05; done; exit 42",
        "echo second; trap exit TERM; sleep 100000 & wait",
    );
    let pod = with_volume("anew").init_container("init", "echo init");
    let pod = pod.container_with("main", &script, &format!("{MOUNT}, {rules}"));
    let other = "touch /v/other; echo up; trap exit TERM; sleep 100000 & wait";
    node.apply(&pod.container_with("other", other, MOUNT));
    node.wait_for_output("anew", "main", "second");
    let pods = node.wait_until("all of it runs again", |pods| {
        pods.has("anew", |pod| ["main", "other"].iter().all(|name| pod.container(name).is_running()))
    });
    let restarts = ["init", "main", "other"].map(|name| pods.get("anew").unwrap().container(name).restarts());
    assert_eq!(restarts, [1, 1, 1]);
    let said = |container: &str, text: &str| {
        node.container_log("anew", container).into_iter().filter(|line| line.text == text).count()
    };
    wait_for("all of it to have spoken again", PATIENCE, || (said("other", "up") >= 2).then_some(()));
    assert_eq!((said("other", "up"), said("init", "init")), (2, 2));
}

/// As upstream: no `preStop` hook runs, and nothing is waited for beyond two seconds.
#[test]
fn containers_restarted_for_another_get_no_grace() {
    let node = Node::start();
    let rules = "restartPolicy: Never, \
                 restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    let script = ends_with("while [ ! -e /v/other ]; do sleep 0.05; done; exit 42", "sleep 100000");
    let pod = with_volume("hasty").spec("restartPolicy: Never").spec("terminationGracePeriodSeconds: 60");
    let pod = pod.container_with("main", &script, &format!("{MOUNT}, {rules}"));
    let other = "trap '' TERM; touch /v/other; if [ -e /v/hook ]; then echo hooked; fi; while true; do sleep 1; done";
    let hook = "lifecycle: {preStop: {exec: {command: [sh, -c, 'touch /v/hook; sleep 30']}}}";
    let begun = Instant::now();
    node.apply(&pod.container_with("other", other, &format!("{MOUNT}, {hook}")));
    let pods = node.wait_until("both run again", |pods| {
        let again =
            |pod: &super::node::Pod, name| pod.container(name).restarts() == 1 && pod.container(name).is_running();
        pods.has("hasty", |pod| again(pod, "main") && again(pod, "other"))
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(pods.get("hasty").unwrap().phase(), "Running");
    assert!(!node.container_log("hasty", "other").into_iter().any(|line| line.text == "hooked"));
}

#[test]
fn init_container_killed_by_a_sidecars_rule_has_not_failed() {
    let node = Node::start();
    let rules = "restartPolicy: Always, \
                 restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [42]}}]";
    let pod = with_volume("begun").spec("restartPolicy: Never").spec("terminationGracePeriodSeconds: 1");
    let side = ends_with("while [ ! -e /v/init ]; do sleep 0.05; done; exit 42", "sleep 100000");
    let pod = pod.init_container_with("side", &side, &format!("{MOUNT}, {rules}"));
    let init = ends_with("touch /v/init; sleep 100000", "exit 0");
    let init = init.replace("/v/ran", "/v/init");
    let pod = pod.init_container_with("init", &init, MOUNT);
    node.apply(&pod.container("main", "sleep 1"));
    node.wait_until("the pod has succeeded", |pods| pods.has("begun", |pod| pod.phase() == "Succeeded"));
}
