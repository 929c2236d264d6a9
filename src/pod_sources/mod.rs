//! Where pods come from: files on disk; further sources send the same updates.

pub(crate) mod merge;
pub(crate) mod static_file;
pub mod static_pod;
