//! VolumeAttachments. Pure.

use std::fmt;

use serde_json::Value;

use crate::protocol::sha256::sha256;
use crate::types::sorted::SortedMap;

/// An attached `storage.k8s.io/v1` VolumeAttachment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attachment {
    /// Attachment metadata, the publish context for the driver's node service.
    pub(crate) context: SortedMap<String, String>,
}

/// Why a volume is not attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAttached {
    /// The attachment is being deleted.
    Deleted,
    /// The attach error, with the attacher's message.
    Failed {
        message: String,
    },
    NotYet,
}

impl fmt::Display for NotAttached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deleted => f.write_str("volume attachment is being deleted"),
            Self::Failed { message } => f.write_str(message),
            Self::NotYet => f.write_str("volume is not attached"),
        }
    }
}

impl std::error::Error for NotAttached {}

impl Attachment {
    pub(crate) fn read(object: &Value) -> Result<Self, NotAttached> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        if text("/metadata/deletionTimestamp").is_some() {
            return Err(NotAttached::Deleted);
        }
        if object.pointer("/status/attached") != Some(&Value::Bool(true)) {
            let failed = |message: &str| NotAttached::Failed { message: message.to_owned() };
            return Err(text("/status/attachError/message").map_or(NotAttached::NotYet, failed));
        }
        let metadata = object.pointer("/status/attachmentMetadata").and_then(Value::as_object).into_iter().flatten();
        let context = metadata.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
        Ok(Self { context })
    }
}

/// Whether the attachment failed for lack of room on the node (gRPC's `ResourceExhausted`).
pub(crate) fn is_out_of_room(object: &Value) -> bool {
    object.pointer("/status/attachError/errorCode").and_then(Value::as_i64) == Some(RESOURCE_EXHAUSTED)
}

const RESOURCE_EXHAUSTED: i64 = 8;

/// The volume's name in the node status.
pub(crate) fn unique_name(driver: &str, handle: &str) -> String {
    ["kubernetes.io/csi/", driver, "^", handle].concat()
}

/// The name of the VolumeAttachment object (`getAttachmentName`).
pub(crate) fn attachment_name(driver: &str, handle: &str, node: &str) -> String {
    ["csi-", &sha256([handle, driver, node].concat().as_bytes())].concat()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attached_volume_has_its_metadata() {
        let read = |object: Value| Attachment::read(&object).map(|attachment| attachment.context);
        let metadata = [("disk".to_owned(), "sdb".to_owned())].into_iter().collect();
        assert_eq!(read(json!({"status": {"attached": true, "attachmentMetadata": {"disk": "sdb"}}})), Ok(metadata));
        let deleted = json!({"metadata": {"deletionTimestamp": "now"}, "status": {"attached": true}});
        assert_eq!(read(deleted), Err(NotAttached::Deleted));
        let failed = json!({"status": {"attached": false, "attachError": {"message": "no room"}}});
        assert_eq!(read(failed), Err(NotAttached::Failed { message: "no room".to_owned() }));
        assert_eq!(read(json!({})), Err(NotAttached::NotYet));
    }

    #[test]
    fn resource_exhausted_differs_from_other_failures() {
        let failed = |code: Value| is_out_of_room(&json!({"status": {"attachError": {"errorCode": code}}}));
        assert!(failed(json!(8)) && !failed(json!(13)) && !failed(Value::Null));
        assert!(!is_out_of_room(&json!({"status": {"attached": true}})));
    }

    #[test]
    fn names_are_upstreams() {
        assert_eq!(unique_name("d", "h"), "kubernetes.io/csi/d^h");
        assert_eq!(attachment_name("d", "h", "n"), format!("csi-{}", sha256(b"hdn")));
    }
}
