//! Id ranges of user namespaces. Pure.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::platform::cri::v1;

/// The host ids of one pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UserRange {
    pub(super) first: u32,
    pub(super) length: u32,
}

/// The ranges available to pods, all of the same length and adjacent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UserRanges {
    first: u32,
    count: u32,
    length: u32,
}

/// Ids below are the host's; all ranges are multiples of it.
const MIN_USER_NAMESPACE_ID: u32 = 1 << 16;
/// The user whose subordinate ids are for pods.
const OWNER: &str = "kubelet";

impl UserRanges {
    /// The kubelet's ranges in `/etc/subuid` and `/etc/subgid`; without entries there, all ids above the host's own.
    /// Each pod gets `length` ids.
    pub(super) fn new(subuid: &str, subgid: &str, length: u32) -> Result<Self, BadRanges> {
        let (uids, gids) = (owned(subuid), owned(subgid));
        match (uids.as_slice(), gids.as_slice()) {
            ([], []) => Ok(Self { first: length, count: (u32::MAX - length) / length, length }),
            ([users], [groups]) if users == groups => Self::checked(*users, length),
            _ => Err(BadRanges::NotOne),
        }
    }

    fn checked((first, id_count): (u32, u32), length: u32) -> Result<Self, BadRanges> {
        let fits = first >= MIN_USER_NAMESPACE_ID && first % length == 0 && id_count % length == 0 && id_count > 0;
        if fits && first.checked_add(id_count - 1).is_some() {
            return Ok(Self { first, count: id_count / length, length });
        }
        Err(BadRanges::NotMultiples { first, total: id_count, length })
    }

    /// The lowest unused range.
    pub(super) fn free(self, used: &[UserRange]) -> Option<UserRange> {
        let length = self.length;
        let mut ranges = (0..self.count).map(|index| UserRange { first: self.first + index * length, length });
        ranges.find(|range| !used.iter().any(|used| range.meets(*used)))
    }
}

/// Why the files of subordinate ids are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadRanges {
    NotMultiples {
        first: u32,
        total: u32,
        length: u32,
    },
    /// There is not exactly one range, or it differs between users and groups.
    NotOne,
}

/// Why a pod has no range.
#[derive(Debug)]
pub(super) enum UserRangeError {
    /// All ranges are in use.
    Full,
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    Ranges(BadRanges),
}

impl UserRangeError {
    /// For `map_err`.
    pub(super) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + use<'a> {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

impl fmt::Display for BadRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotMultiples { first, total: id_count, length } => write!(
                f,
                "the subordinate ids of {OWNER}, {id_count} from {first} on, must be multiples of {length}, above {MIN_USER_NAMESPACE_ID}"
            ),
            Self::NotOne => write!(
                f,
                "the user {OWNER} needs one range of subordinate ids, the same in /etc/subuid and /etc/subgid"
            ),
        }
    }
}

impl fmt::Display for UserRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("could not find an empty slot to allocate a user namespace"),
            Self::Io { doing, path, .. } => write!(f, "{doing} {}", path.display()),
            Self::Ranges(bad) => bad.fmt(f),
        }
    }
}

impl std::error::Error for UserRangeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Full | Self::Ranges(_) => None,
        }
    }
}

/// The ranges `kubelet:first:length` in a file of subordinate ids.
fn owned(text: &str) -> Vec<(u32, u32)> {
    let range = |line: &str| {
        let (first, length) = line.strip_prefix(OWNER)?.strip_prefix(':')?.split_once(':')?;
        Some((first.trim().parse().ok()?, length.trim().parse().ok()?))
    };
    text.lines().filter_map(range).collect()
}

impl UserRange {
    fn meets(self, other: Self) -> bool {
        self.first <= other.last() && other.first <= self.last()
    }

    fn last(self) -> u32 {
        self.first.saturating_add(self.length - 1)
    }

    /// The format of the file in the pod's directory, as upstream.
    pub(super) fn written(self) -> String {
        let Self { first, length } = self;
        let mapping = format!("{{\"hostId\":{first},\"containerId\":0,\"length\":{length}}}");
        format!("{{\"uidMappings\":[{mapping}],\"gidMappings\":[{mapping}]}}")
    }

    /// `None` for invalid content.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let one = |list: &Value| match list.as_array().map(Vec::as_slice) {
            Some([mapping]) => Some(mapping.clone()),
            _ => None,
        };
        let (users, groups) = (one(value.get("uidMappings")?)?, one(value.get("gidMappings")?)?);
        let number = |key: &str| users.get(key).and_then(Value::as_u64);
        let [first, length] = [number("hostId")?, number("length")?].map(|number| u32::try_from(number).ok());
        let range = Self { first: first?, length: length? };
        let is_whole =
            range.length > 0 && range.length % MIN_USER_NAMESPACE_ID == 0 && range.first % MIN_USER_NAMESPACE_ID == 0;
        (users == groups && number("containerId") == Some(0) && is_whole && range.first >= MIN_USER_NAMESPACE_ID)
            .then_some(range)
    }

    pub(super) fn namespace(self) -> v1::UserNamespace {
        let mapping = v1::IdMapping { host_id: self.first, container_id: 0, length: self.length };
        v1::UserNamespace { mode: v1::NamespaceMode::Pod, uids: vec![mapping.clone()], gids: vec![mapping] }
    }
}

