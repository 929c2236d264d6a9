//! Removes containers and sandboxes from the runtime.

use crate::kubelet::kuberuntime::kill::gone_is_fine;
use crate::kubelet::kuberuntime::{Garbage, PodRuntime};
use crate::kubelet::logs::{remove_dead_links, remove_log};
use crate::platform::cri;
use crate::platform::rt;
use crate::state::pods::{NodeEvent, ObservedContainer, ObservedPod, SyncEvent};
use crate::types::api::{EventKind, Reason};
use crate::types::error::ErrorChain;

impl PodRuntime {
    /// Removes the garbage of a living pod; true if all of it is removed.
    pub(crate) async fn collect(&self, pod: &ObservedPod, garbage: &[Garbage]) -> bool {
        let mut all = true;
        for garbage in garbage {
            let (id, removed) = match garbage {
                Garbage::Container { id, log } => (id, self.remove_container(pod, id, log).await),
                Garbage::Sandbox { id } => (id, self.remove_sandbox(&pod.uid, id).await),
            };
            if let Err(error) = removed {
                let message = format!("remove {id} of {}/{}: {}", pod.namespace, pod.name, ErrorChain(&error));
                let event = NodeEvent::new(EventKind::Warning, Reason::CONTAINER_GC_FAILED, message);
                // Events may be dropped when the inbox is full.
                let _ = self.inbox.try_send(SyncEvent::NodeEvent(event));
                all = false;
            }
        }
        all
    }

    /// Removes all sandboxes and containers of a terminated pod.
    pub(crate) async fn remove_pod(&self, pod: &ObservedPod) -> Result<(), cri::Error> {
        for sandbox in &pod.sandboxes {
            self.remove_sandbox(&pod.uid, &sandbox.id).await?;
        }
        // RemovePodSandbox removes the sandbox's containers; these containers have no sandbox any more.
        let orphaned = |container: &&ObservedContainer| pod.sandboxes.iter().all(|s| s.id != container.sandbox_id);
        for container in pod.containers.iter().filter(orphaned) {
            gone_is_fine(self.cri_for(&pod.uid).remove_container(&container.id).await)?;
        }
        Ok(())
    }

    async fn remove_container(&self, pod: &ObservedPod, id: &str, log: &str) -> Result<(), cri::Error> {
        gone_is_fine(self.cri_for(&pod.uid).remove_container(id).await)?;
        let log = self.dirs.logs(&pod.namespace, &pod.name, &pod.uid).join(log);
        let links = self.dirs.log_links();
        rt::blocking_for(pod.uid.as_str(), move || {
            remove_log(&log);
            remove_dead_links(&links);
        })
        .await;
        Ok(())
    }
}
