//! Events of pods that fail to start.

use coracle::protocol::grpc::Code;

use super::node::{BUSYBOX, Events, Manifest, Node};
use crate::wait::wait;

const APP: &str = "registry.example/app:1";

impl Node {
    fn events(&self, pod: &str) -> Events {
        self.ask(&["events", pod, "-o", "json"]).map(|text| Events::parse(&text)).unwrap_or_default()
    }

    /// Polls until the condition on the pod's events holds.
    #[track_caller]
    fn wait_for_events(&self, pod: &str, claim: impl Fn(&Events) -> bool) -> Events {
        wait(|| {
            let events = self.events(pod);
            if claim(&events) { Ok(events) } else { Err(format!("last told: {:#?}", events.lines())) }
        })
    }
}

#[test]
fn failed_pull_emits_events_and_repeats_increase_the_count() {
    let mut node = Node::new();
    node.fake.publish_image(APP);
    node.fake.on("PullImage").fail(Code::Unknown, "no such host").times(1);
    node.start_agent();
    node.write_manifest("web", &Manifest::new("web").container("main", "").text().replace(BUSYBOX, APP));
    node.wait_until_ready("web");
    let events = node.wait_for_events("web", |events| events.find("Started", "").is_some());
    let lines = events.lines();
    let at = "spec.containers{main}";
    for line in [
        format!("Warning Failed {at} Failed to pull image \"{APP}\": no such host"),
        format!("Warning Failed {at} Error: ErrImagePull"),
        format!("Normal BackOff {at} Back-off pulling image \"{APP}\""),
        format!("Warning Failed {at} Error: ImagePullBackOff"),
        format!("Normal Pulling {at} Pulling image \"{APP}\""),
        format!("Normal Created {at} Container created"),
        format!("Normal Started {at} Container started"),
    ] {
        assert!(lines.contains(&line), "{line} is missing: {lines:#?}");
    }
    assert_eq!(events.find("Pulling", "").unwrap().count(), 2);
    let pulled = format!("Successfully pulled image \"{APP}\" in ");
    assert!(events.find("Pulled", &pulled).is_some(), "{lines:#?}");
    assert_eq!(node.events("other").lines(), [""; 0]);
}

#[test]
fn failed_sandbox_reports_the_runtimes_message() {
    let mut node = Node::new();
    node.fake.on("RunPodSandbox").fail(Code::Unknown, "no more addresses").times(2);
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    let message = "Failed to create pod sandbox: rpc error: code = Unknown desc = no more addresses";
    let events = node.wait_for_events("web", |events| events.find("FailedCreatePodSandBox", message).is_some());
    assert_eq!(events.find("FailedCreatePodSandBox", message).unwrap().count(), 2);
}

#[test]
fn failed_sandbox_status_has_an_event_of_its_own() {
    let mut node = Node::new();
    node.fake.on("PodSandboxStatus").fail(Code::Unknown, "lost it").times(1);
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    let message = "Failed to get pod sandbox status: rpc error: code = Unknown desc = lost it";
    let events = node.wait_for_events("web", |events| events.find("FailedPodSandBoxStatus", message).is_some());
    assert!(events.find("FailedCreatePodSandBox", "").is_none());
}

#[test]
fn only_a_pod_exceeding_its_grace_period_gets_an_event() {
    let mut node = Node::new();
    node.configure("maxPods: 1\n");
    let pod = |name, priority: &str| {
        let spec = ["priority: ", priority].concat();
        Manifest::new(name).container("main", "").spec(&spec).spec("terminationGracePeriodSeconds: 1")
    };
    node.apply(&pod("low", "100"));
    node.start_agent();
    node.wait_until_ready("low");
    node.apply(&pod("high", "1000"));
    node.wait_until_ready("high");
    node.fake.on("StopContainer").hold();
    node.apply(&pod("highest", "2000"));
    let message = "Container runtime did not kill the pod within specified grace period.";
    node.wait_for_events("high", |events| events.find("ExceededGracePeriod", message).is_some());
    // The grace period of this pod ended before the other's.
    assert!(node.events("low").find("ExceededGracePeriod", "").is_none());
    node.fake.release("StopContainer");
    node.wait_until_ready("highest");
}

#[test]
fn later_of_two_manifests_with_one_pod_gets_the_event() {
    let mut node = Node::new();
    let pod = Manifest::new("web").container("main", "");
    node.write_manifest("1", &pod.text());
    node.write_manifest("2", &pod.text());
    node.start_agent();
    node.wait_until_ready("web");
    let is_told = |events: &Events| events.find("FailedValidation", "pod default/web-node-a is ignored: ").is_some();
    node.wait_for_events("web", is_told);
    assert_eq!(node.fake.calls().iter().filter(|call| call.method == "RunPodSandbox").count(), 1);
}

#[test]
fn container_creation_failure_is_reported_with_its_cause() {
    let mut node = Node::new();
    node.fake.on("CreateContainer").fail(Code::Unknown, "no space left on device").times(1);
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until_ready("web");
    let events = node.wait_for_events("web", |events| events.find("Failed", "").is_some());
    let line = "Warning Failed spec.containers{main} Error: no space left on device";
    assert!(events.lines().iter().any(|told| told == line), "{:#?}", events.lines());
    assert!(node.log().contains("warn Error: no space left on device pod=default/web-node-a container=main"));
}

#[test]
fn container_waits_while_its_profile_is_not_loaded_and_starts_afterwards() {
    let mut node = Node::new();
    let refusal = "apparmor profile not found strict";
    node.fake.on("CreateContainer").fail(Code::Unknown, refusal);
    node.apply(&Manifest::new("web").container("main", ""));
    node.start_agent();
    node.wait_until("the container waits", |pods| {
        pods.has("web", |pod| {
            let main = pod.container("main");
            main.is_waiting_for("CreateContainerError") && main.waiting_message().contains(refusal)
        })
    });
    node.fake.wait_for_calls("CreateContainer", 2);
    node.fake.clear_faults();
    node.wait_until_ready("web");
}
