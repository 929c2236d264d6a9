//! What the sync loop knows, as work in the runtime reads it. Pure.

use crate::state::objects::Objects;
use crate::state::pods::{HostNames, ObservedCache, Placements};
use crate::types::owned::View;

/// Passed with each piece of work.
#[derive(Clone)]
pub(crate) struct WorkViews {
    /// The objects that pods refer to.
    pub(crate) objects: View<Objects>,
    /// The names that pods of a node without a cluster have for each other; empty in a cluster.
    pub(crate) host_names: View<HostNames>,
    /// The newest observation of each pod.
    pub(crate) observed: View<ObservedCache>,
    /// CPUs and memory of containers.
    pub(crate) placements: View<Placements>,
}
