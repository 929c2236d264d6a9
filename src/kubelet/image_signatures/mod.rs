//! Signatures of images: the policy, the forms of signatures, and the verdict about an image.
//!
//! ```text
//!   policy.json, keys -> Policy -> requirements for an image
//!   registry, archive, disk -> Evidence: index, manifest, signatures     -> judge -> the signed digest, or a refusal
//! ```
//!
//! The rules are those of containers-policy.json(5).

mod archived;
mod bundle;
mod evidence;
mod identity;
mod judge;
mod policy;
mod policy_file;
mod public_key;
mod scopes;
mod simple_signing;

pub(crate) use bundle::{BUNDLE_TYPE, bundle_layers, bundle_manifests};
pub(crate) use evidence::{Evidence, MAX_SIGNATURE_BYTES, Signature};
pub(crate) use judge::{Refusal, SignedImage, judge};
pub(crate) use policy::Requirement;
pub(crate) use policy_file::{load_policy, read_policy};
pub(crate) use simple_signing::signature_layers;

#[cfg(test)]
pub(crate) mod test_signer;
#[cfg(test)]
mod tests;
