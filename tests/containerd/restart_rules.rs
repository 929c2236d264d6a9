//! Restart policies and rules of single containers.

use crate::node::{Manifest, Node, PATIENCE, wait_for};

/// A script that runs `first` in its first run and `then` in later runs.
fn ends_with(first: &str, then: &str) -> String {
    format!("if [ -e /v/ran ]; then {then}; fi; touch /v/ran; echo first; {first}")
}

fn with_volume(name: &str) -> Manifest {
    Manifest::new(name).spec("volumes: [{name: v, emptyDir: {}}]")
}

const MOUNT: &str = "volumeMounts: [{name: v, mountPath: /v}]";

#[test]
fn a_container_restarts_only_for_the_exit_codes_of_its_rules() {
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
fn a_restart_all_containers_rule_restarts_every_container() {
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
