//! Whether an image satisfies the policy. Pure.

use std::fmt;

use serde_json::Value;

use super::evidence::{Evidence, Signature};
use super::policy::{Requirement, SigstoreSigned};
use super::{bundle, simple_signing};
use crate::kubelet::image_archives::image_name::{Reference, reference};
use crate::kubelet::image_archives::manifest::{Digest, Document, document};

/// What the signatures stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignedImage {
    /// The signed index or manifest.
    pub(crate) digest: Digest,
    /// The digest of the configuration, which names the content of all layers: the runtime's id of the image.
    pub(crate) image_id: Digest,
}

/// Why an image is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The digest of the index, or of the manifest if there is none.
    digest: Option<Digest>,
    /// The place of the requirement in the policy.
    field_path: String,
    why: String,
}

/// Different reasons that an error shows.
const MAX_SHOWN_REASONS: usize = 4;

impl Requirement {
    /// Whether the image has to be looked at at all.
    pub(crate) const fn is_judged(&self) -> bool {
        !matches!(self, Self::InsecureAcceptAnything)
    }

    /// The refusal of an image that no signature can help.
    pub(crate) fn rejection(&self) -> Option<Refusal> {
        match self {
            Self::Reject { field_path } => {
                Some(Refusal { digest: None, field_path: field_path.clone(), why: "the policy rejects it".to_owned() })
            }
            Self::InsecureAcceptAnything | Self::SigstoreSigned(_) => None,
        }
    }
}

/// The image that the signatures stand for. `image` has a tag or a digest. As containers/image does, one digest has to
/// satisfy all requirements: that of the index, or that of the manifest for this machine.
pub(crate) fn judge(
    requirements: &[Requirement],
    image: &Reference,
    evidence: &Evidence,
) -> Result<SignedImage, Refusal> {
    let documents = evidence.documents();
    let top = documents.first().map(|(digest, _)| digest.clone());
    let refused =
        |field_path: &str, why: String| Refusal { digest: top.clone(), field_path: field_path.to_owned(), why };
    let image_id = image_id(evidence).ok_or_else(|| refused("", "its manifest is not valid".to_owned()))?;
    let is_known = |digest: &str| documents.iter().any(|(document_digest, _)| document_digest.to_string() == digest);
    if image.digest().is_some_and(|digest| !is_known(digest)) {
        return Err(refused("", "the known signatures are of another digest".to_owned()));
    }
    let mut refusal = None;
    for (digest, bytes) in &documents {
        let failed = requirements.iter().find_map(|requirement| match requirement {
            Requirement::InsecureAcceptAnything => None,
            Requirement::Reject { .. } => {
                requirement.rejection().map(|rejection| refused(&rejection.field_path, rejection.why))
            }
            Requirement::SigstoreSigned(signed) => {
                signed.check(image, evidence, (digest, bytes)).err().map(|why| refused(&signed.field_path, why))
            }
        });
        match failed {
            None => return Ok(SignedImage { digest: digest.clone(), image_id }),
            // The index is what the reference names, so its failure says most.
            Some(failed) => refusal = refusal.or(Some(failed)),
        }
    }
    Err(refusal.unwrap_or_else(|| refused("", "it has no manifest".to_owned())))
}

impl SigstoreSigned {
    fn check(&self, image: &Reference, evidence: &Evidence, top: (&Digest, &[u8])) -> Result<(), String> {
        let mut reasons: Vec<String> = Vec::new();
        for signature in &evidence.signatures {
            match self.accepts(signature, image, top) {
                Ok(()) => return Ok(()),
                Err(why) if !reasons.contains(&why) => reasons.push(why),
                Err(_) => {}
            }
        }
        reasons.truncate(MAX_SHOWN_REASONS);
        match reasons.is_empty() {
            true => Err("it has no signature".to_owned()),
            false => Err(format!("no signature is accepted: {}", reasons.join("; "))),
        }
    }

    fn accepts(&self, signature: &Signature, image: &Reference, top: (&Digest, &[u8])) -> Result<(), String> {
        let claim = match signature {
            Signature::Simple { payload, signature } => simple_signing::verify(payload, signature, &self.keys)?,
            Signature::Bundle(bundle) => bundle::verify(bundle, &self.keys, top)?,
        };
        if claim.digest != top.0.to_string() {
            return Err(format!("it is for the digest {}", head(&claim.digest)));
        }
        let Some(name) = claim.reference else {
            return self.identity.accepts_nameless(image).then_some(()).ok_or_else(|| {
                "it names no image, which is enough only for an image by digest, with matchRepository or \
                 matchRepoDigestOrExact"
                    .to_owned()
            });
        };
        let is_accepted = reference(&name).is_ok_and(|signed| self.identity.accepts(image, &signed));
        is_accepted.then_some(()).ok_or_else(|| format!("it is for {}", head(&name)))
    }
}

/// The digest of the configuration, if the index is of this manifest.
fn image_id(evidence: &Evidence) -> Option<Digest> {
    let Ok(Document::Manifest { config, .. }) = Document::parse(&evidence.manifest) else { return None };
    if let Some(index) = &evidence.index {
        let manifest_digest = Digest::of(&evidence.manifest).to_string();
        let index = document(index).ok()?;
        let manifests = index.get("manifests")?.as_array()?;
        manifests.iter().find(|entry| entry.get("digest").and_then(Value::as_str) == Some(&manifest_digest))?;
    }
    Some(config.digest)
}

/// The beginning of a text that others have written.
fn head(text: &str) -> String {
    const MAX_SHOWN_CHARS: usize = 300;
    text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect()
}

impl Refusal {
    pub(crate) fn because(why: impl Into<String>) -> Self {
        Self { digest: None, field_path: String::new(), why: why.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(digest) = &self.digest {
            write!(f, "{digest}: ")?;
        }
        f.write_str(&self.why)?;
        if self.field_path.is_empty() { Ok(()) } else { write!(f, " ({})", self.field_path) }
    }
}

impl std::error::Error for Refusal {}
