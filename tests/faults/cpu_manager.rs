//! Containers with exclusive CPUs, and the others.

use coracle::platform::cri::v1::UpdateContainerResourcesRequest;
use coracle::protocol::grpc::Code;

use super::node::{Manifest, Node};

#[test]
fn container_with_exclusive_cpus_has_a_quota_only_without_its_gate() {
    let mut node = Node::new();
    let resources = "resources: {requests: {cpu: 1, memory: 32Mi}, limits: {cpu: 1, memory: 32Mi}}";
    for (name, gates, quota) in
        [("free", "", -1), ("kept", "featureGates: {DisableCPUQuotaWithExclusiveCPUs: false}\n", 100_000)]
    {
        node.configure(&format!("cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n{gates}"));
        node.start_agent();
        node.apply(&Manifest::new(name).container_with("main", "", resources));
        node.wait_until_ready(name);
        let linux = node.created_containers(name).remove(0).linux.unwrap();
        assert_eq!(linux.resources.unwrap().cpu_quota, quota, "{name}");
        node.remove_manifest(name);
        node.wait_until("the CPU is free", |pods| pods.get(name).is_none());
        node.kill_agent();
    }
}

#[test]
fn containers_whose_cpuset_update_fails_keep_running_and_are_updated_later() {
    let mut node = Node::new();
    node.configure("cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n");
    node.start_agent();
    node.apply(&Manifest::new("shared").container("main", ""));
    node.wait_until_ready("shared");
    let before = node.seen("shared").ids().join(" ");
    node.fake.on("UpdateContainerResources").times(1).fail(Code::Unknown, "no such cpuset");
    let amounts = "{cpu: 1, memory: 32Mi}";
    let resources = format!("resources: {{requests: {amounts}, limits: {amounts}}}");
    node.apply(&Manifest::new("own").container_with("main", "", &resources));
    node.wait_until_ready("own");
    node.wait_until("the failure is logged", |_| node.log().contains("no such cpuset"));
    node.wait_until("the container is moved", |_| node.log().contains("container moved"));
    let asked: Vec<UpdateContainerResourcesRequest> = node.fake.requests("UpdateContainerResources");
    assert_eq!(asked.len(), 2);
    assert_eq!(node.seen("shared").ids().join(" "), before);
}

#[test]
fn container_is_moved_back_if_an_update_without_an_answer_may_have_moved_it() {
    let mut node = Node::new();
    // Of a container with a pid the agent reads from the kernel where it runs.
    node.fake.hide_pids();
    node.configure("cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\nruntimeRequestTimeout: 5s\n");
    node.start_agent();
    node.apply(&Manifest::new("shared").container("main", ""));
    node.wait_until_ready("shared");
    let cpus = node.created_containers("shared").remove(0).linux.unwrap().resources.unwrap().cpuset_cpus;
    node.fake.on("UpdateContainerResources").times(1).hang_after_effect();
    let amounts = "{cpu: 1, memory: 32Mi}";
    let resources = format!("resources: {{requests: {amounts}, limits: {amounts}}}");
    node.apply(&Manifest::new("own").container_with("main", "", &resources));
    let last_cpus = |node: &Node| {
        let asked: Vec<UpdateContainerResourcesRequest> = node.fake.requests("UpdateContainerResources");
        asked.last().map(|request| request.linux.clone().unwrap_or_default().cpuset_cpus)
    };
    node.wait_until("the container is being moved", |_| last_cpus(&node).is_some_and(|other| other != cpus));
    node.remove_manifest("own");
    node.wait_until("the container is moved back", |_| last_cpus(&node).as_ref() == Some(&cpus));
}
