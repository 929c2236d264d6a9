//! The tags of a pod's images, and the version of the pod that follows when a tag moves. Pure.
//!
//! A manifest names `app:stable`. While the tag is where it was, the manifest's pod runs. When the tag has moved, the
//! offered version is the same pod with `app@sha256:...`, and a uid of its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::control::pod_sources::static_pod::uid_with_images;
use crate::kubelet::image_archives::image_name::reference;
use crate::state::pods::TagTarget;
use crate::types::api::annotations::{AUTO_UPDATE, CONFIG_HASH, auto_update};
use crate::types::api::{Pod, PodStatus, PullPolicy, VolumeSource};
use crate::types::sorted::SortedMap;

/// By image, as in the manifest.
#[derive(Debug, Default)]
pub(super) struct ImageTags(SortedMap<String, TagDigests>);

#[derive(Debug)]
struct TagDigests {
    /// What the image of this name on the node is.
    base: String,
    /// What the tag stood for when it was looked up last.
    target: String,
}

/// How often the tags of the pod's images are looked up; `None` for never.
pub(super) fn lookup_interval(pod: &Pod) -> Option<Duration> {
    pod.annotation(AUTO_UPDATE).and_then(auto_update)
}

/// The images of the manifest whose tags may move, each once. An image that is never pulled has no registry.
pub(super) fn tagged_images(pod: &Pod) -> Vec<String> {
    let mut images = Vec::new();
    for (image, policy) in images_mut(&mut pod.clone()) {
        let has_tag = reference(image).is_ok_and(|name| name.digest().is_none());
        if has_tag && *policy != Some(PullPolicy::Never) && !images.contains(image) {
            images.push(image.clone());
        }
    }
    images
}

/// The digest of the image that runs in containers of this pod under the name `image`; `None` if it is not known, such
/// as for an image from an archive.
pub(super) fn running_digest<'a>(pod: &Pod, image: &str, status: &'a PodStatus) -> Option<&'a str> {
    let uses =
        |name: &str| pod.spec.all_containers().any(|container| container.name == name && container.image == image);
    let mut statuses = status.init_container_statuses.iter().chain(&status.container_statuses);
    statuses.find_map(|status| Some(status.image_id.rsplit_once('@').filter(|_| uses(&status.name))?.1))
}

impl ImageTags {
    /// The version to run with the tags where they are. The node alone decides when the images of a pod with
    /// [`AUTO_UPDATE`] are pulled: with `Always`, a restarted container would get the new image without a trial.
    pub(super) fn version(&self, manifest: &Arc<Pod>) -> Arc<Pod> {
        if lookup_interval(manifest).is_none() {
            return Arc::clone(manifest);
        }
        let mut pod = Pod::clone(manifest);
        let mut moved: Vec<(&str, &str)> = Vec::new();
        for (image, policy) in images_mut(&mut pod) {
            if *policy == Some(PullPolicy::Always) {
                *policy = Some(PullPolicy::IfNotPresent);
            }
            let mut tags = self.0.iter().filter(|(_, tag)| tag.target != tag.base);
            let Some((written, tag)) = tags.find(|(written, _)| *written == image) else { continue };
            let Ok(name) = reference(image) else { continue };
            // Without the tag: some runtimes refuse a name that has both.
            *image = [&*name.repository(), "@", &tag.target].concat();
            if !moved.contains(&(&**written, &*tag.target)) {
                moved.push((written, &tag.target));
            }
        }
        if !moved.is_empty() {
            let uid = uid_with_images(&pod.metadata.uid, moved.into_iter());
            pod.metadata.annotations.insert(CONFIG_HASH, uid.as_str().to_owned());
            pod.metadata.uid = uid;
        }
        Arc::new(pod)
    }

    /// Records what the tag of `image` stands for now. `running` is the digest of the image that runs under this name,
    /// if it is known. True if this changed something.
    pub(super) fn record(&mut self, image: &str, target: &TagTarget, running: Option<&str>) -> bool {
        if let Some(tag) = self.0.get_mut(image) {
            let is_moved = tag.target != target.digest;
            tag.target.clone_from(&target.digest);
            return is_moved;
        }
        // A runtime may name the image by its index or by its manifest.
        if running.is_some_and(|digest| digest == target.digest || digest == target.manifest) {
            return false;
        }
        // An image of unknown digest counts as the one that the tag stands for at the first lookup.
        let base = running.unwrap_or(&target.digest).to_owned();
        self.0.insert(image.to_owned(), TagDigests { base, target: target.digest.clone() });
        true
    }

    /// Forgets the images that the manifest no longer has. True if there were any.
    pub(super) fn keep_images_of(&mut self, manifest: &Pod) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let (before, images) = (self.0.len(), tagged_images(manifest));
        let is_followed = lookup_interval(manifest).is_some();
        self.0.retain(|image, _| is_followed && images.contains(image));
        self.0.len() != before
    }

    pub(super) fn to_json(&self) -> Value {
        let tags = self.0.iter().map(|(image, tag)| (image.clone(), json!({ "base": tag.base, "target": tag.target })));
        Value::Object(tags.collect())
    }

    /// Entries that are not valid are left out: their tags are looked up as if for the first time.
    pub(super) fn from_json(tags: &Map<String, Value>) -> Self {
        let text = |value: &Value, key: &str| Some(value.get(key)?.as_str()?.to_owned());
        let tags = tags.iter().filter_map(|(image, tag)| {
            Some((image.clone(), TagDigests { base: text(tag, "base")?, target: text(tag, "target")? }))
        });
        Self(tags.collect())
    }
}

fn images_mut(pod: &mut Pod) -> impl Iterator<Item = (&mut String, &mut Option<PullPolicy>)> {
    let spec = &mut pod.spec;
    let mounted = spec.volumes.iter_mut().filter_map(|volume| match &mut volume.source {
        VolumeSource::Image(source) => Some((&mut source.reference, &mut source.pull_policy)),
        _ => None,
    });
    let containers = spec.init_containers.iter_mut().chain(&mut spec.containers);
    containers.map(|container| (&mut container.image, &mut container.image_pull_policy)).chain(mounted)
}

#[cfg(test)]
mod tests;
