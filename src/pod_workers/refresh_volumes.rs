//! Bringing the files in a running pod's volumes up to date.

use crate::api::{Pod, Reason};
use crate::error::ErrorChain;
use crate::kuberuntime::PodRuntime;
use crate::pods::{WorkDone, WorkResult};
use crate::volumes::{self, SetUp};

pub(super) async fn refresh_volumes(runtime: &PodRuntime, pod: &Pod) -> WorkDone {
    let refreshed = {
        let objects = runtime.objects.borrow();
        volumes::refresh(pod, SetUp { dirs: &runtime.dirs, node: &runtime.node, objects: &objects })
    };
    let (all, failed) = match refreshed.await {
        Ok(kept) => (true, kept),
        Err(error) => (false, vec![error]),
    };
    let warnings = failed.iter().map(|error| (Reason::FAILED_MOUNT, ErrorChain(error).to_string())).collect();
    WorkDone { uid: pod.metadata.uid.clone(), observation: None, result: WorkResult::Refreshed { all, warnings } }
}
