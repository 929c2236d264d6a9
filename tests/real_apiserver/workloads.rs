//! Workloads of controllers.

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::control_plane::Assets;
use super::node::{BUSYBOX, NODE_NAME, STAY};

impl Cluster {
    /// The pods of the Deployment, by name, with the value of their variable.
    fn pods_of_web(&self) -> Vec<(String, String)> {
        let pods = self.get(&["pods", "--selector=app=web"]);
        let pods = pods["items"].as_array().unwrap().iter();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        pods.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["containers"][0]["env"][0]["value"])))
            .collect()
    }
}

#[test]
fn deployment_rolls_out_pod_by_pod() {
    let Some(assets) = Assets::find("deployment_rolls_out_pod_by_pod", &["kube-controller-manager"]) else {
        return;
    };
    let cluster = Cluster::joined(assets);
    let container = json!({
        "name": "main", "image": BUSYBOX, "command": ["sh", "-c", STAY], "env": [{"name": "A", "value": "1"}],
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"nodeName": NODE_NAME, "terminationGracePeriodSeconds": 5, "containers": [container]},
            },
        },
    });
    cluster.apply(&deployment);
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    let before = cluster.pods_of_web();
    assert_eq!(before.len(), 3);
    cluster.kubectl(&["set", "env", "deployment/web", "A=2"]);
    cluster.kubectl(&["rollout", "status", "deployment/web", "--timeout=120s"]);
    let after = cluster.wait("the former pods to go", || {
        let after = cluster.pods_of_web();
        (after.len() == 3 && after.iter().all(|(_, value)| value == "2")).then_some(after)
    });
    assert!(after.iter().all(|(name, _)| before.iter().all(|(former, _)| former != name)));
    cluster.kubectl(&["scale", "deployment/web", "--replicas=1"]);
    cluster.wait("two of three to go", || (cluster.pods_of_web().len() == 1).then_some(()));
    cluster.kubectl(&["delete", "deployment", "web"]);
    cluster.wait("the last one to go", || cluster.pods_of_web().is_empty().then_some(()));
    cluster.node.wait_until("the pods are gone", |pods| pods.0.is_empty());
    cluster.assert_that_nothing_was_forbidden();
}
