//! Rejects pods that wait for a volume for which the node has no room.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use super::Csi;
use crate::platform::apiserver::{Request, Requester};
use crate::platform::rt;
use crate::state::objects::{attachment_name, is_out_of_room};
use crate::state::pods::SyncEvent;
use crate::types::api::PodUid;
use crate::types::sorted::SortOnce;

/// A volume that is not attached to the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnattachedVolume {
    /// The volume's name in the pod.
    pub(crate) name: String,
    pub(crate) driver: String,
    pub(crate) handle: String,
    /// The driver's volume limit is updated periodically, so the pod may be rejected.
    pub(crate) may_be_refused: bool,
}

/// A pod and the volumes it waits for.
pub(super) struct AttachmentWait {
    pod: PodUid,
    volumes: Rc<RefCell<Vec<UnattachedVolume>>>,
    task: rt::Task<()>,
}

/// Upstream's `podAttachAndMountTimeout`: volumes attached by then are in time.
const ATTACHMENT_TIMEOUT: Duration = Duration::from_secs(123);

impl Csi {
    /// Records the pod's volumes that are not attached yet.
    pub(crate) fn wait_for_attachment(self: &Rc<Self>, pod: &PodUid, volumes: Vec<UnattachedVolume>) {
        let may_be_refused = volumes.iter().any(|volume| volume.may_be_refused);
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|wait| !wait.task.is_finished() && (may_be_refused || wait.pod != *pod));
        if !may_be_refused {
            return;
        }
        if let Some(wait) = waiting.iter().find(|wait| wait.pod == *pod) {
            wait.volumes.replace(volumes);
            return;
        }
        let volumes = Rc::new(RefCell::new(volumes));
        let (csi, uid, awaited) = (Rc::downgrade(self), pod.clone(), Rc::clone(&volumes));
        let task = rt::spawn(async move {
            rt::sleep(ATTACHMENT_TIMEOUT).await;
            let awaited = awaited.borrow().clone();
            if let Some(csi) = csi.upgrade() {
                csi.refuse_without_room(uid, &awaited).await;
            }
        });
        waiting.push(AttachmentWait { pod: pod.clone(), volumes, task });
    }

    /// Forgets the pod with this directory, which has terminated.
    pub(super) fn end_attachment_wait(&self, pod: &Path) {
        self.waiting.borrow_mut().retain(|wait| pod.file_name() != Some(OsStr::new(wait.pod.as_str())));
    }

    async fn refuse_without_room(&self, pod: PodUid, volumes: &[UnattachedVolume]) {
        for volume in volumes.iter().filter(|volume| volume.may_be_refused) {
            if self.is_out_of_room(volume).await {
                // Updates the CSINode, so that the scheduler chooses another node for the next pod.
                self.refresh(&volume.driver).await;
                // The receiver is gone only at shutdown.
                let _ = self.inbox.send(SyncEvent::VolumesRefused(pod, refusal(volumes))).await;
                return;
            }
        }
    }

    async fn is_out_of_room(&self, volume: &UnattachedVolume) -> bool {
        let Some(client) = &self.client else { return false };
        let name = attachment_name(&volume.driver, &volume.handle, &self.node_name);
        let path = format!("/apis/storage.k8s.io/v1/volumeattachments/{name}");
        match client
            .send(&Request::get(path).requested_by(Requester::Tenant))
            .await
            .and_then(|response| response.json())
        {
            Ok(attachment) => is_out_of_room(&attachment),
            Err(_) => false,
        }
    }
}

/// Upstream's message.
fn refusal(volumes: &[UnattachedVolume]) -> String {
    let mut names: Vec<&str> = volumes.iter().map(|volume| &*volume.name).collect();
    names.sort_once();
    let names = names.join(" ");
    format!(
        "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[{names}], unattached \
         volumes=[{names}], failed to process volumes=[]: context deadline exceeded"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(name: &str, may_be_refused: bool) -> UnattachedVolume {
        let (driver, handle) = ("d".to_owned(), "h".to_owned());
        UnattachedVolume { name: name.to_owned(), driver, handle, may_be_refused }
    }

    #[test]
    fn pod_is_tracked_while_a_volume_of_a_reporting_driver_is_unattached() {
        rt::block_on(async {
            let csi = Csi::new(Path::new("/nowhere"), "n", async_channel::bounded(1).0, None);
            let waiting = || {
                let waiting = csi.waiting.borrow();
                let names =
                    |one: &AttachmentWait| one.volumes.borrow().iter().map(|one| one.name.clone()).collect::<Vec<_>>();
                waiting.iter().map(|one| (one.pod.as_str().to_owned(), names(one))).collect::<Vec<_>>()
            };
            let (a, b) = (PodUid::from("a"), PodUid::from("b"));
            csi.wait_for_attachment(&a, vec![volume("v", false)]);
            assert_eq!(waiting(), []);
            csi.wait_for_attachment(&a, vec![volume("w", true), volume("v", false)]);
            csi.wait_for_attachment(&b, vec![volume("v", true)]);
            csi.wait_for_attachment(&a, vec![volume("w", true)]);
            let one = |pod: &str, name: &str| (pod.to_owned(), vec![name.to_owned()]);
            assert_eq!(waiting(), [one("a", "w"), one("b", "v")]);
            csi.wait_for_attachment(&a, Vec::new());
            assert_eq!(waiting(), [one("b", "v")]);
            csi.end_attachment_wait(Path::new("/pods/b"));
            assert_eq!(waiting(), []);
        });
    }

    #[test]
    fn rejection_names_the_volumes_in_order() {
        let told = refusal(&[volume("w", true), volume("v", false)]);
        assert!(told.contains(" unmounted volumes=[v w], unattached volumes=[v w], "), "{told}");
    }
}
