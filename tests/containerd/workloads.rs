//! Deployments and other workloads of a node without a cluster.

use serde_json::Value;

use super::node::{BUSYBOX, Manifest, Node, PATIENCE, STAY, wait_for};

/// A Deployment `web` of `replicas` pods that print their version. Unless `is_ever_ready`, no pod becomes ready.
fn deployment(version: &str, replicas: u32, is_ever_ready: bool) -> String {
    // A good version has time on a busy machine.
    let (probed, within) = if is_ever_ready { ("/", 300) } else { ("/ready", 5) };
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  replicas: {replicas}\n  \
         progressDeadlineSeconds: {within}\n  selector: {{matchLabels: {{app: web}}}}\n  template:\n    \
         metadata: {{labels: {{app: web, version: {version}}}}}\n    spec:\n      terminationGracePeriodSeconds: 1\n      \
         containers:\n        - name: main\n          image: '{BUSYBOX}'\n          \
         command: [sh, -c, 'echo {version}; {STAY}']\n          \
         readinessProbe: {{exec: {{command: [test, -e, {probed}]}}, periodSeconds: 1}}\n"
    )
}

/// The versions of the ready pods of `web`, by name.
fn versions(node: &Node) -> Vec<String> {
    let list: Value = serde_json::from_str(&node.ask(&["pods", "-o", "json"]).expect("it answers")).unwrap();
    let pods = list["items"].as_array().unwrap().iter();
    let ready = pods.filter(|pod| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    });
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut versions: Vec<String> = ready
        .map(|pod| format!("{} {}", text(&pod["metadata"]["name"]), text(&pod["metadata"]["labels"]["version"])))
        .collect();
    versions.sort();
    versions
}

fn wait_for_versions(node: &Node, expected: &[&str]) {
    wait_for(&format!("{expected:?}"), PATIENCE, || (versions(node) == expected).then_some(()));
}

#[test]
fn deployment_is_updated_pod_by_pod_and_a_bad_version_reaches_one_pod() {
    let mut node = Node::start();
    node.write_manifest("web", &deployment("one", 1, true));
    wait_for_versions(&node, &["web-node-a one"]);
    node.write_manifest("web", &deployment("one", 2, true));
    wait_for_versions(&node, &["web-0-node-a one", "web-1-node-a one"]);
    node.write_manifest("web", &deployment("two", 2, true));
    wait_for_versions(&node, &["web-0-node-a two", "web-1-node-a two"]);

    node.write_manifest("web", &deployment("bad", 2, false));
    let state = || {
        let status: Value = serde_json::from_str(&node.ask(&["status", "-o", "json"]).unwrap()).unwrap();
        let all = status["versions"].as_array().unwrap().clone();
        let rejected = all.iter().filter(|one| one["state"] == "rejected").count();
        (rejected == 1).then_some(())
    };
    wait_for("one pod to reject the version", PATIENCE, state);
    wait_for_versions(&node, &["web-0-node-a two", "web-1-node-a two"]);
    let waiting = node.ask(&["pods", "deploy/web"]).unwrap();
    assert!(waiting.contains("next version: waiting"), "{waiting}");

    // The state survives a restart of the agent, and the next version reaches both.
    node.kill_agent();
    node.start_agent();
    wait_for_versions(&node, &["web-0-node-a two", "web-1-node-a two"]);
    node.write_manifest("web", &deployment("three", 2, true));
    wait_for_versions(&node, &["web-0-node-a three", "web-1-node-a three"]);
    let described = node.ask(&["describe", "deployment", "web"]).unwrap();
    assert!(described.contains("Controlled By:") && described.contains("Deployment/web"), "{described}");
    let undone = node.ask(&["rollout", "undo", "deployment/web"]).unwrap();
    let mut undone: Vec<&str> = undone.lines().collect();
    undone.sort_unstable();
    assert_eq!(undone, ["pod default/web-0-node-a rolled back", "pod default/web-1-node-a rolled back"]);
    wait_for_versions(&node, &["web-0-node-a two", "web-1-node-a two"]);

    node.write_manifest("web", &deployment("three", 0, true));
    wait_for_versions(&node, &[]);
    assert_eq!(node.source_errors(), "");
}

