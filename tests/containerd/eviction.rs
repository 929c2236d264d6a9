//! Evictions for node pressure and for exceeded storage limits.

use nix::sys::signal::Signal;

use super::node::{Manifest, Node, PATIENCE, Pods, STAY, wait_for};

/// A node with short eviction intervals, evictable static pods and these lines of configuration.
fn node_with(more: &str) -> Node {
    let mut node = Node::with_runtime();
    node.configure_agent(&format!("syncFrequency: 2s\n{more}"));
    node.add_arguments(&["--evict-static-pods"]);
    node.start_agent();
    node
}

fn wait_until_ready(node: &Node, name: &str) {
    node.wait_until(&format!("{name} is ready"), |pods| pods.has(name, |pod| pod.is_ready()));
}

/// Waits until the pod has failed and returns the message of its status.
fn wait_until_evicted(node: &Node, name: &str) -> String {
    let pods = node.wait_until(&format!("{name} has failed"), |pods| pods.has(name, |pod| pod.phase() == "Failed"));
    let status = &pods.get(name).unwrap().json()["status"];
    assert_eq!(status["reason"], "Evicted", "{status:#}");
    status["message"].as_str().unwrap().to_owned()
}

/// A pod with a volume limited to 1 MiB, into which it writes this many MiB.
fn with_volume(name: &str, mebibytes: u32) -> Manifest {
    let script = format!("dd if=/dev/zero of=/data/file bs=1M count={mebibytes} && echo full; {STAY}");
    Manifest::new(name)
        .container_with("main", &script, "volumeMounts: [{name: data, mountPath: /data}]")
        .spec("volumes: [{name: data, emptyDir: {sizeLimit: 1Mi}}]")
}

#[test]
fn pod_over_its_volume_limit_is_evicted_until_its_manifest_changes() {
    let node = node_with("");
    node.apply(&with_volume("small", 0));
    node.apply(&with_volume("large", 3));
    let message = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
    assert_eq!(wait_until_evicted(&node, "large"), message);
    let events = node.events("large");
    assert!(events.find("Evicted", message).is_some(), "{:#?}", events.lines());
    let pods = node.wait_until("its container has ended", |pods| {
        pods.has("large", |pod| pod.container("main").exit_code().is_some())
    });
    let folder = node.pod_folder(pods.get("large").unwrap().uid()).join("volumes");
    wait_for("the volume to be given back", PATIENCE, || (!folder.exists()).then_some(()));
    node.wait_until("the other runs on", |pods| pods.has("small", |pod| pod.is_ready()));

    node.apply(&with_volume("large", 0));
    wait_until_ready(&node, "large");
}

#[test]
fn pod_over_its_claim_is_evicted_and_its_data_stays() {
    let node = node_with("");
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n\
                 spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n";
    node.write_manifest("data", claim);
    let script = format!("[ -e /data/file ] || dd if=/dev/zero of=/data/file bs=1M count=3; {STAY}");
    let writer = Manifest::new("writer")
        .container_with("main", &script, "volumeMounts: [{name: data, mountPath: /data}]")
        .spec("volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]");
    node.apply(&writer);
    let message = "Usage of claim \"data\" exceeds the 1048576 bytes that it requests. ";
    assert_eq!(wait_until_evicted(&node, "writer"), message);
    let claims = std::fs::read_dir(node.folder().join("claims")).unwrap();
    let sizes: Vec<u64> = claims.map(|claim| claim.unwrap().path().join("file").metadata().unwrap().len()).collect();
    assert_eq!(sizes, [3 << 20], "the data of the claim");
}

