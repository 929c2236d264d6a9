//! Names of device files in ResourceSlices. Pure.

use crate::types::api::fnv_32a;

/// Upstream's limit.
const MAX_DEVICE_NAME_BYTES: usize = 63;
/// A dash and eight digits.
const DEVICE_NAME_SUFFIX_CHARS: usize = 9;

/// The path as a DNS label: `/dev/video0` is `video0`. Paths that are no labels get a hash, which keeps them apart.
pub(crate) fn device_name(path: &str) -> String {
    let tail = path.strip_prefix("/dev/").unwrap_or(path);
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label: String = tail
        .bytes()
        .map(|byte| match byte.to_ascii_lowercase() {
            byte if is_plain(byte) => char::from(byte),
            _ => '-',
        })
        .collect();
    let label = label.trim_matches('-');
    if label == tail && label.len() <= MAX_DEVICE_NAME_BYTES {
        return label.to_owned();
    }
    let cut = label
        .get(..label.len().min(MAX_DEVICE_NAME_BYTES - DEVICE_NAME_SUFFIX_CHARS))
        .unwrap_or_default()
        .trim_end_matches('-');
    let dash = if cut.is_empty() { "" } else { "-" };
    format!("{cut}{dash}{:08x}", fnv_32a(path.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_and_differ() {
        assert_eq!(device_name("/dev/video0"), "video0");
        assert_eq!(device_name("/dev/i2c-1"), "i2c-1");
        let paths =
            ["/dev/ttyS0", "/dev/ttys-0", "/dev/snd/pcm0", "/dev/snd-pcm0", "/tmp/video0", "/dev/é", "/dev/---"];
        let mut names: Vec<String> = paths.iter().map(|path| device_name(path)).collect();
        names.push(device_name(&"/dev/a".repeat(50)));
        for name in &names {
            assert!(
                (1..=MAX_DEVICE_NAME_BYTES).contains(&name.len()) && !name.starts_with('-') && !name.ends_with('-'),
                "{name}"
            );
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'),
                "{name}"
            );
        }
        assert!(names[0].starts_with("ttys0-"), "{}", names[0]);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), paths.len() + 1);
    }
}
