//! Fetches the manifests and the signatures of an image, without its layers.
//!
//! ```text
//!   reference -> index -> manifest; for each of both: the image sha256-HEX.sig, then the bundles among the referrers
//! ```

use super::job::Job;
use super::manifest_fetch::ManifestFetch;
use super::{FetchError, Passage};
use crate::kubelet::image_archives::image_name::Reference;
use crate::kubelet::image_archives::manifest::{Descriptor, Digest, MAX_IMAGE_MANIFEST_BYTES, ManifestError};
use crate::kubelet::image_signatures::{
    BUNDLE_TYPE, Evidence, MAX_SIGNATURE_BYTES, Signature, bundle_layers, bundle_manifests, signature_layers,
};
use crate::platform::cri::v1::AuthConfig;
use crate::platform::registry::RegistryError;

/// Whether the signatures found so far are enough.
type EvidenceTest = Box<dyn Fn(&Evidence) -> bool + Send>;

impl ManifestFetch {
    /// The image's manifests, and its signatures until they are enough.
    pub(crate) async fn evidence(
        &self,
        image: &Reference,
        auth: Option<&AuthConfig>,
        passage: Passage<'_>,
        is_enough: EvidenceTest,
    ) -> Result<Evidence, FetchError> {
        let (sender, evidence_receiver) = async_channel::bounded(1);
        let work = move |job: &mut Job| {
            // The channel has capacity for one result.
            let _ = sender.try_send(job.evidence(&*is_enough)?);
            Ok(Vec::new())
        };
        self.run(image, auth, passage, Box::new(work)).await?;
        evidence_receiver.try_recv().map_err(|_| FetchError::NoResult)
    }
}

impl Job {
    fn evidence(&mut self, is_enough: &dyn Fn(&Evidence) -> bool) -> Result<Evidence, FetchError> {
        let (top, manifest, _) = self.manifest()?;
        let bytes = |digest| self.known_document(digest).unwrap_or_default();
        let has_index = top.digest != manifest.digest;
        let mut evidence = Evidence {
            index: has_index.then(|| bytes(&top.digest)),
            manifest: bytes(&manifest.digest),
            signatures: Vec::new(),
        };
        let mut room = MAX_SIGNATURE_BYTES;
        let digests = [Some(top.digest), has_index.then_some(manifest.digest)];
        for digest in digests.iter().flatten() {
            for fetch in [Self::attached, Self::bundles] {
                if is_enough(&evidence) {
                    return Ok(evidence);
                }
                evidence.signatures.extend(fetch(self, digest, &mut room)?);
            }
        }
        Ok(evidence)
    }

    /// The signatures that cosign attaches to an image as `sha256-HEX.sig`.
    fn attached(&mut self, digest: &Digest, room: &mut u64) -> Result<Vec<Signature>, FetchError> {
        let path = format!("manifests/sha256-{}.sig", digest.hex());
        let Some(manifest) = self.document_if_any(&path)? else { return Ok(Vec::new()) };
        let layers = signature_layers(&manifest).map_err(|problem| unusable(digest, &problem))?;
        let fetch = |(payload, signature): (Descriptor, String)| {
            Ok(Signature::Simple { payload: self.small_blob(digest, &payload, room)?, signature })
        };
        layers.into_iter().map(fetch).collect()
    }

    /// The bundles among the referrers. A registry without a list of them has an index with the digest as its tag.
    fn bundles(&mut self, digest: &Digest, room: &mut u64) -> Result<Vec<Signature>, FetchError> {
        let filter = BUNDLE_TYPE.replace('/', "%2F").replace('+', "%2B");
        let mut index = self.document_if_any(&format!("referrers/{digest}?artifactType={filter}"))?;
        if index.is_none() {
            index = self.document_if_any(&format!("manifests/sha256-{}", digest.hex()))?;
        }
        let Some(index) = index else { return Ok(Vec::new()) };
        let mut bundles = Vec::new();
        for referrer in bundle_manifests(&index).map_err(|problem| unusable(digest, &problem))? {
            let path = format!("manifests/{}", referrer.digest);
            let manifest = self.document_from_any(&path, Some(&referrer.digest), MAX_IMAGE_MANIFEST_BYTES)?;
            for layer in bundle_layers(&manifest).map_err(|problem| unusable(digest, &problem))? {
                bundles.push(Signature::Bundle(self.small_blob(digest, &layer, room)?));
            }
        }
        Ok(bundles)
    }

    /// `None` if the registry says that it has no such document, or cannot list referrers.
    fn document_if_any(&mut self, path: &str) -> Result<Option<Vec<u8>>, FetchError> {
        match self.document_from_any(path, None, MAX_IMAGE_MANIFEST_BYTES) {
            Err(FetchError::Registry(RegistryError::Status { status: 404 | 405, .. })) => Ok(None),
            Err(error) => Err(error),
            Ok(bytes) => Ok(Some(bytes)),
        }
    }

    fn small_blob(&mut self, of: &Digest, blob: &Descriptor, room: &mut u64) -> Result<Vec<u8>, FetchError> {
        let room_left = room.checked_sub(blob.size);
        *room = room_left.ok_or_else(|| unusable(of, &ManifestError::Invalid("more than 1 MiB of signatures")))?;
        self.document_from_any(&format!("blobs/{}", blob.digest), Some(&blob.digest), blob.size)
    }
}

fn unusable(digest: &Digest, problem: &ManifestError) -> FetchError {
    FetchError::Signatures(format!("the signatures of {digest}: {problem}"))
}
