//! The API server of the node, and when the node synchronizes with it. Pure.

use std::path::PathBuf;

use super::check::Problem;
use super::coracle_file::SyncSettings;
use super::fields::Fields;
use super::flag_values::FlagValues;
use super::reporting::{self, Reporting};

/// The cluster: `--kubeconfig`, `sync` of Coracle's own file, and the fields of [`Reporting`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClusterSettings {
    /// `None`: standalone, with the node's own pods only.
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) sync: SyncSettings,
    pub(crate) reporting: Reporting,
}

/// The fields and flags; the caller adds `sync`.
pub(super) fn read(fields: &Fields<'_>, flags: &FlagValues) -> Result<ClusterSettings, Problem> {
    let (kubeconfig, reporting) = (flags.kubeconfig.clone(), reporting::read(fields, flags)?);
    Ok(ClusterSettings { kubeconfig, sync: SyncSettings::default(), reporting })
}
