//! What the sync loop shows to the servers. Each value has one owner, which writes it.

use crate::control::jobs::JobTable;
use crate::control::pod_table::PodRecords;
use crate::control::versions::{HeldPods, NextVersionPulls, Versions};
use crate::state::objects::Objects;
use crate::state::pods::{NodePressures, ObservedCache};
use crate::types::owned::View;

#[derive(Clone)]
pub(crate) struct NodeViews {
    pub(crate) records: View<PodRecords>,
    pub(crate) observed: View<ObservedCache>,
    pub(crate) objects: View<Objects>,
    pub(crate) jobs: View<JobTable>,
    pub(crate) versions: View<Versions>,
    pub(crate) next_versions: View<NextVersionPulls>,
    pub(crate) held: View<HeldPods>,
    pub(crate) pressures: View<NodePressures>,
    /// Errors of directories of former pods that could not be removed.
    pub(crate) leftovers: View<Vec<String>>,
    /// Number of pods whose status has not been reported.
    pub(crate) unreported: View<usize>,
}
