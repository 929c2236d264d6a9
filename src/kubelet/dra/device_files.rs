//! Claims on device files of this node, which the agent itself prepares.
//!
//! A device file has one holder: a container that has it as a limit, or claims.

use super::DraManager;
use super::error::DraError;
use super::prepare;
use crate::kubelet::devices::ContainerFile;
use crate::state::objects::{AllocatedFile, DEVICE_FILES_DRIVER};
use crate::state::pods::DeviceHealth;
use crate::types::api::{Container, Pod};
use crate::types::sorted::SortedMap;

impl DraManager {
    /// Keeps the device files of all claims from containers that have them as limits.
    pub(super) fn claim_files(&self) {
        let mut claimed = SortedMap::new();
        for ((namespace, name), info) in &self.cache.borrow().claims {
            for file in info.drivers.get(DEVICE_FILES_DRIVER).into_iter().flatten() {
                claimed.insert(file.device.clone(), format!("{namespace}/{name}"));
            }
        }
        self.devices.set_claimed(claimed);
    }

    /// Fails while a device file does not exist, or a container has it as a limit.
    pub(super) fn check_files(&self, files: &[AllocatedFile]) -> Result<(), DraError> {
        for file in files {
            let device = file.device.clone();
            match self.devices.file(&device) {
                None => return Err(DraError::FileMissing { device }),
                Some(existing_file) if existing_file.holder.is_some() && !file.has_admin_access => {
                    return Err(DraError::FileInUse { device, path: existing_file.id });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// The device files of a container's claims.
    pub(crate) fn device_files(&self, pod: &Pod, container: &Container) -> Result<Vec<ContainerFile>, DraError> {
        let mut files = Vec::new();
        for (_, claim, requests) in prepare::container_claims(pod, container)? {
            let cache = self.cache.borrow();
            let Some(info) = cache.claims.get(&claim) else { continue };
            let devices = requests.iter().flat_map(|request| info.devices(request));
            for (_, device) in devices.filter(|(driver, _)| *driver == DEVICE_FILES_DRIVER) {
                let missing = || DraError::FileMissing { device: device.device.clone() };
                files.push(self.devices.container_file(&device.device).ok_or_else(missing)?);
            }
        }
        Ok(files)
    }

    /// `None`: of another driver.
    pub(super) fn file_health(&self, driver: &str, device: &str) -> Option<DeviceHealth> {
        (driver == DEVICE_FILES_DRIVER).then(|| match self.devices.file(device) {
            Some(_) => DeviceHealth::Healthy,
            None => DeviceHealth::Unhealthy,
        })
    }
}
