//! Headers of regular files in a tar (ustar). Pure.

pub(crate) const TAR_BLOCK_BYTES: usize = 512;
/// Of the magic `ustar` in a header.
pub(super) const TAR_MAGIC_OFFSET: usize = 257;
static ZEROS: [u8; TAR_BLOCK_BYTES] = [0; TAR_BLOCK_BYTES];
/// The largest size in eleven octal digits.
const MAX_TAR_ENTRY_BYTES: u64 = 0o77_777_777_777;

/// The header of a file; `None` if its name or size does not fit.
pub(crate) fn header(name: &str, size: u64) -> Option<Vec<u8>> {
    if size > MAX_TAR_ENTRY_BYTES || name.len() > 100 {
        return None;
    }
    let mut header = vec![0; TAR_BLOCK_BYTES];
    let mut put = |at: usize, text: &[u8]| {
        if let Some(field) = header.get_mut(at..at + text.len()) {
            field.copy_from_slice(text);
        }
    };
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    // The checksum is that of a header with spaces in its place.
    put(148, b"        ");
    put(156, b"0");
    put(TAR_MAGIC_OFFSET, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(field) = header.get_mut(148..156) {
        field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    Some(header)
}

/// A tar with these files; `None` if one does not fit.
pub(crate) fn small_tar(files: &[(&str, &str)]) -> Option<Vec<u8>> {
    let mut tar = Vec::new();
    for (name, content) in files {
        let size = u64::try_from(content.len()).ok()?;
        tar.extend(header(name, size)?);
        tar.extend_from_slice(content.as_bytes());
        tar.extend_from_slice(padding(size));
    }
    // Two empty blocks mark the end.
    tar.resize(tar.len() + 2 * TAR_BLOCK_BYTES, 0);
    Some(tar)
}

/// What fills the last block of a file of this size.
pub(crate) fn padding(size: u64) -> &'static [u8] {
    let block = u64::try_from(TAR_BLOCK_BYTES).unwrap_or(u64::MAX);
    let length = usize::try_from(size.wrapping_neg() % block).unwrap_or_default();
    ZEROS.get(..length).unwrap_or_default()
}
