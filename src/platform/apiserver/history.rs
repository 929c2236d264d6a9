//! Detects a server whose store was restored: within one history, the versions of written objects only grow. Pure.
//!
//! A server restored from a backup continues counting from the backup. It accepts a watch at a version that it has not
//! reached yet, and sends nothing until it has, so a watch alone never notices the restore.

use serde_json::Value;

use super::watch_event::resource_version;
use crate::protocol::protobuf::{decode, message};

/// The resource versions in the responses about one object, in the order of the requests.
#[derive(Debug, Default)]
pub(crate) struct History {
    newest: Option<u64>,
}

impl History {
    /// Whether `version` is older than an earlier response's, which means another history.
    pub(crate) fn breaks_at(&mut self, version: Option<u64>) -> bool {
        let Some(version) = version else { return false };
        self.newest.replace(version).is_some_and(|newest| version < newest)
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
pub(super) fn version(answer: &[u8]) -> Option<u64> {
    match answer.strip_prefix(PROTOBUF) {
        Some(bytes) => {
            let around: Unknown = decode(bytes).ok()?;
            let object: PartialObjectMetadata = decode(&around.raw).ok()?;
            object.metadata?.resource_version.parse().ok()
        }
        None => resource_version(&serde_json::from_slice::<Value>(answer).ok()?).parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::protobuf::encode;

    #[test]
    fn a_lower_version_is_another_history() {
        let mut history = History::default();
        let breaks = [Some(7), None, Some(7), Some(9), Some(8), Some(8), Some(9)].map(|at| history.breaks_at(at));
        assert_eq!(breaks, [false, false, false, false, true, false, false]);
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
