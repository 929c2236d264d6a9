//! Removing images that nothing needs: to make room, or for their age.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::Images;
use super::image_gc_policy::{InUse, Unused, not_enough, to_free};
use super::service::{ImageError, Service};
use crate::platform::cri::v1::{FilesystemUsage, Image, ImageSpec};
use crate::platform::host::file_system::{Room, room};
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count};

/// What keeps the garbage collection of images from doing its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CollectError {
    /// The file system of images says that it holds nothing.
    InvalidCapacity,
    /// There is less room than there should be, and nothing is left to remove.
    NotEnough(String),
    /// As one line.
    Failed(String),
}

impl fmt::Display for CollectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidCapacity => f.write_str("the runtime's file system of images has no size"),
            Self::NotEnough(message) | Self::Failed(message) => f.write_str(message),
        }
    }
}

impl From<ImageError> for CollectError {
    fn from(error: ImageError) -> Self {
        Self::Failed(ErrorChain(&error).to_string())
    }
}

impl<S: Service> Images<S> {
    /// Whether there is ever anything to collect.
    pub(crate) fn collects(&self) -> bool {
        self.gc.high < 100 || !self.gc.max_age.is_zero()
    }

    /// Takes note of it that images have come since this was asked last: there may be less room than before.
    pub(crate) fn has_pulled(&self) -> bool {
        self.pulled.replace(false)
    }

    /// Whether a look at all of them is due: the file system is full, or age alone counts, or nobody has looked yet.
    pub(crate) async fn needs_collecting(&self) -> Result<bool, CollectError> {
        if !self.gc.max_age.is_zero() || !self.looked.replace(true) {
            return Ok(true);
        }
        Ok(to_free(self.room().await?, &self.gc).is_some())
    }

    /// Removes what is too old, and then as much as takes the file system down to the low mark. What is `in_use` stays.
    pub(crate) async fn collect(&self, in_use: &InUse) -> Result<(), CollectError> {
        let now = rt::now();
        let unused = self.unused(in_use, now).await?;
        let (overdue, rest): (Vec<_>, Vec<_>) =
            unused.into_iter().partition(|image| image.is_overdue(self.gc.max_age, now));
        self.remove(overdue, u64::MAX, "age").await.1?;
        let room = self.room().await?;
        let Some(wanted) = to_free(room, &self.gc) else { return Ok(()) };
        log!(info, "making room by removing images", bytes = wanted, capacity = room.capacity, free = room.available);
        let ripe = rest.into_iter().filter(|image| image.is_ripe(self.gc.min_age, now)).collect();
        let (freed, removed) = self.remove(ripe, wanted, "space").await;
        removed?;
        if freed < wanted { Err(CollectError::NotEnough(not_enough(room, freed))) } else { Ok(()) }
    }

    /// Removes images that are not `in_use` until so many bytes are freed; how many were.
    pub(crate) async fn free(&self, bytes: u64, in_use: &InUse) -> Result<u64, CollectError> {
        let now = rt::now();
        let unused = self.unused(in_use, now).await?;
        let ripe = unused.into_iter().filter(|image| image.is_ripe(self.gc.min_age, now)).collect();
        let (freed, removed) = self.remove(ripe, bytes, "space").await;
        removed.map(|()| freed)
    }

    /// The runtime's id of an image that a pod names; `None` if it is not there.
    pub(crate) async fn id_of(&self, image: &str) -> Result<Option<String>, CollectError> {
        // What is no name has no image.
        let Ok(name) = super::image_name::with_default_tag(image) else { return Ok(None) };
        let found = self.service.status(&ImageSpec { image: name, ..ImageSpec::default() }).await;
        Ok(found?.map(|image| image.id))
    }

    /// All that the runtime has.
    pub(crate) async fn list(&self) -> Result<Vec<Image>, CollectError> {
        Ok(self.service.list().await?)
    }

    /// Removes an image, with all of its names.
    pub(crate) async fn remove_one(&self, image: &Image) -> Result<(), CollectError> {
        let spec = ImageSpec { image: image.id.clone(), ..ImageSpec::default() };
        self.service.remove(&spec).await?;
        log!(info, "removed an image that nothing uses", image = image.id, bytes = image.size);
        self.records.forget(&image.id).await;
        Ok(())
    }

    async fn unused(&self, in_use: &InUse, now: Instant) -> Result<Vec<Unused>, CollectError> {
        let images = self.list().await?;
        Ok(self.book.borrow_mut().look(&images, in_use, now))
    }

    /// Until so many bytes are freed; how many were. One that cannot be removed keeps no other.
    async fn remove(&self, unused: Vec<Unused>, bytes: u64, why: &str) -> (u64, Result<(), CollectError>) {
        let mut freed: u64 = 0;
        let mut errors = Vec::new();
        for image in unused {
            if freed >= bytes {
                break;
            }
            match self.service.remove(&ImageSpec { image: image.id.clone(), ..ImageSpec::default() }).await {
                Ok(()) => {
                    metrics::count(Count::ImagesCollected, &[why]);
                    log!(info, "removed an image that nothing uses", image = image.id, bytes = image.size);
                    freed = freed.saturating_add(image.size);
                    self.records.forget(&image.id).await;
                }
                Err(error) => errors.push(ErrorChain(&error).to_string()),
            }
        }
        if errors.is_empty() {
            return (freed, Ok(()));
        }
        let errors = errors.join(", ");
        let what = format!(
            "wanted to free {bytes} bytes, but freed {freed} bytes space with errors in image deletion: [{errors}]"
        );
        (freed, Err(CollectError::Failed(what)))
    }

    /// Where the runtime has its images, and where it has writable layers if it tells.
    pub(crate) async fn disks(&self) -> Result<(PathBuf, Option<PathBuf>), CollectError> {
        let known = self.disks.borrow().clone();
        match known {
            Some(disks) => Ok(disks),
            None => self.ask_disks().await,
        }
    }

    async fn room(&self) -> Result<Room, CollectError> {
        let (path, _) = self.disks().await?;
        let shown = path.display().to_string();
        let room = rt::blocking(move || room(&path)).await.map_err(|error| {
            // The runtime may have moved: it is asked again.
            *self.disks.borrow_mut() = None;
            CollectError::Failed(format!("look at the file system of {shown}: {error}"))
        })?;
        if room.capacity == 0 { Err(CollectError::InvalidCapacity) } else { Ok(room) }
    }

    async fn ask_disks(&self) -> Result<(PathBuf, Option<PathBuf>), CollectError> {
        let info = self.service.image_fs_info().await?;
        let first = |usages: Vec<FilesystemUsage>| {
            let first = usages.into_iter().find_map(|usage| usage.fs_id);
            first.map(|id| PathBuf::from(id.mountpoint)).filter(|path| path != Path::new(""))
        };
        let images = first(info.image_filesystems);
        let images =
            images.ok_or_else(|| CollectError::Failed("the runtime tells no file system of images".to_owned()))?;
        let disks = (images, first(info.container_filesystems));
        *self.disks.borrow_mut() = Some(disks.clone());
        Ok(disks)
    }
}
