//! Static pod manifests in YAML and JSON.

pub(crate) fn check(text: &[u8]) {
    coracle::control::pod_sources::static_pod::check_manifest(text);
}
