//! Image garbage collection: by disk usage and by age.

use std::fmt;
use std::iter;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::policy::{InUse, Unused, not_enough, to_free};
use crate::kubelet::image_archives::image_name;
use crate::kubelet::image_transfer::Kept;
use crate::kubelet::images::Images;
use crate::kubelet::images::service::{ImageError, Service};
use crate::platform::cri::v1::{FilesystemUsage, Image, ImageSpec};
use crate::platform::host::file_system::{DiskSpace, room};
use crate::platform::rt;
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CollectError {
    /// The image file system reports a capacity of zero.
    InvalidCapacity,
    /// Disk usage is still too high and no unused image is left.
    NotEnough(String),
    /// One line.
    Failed(String),
}

impl fmt::Display for CollectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidCapacity => f.write_str("the runtime's image file system has a capacity of 0"),
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
    /// Whether image garbage collection is enabled.
    pub(crate) fn collects(&self) -> bool {
        self.gc.settings.high < 100 || !self.gc.settings.max_age.is_zero()
    }

    /// Whether images were pulled since the last call, so that the disk may be fuller.
    pub(crate) fn has_pulled(&self) -> bool {
        self.gc.has_pulled.replace(false)
    }

    /// Whether a collection is due: the disk is full, the maximum age applies, or none has run yet.
    pub(crate) async fn needs_collecting(&self) -> Result<bool, CollectError> {
        self.prune_shared(Kept::Recent).await;
        if let Some(fetcher) = &self.fetcher {
            fetcher.sweep().await;
        }
        // The first listing tells the images that were there from those that come later.
        if !self.gc.settings.max_age.is_zero() || !self.gc.has_listed.replace(true) {
            return Ok(true);
        }
        Ok(to_free(self.room().await?, &self.gc.settings).is_some())
    }

    /// Removes images beyond the maximum age, and then unused ones until usage is below the low threshold. Images in
    /// `in_use` stay.
    pub(crate) async fn collect(&self, in_use: &InUse) -> Result<(), CollectError> {
        let now = rt::now();
        let unused = self.unused(in_use, now).await?;
        let (overdue, rest): (Vec<_>, Vec<_>) =
            unused.into_iter().partition(|image| image.is_overdue(self.gc.settings.max_age, now));
        self.remove(overdue, u64::MAX, "age").await.1?;
        let Some(wanted) = to_free(self.room().await?, &self.gc.settings) else { return Ok(()) };
        // What is kept for other nodes goes first, as no pod of this one needs it.
        self.prune_shared(Kept::Nothing).await;
        self.free_parts(in_use, wanted).await;
        let room = self.room().await?;
        let Some(wanted) = to_free(room, &self.gc.settings) else { return Ok(()) };
        log!(
            info,
            "removing unused images to free disk space",
            bytes = wanted,
            capacity = room.capacity,
            free = room.available
        );
        let ripe = rest.into_iter().filter(|image| image.is_ripe(self.gc.settings.min_age, now)).collect();
        let (freed, removed) = self.remove(ripe, wanted, "space").await;
        removed?;
        // What a pod waits for is the last to be removed: it has to be fetched again.
        let freed = freed.saturating_add(self.free_parts(&InUse::default(), wanted.saturating_sub(freed)).await);
        if freed < wanted { Err(CollectError::NotEnough(not_enough(room, freed))) } else { Ok(()) }
    }

    /// Removes unused images until `bytes` are freed; returns the number of bytes freed.
    pub(crate) async fn free(&self, bytes: u64, in_use: &InUse) -> Result<u64, CollectError> {
        self.prune_shared(Kept::Nothing).await;
        let mut freed = self.free_parts(in_use, bytes).await;
        let now = rt::now();
        let unused = self.unused(in_use, now).await?;
        let ripe = unused.into_iter().filter(|image| image.is_ripe(self.gc.settings.min_age, now)).collect();
        let (of_images, removed) = self.remove(ripe, bytes.saturating_sub(freed), "space").await;
        freed = freed.saturating_add(of_images);
        freed = freed.saturating_add(self.free_parts(&InUse::default(), bytes.saturating_sub(freed)).await);
        removed.map(|()| freed)
    }

    /// Removes content that is kept for other nodes and parts of images that are not being fetched, wherever they are;
    /// returns the number of bytes of the latter.
    pub(crate) async fn free_all_parts(&self) -> u64 {
        self.prune_shared(Kept::Nothing).await;
        match &self.fetcher {
            Some(fetcher) => fetcher.free(iter::empty(), u64::MAX).await,
            None => 0,
        }
    }

    /// Removes parts of images that are not being fetched until `bytes` of the image file system are freed; returns the
    /// number of bytes freed. Those of images that `in_use` wants stay.
    async fn free_parts(&self, in_use: &InUse, bytes: u64) -> u64 {
        let (Some(fetcher), Ok((images, _))) = (&self.fetcher, self.disks().await) else { return 0 };
        if bytes > 0 && fetcher.is_on(&images) { fetcher.free(in_use.wanted(), bytes).await } else { 0 }
    }

    /// The runtime's id of an image name; `None` if it is not present.
    pub(crate) async fn id_of(&self, image: &str) -> Result<Option<String>, CollectError> {
        // An invalid name has no image.
        let Ok(name) = image_name::with_default_tag(image) else { return Ok(None) };
        let status = self.service.status(&ImageSpec { image: name, ..ImageSpec::default() }).await;
        Ok(status?.map(|image| image.id))
    }

    /// All images of the runtime.
    pub(crate) async fn list(&self) -> Result<Vec<Image>, CollectError> {
        Ok(self.service.list().await?)
    }

    /// Removes an image with all its names.
    pub(crate) async fn remove_one(&self, image: &Image) -> Result<(), CollectError> {
        let spec = ImageSpec { image: image.id.clone(), ..ImageSpec::default() };
        self.service.remove(&spec).await?;
        log!(info, "removed unused image", image = image.id, bytes = image.size);
        self.records.forget(&image.id).await;
        Ok(())
    }

    /// Removes content that is kept for other nodes.
    async fn prune_shared(&self, in_use: Kept) {
        if let Some(fetcher) = &self.fetcher {
            fetcher.prune(in_use).await;
        }
    }

    async fn unused(&self, in_use: &InUse, now: Instant) -> Result<Vec<Unused>, CollectError> {
        let kept = match &self.signatures {
            Some(gate) => gate.kept.files().await,
            None => Vec::new(),
        };
        let images = self.list().await?;
        if let Some(gate) = self.signatures.as_ref().filter(|_| !kept.is_empty()) {
            gate.kept.retain(kept, &images).await;
        }
        Ok(self.gc.records.borrow_mut().detect_images(&images, in_use, now))
    }

    /// Removes images until `bytes` are freed; returns the number of bytes freed. Continues after a failure.
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
                    log!(info, "removed unused image", image = image.id, bytes = image.size);
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
        let message = format!(
            "wanted to free {bytes} bytes, but freed {freed} bytes space with errors in image deletion: [{errors}]"
        );
        (freed, Err(CollectError::Failed(message)))
    }

    /// Directories of the runtime's images and, if reported, of writable layers.
    pub(crate) async fn disks(&self) -> Result<(PathBuf, Option<PathBuf>), CollectError> {
        let last_disks = self.gc.disks.borrow().clone();
        match last_disks {
            Some(disks) => Ok(disks),
            None => self.query_filesystems().await,
        }
    }

    async fn room(&self) -> Result<DiskSpace, CollectError> {
        let (path, _) = self.disks().await?;
        let shown = path.display().to_string();
        let room = rt::blocking(move || room(&path)).await.map_err(|error| {
            // The runtime may have moved its files: the next call asks it again.
            *self.gc.disks.borrow_mut() = None;
            CollectError::Failed(format!("statfs of {shown}: {error}"))
        })?;
        if room.capacity == 0 { Err(CollectError::InvalidCapacity) } else { Ok(room) }
    }

    async fn query_filesystems(&self) -> Result<(PathBuf, Option<PathBuf>), CollectError> {
        let info = self.service.image_fs_info().await?;
        let first = |usages: Vec<FilesystemUsage>| {
            let first = usages.into_iter().find_map(|usage| usage.fs_id);
            first.map(|id| PathBuf::from(id.mountpoint)).filter(|path| path != Path::new(""))
        };
        let images = first(info.image_filesystems);
        let images =
            images.ok_or_else(|| CollectError::Failed("the runtime reports no image file system".to_owned()))?;
        let disks = (images, first(info.container_filesystems));
        *self.gc.disks.borrow_mut() = Some(disks.clone());
        Ok(disks)
    }
}
