//! Pulls the images of a pod that does not run yet.

use std::future::pending;

use crate::kubelet::images::{PullSecrets, WantedImage};
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::kuberuntime::sandbox_config::sandbox_config;
use crate::platform::cri::v1::DnsConfig;
use crate::state::pods::Waiting;
use crate::types::api::{Pod, PodUid, Reason, VolumeSource};
use crate::types::error::ErrorChain;

impl PodRuntime {
    /// Pulls the images of `next`, the version that will replace the pod `present`. Events are recorded for `present`,
    /// as `next` is not on the node yet. Dropping the future cancels a pull in progress.
    pub(crate) async fn pull_images(&self, next: &Pod, present: &PodUid) -> Result<(), Waiting> {
        let sandbox = sandbox_config(next, 0, &self.node, &DnsConfig::default())
            .map_err(|error| Waiting::new(Reason::CREATE_CONTAINER_CONFIG_ERROR, ErrorChain(&error).to_string()))?;
        let mut pod = Pod::clone(next);
        pod.metadata.uid = present.clone();
        for wanted in images(next) {
            let secrets = PullSecrets::of(next, &self.objects.borrow());
            let pulled = self.images.ensure(&pod, wanted, &sandbox, &secrets, pending()).await;
            pulled.map_err(|waiting| Waiting { until: self.images.retry_at(present, wanted.image), ..waiting })?;
            self.images.note_pulled_early(&next.metadata.uid, wanted);
        }
        Ok(())
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
