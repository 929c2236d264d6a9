//! Directories on disk that belong to no pod: left by pods that ended while this process did not run.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::control::sync_loop::node_state::NodeState;
use crate::kubelet::csi::Csi;
use crate::kubelet::kuberuntime::PodRuntime;
use crate::kubelet::logs::remove_dead_links;
use crate::kubelet::volumes;
use crate::platform::rt;
use crate::types::api::PodUid;
use crate::types::error::ErrorChain;

/// Removes the directories of every pod that is neither in `known` nor wanted by a source, and links to logs that are gone.
/// Where something could not be removed it says that it `failed`.
pub(super) async fn remove(
    runtime: Rc<PodRuntime>,
    csi: Rc<Csi>,
    mut known: Vec<PodUid>,
    books: Rc<RefCell<NodeState>>,
    failed: Rc<Cell<bool>>,
) {
    let removed = async {
        let found = volumes::find_pods(&runtime.dirs).await?;
        // A pod that has come meanwhile may have made the directories that were found.
        {
            let books = books.borrow();
            let pods = books.sources.pods();
            known.extend(pods.map(|pod| books.running_uid(&pod.pod.metadata.uid).clone()));
        }
        found.remove_strays(&known, &csi).await
    };
    if let Err(error) = removed.await {
        log!(warn, "directories of former pods not removed", error = ErrorChain(&error));
        failed.set(true);
    }
    let links = runtime.dirs.log_links();
    rt::blocking(move || remove_dead_links(&links)).await;
}
