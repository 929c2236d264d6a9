//! The manifests and signatures in an OCI layout, which the signature policy judges without a registry. Pure.
//!
//! `cosign save` writes an index with the image and its signatures, and no name of the image: the signatures name it.

use serde_json::{Value, json};

use super::image_name::reference;
use super::manifest::{Descriptor, Digest, config_here};

/// Documents by their true digests, whatever the names of their files say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayoutDocuments {
    documents: Vec<(Digest, String)>,
    bytes: usize,
    /// Digests of images and their names, as signatures state them.
    signed: Vec<(String, String)>,
    has_bundle: bool,
    /// The images of the index.
    pub(super) tops: Vec<Digest>,
}

/// Size limit of a document, which is that of a bundle.
pub(super) const MAX_LAYOUT_DOCUMENT_BYTES: u64 = 256 << 10;
const MAX_LAYOUT_DOCUMENTS: usize = 1024;
/// Of all documents together.
const MAX_LAYOUT_BYTES: usize = 1 << 20;
/// Images of an archive whose signatures are kept.
const MAX_SIGNED_IMAGES: usize = 64;

impl LayoutDocuments {
    /// Takes a file if it is an index, a manifest, or a signature. Beyond the limits files are left out.
    pub(super) fn take(&mut self, bytes: Vec<u8>, content: &Value) {
        let has = |key: &str| content.get(key).is_some();
        let is_bundle = has("verificationMaterial");
        let is_one = is_bundle || has("manifests") || has("layers") || has("critical");
        let has_room = self.documents.len() < MAX_LAYOUT_DOCUMENTS && self.bytes + bytes.len() <= MAX_LAYOUT_BYTES;
        let Ok(text) = String::from_utf8(bytes) else { return };
        if !is_one || !has_room {
            return;
        }
        let text_at = |pointer: &str| content.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let digest = text_at("/critical/image/docker-manifest-digest");
        self.signed.extend(digest.zip(text_at("/critical/identity/docker-reference")));
        self.has_bundle |= is_bundle;
        self.bytes += text.len();
        self.documents.push((Digest::of(text.as_bytes()), text));
    }

    pub(super) fn has_signatures(&self) -> bool {
        self.has_bundle || !self.signed.is_empty()
    }

    /// The names of the image in its signatures. One without a tag is a name by digest.
    pub(super) fn signed_names(&self, top: &Descriptor) -> Vec<String> {
        let digest = top.digest.to_string();
        let name = |(_, name): &(String, String)| {
            let image = reference(name).ok()?;
            let suffix = image.suffix().unwrap_or_else(|| ["@", &digest].concat());
            Some([image.repository(), suffix].concat())
        };
        self.signed.iter().filter(|(of, _)| *of == digest).filter_map(name).collect()
    }

    fn find(&self, digest: &Digest) -> Option<&String> {
        self.documents.iter().find(|(found, _)| found == digest).map(|(_, text)| text)
    }

    /// The runtime's id of each image, and the documents as one text, that of the image first.
    pub(crate) fn records(&self) -> impl Iterator<Item = (Digest, String)> {
        let record = |top: &Digest| {
            let find = |digest: &Digest| self.find(digest).map(String::as_bytes);
            let first = self.find(top)?;
            let (_, id) = config_here(first.as_bytes(), &find)?;
            let others = self.documents.iter().filter(|(digest, _)| digest != top).map(|(_, text)| text);
            let all: Vec<&String> = std::iter::once(first).chain(others).collect();
            Some((id, json!(all).to_string()))
        };
        self.tops.iter().take(MAX_SIGNED_IMAGES).filter_map(record)
    }
}

/// The file with the record of the image with this id, in hexadecimal.
pub(crate) fn layout_record_name(image_id: &str) -> String {
    ["archive-sha256-", image_id].concat()
}

/// What a record may have. JSON in JSON doubles at most.
pub(crate) const MAX_LAYOUT_RECORD_BYTES: u64 = 4 << 20;
