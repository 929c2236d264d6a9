//! Reads and writes the device checkpoint file.

use std::io;
use std::path::PathBuf;

use super::Devices;
use super::allocations::DeviceAllocations;
use super::checkpoint::{self, Checkpoint, ListedIds};
use crate::platform::host::{directories, file};
use crate::platform::rt;

/// Upstream's file name.
pub(super) const DEVICE_CHECKPOINT_FILE: &str = "kubelet_internal_checkpoint";
pub(super) const MAX_DEVICE_CHECKPOINT_BYTES: u64 = 16 << 20;

/// `None` if the file does not exist. A corrupt one is set aside, and its readable entries are used, because a device
/// in use must not be allocated again. After an error the content is unknown.
pub(super) async fn read(path: PathBuf) -> io::Result<Option<(String, Checkpoint)>> {
    let shown = path.display().to_string();
    let read = rt::blocking(move || {
        let bytes = match file::read_all(&path, MAX_DEVICE_CHECKPOINT_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes?,
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let kept = checkpoint::read(&text);
        if kept.is_damaged {
            directories::set_aside(&path)?;
        }
        Ok::<_, io::Error>(Some((text, kept)))
    });
    let checkpoint = read.await?;
    if let Some((_, kept)) = checkpoint.as_ref().filter(|(_, kept)| kept.is_damaged) {
        log!(warn, "device checkpoint corrupt, set aside", file = shown, entries_kept = kept.entries.len());
    }
    Ok(checkpoint)
}

/// The checkpoint. Without the ids of devices that no container has if it would have more than `limit` bytes: plugins
/// decide their number, and they are not read again.
fn text(allocations: &DeviceAllocations, limit: u64) -> String {
    let whole = checkpoint::write(allocations, ListedIds::Healthy);
    match u64::try_from(whole.len()).is_ok_and(|length| length <= limit) {
        true => whole,
        false => checkpoint::write(allocations, ListedIds::Nothing),
    }
}

impl Devices {
    /// Returns when the file is on disk.
    pub(super) async fn write(&self) -> io::Result<()> {
        let _turn = self.write_lock.acquire().await;
        self.read_again().await?;
        let text = text(&self.allocations.borrow(), MAX_DEVICE_CHECKPOINT_BYTES);
        self.file.write(text).await
    }

    /// Loads a checkpoint that could not be read at the start; until then it is not overwritten.
    async fn read_again(&self) -> io::Result<()> {
        if !self.allocations.borrow().is_unread {
            return Ok(());
        }
        let kept = read(self.file.path().to_owned()).await?.map(|(_, kept)| kept).unwrap_or_default();
        let mut allocations = self.allocations.borrow_mut();
        allocations.merge(kept.entries, kept.resources, rt::now());
        allocations.is_unread = false;
        log!(info, "read the device checkpoint", directory = self.directory.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::rc::Rc;
    use std::time::Duration;

    use super::super::allocations::DeviceAllocation;
    use super::super::v1beta1::{Device, DevicePluginOptions, HEALTHY};
    use super::*;
    use crate::types::api::PodUid;

    #[test]
    fn unreadable_checkpoint_is_kept_and_used_once_readable() {
        let root = std::env::temp_dir().join(format!("coracle-unread-checkpoint-{}", std::process::id()));
        let path = root.join("device-plugins").join(DEVICE_CHECKPOINT_FILE);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let allocation = DeviceAllocation {
            pod: PodUid::from("u"),
            container: "main".to_owned(),
            resource: "example.com/cam".to_owned(),
            ids: [(-1, vec!["a".to_owned()])].into_iter().collect(),
            response: Some(Default::default()),
            is_confirmed: true,
        };
        let mut allocations = DeviceAllocations::default();
        allocations.entries.push(allocation);
        let text = checkpoint::write(&allocations, ListedIds::Healthy);
        fs::write(&path, &text).unwrap();
        let folder = root.clone();
        let told = rt::simulate(1, |world| async move {
            world.files.failing.set(1000);
            let devices = Devices::open(&folder, Vec::new(), async_channel::bounded(1).0).await;
            let refused = devices.write().await.is_err();
            world.files.failing.set(0);
            devices.write().await.unwrap();
            (devices.is_known_node(), refused, devices.shown(&PodUid::from("u")).len())
        });
        let left = checkpoint::read(&fs::read_to_string(&path).unwrap());
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(told, Ok((true, true, 1)));
        assert_eq!(left.entries.len(), 1);
    }

    #[test]
    fn ids_of_free_devices_are_left_out_of_a_checkpoint_that_is_too_long() {
        let mut allocations = DeviceAllocations::default();
        let registration = allocations.register("example.com/cam", DevicePluginOptions::default());
        let device = |id: usize| Device { id: format!("device-{id}"), health: HEALTHY.to_owned(), topology: None };
        allocations.set_devices("example.com/cam", registration, (0..1000).map(device).collect());
        let (whole, short) = (text(&allocations, MAX_DEVICE_CHECKPOINT_BYTES), text(&allocations, 1000));
        assert!(whole.contains("device-999") && !short.contains("device-") && short.len() <= 1000, "{short}");
        for text in [whole, short] {
            let read = checkpoint::read(&text);
            assert_eq!((read.resources, read.is_damaged), (vec!["example.com/cam".to_owned()], false));
        }
    }

    #[test]
    fn failed_checkpoint_write_is_retried() {
        let root = std::env::temp_dir().join(format!("coracle-unwritten-checkpoint-{}", std::process::id()));
        let path = root.join("device-plugins").join(DEVICE_CHECKPOINT_FILE);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let folder = root.clone();
        let written = rt::simulate(2, |world| async move {
            let devices = Devices::open(&folder, Vec::new(), async_channel::bounded(100).0).await;
            let _running = rt::spawn(Rc::clone(&devices).run());
            rt::sleep(Duration::from_secs(1)).await;
            world.files.failing.set(1000);
            let registration =
                devices.allocations.borrow_mut().register("example.com/cam", DevicePluginOptions::default());
            let camera = Device { id: "a".to_owned(), health: HEALTHY.to_owned(), topology: None };
            devices.allocations.borrow_mut().set_devices("example.com/cam", registration, vec![camera]);
            devices.changed.notify();
            rt::sleep(Duration::from_secs(60)).await;
            let early = fs::read_to_string(&path).unwrap_or_default();
            world.files.failing.set(0);
            // Only the retry timer can cause the write.
            rt::sleep(Duration::from_secs(600)).await;
            let late = fs::read_to_string(&path).unwrap_or_default();
            [early, late].map(|text| text.contains("example.com/cam"))
        });
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(written, Ok([false, true]));
    }
}
