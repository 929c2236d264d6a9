//! What the agent of a test is told: everything of it is in one folder.

use std::path::Path;

use super::NODE_NAME;

/// The folder's `config.yaml`; `more` is put at its end. The machine's own control groups are left alone: a test must not
/// take another kubelet's pods for strays.
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
        ("--local-socket", path("coracle.sock")),
        ("--container-runtime-endpoint", endpoint.to_owned()),
    ];
    let pairs = pairs.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
    // The machine's kernel is not the test's to set.
    std::iter::once("--leave-kernel-parameters".to_owned()).chain(pairs).collect()
}
