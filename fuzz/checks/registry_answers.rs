//! Answers of registries: indexes, manifests, challenges, ranges, error documents. Also `hosts.toml` files.

/// The first byte selects between a document and a header.
pub(crate) fn check(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    if choice % 2 == 0 {
        coracle::kubelet::image_archives::check_manifest(bytes);
    } else {
        coracle::platform::registry::check_headers(&String::from_utf8_lossy(bytes));
    }
}
