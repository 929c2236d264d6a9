//! What the node knows of itself and its pods, for components without the API server.

use crate::control::pod_table::PodRecords;
use crate::kubelet::api_cache::{OwnNode, OwnPod, OwnPodState, key_of};
use crate::kubelet::node::StatusInputs;
use crate::platform::rt;
use crate::state::pods::ObservedCache;
use crate::types::api::Pod;

pub(super) fn own_node(name: &str, records: &PodRecords, observed: &ObservedCache, inputs: &StatusInputs) -> OwnNode {
    let (is_ready, reason, message) = inputs.readiness(rt::now());
    let status = if is_ready { "True" } else { "False" };
    // Before the sources have reported, the runtime already tells which pods run.
    let running = observed.iter().filter(|pod| !pod.is_stopped());
    let unknown = running.map(|pod| OwnPod { name: key_of(&pod.namespace, &pod.name), state: None });
    OwnNode {
        name: name.to_owned(),
        is_complete: records.relisted_all,
        pods: records.pods().filter_map(|pod| own_pod(pod, records)).chain(unknown).collect(),
        addresses: inputs.addresses(),
        ready: [status.to_owned(), reason.to_string(), message],
    }
}

/// `None` without a status.
fn own_pod(pod: &Pod, records: &PodRecords) -> Option<OwnPod> {
    let metadata = &pod.metadata;
    let status = records.statuses.status(records.running_uid(&metadata.uid))?;
    let state = OwnPodState {
        addresses: match status.phase.is_terminal() {
            true => Vec::new(),
            false => status.pod_ips.iter().map(|ip| ip.ip.clone()).collect(),
        },
        is_ready: status.is_ready(),
        is_terminating: metadata.deletion_timestamp.is_some() || records.ending.contains_key(&metadata.uid),
    };
    Some(OwnPod { name: key_of(&metadata.namespace, &metadata.name), state: Some(state) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::control::pod_sources::merge::Sources;
    use crate::state::pods::{
        ObservedPod, ObservedSandbox, RuntimeState, SandboxState, SourceName, SourcePod, SourceUpdate,
    };
    use crate::types::api::{PodStatus, decode};

    fn pod(name: &str, deleted: bool) -> Arc<Pod> {
        let mut metadata = json!({"name": name, "namespace": "ns", "uid": name});
        if deleted {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(decode::<Pod>(json!({"metadata": metadata})).unwrap().value)
    }

    fn status(phase: &str, ready: &str) -> PodStatus {
        let status: Value = json!({"phase": phase, "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "conditions": [{"type": "Ready", "status": ready}]});
        decode::<PodStatus>(status).unwrap().value
    }

    #[test]
    fn pods_are_shown_as_they_are_and_ended_ones_without_addresses() {
        let mut records = PodRecords::new(Sources::new(&[SourceName::Api]));
        let inputs = StatusInputs::default();
        let mut observed = ObservedCache::default();
        assert!(!own_node("n", &records, &observed, &inputs).is_complete);
        records.relisted_all = true;
        for (uid, state) in
            [("up", SandboxState::Ready), ("early", SandboxState::Ready), ("old", SandboxState::NotReady)]
        {
            let mut pod = ObservedPod::new(uid.into(), "ns", uid);
            pod.sandboxes.push(ObservedSandbox {
                id: uid.to_owned(),
                attempt: 0,
                state,
                created_at: 0,
                host_network: false,
                ips: Vec::new(),
                has_address: false,
                pid: None,
            });
            let ticket = observed.begin();
            observed.observe(pod, &ticket);
        }
        let all = [("up", false), ("deleted", true), ("failed", false), ("new", false)];
        let pods = all.map(|(name, deleted)| SourcePod { pod: pod(name, deleted), origin: "api".into() });
        records.sources.receive(SourceUpdate {
            source: SourceName::Api,
            pods: pods.to_vec(),
            objects: Vec::new(),
            mirrors: Vec::new(),
            problems: Vec::new(),
            unread: Vec::new(),
            complete: true,
            relisted: false,
        });
        records.ending.insert("ending".into(), pod("ending", false));
        for (name, phase, ready) in [
            ("up", "Running", "True"),
            ("deleted", "Running", "True"),
            ("failed", "Failed", "False"),
            ("ending", "Running", "False"),
        ] {
            records.statuses.set(&name.into(), status(phase, ready));
        }
        let own = own_node("n", &records, &observed, &inputs);
        assert!(own.is_complete);
        assert_eq!((own.ready[0].as_str(), own.ready[1].as_str()), ("False", "KubeletNotReady"));
        let shown = |name: &str| {
            let state = own.pods.iter().find(|pod| pod.name == format!("ns/{name}")).unwrap().state.clone()?;
            Some((state.addresses.concat(), state.is_ready, state.is_terminating))
        };
        let both = "10.0.0.1fd00::1".to_owned();
        assert_eq!(shown("up"), Some((both.clone(), true, false)));
        assert_eq!(shown("deleted"), Some((both.clone(), true, true)));
        assert_eq!(shown("failed"), Some((String::new(), false, false)));
        assert_eq!(shown("ending"), Some((both, false, true)));
        // A running pod that no source has yet. A pod that does not run is not listed.
        assert_eq!(shown("early"), None);
        let names: Vec<&str> = own.pods.iter().map(|pod| pod.name.as_str()).collect();
        assert!(!names.contains(&"ns/new") && !names.contains(&"ns/old"), "{names:?}");
        inputs.set_runtime(
            RuntimeState { name: "r".to_owned(), ready: true, network_ready: true, ..RuntimeState::default() },
            rt::now(),
        );
        assert_eq!(own_node("n", &records, &observed, &inputs).ready[0], "True");
    }
}
