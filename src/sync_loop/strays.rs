//! Directories on disk that belong to no pod: left by pods that ended while this process did not run.

use std::cell::Cell;
use std::rc::Rc;

use crate::api::PodUid;
use crate::error::ErrorChain;
use crate::kuberuntime::PodRuntime;
use crate::logs::remove_dead_links;
use crate::rt;
use crate::volumes;

/// Removes the directories of every pod that is not in `known`, and links to logs that are gone. Where something could
/// not be removed it says that it `failed`.
pub(super) async fn remove(runtime: Rc<PodRuntime>, known: Vec<PodUid>, failed: Rc<Cell<bool>>) {
    if let Err(error) = volumes::remove_strays(&runtime.dirs, known).await {
        log!(warn, "directories of former pods not removed", error = ErrorChain(&error));
        failed.set(true);
    }
    let links = runtime.dirs.log_links();
    rt::blocking(move || remove_dead_links(&links)).await;
}
