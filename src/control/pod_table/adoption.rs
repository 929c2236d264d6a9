//! Static pods that another kubelet started keep their running uid. Pure.
//!
//! The uid of a static pod is a hash of its manifest, and kubelets hash differently. Replacing a node's kubelet with
//! this one must not restart its static pods: a running static pod with the same name, namespace and containers is the
//! same pod.

use crate::state::pods::ObservedPod;
use crate::types::api::{Pod, PodUid, container_hash};

/// The uid under which `pod` already runs, if another kubelet started it.
pub(super) fn running_uid<'a>(pod: &Pod, mut running: impl Iterator<Item = &'a ObservedPod>) -> Option<PodUid> {
    let same = running.find(|observed| is_same(pod, observed))?;
    Some(same.uid.clone())
}

fn is_same(pod: &Pod, observed: &ObservedPod) -> bool {
    observed.uid != pod.metadata.uid
        && observed.namespace == pod.metadata.namespace
        && observed.name == pod.metadata.name
        && observed.source.as_deref().is_some_and(|source| source != "api")
        && !is_our_own(&observed.uid)
        && observed.ready_sandbox().is_some()
        && pod.spec.containers.iter().all(|container| {
            let instance = observed.container(&container.name);
            instance.is_some_and(|instance| instance.hash == Some(container_hash(container)))
        })
}

/// Whether this kubelet computed the uid. If the manifest now hashes to another one, the manifest has changed.
fn is_our_own(uid: &PodUid) -> bool {
    crate::control::pod_sources::static_pod::is_own_uid(uid.as_str())
}
