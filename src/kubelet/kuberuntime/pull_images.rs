//! Pulls the images of a pod that does not run yet.

use std::future::pending;

use crate::kubelet::image_credentials::PullSecrets;
use crate::kubelet::images::WantedImage;
use crate::kubelet::kuberuntime::known_images::NodeImages;
use crate::kubelet::kuberuntime::sandbox_config::sandbox_config;
use crate::platform::cri::v1::DnsConfig;
use crate::state::objects::Objects;
use crate::state::pods::{TagTarget, Waiting};
use crate::types::api::annotations::URGENT;
use crate::types::api::{Container, Pod, PodUid, PullPolicy, Reason, VolumeSource};
use crate::types::error::ErrorChain;
use crate::types::owned::View;

impl NodeImages {
    /// Makes the images of a pod present that cannot start yet. A failure does not delay its start.
    pub(crate) async fn pull_early(&self, pod: &Pod, objects: &View<Objects>) {
        let uid = &pod.metadata.uid;
        log!(info, "pulling the images of a pod that waits for others to end", pod = pod.full_name());
        if let Err(Waiting { reason, message, .. }) = self.pull(pod, uid, objects).await {
            log!(info, "failed to pull early", pod = pod.full_name(), reason = reason, message = message);
            self.pulls.forget_failures(uid);
        }
    }

    /// Pulls an image for a user, with the node's credentials. It waits for no window and no back-off. Returns the
    /// runtime's id of the image.
    pub(crate) async fn pull_for_user(&self, image: &str, objects: &View<Objects>) -> Result<String, Waiting> {
        let container = Container {
            name: "pull".to_owned(),
            image: image.to_owned(),
            image_pull_policy: Some(PullPolicy::Always),
            ..Container::default()
        };
        let mut pod = Pod::default();
        pod.metadata.namespace = "default".to_owned();
        pod.metadata.name = "coracle-images-pull".to_owned();
        pod.metadata.annotations.insert(URGENT, "true".to_owned());
        pod.spec.containers.push(container);
        self.pulls.forget_failures(&pod.metadata.uid);
        let sandbox = sandbox_config(&pod, 0, &self.node, &DnsConfig::default())
            .map_err(|error| Waiting::new(Reason::CREATE_CONTAINER_CONFIG_ERROR, ErrorChain(&error).to_string()))?;
        let secrets = PullSecrets::of(&pod, &objects.read());
        let wanted = WantedImage { image, policy: Some(PullPolicy::Always), container: None };
        let present = self.pulls.ensure(&pod, wanted, &sandbox, secrets, pending()).await?;
        Ok(present.image_ref)
    }

    /// Pulls the images of `next`, the version that will replace the pod `present`. Events are recorded for `present`,
    /// as `next` is not on the node yet. Dropping the future cancels a pull in progress.
    pub(crate) async fn pull(&self, next: &Pod, present: &PodUid, objects: &View<Objects>) -> Result<(), Waiting> {
        let sandbox = sandbox_config(next, 0, &self.node, &DnsConfig::default())
            .map_err(|error| Waiting::new(Reason::CREATE_CONTAINER_CONFIG_ERROR, ErrorChain(&error).to_string()))?;
        let mut pod = Pod::clone(next);
        pod.metadata.uid = present.clone();
        let secrets = PullSecrets::of(next, &objects.read());
        for wanted in images(next) {
            let pulled = self.pulls.ensure(&pod, wanted, &sandbox, secrets.clone(), pending()).await;
            pulled.map_err(|waiting| {
                let until = waiting.until.or_else(|| self.pulls.retry_at(present, wanted.image));
                Waiting { until, ..waiting }
            })?;
            self.pulls.record_early_pull(&next.metadata.uid, wanted);
        }
        Ok(())
    }

    /// What the registries have under the tags of these images of the pod now.
    pub(crate) async fn look_up_tags(
        &self,
        pod: &Pod,
        images: Vec<String>,
        objects: &View<Objects>,
    ) -> Result<Vec<(String, TagTarget)>, Waiting> {
        let mut targets = Vec::new();
        let secrets = PullSecrets::of(pod, &objects.read());
        for image in images {
            let target = self.pulls.look_up_tag(pod, &image, secrets.clone()).await?;
            targets.push((image, target));
        }
        Ok(targets)
    }
}

fn images(pod: &Pod) -> impl Iterator<Item = WantedImage<'_>> {
    let mounted = pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Image(source) => {
            Some(WantedImage { image: &source.reference, policy: source.pull_policy, container: None })
        }
        _ => None,
    });
    pod.spec.all_containers().map(WantedImage::by).chain(mounted)
}
