//! Sigstore's bundles (version 0.3), which are referrers of an image: an in-toto statement about its digest, or a plain
//! signature of its manifest. Verified by a key, without a transparency log. Pure.

use serde_json::Value;

use super::public_key::PublicKey;
use super::simple_signing::Claim;
use crate::kubelet::image_archives::manifest::{Descriptor, Digest, ManifestError, descriptor, document};
use crate::types::api::Bytes;

/// The type of the artifact, of its layer, and of the bundle itself.
pub(crate) const BUNDLE_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const MAX_SIGNATURE_BUNDLE_BYTES: u64 = 256 << 10;
/// Referrers of this type. Attestations are such bundles, too.
const MAX_BUNDLES: usize = 32;
/// Signatures of an envelope, and subjects of a statement.
const MAX_BUNDLE_ENTRIES: usize = 64;
const STATEMENT_TYPE: &str = "application/vnd.in-toto+json";
const SIGN_PREDICATE: &str = "https://sigstore.dev/cosign/sign/v1";

/// The bundles among the referrers in an index.
pub(crate) fn bundle_manifests(index: &[u8]) -> Result<Vec<Descriptor>, ManifestError> {
    let document = document(index)?;
    let manifests = document.get("manifests").and_then(Value::as_array).ok_or(ManifestError::Missing("manifests"))?;
    let is_bundle = |entry: &&Value| entry.get("artifactType").and_then(Value::as_str) == Some(BUNDLE_TYPE);
    bounded(manifests.iter().filter(is_bundle), MAX_BUNDLES, "more than 32 bundles of signatures")
}

/// The bundles in the manifest of a referrer.
pub(crate) fn bundle_layers(manifest: &[u8]) -> Result<Vec<Descriptor>, ManifestError> {
    let document = document(manifest)?;
    let layers = document.get("layers").and_then(Value::as_array).ok_or(ManifestError::Missing("layers"))?;
    let is_bundle = |entry: &&Value| entry.get("mediaType").and_then(Value::as_str) == Some(BUNDLE_TYPE);
    let layers = bounded(layers.iter().filter(is_bundle), 1, "more than one bundle in an artifact")?;
    match layers.iter().any(|layer| layer.size > MAX_SIGNATURE_BUNDLE_BYTES) {
        true => Err(ManifestError::Invalid("a signature's bundle of more than 256 KiB")),
        false => Ok(layers),
    }
}

fn bounded<'a>(
    entries: impl Iterator<Item = &'a Value> + Clone,
    most: usize,
    problem: &'static str,
) -> Result<Vec<Descriptor>, ManifestError> {
    if entries.clone().count() > most {
        return Err(ManifestError::Invalid(problem));
    }
    entries.map(descriptor).collect()
}

/// What one of the keys has signed about the image with this index or manifest. The error is one line.
pub(super) fn verify(bundle: &[u8], keys: &[PublicKey], top: (&Digest, &[u8])) -> Result<Claim, String> {
    let bundle = document(bundle).map_err(|_| "its bundle is not valid JSON")?;
    if bundle.get("mediaType").and_then(Value::as_str) != Some(BUNDLE_TYPE) {
        return Err("it is not a bundle of version 0.3".to_owned());
    }
    if bundle.pointer("/verificationMaterial/publicKey").is_none() {
        return Err("it is signed with a certificate, not with a key".to_owned());
    }
    let signed = |content: &[u8], signature: Option<&Value>| {
        let signature = signature.and_then(Value::as_str).and_then(Bytes::from_base64);
        signature.is_some_and(|signature| keys.iter().any(|key| key.has_signed(content, &signature.0)))
    };
    let foreign = || "it is not by a key of the policy".to_owned();
    if let Some(envelope) = bundle.get("dsseEnvelope") {
        let kind = envelope.get("payloadType").and_then(Value::as_str).unwrap_or_default();
        let payload = envelope.get("payload").and_then(Value::as_str).and_then(Bytes::from_base64);
        let payload = payload.ok_or("its payload is not base64")?.0;
        let content = [format!("DSSEv1 {} {kind} {} ", kind.len(), payload.len()).as_bytes(), &payload].concat();
        let signatures = envelope.get("signatures").and_then(Value::as_array).into_iter().flatten();
        if !signatures.take(MAX_BUNDLE_ENTRIES).any(|entry| signed(&content, entry.get("sig"))) {
            return Err(foreign());
        }
        let claim = (kind == STATEMENT_TYPE).then(|| statement(&payload, top.0)).flatten();
        return claim.ok_or_else(|| "its statement is not one of an image's signature".to_owned());
    }
    match signed(top.1, bundle.pointer("/messageSignature/signature")) {
        true => Ok(Claim { digest: top.0.to_string(), reference: None }),
        false => Err(foreign()),
    }
}

/// The claim of a statement; about the image with this digest, if there is one.
fn statement(payload: &[u8], wanted: &Digest) -> Option<Claim> {
    let statement = document(payload).ok()?;
    let text = |name: &str| statement.get(name).and_then(Value::as_str);
    let is_statement = text("_type")?.starts_with("https://in-toto.io/Statement/v");
    if !is_statement || text("predicateType")? != SIGN_PREDICATE {
        return None;
    }
    let subjects = statement.get("subject")?.as_array()?.iter().take(MAX_BUNDLE_ENTRIES);
    let hex = |subject: &&Value| Some(subject.pointer("/digest/sha256")?.as_str()?.to_owned());
    let subject = subjects.clone().find(|subject| hex(subject).as_deref() == Some(wanted.hex()));
    let subject = subject.or_else(|| subjects.clone().next())?;
    let name = subject.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
    Some(Claim { digest: format!("sha256:{}", hex(&subject)?), reference: name.map(str::to_owned) })
}
