//! Image garbage collection: removes unused images by disk usage and by age.
//!
//! A collection finds the images in use (`collection.rs`), selects and orders the others (`policy.rs`) and removes them
//! (`manager.rs`). `state.rs` holds what it knows between two collections. The sync loop schedules collections
//! (`sync_loop/image_gc.rs`), because it knows which pods and versions there are; it reaches them through
//! `kuberuntime/image_filesystems.rs`, which has the runtime that lists the containers.

mod collection;
mod manager;
mod policy;
mod state;

pub(crate) use collection::images_of;
pub(crate) use manager::CollectError;
#[cfg(test)]
pub(crate) use policy::InUse;
pub(super) use state::GcState;
