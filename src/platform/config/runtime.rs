//! Where the container runtime listens. Pure.

use std::path::PathBuf;
use std::time::Duration;

use super::check::socket_path;
use super::fields::Fields;
use super::flag_values::FlagValues;
use super::runtime_profile::RuntimeProfile;

/// The container runtime: `containerRuntimeEndpoint`, `imageServiceEndpoint` and `runtimeRequestTimeout`;
/// `--runtime-profile`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuntimeSettings {
    /// The path of the socket, without `unix://`.
    pub(crate) endpoint: PathBuf,
    /// The same as `endpoint` unless it is configured.
    pub(crate) image_endpoint: PathBuf,
    pub(crate) request_timeout: Duration,
    pub(crate) profile: RuntimeProfile,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        Self {
            endpoint: PathBuf::from("/run/containerd/containerd.sock"),
            image_endpoint: PathBuf::from("/run/containerd/containerd.sock"),
            request_timeout: Duration::from_secs(120),
            profile: RuntimeProfile::Default,
        }
    }
}

pub(super) fn read(fields: &Fields<'_>, flags: &FlagValues) -> RuntimeSettings {
    let mut runtime = RuntimeSettings { profile: flags.runtime_profile, ..RuntimeSettings::default() };
    let socket = |path: &str| fields.text(path).and_then(socket_path).map(PathBuf::from);
    if let Some(path) = socket("containerRuntimeEndpoint") {
        runtime.endpoint = path;
    }
    runtime.image_endpoint = socket("imageServiceEndpoint").unwrap_or_else(|| runtime.endpoint.clone());
    fields.replace("runtimeRequestTimeout", Fields::period, &mut runtime.request_timeout);
    runtime
}
