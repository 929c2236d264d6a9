//! An image of an archive and the signatures beside it, as the import keeps them. Pure.

use serde_json::Value;

use super::evidence::{Evidence, MAX_SIGNATURE_BYTES, Signature};
use super::simple_signing::MAX_IMAGE_SIGNATURES;
use super::{bundle_layers, signature_layers};
use crate::kubelet::image_archives::manifest::{Descriptor, Digest, ManifestError, config_here};

impl Evidence {
    /// Reads a record of documents. The first one is the image; the others are found by their digests.
    pub(crate) fn of_archive(record: &[u8]) -> Result<Self, ManifestError> {
        let record: Value = serde_json::from_slice(record).map_err(ManifestError::Json)?;
        let texts = record.as_array().into_iter().flatten().filter_map(Value::as_str);
        let documents: Vec<(Digest, &[u8])> =
            texts.map(|text| (Digest::of(text.as_bytes()), text.as_bytes())).collect();
        let find = |digest: &Digest| documents.iter().find(|(known, _)| known == digest).map(|(_, document)| *document);
        let (_, top) = documents.first().ok_or(ManifestError::Missing("content"))?;
        let (manifest, _) = config_here(top, &find).ok_or(ManifestError::Invalid("no manifest for this machine"))?;
        let mut room = MAX_SIGNATURE_BYTES;
        let mut small_blob = |blob: &Descriptor| {
            let room_left = room.checked_sub(blob.size);
            room = room_left.ok_or(ManifestError::Invalid("more than 1 MiB of signatures"))?;
            // As a registry's: with the size that its manifest states.
            let found = find(&blob.digest).filter(|bytes| u64::try_from(bytes.len()) == Ok(blob.size));
            Ok(found.map(<[u8]>::to_vec))
        };
        let mut signatures = Vec::new();
        for (_, document) in &documents {
            let layers = match signature_layers(document) {
                Err(problem @ ManifestError::Invalid(_)) => return Err(problem),
                // No manifest.
                found => found.unwrap_or_default(),
            };
            for (payload, signature) in layers {
                let payload = small_blob(&payload)?;
                let payload = payload.ok_or(ManifestError::Invalid("a signature's payload is missing or altered"))?;
                signatures.push(Signature::Simple { payload, signature });
            }
            // Attestations are bundles, too, and may be too large to be kept.
            for bundle in bundle_layers(document).unwrap_or_default() {
                signatures.extend(small_blob(&bundle)?.map(Signature::Bundle));
            }
            if signatures.len() > MAX_IMAGE_SIGNATURES {
                return Err(ManifestError::Invalid("more than 64 signatures"));
            }
        }
        let index = (manifest != *top).then(|| top.to_vec());
        Ok(Self { index, manifest: manifest.to_vec(), signatures })
    }
}
