//! Pods of the cluster that the node judges, and those that hold it up.

use serde_json::{Value, json};

use super::joined::{Joined, NODE, condition};
use super::pods::{WEB, pod};

const TRIAL: &str = "coracle.dev/Trial";
const HELD: &str = "coracle.dev/UpdateHeld";

fn annotated(name: &str, annotations: &Value, spec: &Value) -> Value {
    let mut object = pod(name, spec);
    object["metadata"]["annotations"] = annotations.clone();
    object
}

/// The status, reason and message of the verdict, and when it was told.
fn verdict(pod: &Value) -> [String; 4] {
    let trial = condition(pod, TRIAL);
    ["status", "reason", "message", "lastTransitionTime"]
        .map(|field| trial[field].as_str().unwrap_or_default().to_owned())
}

fn wait_for_verdict(joined: &Joined, path: &str, status: &str) -> [String; 4] {
    verdict(&joined.api.wait(path, "its verdict", |pod| verdict(pod)[0] == status))
}

#[test]
fn pods_on_trial_are_judged_and_a_restart_does_not_judge_again() {
    let mut joined = Joined::new();
    joined.start("", &[]);
    let gate = json!({"coracle.dev/ready-within": "2s"});
    joined.api.create(&annotated("web", &gate, &json!({})));
    joined.api.create(&annotated("bad", &gate, &json!({"restartPolicy": "Never"})));
    const BAD: &str = "/api/v1/namespaces/default/pods/bad";
    joined.api.wait(BAD, "the pod to run", |pod| pod["status"]["phase"] == "Running");
    joined.node.fake.exit("bad/main", 1);
    let good = wait_for_verdict(&joined, WEB, "True");
    let bad = wait_for_verdict(&joined, BAD, "False");
    assert_eq!((&*good[1], &*good[2]), ("UpdateAccepted", "it is ready"));
    assert_eq!((&*bad[1], &*bad[2]), ("UpdateRejected", "it has failed"));
    // Operators see it on the node, for `coracle fleet` does not list the pods.
    let held = |node: &Value| node["metadata"]["annotations"]["coracle.dev/held"].clone();
    joined.api.wait(NODE, "the rejected pod on the node", |node| held(node) == "default/bad rejected");
    joined.node.kill_agent();
    let reports = joined.api.requests_of("patch", &format!("{WEB}/status")).len();
    joined.start("", &[]);
    joined.wait_until_ready();
    joined
        .node
        .wait_until("the pod to be known", |_| joined.node.ask(&["pods"]).is_some_and(|text| text.contains("web")));
    assert_eq!(verdict(&joined.api.get(WEB).unwrap()), good);
    assert_eq!(verdict(&joined.api.get(BAD).unwrap()), bad);
    for patch in joined.api.requests_of("patch", &format!("{WEB}/status")).iter().skip(reports) {
        assert!(!format!("{patch:?}").contains(TRIAL), "{patch:?}");
    }
    let told = |reason: &str| {
        joined.api.look(|world| world.list("/api/v1/events").iter().filter(|event| event["reason"] == reason).count())
    };
    assert_eq!((told("UpdateAccepted"), told("UpdateRejected")), (1, 1));
    joined.api.wait(NODE, "the rejected pod on the node again", |node| held(node) == "default/bad rejected");
    joined.api.delete(BAD);
    joined.api.wait(NODE, "no rejected pod", |node| held(node).is_null());
}

#[test]
fn held_pod_is_preempted_when_its_annotation_is_removed() {
    let mut joined = Joined::new();
    joined.start("maxPods: 1\n", &[]);
    joined.api.create(&annotated("web", &json!({"coracle.dev/hold": "true"}), &json!({})));
    joined.wait_until_web_is_ready();
    let critical = json!({"priority": 2_000_001_000, "priorityClassName": "system-node-critical"});
    joined.api.create(&pod("critical", &critical));
    let held = joined.api.wait(WEB, "the pod to be held", |pod| condition(pod, HELD)["status"] == "True");
    let message = condition(&held, HELD)["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("held by annotation coracle.dev/hold since "), "{message}");
    assert!(message.ends_with("60 min at most: the preemption waits"), "{message}");
    assert_eq!(joined.running().len(), 1);
    joined.api.patch(WEB, &json!({"metadata": {"annotations": {"coracle.dev/hold": "false"}}}));
    let gone = joined.api.wait(WEB, "the pod to be preempted", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(gone["status"]["reason"], "Preempting");
    let running = |pod: &Value| pod["status"]["phase"] == "Running";
    joined.api.wait("/api/v1/namespaces/default/pods/critical", "the critical pod to run", running);
}
