//! `coracle stop` and `coracle start` on a real runtime: hooks, jobs, trials and reboots.

use std::fs;

use super::node::{Manifest, Node, PATIENCE, STAY, wait_for};

fn is_listed(node: &Node, pod: &str, state: &str) -> bool {
    let pods = node.ask(&["pods"]).unwrap_or_default();
    pods.lines().any(|line| line.contains(&format!(" {pod}-node-a ")) && line.contains(state))
}

#[track_caller]
fn stop(node: &Node, pod: &str) {
    let said = node.ask(&["stop", pod]);
    assert!(said.as_ref().is_some_and(|said| said.ends_with(" stopped\n")), "{pod}: {said:?}");
    wait_for("nothing of the pod to run", PATIENCE, || node.tasks_of(pod).is_empty().then_some(()));
    // The agent sees it a moment after the runtime.
    wait_for("the pod to be listed as stopped", PATIENCE, || is_listed(node, pod, "Stopped").then_some(()));
}

#[track_caller]
fn start(node: &Node, pod: &str) {
    let said = node.ask(&["start", pod]);
    assert!(said.as_ref().is_some_and(|said| said.ends_with(" started\n")), "{pod}: {said:?}");
}

/// The lines that the containers of a pod wrote into its directory on the node.
fn lines(node: &Node, pod: &str) -> Vec<String> {
    let text = fs::read_to_string(node.folder().join(pod).join("lines")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A pod with a directory of the node, where its containers write `lines`.
fn writer(node: &Node, pod: &str, script: &str, fields: &str, spec: &str) -> Manifest {
    let folder = node.folder().join(pod);
    fs::create_dir_all(&folder).unwrap();
    let mounts = "volumeMounts: [{name: out, mountPath: /out}, {name: scratch, mountPath: /scratch}]";
    let fields = if fields.is_empty() { mounts.to_owned() } else { format!("{mounts}, {fields}") };
    let out = folder.display();
    Manifest::new(pod)
        .container_with("main", script, &fields)
        .spec(&format!("volumes: [{{name: out, hostPath: {{path: {out}}}}}, {{name: scratch, emptyDir: {{}}}}]"))
        .spec(spec)
}

#[test]
fn stopped_pod_runs_its_hook_ends_and_stays_stopped_over_a_reboot() {
    let mut node = Node::start();
    let hook = "lifecycle: {preStop: {exec: {command: [sh, -c, 'echo hook >>/out/lines']}}}";
    let web =
        writer(&node, "web", &format!("echo start >>/out/lines; {STAY}"), hook, "terminationGracePeriodSeconds: 5");
    node.apply(&web);
    node.apply(&Manifest::new("db").container("main", STAY));
    let pods =
        node.wait_until("both run", |pods| ["web", "db"].iter().all(|name| pods.has(name, |pod| pod.is_ready())));
    let folder = node.pod_folder(pods.get("web").unwrap().uid());
    stop(&node, "web");
    assert_eq!(lines(&node, "web"), ["start", "hook"]);
    wait_for("its directory to go", PATIENCE, || (!folder.exists()).then_some(()));

    node.kill_agent();
    node.start_agent();
    node.wait_until_within(PATIENCE, "the other pod is known", |pods| pods.has("db", |pod| pod.is_ready()));
    assert!(is_listed(&node, "web", "Stopped"));
    node.cut_power();
    node.start_containerd();
    node.start_agent();
    node.wait_until("the other pod runs again", |pods| pods.has("db", |pod| pod.is_ready()));
    assert!(is_listed(&node, "web", "Stopped"));
    assert!(node.tasks_of("web").is_empty());

    start(&node, "web");
    node.wait_until("it runs again", |pods| pods.has("web", |pod| pod.is_ready()));
    assert_eq!(lines(&node, "web"), ["start", "hook", "start"]);
}

#[test]
fn stopped_job_runs_once_more_when_it_is_started() {
    let node = Node::start();
    // The first run is stopped; the run after the start succeeds.
    let script = format!("echo run >>/out/lines; [ $(wc -l </out/lines) -gt 1 ] || {{ {STAY}; }}");
    node.apply(&writer(&node, "job", &script, "", "restartPolicy: OnFailure"));
    node.wait_until("the job runs", |pods| pods.has("job", |pod| pod.container("main").is_running()));
    wait_for("its first line", PATIENCE, || (lines(&node, "job").len() == 1).then_some(()));
    stop(&node, "job");
    start(&node, "job");
    node.wait_until("the job has succeeded", |pods| pods.has("job", |pod| pod.phase() == "Succeeded"));
    assert_eq!(lines(&node, "job"), ["run", "run"]);

    // A job that has ended is stopped too, and its start runs it again.
    stop(&node, "job");
    start(&node, "job");
    wait_for("the third run", PATIENCE, || (lines(&node, "job").len() == 3).then_some(()));
    node.wait_until("the job has succeeded again", |pods| pods.has("job", |pod| pod.phase() == "Succeeded"));
}

#[test]
fn trial_of_a_stopped_pod_waits_for_its_start() {
    let node = Node::start();
    node.apply(&Manifest::new("web").container("main", STAY));
    node.wait_until("the pod runs", |pods| pods.has("web", |pod| pod.is_ready()));
    let probe = "readinessProbe: {exec: {command: [test, -e, /ready]}, periodSeconds: 1}";
    let text = Manifest::new("web").container_with("main", STAY, probe).text();
    let gate = "metadata: {name: web, annotations: {coracle.dev/ready-within: 4s}}";
    node.write_manifest("web", &text.replace("metadata: {name: web}", gate));
    let state = |node: &Node, wanted: &str| node.ask(&["status"]).is_some_and(|status| status.contains(wanted));
    wait_for("the trial", PATIENCE, || state(&node, "default/web-node-a: on trial").then_some(()));
    stop(&node, "web");
    assert!(state(&node, "default/web-node-a: on trial"), "{:?}", node.ask(&["status"]));
    start(&node, "web");
    wait_for("the verdict", PATIENCE, || state(&node, "default/web-node-a: rejected").then_some(()));
    node.wait_until("the version before runs", |pods| pods.has("web", |pod| pod.is_ready()));
}
