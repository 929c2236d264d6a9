//! Image garbage collection: removes unused images by disk usage and by age.
//!
//! The sync loop schedules collections (`sync_loop/image_gc.rs`). A collection finds the images in use
//! (`collection.rs`), selects and orders the others (`policy.rs`) and removes them (`manager.rs`).

mod collection;
mod manager;
mod policy;

pub(crate) use collection::images_of;
pub(crate) use manager::CollectError;
pub(super) use policy::ImageRecords;
#[cfg(test)]
pub(crate) use policy::InUse;
