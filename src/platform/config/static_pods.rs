//! Pods that come from this node's own manifests and from a URL. Pure.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::check::Problem;
use super::fields::Fields;
use super::flag_values::FlagValues;
use super::static_pod_url::{self, PodUrl};

/// Sources of static pods: `staticPodPath`, `fileCheckFrequency`, and `staticPodURL` with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StaticPods {
    /// A directory or a file; `None` if it is configured to be empty.
    pub(crate) path: Option<PathBuf>,
    pub(crate) check_frequency: Duration,
    pub(crate) url: Option<PodUrl>,
}

impl Default for StaticPods {
    /// The kubelet leaves the path unset.
    fn default() -> Self {
        Self {
            path: Some(PathBuf::from("/etc/kubernetes/manifests")),
            check_frequency: Duration::from_secs(20),
            url: None,
        }
    }
}

pub(super) fn read(fields: &Fields<'_>, flags: &FlagValues) -> Result<StaticPods, Problem> {
    let mut pods = StaticPods { url: static_pod_url::read(fields, flags)?, ..StaticPods::default() };
    if let Some(Value::String(path)) = fields.at("staticPodPath") {
        pods.path = (!path.is_empty()).then(|| PathBuf::from(path));
    }
    fields.replace("fileCheckFrequency", Fields::period, &mut pods.check_frequency);
    Ok(pods)
}
