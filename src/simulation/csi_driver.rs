//! A CSI driver with volumes in memory. It checks that calls come in the order of the specification, and one at a time
//! for a volume.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::json;

use super::container_runtime::ContainerRuntime;
use super::fake_api::in_process::Server;
use super::plugin::Service;
use super::record::{Record, Rule};
use crate::platform::cri::v1;
use crate::platform::rpc::Reply;
use crate::protocol::grpc::{Code, Status};
use crate::protocol::protobuf::{Message, decode, encode, message};

message! {
    struct NodeInfo {
        1 => node_id: String,
    }

    struct Capabilities {
        1 => capabilities: Vec<Capability>,
    }

    struct Capability {
        1 => rpc: Option<Rpc>,
    }

    struct Rpc {
        1 => kind: i32,
    }

    struct Stage {
        1 => volume_id: String,
        3 => staging_target_path: String,
    }

    struct Publish {
        1 => volume_id: String,
        3 => staging_target_path: String,
        4 => target_path: String,
    }

    /// Any request for a volume.
    struct OfVolume {
        1 => volume_id: String,
    }

    /// `NodeUnpublishVolumeRequest` and `NodeUnstageVolumeRequest`.
    struct Undo {
        1 => volume_id: String,
        2 => path: String,
    }
}

pub(super) const NAME: &str = "csi.example.com";
/// Number of volumes. Pods of the same number share one.
pub(super) const CSI_VOLUMES: u64 = 5;
const STAGE_UNSTAGE_VOLUME: i32 = 1;

pub(super) struct CsiDriver {
    record: Rc<Record>,
    runtime: Rc<ContainerRuntime>,
    /// The volumes with their staging paths, and with their target paths.
    staged: RefCell<BTreeSet<(String, String)>>,
    published: RefCell<BTreeSet<(String, String)>>,
    /// Volumes with a call whose handler has not returned, also if the agent has cancelled it. Handlers end with their
    /// connection and with the call's timeout: the agent cannot know more of them.
    busy: Rc<RefCell<Vec<BusyVolume>>>,
}

struct BusyVolume {
    volume: String,
    method: String,
}

/// A call whose handler runs.
struct RunningCall {
    volume: String,
    method: String,
    busy: Rc<RefCell<Vec<BusyVolume>>>,
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let mut busy = self.busy.borrow_mut();
        let index = busy.iter().position(|one| one.volume == self.volume && one.method == self.method);
        index.into_iter().for_each(|index| drop(busy.swap_remove(index)));
    }
}

impl CsiDriver {
    pub(super) fn new(record: &Rc<Record>, runtime: &Rc<ContainerRuntime>) -> Self {
        Self {
            record: Rc::clone(record),
            runtime: Rc::clone(runtime),
            staged: RefCell::default(),
            published: RefCell::default(),
            busy: Rc::default(),
        }
    }

    /// Creates the CSIDriver object, its volumes, and a bound claim for each.
    pub(super) fn create_objects(server: &mut Server) {
        server.create(&json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": NAME},
            "spec": {"attachRequired": false},
        }));
        for number in 0..CSI_VOLUMES {
            let (name, volume) = (claim(number), format!("disk-{number}"));
            let created = server.create(&json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
                "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": volume},
            }));
            let uid = &created["metadata"]["uid"];
            let reference = json!({"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": uid});
            server.create(&json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "claimRef": reference,
                    "csi": {"driver": NAME, "volumeHandle": format!("handle-{number}"), "fsType": "ext4"},
                },
            }));
            let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}/status");
            server.patch(&path, &json!({"status": {"phase": "Bound"}}));
        }
    }

    /// Drops all mounts, as after a power cut.
    pub(super) fn forget_mounts(&self) {
        self.staged.take();
        self.published.take();
    }

    /// The uids of the pods for which a volume is published.
    pub(super) fn pods(&self) -> BTreeSet<String> {
        self.published.borrow().iter().map(|(_, target)| pod_uid(target).to_owned()).collect()
    }

    /// A volume that is staged but not published.
    pub(super) fn left_staged(&self) -> Option<String> {
        let published = self.published.borrow();
        let staged = self.staged.borrow();
        staged.iter().map(|(volume, _)| volume).find(|volume| !published.iter().any(|(one, _)| one == *volume)).cloned()
    }

    fn violated(&self, violation: String) {
        self.record.violated(Rule::VolumeStays, violation);
    }

    fn stage(&self, request: Stage) -> Result<Vec<u8>, Status> {
        let place = (request.volume_id, request.staging_target_path);
        if self.staged.borrow_mut().insert(place.clone()) {
            let mounted = mount(Some("volume"), place.1.as_str(), Some("tmpfs"), MsFlags::empty(), Some("size=64k"));
            self.undone_unless(mounted, &self.staged, &place)?;
        }
        Ok(Vec::new())
    }

    fn publish(&self, request: Publish) -> Result<Vec<u8>, Status> {
        let (staged, place) =
            ((request.volume_id.clone(), request.staging_target_path), (request.volume_id, request.target_path));
        if !self.staged.borrow().contains(&staged) {
            self.violated(format!("{} is published before it is staged", place.0));
        }
        if self.published.borrow_mut().insert(place.clone()) {
            // An earlier attempt may have created it.
            let _ = std::fs::create_dir(&place.1);
            let (from, nothing) = (Some(Path::new(&staged.1)), None::<&str>);
            let mounted = mount(from, place.1.as_str(), nothing, MsFlags::MS_BIND, nothing);
            self.undone_unless(mounted, &self.published, &place)?;
        }
        Ok(Vec::new())
    }

    fn undone_unless(
        &self,
        mounted: nix::Result<()>,
        mounts: &RefCell<BTreeSet<(String, String)>>,
        mount: &(String, String),
    ) -> Result<(), Status> {
        mounted.map_err(|error| {
            mounts.borrow_mut().remove(mount);
            Status::new(Code::Internal, format!("mount {}: {error}", mount.1))
        })
    }

    fn unpublish(&self, request: Undo) -> Vec<u8> {
        let uid = pod_uid(&request.path);
        let user = self.runtime.look(|runtime| {
            let mut running = runtime.world.containers.iter().filter(|one| one.state == v1::ContainerState::Running);
            running
                .find(|one| one.config.labels.get("io.kubernetes.pod.uid").is_some_and(|of| of == uid))
                .map(|one| one.id.clone())
        });
        if let Some(container) = user {
            self.violated(format!("{} is taken from pod {uid}, whose container {container} runs", request.volume_id));
        }
        if self.published.borrow_mut().remove(&(request.volume_id, request.path.clone())) {
            // The node may have unmounted it.
            let _ = umount2(request.path.as_str(), MntFlags::MNT_DETACH);
            let _ = std::fs::remove_dir(&request.path);
        }
        Vec::new()
    }

    fn unstage(&self, request: Undo) -> Vec<u8> {
        if self.published.borrow().iter().any(|(volume, _)| *volume == request.volume_id) {
            self.violated(format!("{} is unstaged while it is published", request.volume_id));
        }
        if self.staged.borrow_mut().remove(&(request.volume_id, request.path.clone())) {
            let _ = umount2(request.path.as_str(), MntFlags::MNT_DETACH);
        }
        Vec::new()
    }
}

