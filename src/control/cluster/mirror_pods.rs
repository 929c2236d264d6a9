//! Mirror pods of the node's static pods. Pure.
//!
//! Follows pkg/kubelet/pod/mirror_client.go.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::state::objects::references;
use crate::types::api::annotations::{CONFIG_HASH, CONFIG_MIRROR, MIRROR_LEAVES_OUT};
use crate::types::api::{EnvVarSource, Pod, ProjectionSource, VolumeSource, encode};
use crate::types::sorted::SortOnce;
use crate::types::text;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum MirrorStep {
    /// Deletes a mirror pod whose static pod is gone or has changed.
    Delete {
        namespace: String,
        name: String,
        uid: String,
    },
    Create {
        namespace: String,
        name: String,
        object: Value,
    },
}

/// The steps that bring the mirror pods in line with the static pods. `complete`: `static_pods` has all of them, so a
/// mirror pod without one is deleted. The mirror pod of an `ending` static pod stays until that has ended. `node_uid` is
/// the uid of the Node object; while it is unknown no mirror pods are created.
pub(super) fn steps(
    static_pods: &[Arc<Pod>],
    ending: &[Arc<Pod>],
    mirrors: &[Arc<Pod>],
    complete: bool,
    node: &str,
    node_uid: &str,
) -> Vec<MirrorStep> {
    let same_name = |a: &Pod, b: &Pod| a.full_name() == b.full_name();
    let is_ending = |mirror: &Pod| ending.iter().any(|pod| same_name(pod, mirror) && has_hash_of(mirror, pod));
    let outdated = mirrors.iter().filter(|mirror| !is_ending(mirror)).filter(|mirror| {
        match static_pods.iter().find(|pod| same_name(pod, mirror)) {
            Some(pod) => !is_mirror_of(mirror, pod),
            None => complete,
        }
    });
    let delete = |mirror: &Arc<Pod>| MirrorStep::Delete {
        namespace: mirror.metadata.namespace.clone(),
        name: mirror.metadata.name.clone(),
        uid: mirror.metadata.uid.to_string(),
    };
    let creatable_pods = static_pods.iter().filter(|_| !node_uid.is_empty());
    // A static pod starts when its namesake has ended.
    let creatable_pods = creatable_pods.filter(|pod| !ending.iter().any(|ending_pod| same_name(pod, ending_pod)));
    let missing = creatable_pods.filter(|pod| !mirrors.iter().any(|mirror| same_name(pod, mirror)));
    let create = |pod: &Arc<Pod>| MirrorStep::Create {
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        object: mirror(pod, node, node_uid),
    };
    outdated.map(delete).chain(missing.map(create)).collect()
}

/// A mirror pod that is being deleted does not count: a new one replaces it.
fn is_mirror_of(mirror: &Pod, pod: &Pod) -> bool {
    mirror.metadata.deletion_timestamp.is_none() && has_hash_of(mirror, pod)
}

/// The mirror pod was created for this version of the static pod.
pub(super) fn has_hash_of(mirror: &Pod, pod: &Pod) -> bool {
    mirror.annotation(CONFIG_MIRROR) == pod.annotation(CONFIG_HASH)
}

fn mirror(pod: &Pod, node: &str, node_uid: &str) -> Value {
    let mut mirror = pod.clone();
    let hash = pod.annotation(CONFIG_HASH).unwrap_or_default().to_owned();
    mirror.metadata.annotations.insert(CONFIG_MIRROR, hash);
    leave_out_references(&mut mirror);
    // The API server assigns the uid.
    mirror.metadata.uid = Default::default();
    let mut object = encode(&mirror);
    if let Value::Object(object) = &mut object {
        object.remove("status");
        object.insert("apiVersion".to_owned(), json!("v1"));
        object.insert("kind".to_owned(), json!("Pod"));
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": true});
            metadata.insert("ownerReferences".to_owned(), json!([owner]));
        }
    }
    object
}

/// Removes the references to ConfigMaps and Secrets, and names them in an annotation: the API server accepts no mirror
/// pod with references, even to objects of the manifests. Volumes of such files become empty directories.
fn leave_out_references(mirror: &mut Pod) {
    let objects = references(mirror);
    if objects.is_empty() {
        return;
    }
    let mut names: Vec<String> = objects.iter().map(|key| [key.kind.resource(), "/", &key.name].concat()).collect();
    names.sort_once();
    names.dedup();
    let mut names = names.join(",");
    text::cut(&mut names, MAX_LEFT_OUT_NAMES_BYTES);
    mirror.metadata.annotations.insert(MIRROR_LEAVES_OUT, names);
    let spec = &mut mirror.spec;
    spec.image_pull_secrets.clear();
    for volume in &mut spec.volumes {
        let is_left = match &mut volume.source {
            VolumeSource::ConfigMap(_) | VolumeSource::Secret(_) => false,
            VolumeSource::Projected(projected) => {
                projected.sources.retain(|projection| {
                    !matches!(projection.source, Some(ProjectionSource::ConfigMap(_) | ProjectionSource::Secret(_)))
                });
                !projected.sources.is_empty()
            }
            _ => true,
        };
        if !is_left {
            volume.source = VolumeSource::EmptyDir(Box::default());
        }
    }
    let containers = spec.init_containers.iter_mut().chain(&mut spec.containers);
    for container in containers.chain(&mut spec.ephemeral_containers) {
        container.env_from.clear();
        container.env.retain(|variable| {
            let source = variable.value_from.map(|from| &from.source);
            !matches!(source, Some(EnvVarSource::ConfigMapKey(_) | EnvVarSource::SecretKey(_)))
        });
    }
}

