//! Volumes of a pod that are not directories of the pod, and the sources of their statistics. Pure.

use std::path::{Path, PathBuf};

use crate::kubelet::csi::{handle_of_inline, target};
use crate::state::objects::claim_directory;
use crate::state::objects::{Lookup, ObjectKind, Objects, PersistentSource, Topic};
use crate::state::pods::PodDirs;
use crate::state::pods::volume_paths::{CSI, LOCAL_VOLUME_PLUGIN, NFS};
use crate::types::api::{Container, Pod, PodUid, Volume, VolumeSource};
use crate::types::sorted::SortedSet;

/// A CSI, NFS or persistent volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ForeignVolume {
    /// The pod's uid and namespace.
    pub(super) pod: String,
    pub(super) namespace: String,
    /// The volume's name in the pod.
    pub(super) name: String,
    pub(super) claim: Option<String>,
    pub(super) path: PathBuf,
    pub(super) teller: UsageSource,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UsageSource {
    Driver {
        name: String,
        handle: String,
    },
    /// The files of a directory of this node.
    Files {
        /// Bytes that the claim requests.
        requested: u64,
    },
    /// statfs, if a file system is mounted there.
    Mount,
}

/// The external volumes that containers of `pod` use; `uid` is its uid on the node. A hostPath has no statistics
/// (upstream's `MetricsNil`).
pub(crate) fn foreign_volumes(
    pod: &Pod,
    uid: &PodUid,
    (dirs, claims_dir): (&PodDirs, &Path),
    objects: &Objects,
) -> Vec<ForeignVolume> {
    let driver = |name: &String, handle: String| UsageSource::Driver { name: name.clone(), handle };
    let mount = |name: &str| target(&dirs.volume(uid, CSI, name));
    let place = |of: &Volume| match (&of.source, Topic::claim(pod, of)) {
        (VolumeSource::Csi(source), _) => {
            Some((mount(&of.name), driver(&source.driver, handle_of_inline(uid.as_str(), &of.name)), None))
        }
        (VolumeSource::Nfs(_), _) => Some((dirs.volume(uid, NFS, &of.name), UsageSource::Mount, None)),
        (VolumeSource::PersistentVolumeClaim(source), _) if pod.is_static() => {
            let Lookup::Found(claim) = objects.get(pod, ObjectKind::VolumeClaim, &source.claim_name) else {
                return None;
            };
            let teller = UsageSource::Files { requested: claim.storage.unwrap_or_default() };
            Some((claim_directory(claims_dir, claim), teller, Some(source.claim_name.clone())))
        }
        (_, Some(claim)) => {
            let Lookup::Found(volume) = objects.claimed(&claim) else { return None };
            let (path, teller) = match &volume.source {
                PersistentSource::Csi(source) => {
                    let device = || target(&dirs.volume_device(uid, CSI, &volume.name));
                    let place = if volume.is_block { device() } else { mount(&volume.name) };
                    (place, driver(&source.driver, source.handle.clone()))
                }
                _ if volume.is_block => return None,
                PersistentSource::Local { .. } => {
                    (dirs.volume(uid, LOCAL_VOLUME_PLUGIN, &volume.name), UsageSource::Mount)
                }
                PersistentSource::Nfs(_) => (dirs.volume(uid, NFS, &volume.name), UsageSource::Mount),
                PersistentSource::HostPath(_) | PersistentSource::Other(_) => return None,
            };
            let Topic::Claim { name, .. } = claim else { return None };
            Some((path, teller, Some(name)))
        }
        _ => None,
    };
    let used: SortedSet<&str> = pod.spec.all_containers().flat_map(Container::used_volumes).collect();
    let volumes = pod.spec.volumes.iter().filter_map(|volume| {
        let (path, teller, claim) = place(volume)?;
        let (namespace, name) = (pod.metadata.namespace.clone(), volume.name.clone());
        Some(ForeignVolume { pod: uid.as_str().to_owned(), namespace, name, claim, path, teller })
    });
    volumes.filter(|volume| used.contains(volume.name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;
    use crate::state::objects::{Content, ObjectEvent, PersistentVolume};
    use crate::types::api::decode;

    fn bound(objects: &mut Objects, claim: &str, spec: &Value) {
        let volume = PersistentVolume::read(&json!({"metadata": {"name": format!("pv-{claim}")}, "spec": spec}));
        let content = Content::Volume(Box::new(volume.unwrap()));
        let topic = Topic::Claim { namespace: "ns".to_owned(), name: claim.to_owned(), owner: None };
        assert!(objects.on_event(ObjectEvent::Received(topic, Some(content))).is_some());
    }

    #[test]
    fn only_used_csi_and_mounted_volumes_are_listed() {
        let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": format!("c-{name}")}});
        let names = ["disk", "local", "server", "host", "block", "unbound", "inline", "nfs", "dir"];
        let mounts: Vec<Value> = names.iter().map(|name| json!({"name": name, "mountPath": name})).collect();
        let mut volumes: Vec<Value> = names[..6].iter().map(|name| claim(name)).collect();
        volumes.extend([
            json!({"name": "inline", "csi": {"driver": "d"}}),
            json!({"name": "nfs", "nfs": {"server": "s", "path": "/p"}}),
            json!({"name": "dir", "hostPath": {"path": "/d"}}),
            json!({"name": "idle", "csi": {"driver": "d"}}),
        ]);
        let pod: Pod = decode(json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i", "volumeMounts": mounts}], "volumes": volumes},
        }))
        .unwrap()
        .value;
        let mut objects = Objects::default();
        bound(&mut objects, "c-disk", &json!({"csi": {"driver": "d", "volumeHandle": "h"}}));
        bound(&mut objects, "c-local", &json!({"local": {"path": "/mnt/d"}}));
        bound(&mut objects, "c-server", &json!({"nfs": {"server": "s", "path": "/p"}}));
        bound(&mut objects, "c-host", &json!({"hostPath": {"path": "/h"}}));
        let block = json!({"csi": {"driver": "d", "volumeHandle": "b"}, "volumeMode": "Block"});
        bound(&mut objects, "c-block", &block);
        let dirs = PodDirs::new(Path::new("/k"), Path::new("/l"));
        let found = foreign_volumes(&pod, &PodUid::from("u"), (&dirs, Path::new("/claims")), &objects);
        let driver = |handle: &str| UsageSource::Driver { name: "d".to_owned(), handle: handle.to_owned() };
        let of = |name: &str, claim: Option<&str>, path: &str, teller| ForeignVolume {
            pod: "u".to_owned(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            claim: claim.map(str::to_owned),
            path: path.into(),
            teller,
        };
        let expected = [
            of("disk", Some("c-disk"), "/k/pods/u/volumes/kubernetes.io~csi/pv-c-disk/mount", driver("h")),
            of("local", Some("c-local"), "/k/pods/u/volumes/kubernetes.io~local-volume/pv-c-local", UsageSource::Mount),
            of("server", Some("c-server"), "/k/pods/u/volumes/kubernetes.io~nfs/pv-c-server", UsageSource::Mount),
            of(
                "block",
                Some("c-block"),
                "/k/plugins/kubernetes.io/csi/volumeDevices/publish/pv-c-block/u",
                driver("b"),
            ),
            of(
                "inline",
                None,
                "/k/pods/u/volumes/kubernetes.io~csi/inline/mount",
                driver(&handle_of_inline("u", "inline")),
            ),
            of("nfs", None, "/k/pods/u/volumes/kubernetes.io~nfs/nfs", UsageSource::Mount),
        ];
        assert_eq!(found, expected);
    }
}
