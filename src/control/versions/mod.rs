//! Versions of the node's own pods: records, trials, users' requests, and the pulls of next versions.
//!
//! [`UpdateLocks`] has decisions of the node wait for applications. [`PodVersions`] owns the records of all pods
//! ([`Versions`]) and judges versions on trial. [`NextVersions`] pulls the images of a next version while the present
//! one runs. [`TagLookups`] looks whether tags of images have moved, which makes a new version too.

mod cluster_trials;
mod error;
mod held_pods;
mod image_tags;
mod next_version_pulls;
mod next_versions;
mod pod_versions;
mod record;
mod tag_lookups;
mod update_locks;
mod version_records;

pub(crate) use held_pods::{Decision, HeldPods, may_be_held};
pub(crate) use next_version_pulls::NextVersionPulls;
pub(crate) use next_versions::NextVersions;
pub(crate) use pod_versions::PodVersions;
pub(crate) use tag_lookups::TagLookups;
pub(crate) use update_locks::{HeldCheck, HeldSince, UpdateLocks, read_held_since};
pub(crate) use version_records::{VersionView, Versions};
