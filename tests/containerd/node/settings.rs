//! Configuration and command line of a test's agent. All paths are in one folder.

use std::path::Path;

use super::NODE_NAME;

/// The folder's `config.yaml` with `more` appended. The agent leaves the machine's cgroups alone: a test must not
/// treat another kubelet's pods as orphaned.
pub(crate) fn configuration(folder: &Path, more: &str) -> String {
    let folder = folder.display();
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\n\
         kind: KubeletConfiguration\n\
         staticPodPath: {folder}/manifests\n\
         podLogsDir: {folder}/logs\n\
         resolvConf: {folder}/resolv.conf\n\
         failSwapOn: false\n\
         cgroupsPerQOS: false\n\
         {more}"
    )
}

/// The agent's command line; `endpoint` is the runtime's.
pub(crate) fn arguments(folder: &Path, endpoint: &str) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    let pairs = [
        ("--config", path("config.yaml")),
        ("--root-dir", path("pods")),
        ("--hostname-override", NODE_NAME.to_owned()),
        ("--local-path-dir", path("claims")),
        ("--local-socket", path("coracle.sock")),
        ("--container-runtime-endpoint", endpoint.to_owned()),
    ];
    let pairs = pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    // A test must not change the machine's kernel parameters.
    std::iter::once("--leave-kernel-parameters".to_owned()).chain(pairs).collect()
}
