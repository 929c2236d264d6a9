//! Files that a container writes: environment files and logs.

/// The first byte is the size of the pieces in which a log is read, and the second one its limit.
pub(crate) fn check(data: &[u8]) {
    let Some(([piece, limit], text)) = data.split_first_chunk::<2>() else { return };
    coracle::kubelet::logs::check_log(text, usize::from(*piece), u64::from(*limit) * 16);
    let text = String::from_utf8_lossy(text);
    coracle::kubelet::volumes::check_env_file(&text, "A");
    coracle::kubelet::volumes::check_env_file(&text, "NOT THERE");
}
