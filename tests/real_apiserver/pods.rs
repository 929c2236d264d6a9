//! Single pods that kubectl creates, shows and deletes.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::cluster::{CLUSTER_TIMEOUT, Cluster};
use super::control_plane::Assets;
use super::node::{BUSYBOX, NODE_NAME, STAY, wait_for};

/// Runs a pod bound to the node, because no scheduler exists.
pub(crate) fn run(cluster: &Cluster, name: &str, script: &str) {
    let on_node = json!({"spec": {"nodeName": NODE_NAME}}).to_string();
    let (image, overrides) = (format!("--image={BUSYBOX}"), format!("--overrides={on_node}"));
    cluster.kubectl(&["run", name, &image, &overrides, "--command", "--", "sh", "-c", script]);
}

#[test]
fn kubectl_runs_gets_describes_and_deletes_a_pod() {
    let Some(assets) = Assets::find("kubectl_runs_gets_describes_and_deletes_a_pod", &[]) else { return };
    let cluster = Cluster::joined(assets);
    run(&cluster, "web", STAY);
    let pod = cluster.wait_until_pod_is_ready("web");
    let ip = pod["status"]["podIP"].as_str().unwrap();
    assert!(ip.starts_with("10.88."), "{ip}");
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    let shown = cluster.kubectl(&["get", "pods", "--output=wide"]);
    let line = shown.lines().find(|line| line.starts_with("web ")).unwrap();
    for text in ["1/1", "Running", ip, NODE_NAME] {
        assert!(line.contains(text), "{line}");
    }
    let described = cluster.wait("the events to be shown", || {
        let described = cluster.kubectl(&["describe", "pod", "web"]);
        described.contains("Started").then_some(described)
    });
    for text in ["Running", "Pulled", "Created", "Started", "kubelet", "QoS Class:"] {
        assert!(described.contains(text), "no {text:?} in\n{described}");
    }

    // The token belongs to the pod's service account and is bound to this pod.
    let token = cluster.volume_file(&pod, "kubernetes.io~projected", "token").expect("a token in the pod's volume");
    let claims = token.split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    assert_eq!(claims["sub"], "system:serviceaccount:default:default");
    assert_eq!(claims["kubernetes.io"]["pod"]["uid"], pod["metadata"]["uid"]);
    assert!(cluster.whoami(token.trim()).contains("system:serviceaccount:default:default"));
    let authority = cluster.volume_file(&pod, "kubernetes.io~projected", "ca.crt").unwrap();
    assert_eq!(authority.trim(), cluster.plane.authority.pem().trim());
    assert!(!cluster.node.agent_log().contains(token.trim()));

    cluster.kubectl(&["delete", "pod", "web", "--timeout=60s"]);
    assert_eq!(cluster.try_get(&["pod", "web"]), None);
    cluster.node.wait_until("the pod is gone", |pods| pods.0.is_empty());
    cluster.assert_that_nothing_was_forbidden();
}

#[test]
fn kubectl_shows_and_follows_container_logs() {
    let Some(assets) = Assets::find("kubectl_shows_and_follows_container_logs", &[]) else { return };
    let cluster = Cluster::joined(assets);
    run(&cluster, "talker", "echo one; echo two; while [ ! -e /end ]; do sleep 0.1; done; echo three");
    cluster.wait_until_pod_is_ready("talker");
    let said = cluster.wait("the first words", || {
        let said = cluster.kubectl(&["logs", "talker"]);
        said.contains("two").then_some(said)
    });
    assert_eq!(said, "one\ntwo\n");
    assert_eq!(cluster.kubectl(&["logs", "talker", "--tail=1"]), "two\n");
    std::thread::scope(|scope| {
        let following = scope.spawn(|| cluster.kubectl(&["logs", "--follow", "talker"]));
        cluster.kubectl(&["delete", "pod", "talker", "--grace-period=1", "--timeout=60s"]);
        assert_eq!(following.join().unwrap(), "one\ntwo\n");
    });
    cluster.assert_that_nothing_was_forbidden();
}

