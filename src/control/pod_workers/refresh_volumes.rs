//! Updates the contents of a running pod's volumes.

use std::rc::Rc;

use crate::kubelet::csi::Csi;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::volumes::{self, Refreshed, SetUpInputs};
use crate::state::objects::Objects;
use crate::state::pods::{WorkDone, WorkResult};
use crate::types::api::Pod;
use crate::types::error::ErrorChain;
use crate::types::owned::View;

pub(super) async fn refresh_volumes(
    runtime: &PodRuntime,
    objects: &View<Objects>,
    csi: &Rc<Csi>,
    pod: &Pod,
) -> WorkDone {
    let refreshed = {
        let objects = objects.read();
        let with = SetUpInputs { dirs: &runtime.dirs, node: &runtime.node, objects: &objects };
        volumes::refresh(pod, with, csi)
    };
    let Refreshed { all_refreshed, errors } = refreshed.await;
    let warnings = errors.iter().map(|error| (error.reason(), ErrorChain(error).to_string())).collect();
    WorkDone {
        uid: pod.metadata.uid.clone(),
        observation: None,
        result: WorkResult::Refreshed { all_refreshed, warnings },
    }
}
