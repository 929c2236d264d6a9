//! Deltas: what an image has and an older one does not, from which a node that has the older image makes the new one.
//!
//! ```text
//!   workstation   OLD, NEW -> SavedImage -> Matcher::difference -> x.delta
//!   node          x.delta -> DeltaFile -> rebuild (old layers from the runtime) -> the layout as a tar -> ctr
//! ```
//!
//! A delta begins with [`DELTA_MAGIC`]. Then come the contents of its layers, the description as JSON, and the length of the
//! description in eight bytes. The description lists names, configuration and manifest of the new image; the layers of
//! the older image that patches read; and each layer of the new image with what the delta has of it.

mod delta_file;
mod description;
mod difference;
mod error;
mod layer;
mod make;
pub mod patch;
mod program;
mod rebuild;
mod saved_image;

pub(super) use delta_file::DeltaFile;
pub(crate) use make::{DeltaSummary, make_delta};
pub(crate) use program::{FileDelta, make_file_delta};
pub(super) use rebuild::{Sources, rebuild};

const DELTA_MAGIC: &[u8; 16] = b"coracle delta 1\n";

#[cfg(test)]
mod tests;
