//! Nodes of full size: each pod has objects of its own, a tenant asks for hundreds more, and another node is beside
//! them.

use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api_server::ApiServer;
use super::fake_api::in_process::Server;
use super::life::{Node, live};
use super::plan::{Episode, Plan, StepKind};
use super::wanted::{SECRET_DATA, Source, Traits, own_path};
use super::{after, need_root};
use crate::platform::host::clock;
use crate::platform::rt;

/// Creates the ConfigMap and the Secret of a pod.
pub(super) fn create_own(server: &mut Server, revision: &str) {
    let metadata = json!({ "name": format!("own-{revision}"), "namespace": "default" });
    server.create(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "version": "0" },
    }));
    server.create(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": { "code": SECRET_DATA },
    }));
}

impl Node {
    /// Creates pods with objects of their own, and a hostile one.
    pub(super) async fn fill(&mut self, pods: usize) {
        let own = Traits { own: true, token: true, probe: true, ..Traits::default() };
        for _ in 0..pods {
            self.create_pod(own);
            rt::sleep(Duration::from_millis(50)).await;
        }
        self.create_pod(Traits { hostile: true, ..Traits::default() });
    }

    /// Changes the ConfigMaps of all pods that have their own.
    pub(super) fn change_own(&self, patch: &Value) {
        let pods = self.wanted.borrow().of(Source::Api);
        let own = pods.iter().filter(|(_, pod)| pod.traits.own);
        own.for_each(|(revision, _)| {
            self.api.change(|server| server.patch(&own_path("configmaps", revision), patch));
        });
    }
}

/// Writes like another node: its lease, its status and an object that its pods use.
pub(super) fn neighbour(api: &Rc<ApiServer>) -> rt::Task<()> {
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-b";
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "node-b", "namespace": "kube-node-lease" },
    });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-b" } });
    let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "b", "namespace": "default" } });
    api.change(|server| [lease, node, other].iter().for_each(|object| drop(server.create(object))));
    let api = Rc::clone(api);
    rt::spawn(async move {
        loop {
            rt::sleep(Duration::from_secs(10)).await;
            let now = clock::timestamp().to_string();
            api.change(|server| {
                server.patch(LEASE, &json!({ "spec": { "renewTime": now } }));
                server.patch("/api/v1/nodes/node-b", &json!({ "metadata": { "annotations": { "now": now } } }));
                server.patch("/api/v1/namespaces/default/configmaps/b", &json!({ "data": { "now": now } }));
            });
            // Its requests take as many seats as those of a node that has just started.
            api.occupy(40, Duration::from_secs(2)).await;
        }
    })
}

/// A ConfigMap's change is in the pods' files after the next sync of each pod: 60 s, and up to half of that more.
const FILES_UPDATE_TIME: Duration = Duration::from_secs(100);

/// 110 pods, each with a ConfigMap, a Secret, a token and a probe, and one that asks for 300 more.
#[test]
fn node_of_full_size_runs_every_pod_and_renews_its_lease() {
    need_root();
    let episode = |what| Episode { steps: vec![after(1, what)], quiet: Duration::from_secs(120), offline: false };
    let episodes = [StepKind::FillNode { pods: 110 }, StepKind::ChangeConfigMap, StepKind::Compact].map(episode);
    let begun = Instant::now();
    let report = live(&Plan { seed: 1, lease: Duration::from_secs(40), episodes: episodes.to_vec() });
    println!("110 pods in {:?}; {:?}; at most {:?}", begun.elapsed(), report.counts, report.most);
    assert_eq!(report.violation, None, "{}", report.lines.join("\n"));
    assert!(report.longest_recovery <= FILES_UPDATE_TIME, "{:?}", report.longest_recovery);
}
