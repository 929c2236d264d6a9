//! Pods of manifests, for tests.

use super::{Object, Origin, read_manifest};
use crate::state::pods::SourceName;
use crate::types::api::Pod;

/// The pods of a good manifest on the node `node`, those of workloads among them.
pub(crate) fn pods_of(text: &str) -> Vec<Pod> {
    let origin =
        Origin { source: SourceName::File, path: "/m/a.yaml", node_name: "node", config_seen: "", board_key: None };
    let objects = read_manifest(text.as_bytes(), &origin).unwrap();
    let pods = objects.into_iter().flat_map(|object| match object.object.unwrap() {
        Object::Pod(pod) => vec![*pod],
        Object::Workload(workload) => workload.pods,
        Object::Agent(_) | Object::Config(_) => Vec::new(),
    });
    pods.collect()
}
