//! What the configuration of a runtime depends on. Pure.

use serde_json::Value;

use crate::platform::config::CgroupDriver;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Board {
    /// Major and minor version of the runtime; `None`: there is none here.
    pub(super) version: Option<(u32, u32)>,
    pub(super) driver: CgroupDriver,
    /// `None`: the runtime's default, as with the other values.
    pub(super) pause_image: Option<String>,
    pub(super) snapshotter: Option<String>,
    pub(super) cni_config_directory: Option<String>,
    pub(super) cni_plugin_directories: Vec<String>,
    pub(super) registry_hosts_directory: Option<String>,
    /// The path of a crun that is new enough.
    pub(super) crun: Option<String>,
    /// The path of a shim in place of the runtime's.
    pub(super) shim: Option<String>,
}

/// That of Debian 12. Older versions are not offered.
const MIN_CRUN_VERSION: (u32, u32) = (1, 8);

pub(super) fn is_new_crun(version: &str) -> bool {
    parse_version(version).is_some_and(|version| version >= MIN_CRUN_VERSION)
}

/// Major and minor version in `1.6.20~ds1`, `v2.1.4` or the output of `--version`.
pub(super) fn parse_version(text: &str) -> Option<(u32, u32)> {
    text.split_whitespace().find_map(|word| {
        let mut parts = word.strip_prefix('v').unwrap_or(word).split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?;
        let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
        Some((major, minor.get(..digits)?.parse().ok()?))
    })
}

impl Board {
    /// Takes over what the running runtime says about itself: `config` in its verbose status.
    pub(super) fn take_over(&mut self, config: &str) {
        let config: Value = serde_json::from_str(config).unwrap_or_default();
        let text = |pointer: &str| {
            let text = config.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        self.snapshotter = text("/containerd/snapshotter");
        self.cni_config_directory = text("/cni/confDir");
        self.registry_hosts_directory = text("/registry/configPath");
        let many = config.pointer("/cni/binDirs").and_then(Value::as_array);
        let many = many.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        self.cni_plugin_directories = match text("/cni/binDir") {
            Some(one) => vec![one],
            None => many.collect(),
        };
    }
}

/// A TOML string. JSON's escapes are TOML's too.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
pub(super) fn board(version: (u32, u32)) -> Board {
    Board {
        version: Some(version),
        driver: CgroupDriver::Cgroupfs,
        pause_image: None,
        snapshotter: None,
        cni_config_directory: None,
        cni_plugin_directories: Vec::new(),
        registry_hosts_directory: None,
        crun: None,
        shim: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        let table = [
            ("1.6.20~ds1", Some((1, 6))),
            ("v2.1.4", Some((2, 1))),
            ("2.0", Some((2, 0))),
            ("1.34.0-rc1", Some((1, 34))),
            ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", Some((1, 6))),
            ("crun version 1.8.1\ncommit: f8a096be060b22ccd3d5f3ebe44108517fbf6c30", Some((1, 8))),
            ("crio version 1.30.3", Some((1, 30))),
            ("none", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_version(text), expected, "{text}");
        }
        assert!(
            is_new_crun("crun version 1.8.1") && is_new_crun("1.21") && !is_new_crun("1.7.2") && !is_new_crun("none")
        );
    }

    #[test]
    fn settings_of_the_running_runtime_are_kept() {
        let mut one = board((1, 6));
        one.take_over(
            r#"{"containerd":{"snapshotter":"native"},"cni":{"binDir":"/usr/lib/cni","confDir":"/etc/cni/net.d"},
               "registry":{"configPath":"/etc/containerd/certs.d"}}"#,
        );
        assert_eq!(one.snapshotter.as_deref(), Some("native"));
        assert_eq!(
            (one.cni_plugin_directories, one.cni_config_directory.as_deref()),
            (vec!["/usr/lib/cni".to_owned()], Some("/etc/cni/net.d"))
        );
        assert_eq!(one.registry_hosts_directory.as_deref(), Some("/etc/containerd/certs.d"));
        let mut two = board((2, 1));
        two.take_over(r#"{"cni":{"binDir":"","binDirs":["/a","/b"]},"registry":{"configPath":""}}"#);
        assert_eq!(two.cni_plugin_directories, ["/a", "/b"]);
        assert_eq!((two.snapshotter, two.registry_hosts_directory), (None, None));
        let mut three = board((2, 1));
        three.take_over("x");
        assert_eq!(three, board((2, 1)));
    }
}
