//! Shutdown of a node's machine.

use serde_json::{Value, json};

use super::joined::{Joined, NODE, condition};
use crate::fake_cri::State;
use crate::fake_logind::FakeLogind;

const WEB: &str = "/api/v1/namespaces/default/pods/web";
const LATE: &str = "/api/v1/namespaces/default/pods/late";
const MIRROR: &str = "/api/v1/namespaces/default/pods/own-node-a";

fn pod(name: &str) -> Value {
    let container = json!({"name": "main", "image": "localhost/coracle/busybox:1", "imagePullPolicy": "IfNotPresent"});
    let spec = json!({"nodeName": "node-a", "enableServiceLinks": false, "containers": [container]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

fn start(joined: &mut Joined, logind: &FakeLogind) {
    joined.start_with("shutdownGracePeriod: 20s\n", |command| {
        command.env("DBUS_SYSTEM_BUS_ADDRESS", logind.address());
    });
}

#[test]
fn shutdown_is_reported_at_once_and_pod_statuses_before_power_off() {
    let (mut joined, logind) = (Joined::new(), FakeLogind::start());
    start(&mut joined, &logind);
    joined.api.create(&pod("web"));
    let own = "apiVersion: v1\nkind: Pod\nmetadata: {name: own}\nspec:\n  containers: [{name: main, image: \
               'localhost/coracle/busybox:1', imagePullPolicy: IfNotPresent}]\n";
    joined.node.write_manifest("own", own);
    joined.api.wait(WEB, "the pod to be ready", is_ready);
    joined.api.wait(MIRROR, "the mirror to be ready", is_ready);
    logind.wait_for("an inhibitor", |state| state.held == 1);

    joined.node.fake.on("StopContainer").hold();
    logind.shut_down(true);
    let node = joined.api.wait(NODE, "the node not to be ready", |node| condition(node, "Ready")["status"] == "False");
    let ready = condition(&node, "Ready");
    assert_eq!([&ready["reason"], &ready["message"]], ["KubeletNotReady", "node is shutting down"]);
    joined.api.create(&pod("late"));
    let late = joined.api.wait(LATE, "it to be refused", |pod| pod["status"]["phase"] == "Failed");
    let why = "Pod was rejected: Pod was rejected as the node is shutting down.";
    assert_eq!([&late["status"]["reason"], &late["status"]["message"]], ["NodeShutdown", why]);

    joined.node.fake.wait_for_calls("StopContainer", 2);
    joined.node.fake.release("StopContainer");
    logind.wait_for("its release", |state| state.held == 0);
    for path in [WEB, MIRROR] {
        let pod = joined.api.get(path).unwrap();
        let status = &pod["status"];
        let message = "Pod was terminated in response to imminent node shutdown.";
        assert_eq!(
            [&status["phase"], &status["reason"], &status["message"]],
            ["Failed", "Terminated", message],
            "{path}"
        );
        let disruption = condition(&pod, "DisruptionTarget");
        let words = [&disruption["status"], &disruption["reason"], &disruption["message"]];
        assert_eq!(words, ["True", "TerminationByKubelet", message], "{path}");
    }

    joined.node.kill_agent();
    joined.node.fake.restart(State::Ended);
    logind.restart();
    start(&mut joined, &logind);
    let mirror = joined.api.wait(MIRROR, "the node's own pod to run again", is_ready);
    assert_eq!(mirror["status"]["phase"], "Running");
    joined.wait_until_ready();
    assert_eq!(joined.api.get(WEB).unwrap()["status"]["phase"], "Failed", "a pod that has failed never begins again");
}
