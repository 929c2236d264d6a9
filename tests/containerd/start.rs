//! Starting a pod from a manifest.

use super::node::{Manifest, Node, PATIENCE, STAY, Task, wait_for};

#[test]
fn manifest_becomes_one_sandbox_and_one_running_container() {
    let node = Node::start();
    node.apply(&Manifest::new("web").container("main", &format!("hostname; {STAY}")));
    let pods = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let pod = pods.get("web").unwrap();
    assert_eq!(pod.phase(), "Running");
    assert!(pod.ip().starts_with("10.88."), "the pod's address {:?} is not of the bridge's network", pod.ip());
    assert_eq!(pod.container("main").restarts(), 0);

    let tasks = node.tasks();
    let names: Vec<(&str, &str)> = tasks.iter().map(|task| (&*task.pod, &*task.container)).collect();
    assert_eq!(names, [("web-node-a", ""), ("web-node-a", "main")]);
    assert!(tasks.iter().all(Task::is_running));
    assert_eq!(tasks[1].id, pod.container("main").id());
    node.wait_for_output("web", "main", "web-node-a");
}

#[test]
fn two_containers_of_a_pod_share_a_volume() {
    let node = Node::start();
    let mount = "volumeMounts: [{name: data, mountPath: /data}]";
    let manifest = Manifest::new("pair")
        .container_with("writer", &format!("echo written >/data/new; mv /data/new /data/file; {STAY}"), mount)
        .container_with("reader", &format!("until cat /data/file; do sleep 0.1; done; {STAY}"), mount)
        .spec("volumes: [{name: data, emptyDir: {}}]");
    node.apply(&manifest);
    node.wait_for_output("pair", "reader", "written");
    let pods = node.wait_until("both containers run", |pods| pods.has("pair", |pod| pod.is_ready()));
    assert_eq!(pods.get("pair").unwrap().container("reader").restarts(), 0);
}

#[test]
fn host_port_reaches_the_pod_until_it_is_removed() {
    let node = Node::start();
    let script = "mkdir /www; echo served >/www/index.html; trap exit TERM; httpd -f -p 80 -h /www & wait";
    node.apply(&Manifest::new("web").container_with("main", script, "ports: [{containerPort: 80, hostPort: 8080}]"));
    for address in ["127.0.0.1", "10.88.0.1"] {
        let page = wait_for("the page at the host port", PATIENCE, || node.fetch(address, 8080));
        assert_eq!(page, "served\n");
    }
    node.remove_manifest("web");
    node.wait_until_gone("web");
    assert_eq!(node.fetch("127.0.0.1", 8080), None);
}

#[test]
fn init_containers_run_in_order_before_the_containers() {
    let node = Node::start();
    let manifest = Manifest::new("web")
        .init_container("first", "echo begun; sleep 0.3; echo done")
        .init_container("second", "echo begun; sleep 0.3; echo done")
        .container("main", &format!("echo begun; {STAY}"));
    node.apply(&manifest);
    let pods = node.wait_until("the pod is ready", |pods| pods.has("web", |pod| pod.is_ready()));
    let pod = pods.get("web").unwrap();
    assert_eq!(pod.container("first").exit_code(), Some(0));
    assert_eq!(pod.container("second").exit_code(), Some(0));
    let moment = |container: &str, text: &str| node.wait_for_output("web", container, text);
    assert!(moment("first", "done") < moment("second", "begun"), "the second began before the first was done");
    assert!(moment("second", "done") < moment("main", "begun"), "the container began before the second was done");
}

#[test]
fn failed_init_container_fails_a_pod_with_policy_never() {
    let node = Node::start();
    let manifest =
        Manifest::new("once").init_container("first", "exit 4").container("main", STAY).spec("restartPolicy: Never");
    node.apply(&manifest);
    let pods = node.wait_until("the pod has failed", |pods| pods.has("once", |pod| pod.phase() == "Failed"));
    assert_eq!(pods.get("once").unwrap().container("first").exit_code(), Some(4));
    let started: Vec<Task> = node.tasks().into_iter().filter(|task| task.container == "main").collect();
    assert_eq!(started, [], "a container was made though its init container failed");
}

#[test]
fn failed_init_container_backs_off_and_delays_the_containers() {
    let node = Node::start();
    node.apply(&Manifest::new("web").init_container("first", "exit 4").container("main", STAY));
    let pods = node.wait_until("the init container backs off", |pods| {
        pods.has("web", |pod| pod.container("first").is_waiting_for("CrashLoopBackOff"))
    });
    let pod = pods.get("web").unwrap();
    assert_eq!(pod.phase(), "Pending");
    assert_eq!(pod.container("first").restarts(), 1);
    assert!(pod.container("main").is_waiting_for("PodInitializing"));
}