#[test]
fn pod_whose_log_exceeds_the_storage_limit_is_evicted() {
    let node = node_with("");
    let script = format!("yes 'much ado' | head -c 3000000; {STAY}");
    let limits = |limit| format!("resources: {{limits: {{ephemeral-storage: {limit}}}}}");
    node.apply(&Manifest::new("quiet").container_with("main", STAY, &limits("1Mi")));
    node.apply(&Manifest::new("loud").container_with("main", &script, &limits("1Mi")));
    let message = wait_until_evicted(&node, "loud");
    assert_eq!(message, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ");
    node.wait_until("the other runs on", |pods| pods.has("quiet", |pod| pod.is_ready()));
}

/// A node with these pods, restarted with a threshold for this signal that is always met.
fn node_short_of(what: &str, pods: &[Manifest], arguments: &[&str]) -> Node {
    let mut node = Node::start();
    for pod in pods {
        node.apply(pod);
    }
    for pod in pods {
        wait_until_ready(&node, pod.name());
    }
    node.stop_agent(Signal::SIGTERM);
    node.configure_agent(&format!("syncFrequency: 2s\nevictionHard: {{{what}: 99.999%}}"));
    node.add_arguments(arguments);
    node.start_agent();
    node
}

fn wait_for_disk_pressure(node: &Node) {
    let told = || node.ask(&["status"]).filter(|page| page.contains("Pressure: DiskPressure since "));
    wait_for("the pressure to be told", PATIENCE, told);
}

#[test]
fn disk_pressure_evicts_the_largest_pod_and_spares_critical_ones() {
    let write = |name: &str, mebibytes: u32| {
        let script = format!("dd if=/dev/zero of=/data/file bs=1M count={mebibytes} 2>/dev/null; {STAY}");
        Manifest::new(name)
            .container_with("main", &script, "volumeMounts: [{name: data, mountPath: /data}]")
            .spec("volumes: [{name: data, emptyDir: {}}]")
    };
    let critical = write("critical", 9).spec("priority: 2000001000").spec("priorityClassName: system-node-critical");
    let node =
        node_short_of("nodefs.available", &[write("less", 1), write("more", 5), critical], &["--evict-static-pods"]);
    let message = wait_until_evicted(&node, "more");
    let begin = "The node was low on resource: ephemeral-storage. Threshold quantity: ";
    assert!(message.starts_with(begin), "{message}");
    let pods = node.pods();
    let conditions = pods.get("more").unwrap().json()["status"]["conditions"].clone();
    let disruption = conditions.as_array().unwrap().iter().find(|condition| condition["type"] == "DisruptionTarget");
    assert_eq!(disruption.unwrap()["reason"], "TerminationByKubelet", "{conditions:#}");
    wait_until_evicted(&node, "less");
    wait_for_disk_pressure(&node);
    node.wait_until("the system's own runs on", |pods| pods.has("critical", |pod| pod.is_ready()));
    let log = node.agent_log();
    assert!(log.contains("Attempting to reclaim ephemeral-storage"), "{log}");
    let evicted = |name: &str| log.lines().position(|line| line.contains("Evicted") && line.contains(name)).unwrap();
    assert!(evicted("more") < evicted("less"), "{log}");

    node.apply(&Manifest::new("late").container("main", STAY));
    let message = wait_until_evicted(&node, "late");
    assert_eq!(message, "Pod was rejected: The node had condition: [DiskPressure]. ");
    assert!(node.events("late").find("Evicted", "The node had condition: [DiskPressure]. ").is_some());
}

#[test]
fn static_pods_run_under_disk_pressure_unless_marked_evictable() {
    let node = node_short_of("nodefs.available", &[Manifest::new("web").container("main", STAY)], &[]);
    wait_for_disk_pressure(&node);
    wait_for("it to be tried", PATIENCE, || {
        node.agent_log().contains("Attempting to reclaim ephemeral-storage").then_some(())
    });
    node.apply(&Manifest::new("late").container("main", STAY));
    wait_until_ready(&node, "late");
    wait_until_ready(&node, "web");
}

#[test]
fn image_disk_pressure_removes_dead_containers_but_keeps_the_pods_status() {
    let node =
        node_short_of("imagefs.available", &[Manifest::new("web").container("main", STAY)], &["--evict-static-pods"]);
    wait_until_evicted(&node, "web");
    let pods = node.wait_until("its container has ended", |pods| {
        pods.has("web", |pod| pod.container("main").exit_code().is_some())
    });
    let end = |pods: &Pods| {
        let container = pods.get("web").unwrap().container("main");
        (container.id(), container.exit_code())
    };
    let (id, code) = end(&pods);
    wait_for("the dead container to be removed", PATIENCE, || {
        let listed = node.ctr_command(&["containers", "list", "--quiet"]).output().unwrap().stdout;
        (!String::from_utf8(listed).unwrap().contains(&id)).then_some(())
    });
    assert_eq!(end(&node.pods()), (id, code));
}
