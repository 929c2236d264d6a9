//! Image archives, an untrusted input.

use coracle::kubelet::image_archives::contents::{ArchiveImages, BadArchive, Contents};

/// The result must not depend on how the bytes are split.
pub(crate) fn check(data: &[u8]) {
    let whole = read([data]);
    let (one, other) = data.split_at(data.len() / 3);
    assert_eq!(read([one, other]), whole);
    assert_eq!(read(data.chunks(500)), whole);
    if let Ok(named) = whole {
        assert!(!named.images.is_empty());
    }
}

fn read<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Result<ArchiveImages, BadArchive> {
    let mut contents = Contents::default();
    for part in parts {
        contents.push(part)?;
    }
    contents.end()
}
