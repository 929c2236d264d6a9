//! Whether the server's history is still the same: in one history the versions of what is written only grow. Pure.
//!
//! A server whose store was restored from a backup counts on from the backup. It takes a watch that begins at a version
//! it has not come to yet, and tells nothing until it has: who goes by the watch alone never hears of it.

use serde_json::Value;

use super::watch_event::resource_version;
use crate::protocol::protobuf::{decode, message};

/// The versions in the answers about one object, in the order of the requests.
#[derive(Debug, Default)]
pub(crate) struct History {
    newest: Option<u64>,
}

impl History {
    /// Whether an answer of this version cannot come after those before it.
    pub(crate) fn breaks_at(&mut self, version: Option<u64>) -> bool {
        let Some(version) = version else { return false };
        self.newest.replace(version).is_some_and(|newest| version < newest)
    }
}

message! {
    /// What stands around an object in protobuf, after four bytes that say that it is one.
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

/// The version of the object in an answer, whose form is the server's choice; `None` if it does not say, or if it is no
/// number.
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
    fn a_version_that_goes_back_is_another_history() {
        let mut history = History::default();
        let breaks = [Some(7), None, Some(7), Some(9), Some(8), Some(8), Some(9)].map(|at| history.breaks_at(at));
        assert_eq!(breaks, [false, false, false, false, true, false, false]);
    }

    #[test]
    fn the_version_is_found_in_either_form_of_an_answer() {
        assert_eq!(version(br#"{"kind":"PartialObjectMetadata","metadata":{"resourceVersion":"71"}}"#), Some(71));
        let metadata = Some(ObjectMeta { resource_version: "72".to_owned() });
        let around = Unknown { raw: encode(&PartialObjectMetadata { metadata }) };
        assert_eq!(version(&[PROTOBUF, &encode(&around)].concat()), Some(72));
        for strange in [&b""[..], b"{}", b"k8s\0", b"k8s\0\xff\xff", br#"{"metadata":{"resourceVersion":"a"}}"#] {
            assert_eq!(version(strange), None);
        }
    }
}
