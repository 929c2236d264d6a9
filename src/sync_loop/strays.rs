//! Directories on disk that belong to no pod: left by pods that ended while this process did not run.

use std::rc::Rc;

use crate::api::PodUid;
use crate::error::ErrorChain;
use crate::kuberuntime::PodRuntime;
use crate::volumes;

/// Removes the directories of every pod that is not in `known`.
pub(super) async fn remove(runtime: Rc<PodRuntime>, known: Vec<PodUid>) {
    if let Err(error) = volumes::remove_strays(&runtime.dirs, known).await {
        log!(warn, "directories of former pods not removed", error = ErrorChain(&error));
    }
}
