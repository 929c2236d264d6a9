//! Tells manifests from files that editors and package tools leave behind. Pure.
//!
//! Upstream reads every file whose name does not start with a dot, and so runs the pod of `web.yaml.bak` beside that of
//! `web.yaml`. Coracle skips such names.

use std::ffi::OsStr;

/// Whether a file of this name is read.
pub(crate) fn is_manifest(name: &OsStr) -> bool {
    skip_reason(name).is_none()
}

/// Why a file of this name is not read; `None` for a manifest.
pub(super) fn skip_reason(name: &OsStr) -> Option<&'static str> {
    let name = name.as_encoded_bytes();
    if name.is_empty() || name.starts_with(b".") {
        Some("hidden file")
    } else if name.ends_with(b"~") || (name.starts_with(b"#") && name.ends_with(b"#")) {
        // Backups of vim, nano and Emacs, and Emacs' auto-save files.
        Some("backup of an editor")
    } else if is_sed_file(name) {
        Some("temporary file of sed")
    } else {
        extension(name).is_some_and(is_set_aside).then_some("extension of a backup or an unfinished file")
    }
}

fn extension(name: &[u8]) -> Option<&[u8]> {
    name.rsplit(|byte| *byte == b'.').next().filter(|extension| extension.len() < name.len())
}

fn is_set_aside(extension: &[u8]) -> bool {
    const EXTENSIONS: [&[u8]; 13] = [
        b"bak", b"old", b"orig", b"part", b"rej", b"rpmnew", b"rpmorig", b"rpmsave", b"save", b"swo", b"swp", b"swx",
        b"tmp",
    ];
    EXTENSIONS.contains(&extension) || extension.starts_with(b"dpkg-") || extension.starts_with(b"ucf-")
}

/// The temporary file of `sed -i`: `sed` and six letters or digits.
fn is_sed_file(name: &[u8]) -> bool {
    name.strip_prefix(b"sed").is_some_and(|rest| rest.len() == 6 && rest.iter().all(u8::is_ascii_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_told_from_leftover_files() {
        for name in
            ["web.yaml", "web.yml", "web.json", "web", "4913", "a.b.yaml", "bak", "tmp", "sedan", "sediment.yaml"]
        {
            assert!(is_manifest(OsStr::new(name)), "{name}");
        }
        for name in [
            "",
            ".",
            ".web.yaml",
            ".web.yaml.swp",
            "..data",
            ".#web.yaml",
            "web.yaml~",
            "#web.yaml#",
            "web.yaml.bak",
            "web.yaml.swp",
            "web.yaml.tmp",
            "web.yaml.dpkg-new",
            "web.yaml.dpkg-tmp",
            "web.yaml.rpmsave",
            "sedAb3dEf",
        ] {
            assert!(!is_manifest(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn reason_says_what_is_wrong_with_the_name() {
        for (name, reason) in [
            (".web.yaml.swp", "hidden file"),
            ("web.yaml~", "backup of an editor"),
            ("#web.yaml#", "backup of an editor"),
            ("sedAb3dEf", "temporary file of sed"),
            ("web.yaml.dpkg-old", "extension of a backup or an unfinished file"),
        ] {
            assert_eq!(skip_reason(OsStr::new(name)), Some(reason), "{name}");
        }
    }
}
