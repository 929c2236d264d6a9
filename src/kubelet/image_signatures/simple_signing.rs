//! Signatures as cosign attaches them: a payload in containers' simple signing format for each layer of the image
//! `sha256-HEX.sig`. Pure.

use serde_json::Value;

use super::public_key::PublicKey;
use crate::kubelet::image_archives::manifest::{Descriptor, ManifestError, descriptor, document};
use crate::types::api::Bytes;

const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const COSIGN_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
const CLAIM_TYPE: &str = "cosign container image signature";
/// Signatures of an image.
pub(super) const MAX_IMAGE_SIGNATURES: usize = 64;
const MAX_PAYLOAD_BYTES: u64 = 64 << 10;

/// What a signature says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// With the algorithm.
    pub(super) digest: String,
    /// `None`: the signature names no image.
    pub(super) reference: Option<String>,
}

/// The payloads and signatures of an attached image's manifest.
pub(crate) fn signature_layers(manifest: &[u8]) -> Result<Vec<(Descriptor, String)>, ManifestError> {
    let document = document(manifest)?;
    let layers = document.get("layers").and_then(Value::as_array).ok_or(ManifestError::Missing("layers"))?;
    let is_payload = |layer: &&Value| layer.get("mediaType").and_then(Value::as_str) == Some(PAYLOAD_TYPE);
    if layers.iter().filter(is_payload).count() > MAX_IMAGE_SIGNATURES {
        return Err(ManifestError::Invalid("more than 64 signatures"));
    }
    let signature = |layer: &Value| {
        let annotations = layer.get("annotations");
        let signature = annotations.and_then(|annotations| annotations.get(COSIGN_ANNOTATION)?.as_str());
        let payload = descriptor(layer)?;
        if payload.size > MAX_PAYLOAD_BYTES {
            return Err(ManifestError::Invalid("a signature's payload of more than 64 KiB"));
        }
        Ok((payload, signature.unwrap_or_default().to_owned()))
    };
    layers.iter().filter(is_payload).map(signature).collect()
}

/// What one of the keys has signed. The error is one line.
pub(super) fn verify(payload: &[u8], signature: &str, keys: &[PublicKey]) -> Result<Claim, String> {
    let signature = Bytes::from_base64(signature).ok_or("its signature is not base64")?.0;
    if !keys.iter().any(|key| key.has_signed(payload, &signature)) {
        return Err("it is not by a key of the policy".to_owned());
    }
    claim(payload).ok_or_else(|| "its payload is not one of an image's signature".to_owned())
}

/// As strict as containers/image: these fields and no others, but for those in `optional`.
fn claim(payload: &[u8]) -> Option<Claim> {
    let payload = document(payload).ok()?;
    let fields = |value: &Value, names: &[&str]| {
        let fields = value.as_object()?;
        (fields.len() == names.len() && names.iter().all(|name| fields.contains_key(*name))).then_some(())
    };
    fields(&payload, &["critical", "optional"])?;
    let critical = payload.get("critical")?;
    fields(critical, &["type", "image", "identity"])?;
    let (image, identity) = (critical.get("image")?, critical.get("identity")?);
    fields(image, &["docker-manifest-digest"])?;
    fields(identity, &["docker-reference"])?;
    let text = |value: &Value, name: &str| value.get(name)?.as_str().map(str::to_owned);
    if text(critical, "type")? != CLAIM_TYPE {
        return None;
    }
    let digest = text(image, "docker-manifest-digest")?;
    Some(Claim { digest, reference: Some(text(identity, "docker-reference")?) })
}
