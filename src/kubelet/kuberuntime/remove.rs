//! Removes containers and sandboxes from the runtime.

use crate::kubelet::kuberuntime::Garbage;
use crate::kubelet::kuberuntime::network_results::{ignore_not_found, remove_sandbox};
use crate::kubelet::kuberuntime::record_event::EventRecorder;
use crate::kubelet::logs::{remove_dead_links, remove_log};
use crate::platform::cri::{self, RuntimeService};
use crate::platform::host::removals::{REMOVAL_PATIENCE, Removals};
use crate::platform::rt;
use crate::state::pods::{ObservedContainer, ObservedPod, PodDirs};
use crate::types::api::{EventKind, ObjectMeta, Pod, PodUid, Reason};
use crate::types::error::ErrorChain;

/// Removes dead containers and sandboxes, with their logs and termination messages.
pub(crate) struct ContainerRemover {
    pub(super) cri: RuntimeService,
    pub(super) dirs: PodDirs,
    pub(super) removals: Removals,
    pub(super) recorder: EventRecorder,
}

impl ContainerRemover {
    /// Removes the garbage of a living pod; true if all of it is removed.
    pub(crate) async fn collect(&self, pod: &ObservedPod, garbage: &[Garbage]) -> bool {
        let mut all_removed = true;
        for garbage in garbage {
            let (id, removed) = match garbage {
                Garbage::Container { id, name, restart_count } => {
                    (id, self.remove_container(pod, id, name, *restart_count).await)
                }
                Garbage::Sandbox { id } => (id, remove_sandbox(&self.cri_for(&pod.uid), id).await),
            };
            if let Err(error) = removed {
                let message = format!("remove {id} of {}/{}: {}", pod.namespace, pod.name, ErrorChain(&error));
                self.recorder.record_node_event(EventKind::Warning, Reason::CONTAINER_GC_FAILED, message);
                all_removed = false;
            }
        }
        all_removed
    }

    /// Removes all sandboxes and containers of a terminated pod.
    pub(crate) async fn remove_pod(&self, pod: &ObservedPod) -> Result<(), cri::Error> {
        for sandbox in &pod.sandboxes {
            remove_sandbox(&self.cri_for(&pod.uid), &sandbox.id).await?;
        }
        // RemovePodSandbox removes the sandbox's containers; these containers have no sandbox any more.
        let orphaned = |container: &&ObservedContainer| pod.sandboxes.iter().all(|s| s.id != container.sandbox_id);
        for container in pod.containers.iter().filter(orphaned) {
            ignore_not_found(self.cri_for(&pod.uid).remove_container(&container.id).await)?;
        }
        Ok(())
    }

    /// Whether files of an earlier pod with this uid are still being removed.
    pub(crate) fn is_removing_files_of(&self, pod: &Pod) -> bool {
        let ObjectMeta { namespace, name, uid, .. } = &pod.metadata;
        let (files, logs) = (self.dirs.pod(uid), self.dirs.logs(namespace, name, uid));
        self.removals.is_under_way(|path| path.starts_with(&files) || path == logs)
    }

    /// Removes dangling links to logs. A failure is repeated with the next pod.
    pub(crate) async fn remove_dead_log_links(&self) {
        let (links, until) = (self.dirs.log_links(), rt::now() + REMOVAL_PATIENCE);
        let folder = links.clone();
        let work = move || {
            remove_dead_links(&folder);
            Ok(())
        };
        if let Err(error) = self.removals.run(&links, None, until, work).await {
            log!(warn, "failed to remove dead links to logs", folder = links.display(), error = error);
        }
    }

    fn cri_for(&self, pod: &PodUid) -> RuntimeService {
        self.cri.of_pod(pod.as_str())
    }

    async fn remove_container(
        &self,
        pod: &ObservedPod,
        id: &str,
        name: &str,
        restart_count: u32,
    ) -> Result<(), cri::Error> {
        ignore_not_found(self.cri_for(&pod.uid).remove_container(id).await)?;
        let log = self.dirs.log(&pod.namespace, &pod.name, &pod.uid, name, restart_count);
        let termination_log = self.dirs.termination_log(&pod.uid, name, restart_count);
        let links = self.dirs.log_links();
        let (path, until) = (log.clone(), rt::now() + REMOVAL_PATIENCE);
        let work = move || {
            remove_log(&log);
            // What cannot be removed now is removed with the pod.
            let _ = std::fs::remove_file(termination_log);
            remove_dead_links(&links);
            Ok(())
        };
        if let Err(error) = self.removals.run(&path, Some(pod.uid.as_str()), until, work).await {
            log!(warn, "failed to remove container log", file = path.display(), error = error);
        }
        Ok(())
    }
}