#[test]
fn killed_agent_restarts_no_pod_and_requests_a_new_token() {
    let Some(assets) = Assets::find("killed_agent_restarts_no_pod_and_requests_a_new_token", &[]) else {
        return;
    };
    let mut cluster = Cluster::joined(assets);
    run(&cluster, "web", STAY);
    let pod = cluster.wait_until_pod_is_ready("web");
    let token = |cluster: &Cluster| cluster.volume_file(&pod, "kubernetes.io~projected", "token");
    let first = token(&cluster).unwrap();
    // Issue times have a resolution of one second.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    cluster.node.kill_agent();
    cluster.node.start_agent();
    let second = cluster.wait("the token to be another one", || token(&cluster).filter(|token| *token != first));
    assert!(cluster.whoami(second.trim()).contains("system:serviceaccount:default:default"));
    let after = cluster.wait_until_pod_is_ready("web");
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!((id(&after), &after["status"]["containerStatuses"][0]["restartCount"]), (id(&pod), &json!(0)));
}

#[test]
fn config_map_change_reaches_the_pod() {
    let Some(assets) = Assets::find("config_map_change_reaches_the_pod", &[]) else { return };
    let cluster = Cluster::joined(assets);
    cluster.kubectl(&["create", "configmap", "m", "--from-literal=k=one"]);
    let script = "trap exit TERM; while :; do [ \"$(cat /v/k)\" = \"$seen\" ] || { seen=$(cat /v/k); echo $seen; }; sleep 0.1; done";
    let container = json!({
        "name": "main", "image": BUSYBOX, "command": ["sh", "-c", script], "volumeMounts": [{"name": "v", "mountPath": "/v"}]
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {
            "nodeName": NODE_NAME, "containers": [container],
            "volumes": [{"name": "v", "configMap": {"name": "m"}}]
        },
    });
    cluster.apply(&pod);
    let pod = cluster.wait_until_pod_is_ready("web");
    let file = || cluster.volume_file(&pod, "kubernetes.io~configmap", "k");
    assert_eq!(file().as_deref(), Some("one"));
    cluster.kubectl(&["patch", "configmap", "m", "--patch", "{\"data\": {\"k\": \"two\"}}"]);
    cluster.wait("the file to follow the map", || (file().as_deref() == Some("two")).then_some(()));
    let after = cluster.wait_until_pod_is_ready("web");
    assert_eq!(after["status"]["containerStatuses"][0]["restartCount"], 0);
    cluster.assert_that_nothing_was_forbidden();
}

#[test]
fn restored_etcd_is_noticed_and_pods_follow_it() {
    let test = "restored_etcd_is_noticed_and_pods_follow_it";
    let Some(assets) = Assets::find(test, &[]) else { return };
    let mut cluster = Cluster::joined(assets);
    run(&cluster, "web", STAY);
    let pod = cluster.wait_until_pod_is_ready("web");
    cluster.plane.back_up(&cluster.node);
    run(&cluster, "late", STAY);
    cluster.wait_until_pod_is_ready("late");
    let lease = || cluster.get(&["--namespace=kube-node-lease", "lease", NODE_NAME])["spec"]["renewTime"].clone();
    // After two renewals, at least one was requested and answered after the restore.
    for _ in 0..2 {
        let last = lease();
        cluster.wait("the lease to be renewed", || (lease() != last).then_some(()));
    }
    cluster.plane.restore(&cluster.node);
    wait_for("the pod that is gone from the API server to end", CLUSTER_TIMEOUT, || {
        let pods = cluster.node.pods();
        (pods.0.len() == 1).then_some(())
    });
    run(&cluster, "new", STAY);
    cluster.wait_until_pod_is_ready("new");
    let after = cluster.wait_until_pod_is_ready("web");
    let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
    assert_eq!((id(&after), &after["status"]["containerStatuses"][0]["restartCount"]), (id(&pod), &json!(0)));
    assert!(cluster.node.agent_log().contains("API server was restored to an older state"));
}
