//! What this process counts, and the text in which counts are told.

mod exposition;
#[cfg(test)]
pub(crate) mod parsed;

pub(crate) use exposition::{CONTENT_TYPE, Exposition, Kind, Labels, Number};