/// Puts a container in the sandbox's user namespace, with id-mapped mounts so that file owners are preserved.
pub(super) fn share_users(sandbox: &v1::PodSandboxConfig, config: &mut v1::ContainerConfig) {
    let context = sandbox.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let options = context.and_then(|context| context.namespace_options.as_ref());
    let Some(users) = options.and_then(|options| options.userns_options.as_ref()) else { return };
    let security_context = config.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
    if let Some(options) = security_context.and_then(|context| context.namespace_options.as_mut()) {
        options.userns_options = Some(users.clone());
    }
    for mount in &mut config.mounts {
        mount.uid_mappings.clone_from(&users.uids);
        mount.gid_mappings.clone_from(&users.gids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_from_the_subordinate_ids_or_all() {
        let new = |subuid: &str, subgid: &str| UserRanges::new(subuid, subgid, MIN_USER_NAMESPACE_ID);
        let all = UserRanges { first: MIN_USER_NAMESPACE_ID, count: 65534, length: MIN_USER_NAMESPACE_ID };
        assert_eq!(new("", ""), Ok(all));
        assert_eq!(new("someone:100000:65536\n", ""), Ok(all));
        let text = "someone:1:1\nkubelet:131072:262144\n";
        assert_eq!(new(text, text), Ok(UserRanges { first: 131_072, count: 4, length: MIN_USER_NAMESPACE_ID }));
        let twice = 2 * MIN_USER_NAMESPACE_ID;
        assert_eq!(UserRanges::new(text, text, twice), Ok(UserRanges { first: 131_072, count: 2, length: twice }));
        assert_eq!(UserRanges::new("", "", twice), Ok(UserRanges { first: twice, count: 32766, length: twice }));
        assert!(UserRanges::new(text, text, 3 * MIN_USER_NAMESPACE_ID).is_err());
        for (subuid, subgid) in [
            ("kubelet:131072:65536", ""),
            ("kubelet:131072:65536", "kubelet:196608:65536"),
            ("kubelet:65536:65536\nkubelet:196608:65536", "kubelet:65536:65536\nkubelet:196608:65536"),
            ("kubelet:0:65536", "kubelet:0:65536"),
            ("kubelet:65537:65536", "kubelet:65537:65536"),
            ("kubelet:65536:65535", "kubelet:65536:65535"),
            ("kubelet:4294901760:131072", "kubelet:4294901760:131072"),
        ] {
            assert!(new(subuid, subgid).is_err(), "{subuid} {subgid}");
        }
    }

    #[test]
    fn pod_gets_the_lowest_unused_range() {
        let ranges = UserRanges { first: 131_072, count: 2, length: MIN_USER_NAMESPACE_ID };
        let free = |used: &[(u32, u32)]| {
            let used: Vec<UserRange> =
                used.iter().map(|(first, length)| UserRange { first: *first, length: *length }).collect();
            ranges.free(&used).map(|range| range.first)
        };
        assert_eq!(free(&[]), Some(131_072));
        assert_eq!(free(&[(131_072, MIN_USER_NAMESPACE_ID), (7, 1)]), Some(196_608));
        assert_eq!(free(&[(131_072, MIN_USER_NAMESPACE_ID), (196_608, MIN_USER_NAMESPACE_ID)]), None);
        // A range assigned when pods had more ids.
        assert_eq!(free(&[(65_536, 2 * MIN_USER_NAMESPACE_ID)]), Some(196_608));
        assert_eq!(free(&[(65_536, 3 * MIN_USER_NAMESPACE_ID)]), None);
    }

    #[test]
    fn range_is_written_in_upstreams_format_and_read_back() {
        let range = UserRange { first: 131_072, length: MIN_USER_NAMESPACE_ID };
        let text = r#"{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}"#;
        assert_eq!(range.written(), text);
        assert_eq!(UserRange::read(text.as_bytes()), Some(range));
        for wrong in [
            "",
            "{}",
            text.split_at(40).0,
            &text.replacen("131072", "65537", 2),
            &text.replacen("131072", "65536", 1),
            &text.replace("131072", "0"),
            &text.replace("65536", "65535"),
            &text.replace("\"containerId\":0", "\"containerId\":1"),
        ] {
            assert_eq!(UserRange::read(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn containers_and_mounts_use_the_sandboxs_user_namespace() {
        let users = UserRange { first: MIN_USER_NAMESPACE_ID, length: MIN_USER_NAMESPACE_ID }.namespace();
        let options = Some(v1::NamespaceOption { userns_options: Some(users.clone()), ..Default::default() });
        let security_context =
            Some(v1::LinuxSandboxSecurityContext { namespace_options: options, ..Default::default() });
        let linux = Some(v1::LinuxPodSandboxConfig { security_context, ..Default::default() });
        let sandbox = v1::PodSandboxConfig { linux, ..Default::default() };
        let namespace_options = Some(v1::NamespaceOption::default());
        let own = v1::LinuxContainerSecurityContext { namespace_options, ..Default::default() };
        let linux = Some(v1::LinuxContainerConfig { security_context: Some(own), ..Default::default() });
        let mut config = v1::ContainerConfig { linux, mounts: vec![v1::Mount::default()], ..Default::default() };
        share_users(&sandbox, &mut config);
        assert_eq!((&config.mounts[0].uid_mappings, &config.mounts[0].gid_mappings), (&users.uids, &users.gids));
        let own = config.linux.unwrap().security_context.unwrap().namespace_options.unwrap();
        assert_eq!(own.userns_options, Some(users));
    }
}
