//! References from pods to ConfigMaps, Secrets and claims. Pure.

use super::{ObjectKey, ObjectKind};
use crate::types::api::{EnvFromRef, EnvVarSource, Pod, ProjectionSource, VolumeSource};

/// Every object that `pod` refers to; may contain duplicates.
pub(crate) fn references(pod: &Pod) -> Vec<ObjectKey> {
    let mut keys = Vec::new();
    let mut add = |kind, name: &str| {
        keys.push(ObjectKey { kind, namespace: pod.metadata.namespace.clone(), name: name.to_owned() });
    };
    for secret in &pod.spec.image_pull_secrets {
        add(ObjectKind::Secret, &secret.name);
    }
    for volume in &pod.spec.volumes {
        if let VolumeSource::ConfigMap(source) = &volume.source {
            add(ObjectKind::ConfigMap, &source.name);
        } else if let VolumeSource::Secret(source) = &volume.source {
            add(ObjectKind::Secret, &source.secret_name);
        } else if let (VolumeSource::PersistentVolumeClaim(source), true) = (&volume.source, pod.is_static()) {
            // A claim of the cluster is read with its volume.
            add(ObjectKind::VolumeClaim, &source.claim_name);
        } else if let VolumeSource::Csi(source) = &volume.source {
            if let Some(secret) = &source.node_publish_secret_ref {
                add(ObjectKind::Secret, &secret.name);
            }
        } else if let VolumeSource::Projected(source) = &volume.source {
            for source in source.sources.iter().filter_map(|projection| projection.source.as_ref()) {
                match source {
                    ProjectionSource::ConfigMap(object) => add(ObjectKind::ConfigMap, &object.name),
                    ProjectionSource::Secret(object) => add(ObjectKind::Secret, &object.name),
                    ProjectionSource::ClusterTrustBundle(_)
                    | ProjectionSource::DownwardApi(_)
                    | ProjectionSource::PodCertificate(_)
                    | ProjectionSource::ServiceAccountToken(_) => {}
                }
            }
        }
    }
    for container in pod.spec.all_containers() {
        for from in &container.env_from {
            match &from.source {
                EnvFromRef::ConfigMap(object) => add(ObjectKind::ConfigMap, &object.name),
                EnvFromRef::Secret(object) => add(ObjectKind::Secret, &object.name),
            }
        }
        for from in container.env.iter().filter_map(|variable| variable.value_from) {
            match &from.source {
                EnvVarSource::ConfigMapKey(key) => add(ObjectKind::ConfigMap, &key.name),
                EnvVarSource::SecretKey(key) => add(ObjectKind::Secret, &key.name),
                EnvVarSource::Field(_) | EnvVarSource::FileKey(_) | EnvVarSource::ResourceField(_) => {}
            }
        }
    }
    keys
}

/// Whether the pod has volumes whose files are updated from objects or from the pod itself.
pub(crate) fn volumes_follow(pod: &Pod) -> bool {
    pod.spec.volumes.iter().any(|volume| {
        matches!(
            volume.source,
            VolumeSource::ConfigMap(_)
                | VolumeSource::DownwardApi(_)
                | VolumeSource::Projected(_)
                | VolumeSource::Secret(_)
        )
    })
}
