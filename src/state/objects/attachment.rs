//! VolumeAttachments. Pure.

use serde_json::Value;

use crate::protocol::sha256::sha256;
use crate::types::sorted::SortedMap;

/// An attached `storage.k8s.io/v1` VolumeAttachment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Attachment {
    /// Attachment metadata, the publish context for the driver's node service.
    pub(crate) context: SortedMap<String, String>,
}

impl Attachment {
    /// Fails with the reason if the volume is not attached, as upstream where upstream has a message.
    pub(crate) fn read(object: &Value) -> Result<Self, String> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        if text("/metadata/deletionTimestamp").is_some() {
            return Err("volume attachment is being deleted".to_owned());
        }
        if object.pointer("/status/attached") != Some(&Value::Bool(true)) {
            return Err(text("/status/attachError/message").unwrap_or("volume is not attached").to_owned());
        }
        let told = object.pointer("/status/attachmentMetadata").and_then(Value::as_object).into_iter().flatten();
        let context = told.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
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
        let told = [("disk".to_owned(), "sdb".to_owned())].into_iter().collect();
        assert_eq!(read(json!({"status": {"attached": true, "attachmentMetadata": {"disk": "sdb"}}})), Ok(told));
        let deleted = json!({"metadata": {"deletionTimestamp": "now"}, "status": {"attached": true}});
        assert_eq!(read(deleted), Err("volume attachment is being deleted".to_owned()));
        let failed = json!({"status": {"attached": false, "attachError": {"message": "no room"}}});
        assert_eq!(read(failed), Err("no room".to_owned()));
        assert!(read(json!({})).is_err());
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
