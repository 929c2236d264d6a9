//! Tests which version a pod has when tags of its images move.

use super::*;
use crate::control::pod_sources::static_pod::{is_own_uid, testing::pods_of};

const OLD: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
const NEW: &str = "sha256:2222222222222222222222222222222222222222222222222222222222222222";

fn manifest(annotation: &str, containers: &str) -> Arc<Pod> {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, annotations: {{{annotation}}}}}\nspec: {{containers: [{containers}]}}"
    );
    Arc::new(pods_of(&text).remove(0))
}

fn followed(containers: &str) -> Arc<Pod> {
    manifest("coracle.dev/auto-update: 1h", containers)
}

fn target(digest: &str) -> TagTarget {
    TagTarget { digest: digest.to_owned(), manifest: "sha256:m".to_owned() }
}

fn images(pod: &Pod) -> Vec<&str> {
    pod.spec.all_containers().map(|container| &*container.image).collect()
}

const APP: &str = "{name: a, image: 'r.io/app:stable'}";

#[test]
fn moved_tag_makes_a_version_by_digest_with_another_uid() {
    let manifest = followed("{name: a, image: 'r.io/app:stable'}, {name: b, image: 'r.io/side:1'}");
    let mut tags = ImageTags::default();
    assert!(!tags.record("r.io/app:stable", &target(OLD), Some(OLD)));
    assert_eq!(tags.version(&manifest).metadata.uid, manifest.metadata.uid, "the tag is where it was");
    assert!(tags.record("r.io/app:stable", &target(NEW), Some(OLD)));
    let version = tags.version(&manifest);
    assert_eq!(images(&version), [format!("r.io/app@{NEW}"), "r.io/side:1".to_owned()]);
    assert_ne!(version.metadata.uid, manifest.metadata.uid);
    assert!(is_own_uid(version.metadata.uid.as_str()), "it has versions");
    assert_eq!(version.annotation(CONFIG_HASH), Some(version.metadata.uid.as_str()));
    assert_eq!(tags.version(&manifest).metadata.uid, version.metadata.uid, "the uid is stable");
}

#[test]
fn tag_that_moves_back_offers_the_manifests_pod_again() {
    let manifest = followed(APP);
    let mut tags = ImageTags::default();
    tags.record("r.io/app:stable", &target(NEW), Some(OLD));
    assert!(!tags.record("r.io/app:stable", &target(NEW), None), "nothing has changed");
    assert!(tags.record("r.io/app:stable", &target(OLD), None));
    assert_eq!(tags.version(&manifest).metadata.uid, manifest.metadata.uid);
}

#[test]
fn image_named_by_its_manifest_has_not_moved() {
    let mut tags = ImageTags::default();
    assert!(!tags.record("r.io/app:stable", &target(NEW), Some("sha256:m")));
}

#[test]
fn image_of_unknown_digest_counts_from_the_first_lookup() {
    let manifest = followed(APP);
    let mut tags = ImageTags::default();
    assert!(tags.record("r.io/app:stable", &target(OLD), None), "the first target is stored");
    assert_eq!(tags.version(&manifest).metadata.uid, manifest.metadata.uid);
    tags.record("r.io/app:stable", &target(NEW), None);
    assert_eq!(images(&tags.version(&manifest)), [format!("r.io/app@{NEW}")]);
}

#[test]
fn tags_survive_their_json() {
    let manifest = followed(APP);
    let mut tags = ImageTags::default();
    tags.record("r.io/app:stable", &target(NEW), Some(OLD));
    let json = tags.to_json();
    let mut read = ImageTags::from_json(json.as_object().unwrap());
    assert_eq!(read.version(&manifest).metadata.uid, tags.version(&manifest).metadata.uid);
    read.record("r.io/app:stable", &target(OLD), None);
    assert_eq!(read.version(&manifest).metadata.uid, manifest.metadata.uid, "the base is kept too");
    let damaged = json!({ "r.io/app:stable": { "base": 1 } });
    assert_eq!(ImageTags::from_json(damaged.as_object().unwrap()).0.len(), 0);
}

#[test]
fn images_that_have_left_the_manifest_are_forgotten() {
    let mut tags = ImageTags::default();
    tags.record("r.io/app:stable", &target(NEW), Some(OLD));
    assert!(!tags.keep_images_of(&followed(APP)));
    assert!(tags.keep_images_of(&followed("{name: a, image: 'r.io/app:2'}")));
    tags.record("r.io/app:stable", &target(NEW), Some(OLD));
    assert!(tags.keep_images_of(&manifest("", APP)), "the annotation is gone");
}

#[test]
fn only_tags_of_images_that_may_be_pulled_are_looked_up() {
    let manifest = followed(&format!(
        "{{name: a, image: app}}, {{name: b, image: app}}, {{name: c, image: 'r.io/x@{OLD}'}},
         {{name: d, image: 'r.io/y:1', imagePullPolicy: Never}}, {{name: e, image: 'r.io/z:1'}}"
    ));
    assert_eq!(tagged_images(&manifest), ["app", "r.io/z:1"]);
}

#[test]
fn short_names_are_those_of_docker_hub() {
    let mut tags = ImageTags::default();
    tags.record("app", &target(NEW), Some(OLD));
    assert_eq!(images(&tags.version(&followed("{name: a, image: app}"))), [format!("docker.io/library/app@{NEW}")]);
}

#[test]
fn restarted_containers_of_followed_pods_do_not_pull() {
    let policy = |pod: &Pod| pod.spec.containers[0].image_pull_policy;
    let tags = ImageTags::default();
    assert_eq!(policy(&tags.version(&followed("{name: a, image: app}"))), Some(PullPolicy::IfNotPresent));
    assert_eq!(policy(&tags.version(&manifest("", "{name: a, image: app}"))), Some(PullPolicy::Always));
}

#[test]
fn digest_of_the_running_image_is_that_of_its_container() {
    let pod = followed("{name: a, image: app}, {name: b, image: side}");
    let status: Pod = crate::types::api::decode(json!({ "status": { "containerStatuses": [
        { "name": "a", "imageID": format!("docker.io/library/app@{OLD}") },
        { "name": "b", "imageID": "sha256:33" },
    ] } }))
    .unwrap()
    .value;
    assert_eq!(running_digest(&pod, "app", &status.status), Some(OLD));
    assert_eq!(running_digest(&pod, "side", &status.status), None, "an image from an archive");
    assert_eq!(running_digest(&pod, "app:2", &status.status), None, "another version runs");
}