impl Service for CsiDriver {
    const INFO: [&'static str; 3] = ["CSIPlugin", NAME, "1.0.0"];

    /// The specification asks for one call for a volume at a time.
    fn begin(&self, method: &str, message: &[u8]) -> Option<Box<dyn Any>> {
        let is_of_volume = method.ends_with("Volume");
        let volume = is_of_volume.then(|| decode::<OfVolume>(message).ok()).flatten()?.volume_id;
        let other = self.busy.borrow().iter().find(|one| one.volume == volume).map(|one| one.method.clone());
        if let Some(other) = other {
            self.violated(format!("{method} is called for {volume} while {other} is running"));
        }
        let method = method.to_owned();
        self.busy.borrow_mut().push(BusyVolume { volume: volume.clone(), method: method.clone() });
        Some(Box::new(RunningCall { volume, method, busy: Rc::clone(&self.busy) }))
    }

    fn handle(&self, method: &str, message: &[u8]) -> Result<Reply, Status> {
        let response = match method {
            "NodeGetInfo" => encode(&NodeInfo { node_id: "node-7".to_owned() }),
            "NodeGetCapabilities" => {
                let capability = Capability { rpc: Some(Rpc { kind: STAGE_UNSTAGE_VOLUME }) };
                encode(&Capabilities { capabilities: vec![capability] })
            }
            "NodeStageVolume" => self.stage(read(message)?)?,
            "NodePublishVolume" => self.publish(read(message)?)?,
            "NodeUnpublishVolume" => self.unpublish(read(message)?),
            "NodeUnstageVolume" => self.unstage(read(message)?),
            other => return Err(Status::new(Code::Unimplemented, other)),
        };
        Ok(Reply::Message(response))
    }
}

fn read<M: Message + Default>(message: &[u8]) -> Result<M, Status> {
    decode(message).map_err(|_| Status::new(Code::InvalidArgument, "the request cannot be read"))
}

pub(super) fn claim(number: u64) -> String {
    format!("data-{}", number % CSI_VOLUMES)
}

/// The pod uid in `.../pods/<uid>/volumes/kubernetes.io~csi/<name>/mount`.
fn pod_uid(target: &str) -> &str {
    let mut parts = target.rsplit('/').skip(4);
    parts.next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::simulation::plan::{PluginKind, StepKind};
    use crate::simulation::plugin::Faults;
    use crate::simulation::wanted::Traits;
    use crate::simulation::{Start, after, create, live_through};

    /// The driver does not stop publishing when its call is cancelled.
    #[test]
    fn pod_that_ends_does_not_interrupt_a_call_for_its_volume() {
        let pod = Traits { volume: true, ..Traits::default() };
        let slow = Faults { slow: Duration::from_secs(60), ..Faults::default() };
        let hung = Faults { hung: 1000, ..Faults::default() };
        for faults in [slow, hung] {
            let fails = StepKind::PluginFails { which: PluginKind::Csi, faults, lasts: Duration::from_secs(40) };
            let delete = StepKind::DeletePod { which: 0, grace: Some(0) };
            let steps = vec![after(30, fails), create(pod), after(10, delete), after(60, StepKind::EndWatches)];
            live_through(&[(steps, Start::None)]);
        }
    }
}
