//! Manifests, YAML and JSON, as an agent reads them.

pub(crate) fn check(text: &[u8]) {
    coracle::control::pod_sources::static_pod::check_manifest(text);
}