#[test]
fn applied_workload_is_deleted_by_its_kind() {
    let node = Node::start();
    let manifest = node.folder().join("applied.yaml");
    let apply = |replicas: u32| {
        std::fs::write(&manifest, deployment("one", replicas, true)).unwrap();
        node.ask(&["apply", "-f", manifest.to_str().unwrap()])
    };
    assert_eq!(apply(2).as_deref(), Some("Deployment default/web created\n"));
    wait_for_versions(&node, &["web-0-node-a one", "web-1-node-a one"]);
    assert_eq!(apply(2).as_deref(), Some("Deployment default/web unchanged\n"));
    assert_eq!(apply(0).as_deref(), Some("Deployment default/web changed\n"));
    wait_for_versions(&node, &[]);
    assert_eq!(node.ask(&["delete", "deployment", "web"]).as_deref(), Some("Deployment default/web deleted\n"));
    assert_eq!(apply(2).as_deref(), Some("Deployment default/web created\n"));
    wait_for_versions(&node, &["web-0-node-a one", "web-1-node-a one"]);
    assert_eq!(node.ask(&["delete", "web", "--wait"]).as_deref(), Some("Deployment default/web deleted\n"));
    assert_eq!(versions(&node), [""; 0]);
}

#[test]
fn claim_keeps_its_data_when_its_pod_and_its_document_go() {
    let node = Node::start();
    let manifest = |size: &str| {
        format!(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: db}}\nspec:\n  \
             selector: {{matchLabels: {{app: db}}}}\n  volumeClaimTemplates:\n    \
             - metadata: {{name: data}}\n      spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: {size}}}}}}}\n  \
             template:\n    metadata: {{labels: {{app: db}}}}\n    spec:\n      terminationGracePeriodSeconds: 1\n      \
             containers:\n        - name: main\n          image: '{BUSYBOX}'\n          \
             securityContext: {{runAsUser: 1000}}\n          \
             command: [sh, -c, 'echo start >>/data/log; wc -l </data/log; hostname; {STAY}']\n          \
             volumeMounts: [{{name: data, mountPath: /data}}]\n"
        )
    };
    // More than any disk of a test has.
    node.write_manifest("db", &manifest("1Ei"));
    wait_for("the refusal", PATIENCE, || {
        let described = node.ask(&["describe", "db-0"])?;
        described.contains("the claim requests 1152921504606846976 bytes").then_some(())
    });
    node.write_manifest("db", &manifest("1Mi"));
    node.wait_for_output("db-0", "main", "1");
    node.wait_for_output("db-0", "main", "db-0");
    let claims = std::fs::read_dir(node.folder().join("claims")).unwrap();
    let claims: Vec<String> = claims.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(claims.len() == 1 && claims[0].ends_with("_default_data-db-0"), "{claims:?}");
    node.remove_manifest("db");
    node.wait_until_gone("db-0");
    node.write_manifest("db", &manifest("2Mi"));
    node.wait_for_output("db-0", "main", "2");

    // A pod waits for its claim, which may be in another file.
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: late}\n\
                 spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n";
    let user = Manifest::new("user")
        .container_with("main", STAY, "volumeMounts: [{name: v, mountPath: /v}]")
        .spec("volumes: [{name: v, persistentVolumeClaim: {claimName: late}}]");
    node.apply(&user);
    wait_for("the missing claim", PATIENCE, || {
        node.ask(&["describe", "user"])?.contains("persistentvolumeclaim \"late\" not found").then_some(())
    });
    node.write_manifest("late", claim);
    node.wait_until("the pod runs", |pods| pods.has("user", |pod| pod.is_ready()));
}
