//! `signedIdentity`: whether a signature for one name is good for another. Pure.

use crate::kubelet::image_archives::image_name::{Reference, reference, repository};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignedIdentity {
    MatchExact,
    /// The default.
    MatchRepoDigestOrExact,
    MatchRepository,
    ExactReference(Reference),
    /// With its registry.
    ExactRepository(String),
    RemapIdentity {
        prefix: String,
        signed_prefix: String,
    },
}

impl SignedIdentity {
    /// `image` has a tag or a digest.
    pub(super) fn accepts(&self, image: &Reference, signed: &Reference) -> bool {
        match self {
            Self::MatchExact => is_same(image, signed),
            Self::MatchRepoDigestOrExact => is_repo_digest_or_exact(image, signed),
            Self::MatchRepository => image.repository() == signed.repository(),
            Self::ExactReference(expected) => is_same(expected, signed),
            Self::ExactRepository(expected) => *expected == signed.repository(),
            Self::RemapIdentity { prefix, signed_prefix } => match remapped(image, prefix, signed_prefix) {
                Some(image) => is_repo_digest_or_exact(&image, signed),
                None => false,
            },
        }
    }

    /// Whether a signature that names no image, only a digest, is good for this image. The pod has to name the digest
    /// itself: then no other signed image can stand in its place.
    pub(super) fn accepts_nameless(&self, image: &Reference) -> bool {
        matches!(self, Self::MatchRepoDigestOrExact | Self::MatchRepository) && image.digest().is_some()
    }
}

/// Neither of them without a tag or a digest.
fn is_same(one: &Reference, other: &Reference) -> bool {
    one.suffix().is_some_and(|suffix| other.suffix() == Some(suffix)) && one.repository() == other.repository()
}

/// An image by digest needs only the repository: the digest is compared with the signature's anyway.
fn is_repo_digest_or_exact(image: &Reference, signed: &Reference) -> bool {
    match image.digest() {
        Some(_) => signed.suffix().is_some() && image.repository() == signed.repository(),
        None => is_same(image, signed),
    }
}

fn remapped(image: &Reference, prefix: &str, signed_prefix: &str) -> Option<Reference> {
    let name = image.repository();
    let Some(rest) = name.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        return Some(image.clone());
    };
    let signed_name = [signed_prefix, rest].concat();
    let is_whole = repository(&signed_name).is_ok_and(|whole| whole == signed_name);
    let text = [signed_name, image.suffix().unwrap_or_default()].concat();
    reference(&text).ok().filter(|_| is_whole)
}

/// A host, or a host and the beginning of a path.
pub(super) fn is_identity_prefix(prefix: &str) -> bool {
    // Two components, because Docker Hub puts one alone into `library`.
    let name = [prefix, "/a/x"].concat();
    repository(&name).is_ok_and(|whole| whole == name)
}