const MAX_LEFT_OUT_NAMES_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::{Time, decode};

    fn pod(name: &str, hash: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.namespace = "ns".to_owned();
        pod.metadata.name = name.to_owned();
        pod.metadata.uid = hash.into();
        pod.metadata.annotations.insert(CONFIG_HASH, hash.to_owned());
        Arc::new(pod)
    }

    fn mirror_of(name: &str, hash: &str) -> Arc<Pod> {
        let mut mirror = Pod::clone(&pod(name, hash));
        mirror.metadata.uid = "of-the-server".into();
        mirror.metadata.annotations.insert(CONFIG_MIRROR, hash.to_owned());
        Arc::new(mirror)
    }

    /// Steps as `-name` (delete) and `+name` (create).
    fn steps_of(static_pods: &[Arc<Pod>], mirrors: &[Arc<Pod>], complete: bool) -> Vec<String> {
        steps_on("nu", (static_pods, &[]), mirrors, complete)
    }

    fn steps_on(
        node_uid: &str,
        (own, ending): (&[Arc<Pod>], &[Arc<Pod>]),
        mirrors: &[Arc<Pod>],
        complete: bool,
    ) -> Vec<String> {
        let word = |step| match step {
            MirrorStep::Delete { name, uid, .. } => {
                assert_eq!(uid, "of-the-server");
                format!("-{name}")
            }
            MirrorStep::Create { name, .. } => format!("+{name}"),
        };
        steps(own, ending, mirrors, complete, "n", node_uid).into_iter().map(word).collect()
    }

    #[test]
    fn static_pods_get_mirrors_and_orphaned_mirrors_are_deleted() {
        let (own, mirrors) = ([pod("a", "1"), pod("b", "1")], [mirror_of("b", "1"), mirror_of("c", "1")]);
        assert_eq!(steps_of(&own, &mirrors, true), ["-c", "+a"]);
        assert_eq!(steps_of(&own, &mirrors, false), ["+a"]);
    }

    #[test]
    fn no_mirror_is_created_before_the_node_uid_is_known() {
        assert_eq!(steps_on("", (&[pod("a", "1")], &[]), &[mirror_of("c", "1")], true), ["-c"]);
    }

    #[test]
    fn outdated_mirror_is_deleted_before_a_new_one_is_created() {
        assert_eq!(steps_of(&[pod("a", "2")], &[mirror_of("a", "1")], true), ["-a"]);
        assert_eq!(steps_of(&[pod("a", "2")], &[], true), ["+a"]);
    }

    #[test]
    fn mirror_stays_until_its_static_pod_has_ended() {
        let steps =
            |own: &[Arc<Pod>], ending: &[Arc<Pod>], mirrors: &[Arc<Pod>]| steps_on("nu", (own, ending), mirrors, true);
        let (old, new, mirror) = ([pod("a", "1")], [pod("a", "2")], [mirror_of("a", "1")]);
        assert!(steps(&[], &old, &mirror).is_empty(), "removed");
        assert!(steps(&new, &old, &mirror).is_empty(), "changed");
        assert!(steps(&new, &old, &[]).is_empty(), "no mirror of a pod that has not started");
        assert_eq!(steps(&new, &old, &[mirror_of("a", "0")]), ["-a"]);
        assert_eq!(steps(&[], &[], &mirror), ["-a"]);
    }

    #[test]
    fn mirror_that_is_being_deleted_is_replaced() {
        let mut deleted = Pod::clone(&mirror_of("a", "1"));
        deleted.metadata.deletion_timestamp = Some(Time::from_unix_nanos(1));
        assert_eq!(steps_of(&[pod("a", "1")], &[Arc::new(deleted)], true), ["-a"]);
    }

    #[test]
    fn mirror_names_its_node_and_leaves_its_uid_to_the_server() {
        let made = mirror(&pod("a", "1"), "n", "nu");
        assert_eq!(made["metadata"]["annotations"][CONFIG_MIRROR], "1");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "nu");
        assert_eq!(
            (&made["metadata"]["uid"], &made["status"], &made["kind"]),
            (&Value::Null, &Value::Null, &json!("Pod"))
        );
    }

    #[test]
    fn mirror_names_the_objects_that_it_leaves_out() {
        let spec = json!({
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"name": "cm", "configMap": {"name": "settings"}},
                {"name": "mixed", "projected": {"sources": [
                    {"secret": {"name": "tls"}},
                    {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ]}},
                {"name": "secrets", "projected": {"sources": [{"secret": {"name": "tls"}}]}},
            ],
            "containers": [{
                "name": "main",
                "envFrom": [{"configMapRef": {"name": "settings"}}],
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "tls", "key": "k"}}},
                    {"name": "B", "value": "b"},
                ],
            }],
        });
        let mut own = Pod::clone(&pod("a", "1"));
        own.spec = decode(spec).unwrap().value;
        let made = mirror(&own, "n", "nu");
        let names = "configmap/settings,secret/pull,secret/tls";
        assert_eq!(made["metadata"]["annotations"][MIRROR_LEAVES_OUT], names);
        let spec = &made["spec"];
        assert_eq!(spec["volumes"][0], json!({"name": "cm", "emptyDir": {}}));
        assert_eq!(spec["volumes"][1]["projected"]["sources"].as_array().unwrap().len(), 1);
        assert_eq!(spec["volumes"][2], json!({"name": "secrets", "emptyDir": {}}));
        assert_eq!(spec["containers"][0]["env"], json!([{"name": "B", "value": "b"}]));
        let mut seen = Pod::clone(&own);
        seen.spec = decode(spec.clone()).unwrap().value;
        assert_eq!(references(&seen), []);
        assert!(mirror(&pod("a", "1"), "n", "nu")["metadata"]["annotations"][MIRROR_LEAVES_OUT].is_null());
    }
}
