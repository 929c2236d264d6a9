//! What is known about an image and its signatures, and its form on the disk. Pure.

use serde_json::{Value, json};

use crate::kubelet::image_archives::manifest::Digest;
use crate::types::api::Bytes;

/// An image of a registry or an archive, with its signatures. Nothing in it is trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// The index that names the manifest, if the image has one.
    pub(crate) index: Option<Vec<u8>>,
    /// The manifest for this machine.
    pub(crate) manifest: Vec<u8>,
    /// Of the index and of the manifest.
    pub(crate) signatures: Vec<Signature>,
}

/// Of all signatures of an image.
pub(crate) const MAX_SIGNATURE_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    Simple {
        payload: Vec<u8>,
        /// In base64.
        signature: String,
    },
    Bundle(Vec<u8>),
}

impl Evidence {
    /// The index and the manifest with their digests, in the order in which their signatures count.
    pub(super) fn documents(&self) -> Vec<(Digest, &[u8])> {
        let all = self.index.iter().chain([&self.manifest]);
        all.map(|bytes| (Digest::of(bytes), bytes.as_slice())).collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        let base64 = |bytes: &[u8]| Bytes(bytes.to_vec()).to_base64();
        let signature = |signature: &Signature| match signature {
            Signature::Simple { payload, signature } => json!({"payload": base64(payload), "signature": signature}),
            Signature::Bundle(bundle) => json!({"bundle": base64(bundle)}),
        };
        json!({
            "index": self.index.as_deref().map(base64),
            "manifest": base64(&self.manifest),
            "signatures": self.signatures.iter().map(signature).collect::<Vec<_>>(),
        })
    }

    /// `None` if the record is damaged.
    pub(crate) fn from_json(value: &Value) -> Option<Self> {
        let bytes = |value: &Value| Some(Bytes::from_base64(value.as_str()?)?.0);
        let signature = |value: &Value| match value.get("bundle") {
            Some(bundle) => Some(Signature::Bundle(bytes(bundle)?)),
            None => Some(Signature::Simple {
                payload: bytes(value.get("payload")?)?,
                signature: value.get("signature")?.as_str()?.to_owned(),
            }),
        };
        Some(Self {
            index: value.get("index").and_then(bytes),
            manifest: bytes(value.get("manifest")?)?,
            signatures: value.get("signatures")?.as_array()?.iter().map(signature).collect::<Option<_>>()?,
        })
    }
}
