//! Detects a server whose store was restored: within one history, the versions of written objects only grow. Pure.
//!
//! A server restored from a backup continues counting from the backup. It accepts a watch at a version that it has not
//! reached yet, and sends nothing until it has, so a watch alone never notices the restore.

use crate::protocol::protobuf::{decode, message};
use crate::types::api::ObjectText;

/// The resource versions in the responses to writes of one object, in the order of the requests.
#[derive(Debug, Default)]
pub(crate) struct History {
    newest: Option<u64>,
    /// The number of the history that `newest` is from.
    number: u64,
    /// The last write was behind what watches had shown.
    was_behind: bool,
    /// Watched objects count their versions elsewhere: a resource may have an etcd of its own
    /// (`--etcd-servers-overrides`). Then every write may be behind, also after all objects were listed again.
    is_separate: bool,
}

impl History {
    /// Whether `version` is older than an earlier response's, or not newer than what watches had shown before the write
    /// was sent (`watched`), which means another history. `number` counts the histories that are known: what another
    /// object's writes have shown does not count again.
    pub(super) fn breaks_at(&mut self, number: u64, version: Option<u64>, watched: Option<u64>) -> bool {
        let Some(version) = version else { return false };
        if std::mem::replace(&mut self.number, number) != number {
            self.newest = None;
        }
        let is_older = self.newest.replace(version).is_some_and(|newest| version < newest);
        let Some(watched) = watched else { return is_older };
        let is_behind = version <= watched;
        let was_behind = std::mem::replace(&mut self.was_behind, is_behind);
        self.is_separate |= is_behind && was_behind;
        is_older || is_behind && !self.is_separate
    }
}

message! {
    /// The envelope of an object in protobuf, after four magic bytes.
    struct Unknown {
        2 => raw: Vec<u8>,
    }

    struct PartialObjectMetadata {
        1 => metadata: Option<ObjectMeta>,
    }

    struct ObjectMeta {
        6 => resource_version: String,
    }
}

const PROTOBUF: &[u8] = b"k8s\0";

/// The resource version of the object in a response, which may be JSON or protobuf; `None` if it has none or it is not
/// a number.
pub(super) fn version(body: &[u8]) -> Option<u64> {
    match body.strip_prefix(PROTOBUF) {
        Some(bytes) => {
            let around: Unknown = decode(bytes).ok()?;
            let object: PartialObjectMetadata = decode(&around.raw).ok()?;
            object.metadata?.resource_version.parse().ok()
        }
        None => {
            let [version] = ObjectText::parse(body.to_vec()).ok()?.metadata(["resourceVersion"]);
            version.parse().ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::protobuf::encode;

    #[test]
    fn lower_version_is_another_history() {
        let mut history = History::default();
        let versions = [Some(7), None, Some(7), Some(9), Some(8), Some(8), Some(9)];
        let breaks = versions.map(|version| history.breaks_at(0, version, None));
        assert_eq!(breaks, [false, false, false, false, true, false, false]);
    }

    #[test]
    fn history_that_was_noticed_elsewhere_is_no_news() {
        let mut history = History::default();
        let writes = [(0, 90), (1, 20), (1, 21), (1, 7)];
        let breaks = writes.map(|(number, version)| history.breaks_at(number, Some(version), None));
        assert_eq!(breaks, [false, false, false, true]);
    }

    #[test]
    fn write_behind_what_was_watched_before_is_another_history() {
        let mut history = History::default();
        let writes = [(5, None), (9, Some(8)), (12, Some(20)), (13, None), (30, Some(14)), (31, Some(40))];
        let breaks = writes.map(|(version, watched)| history.breaks_at(0, Some(version), watched));
        assert_eq!(breaks, [false, false, true, false, false, true]);
    }

    #[test]
    fn versions_of_a_separate_etcd_are_compared_only_once() {
        let mut history = History::default();
        let writes = [(5, 800), (6, 900), (7, 3), (8, 950)];
        let breaks = writes.map(|(version, watched)| history.breaks_at(0, Some(version), Some(watched)));
        assert_eq!(breaks, [true, false, false, false]);
    }

    #[test]
    fn versions_are_found_in_json_and_protobuf() {
        assert_eq!(version(br#"{"kind":"PartialObjectMetadata","metadata":{"resourceVersion":"71"}}"#), Some(71));
        let metadata = Some(ObjectMeta { resource_version: "72".to_owned() });
        let around = Unknown { raw: encode(&PartialObjectMetadata { metadata }) };
        assert_eq!(version(&[PROTOBUF, &encode(&around)].concat()), Some(72));
        for strange in [&b""[..], b"{}", b"k8s\0", b"k8s\0\xff\xff", br#"{"metadata":{"resourceVersion":"a"}}"#] {
            assert_eq!(version(strange), None);
        }
    }
}
