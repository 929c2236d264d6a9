//! Volume usage from NodeGetVolumeStats.

use std::path::Path;

use super::Csi;
use super::drivers::method;
use super::error::CsiError;
use super::v1::{GET_VOLUME_STATS, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, VolumeUsage};
use crate::platform::host::disk_usage::DiskUsage;
use crate::platform::host::file_system::FileSystem;
use crate::protocol::protobuf::encode;

impl Csi {
    /// Usage and capacity of the volume published at this path; `None` if the driver lacks the capability.
    pub(crate) async fn usage(
        &self,
        driver: &str,
        handle: &str,
        path: &Path,
    ) -> Result<Option<(FileSystem, DiskUsage)>, CsiError> {
        let driver = self.driver(driver)?;
        if !driver.can(GET_VOLUME_STATS) {
            return Ok(None);
        }
        let request =
            NodeGetVolumeStatsRequest { volume_id: handle.to_owned(), volume_path: path.display().to_string() };
        let mut response = NodeGetVolumeStatsResponse::default();
        driver.call(method!("NodeGetVolumeStats"), encode(&request), &mut response).await?;
        if response.usage.is_empty() {
            return Err(CsiError::NoUsage);
        }
        Ok(Some(from_response(&response.usage)))
    }
}

/// Missing values are zero, as upstream; the last value for a unit is used.
fn from_response(usages: &[VolumeUsage]) -> (FileSystem, DiskUsage) {
    let (mut disk, mut disk_usage) = (FileSystem::default(), DiskUsage::default());
    for usage in usages {
        let [available, total, used] =
            [usage.available, usage.total, usage.used].map(|n| u64::try_from(n).unwrap_or(0));
        match usage.unit {
            VOLUME_USAGE_BYTES_UNIT => {
                (disk.available, disk.capacity, disk.used, disk_usage.bytes) = (available, total, used, used)
            }
            VOLUME_USAGE_INODES_UNIT => (disk.inodes_free, disk.inodes, disk_usage.inodes) = (available, total, used),
            _ => {}
        }
    }
    (disk, disk_usage)
}

/// `VolumeUsage.Unit`
const VOLUME_USAGE_BYTES_UNIT: i32 = 1;
const VOLUME_USAGE_INODES_UNIT: i32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_negative_values_are_zero() {
        let bytes = VolumeUsage { available: 60, total: 100, used: 40, unit: VOLUME_USAGE_BYTES_UNIT };
        let inodes = VolumeUsage { available: -1, total: 10, used: 3, unit: VOLUME_USAGE_INODES_UNIT };
        let unknown = VolumeUsage { available: 1, total: 1, used: 1, unit: 7 };
        let (disk, found) = from_response(&[bytes.clone(), inodes, unknown]);
        assert_eq!((disk.capacity, disk.available, disk.inodes, disk.inodes_free), (100, 60, 10, 0));
        assert_eq!(found, DiskUsage { bytes: 40, inodes: 3 });
        assert_eq!(from_response(&[bytes]).1, DiskUsage { bytes: 40, inodes: 0 });
    }
}
