//! The mount table of a process.
//!
//! A parser of our own: the crate leaves the kernel's escapes in paths, refuses paths that are not UTF-8, which a
//! container can mount at, and makes two maps of options for every mount.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// The fields of a mount that are used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Major and minor number of the file system's device.
    pub(crate) device: (u32, u32),
    pub(crate) point: PathBuf,
    pub(crate) file_system: String,
    /// Such as `/dev/vda1`.
    pub(crate) source: String,
    pub(crate) read_only: bool,
    /// The kernel also makes a file system read-only after an error, which does not show in `read_only`.
    pub(crate) file_system_read_only: bool,
    /// Each file has a security label.
    pub(crate) labels_files: bool,
    /// The kernel keeps the limits of project quotas.
    pub(crate) limits_projects: bool,
}

/// In the kernel's order: a mount that lies on another follows it.
pub(super) fn parse(mountinfo: &[u8]) -> Vec<Mount> {
    mountinfo.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

/// proc(5): id, parent, device, root, point, options, optional fields up to a dash, type, source, options of the type.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let point = PathBuf::from(OsString::from_vec(unescaped(fields.nth(1)?)));
    let has = |options: &[u8], wanted: &[u8]| options.split(|byte| *byte == b',').any(|option| option == wanted);
    let read_only = has(fields.next()?, b"ro");
    let mut after_dash = fields.skip_while(|field| *field != b"-").skip(1);
    let text = |field: Option<&[u8]>| {
        field.map(|field| String::from_utf8_lossy(&unescaped(field)).into_owned()).unwrap_or_default()
    };
    let (file_system, source) = (text(after_dash.next()), text(after_dash.next()));
    let options = after_dash.next().unwrap_or_default();
    let (labels_files, file_system_read_only) = (has(options, b"seclabel"), has(options, b"ro"));
    let limits_projects = has(options, b"prjquota");
    let device = (major.parse().ok()?, minor.parse().ok()?);
    Some(Mount { device, point, file_system, source, read_only, file_system_read_only, labels_files, limits_projects })
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = |digits: &[u8; 3]| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        };
        let escaped = if *first == b'\\' { after.split_first_chunk::<3>() } else { None };
        match escaped.and_then(|(digits, after)| Some((octal(digits)?, after))) {
            Some((byte, after)) => {
                out.push(byte);
                rest = after;
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_in_order_and_unescaped() {
        let table = b"22 1 254:0 / / rw - ext4 /dev/vda ro,errors=remount-ro,prjquota\nbroken\n\
            33 22 0:23 / /var/a\\040b/\\134\\012x ro,nosuid shared:1 master:2 - nfs4 server:/x rw,seclabel\n\
            34 22 0:24 / /var/\xff rw -\n";
        let mount = |device, point: &[u8], file_system: &str, source: &str| Mount {
            device,
            point: OsString::from_vec(point.to_vec()).into(),
            file_system: file_system.to_owned(),
            source: source.to_owned(),
            read_only: file_system == "nfs4",
            file_system_read_only: file_system == "ext4",
            labels_files: file_system == "nfs4",
            limits_projects: file_system == "ext4",
        };
        let expected = [
            mount((254, 0), b"/", "ext4", "/dev/vda"),
            mount((0, 23), b"/var/a b/\\\nx", "nfs4", "server:/x"),
            mount((0, 24), b"/var/\xff", "", ""),
        ];
        assert_eq!(parse(table), expected);
    }

    #[test]
    fn escape_that_is_none_is_left() {
        for (field, expected) in [("\\04", "\\04"), ("\\999", "\\999"), ("\\", "\\"), ("a\\0401", "a 1")] {
            assert_eq!(unescaped(field.as_bytes()), expected.as_bytes());
        }
    }
}
