//! The sync of one pod: what the actions of its plan use.

use std::error::Error;

use crate::kubelet::devices::{ContainerFile, Devices};
use crate::kubelet::dra::DraManager;
use crate::kubelet::kuberuntime::{CancelWatch, WorkViews};
use crate::kubelet::volumes::PodVolumes;
use crate::platform::cri::v1::{CdiDevice, ContainerConfig, Device};
use crate::state::pods::{ObservedPod, Waiting};
use crate::types::api::{Container, Pod, Reason};
use crate::types::error::ErrorChain;

#[derive(Clone, Copy)]
pub(crate) struct PodSync<'a> {
    pub(crate) pod: &'a Pod,
    /// The state that the plan is based on.
    pub(crate) observed: &'a ObservedPod,
    pub(crate) volumes: &'a PodVolumes,
    pub(crate) devices: &'a Devices,
    pub(crate) dra: &'a DraManager,
    pub(crate) views: &'a WorkViews,
    pub(crate) cancel: &'a CancelWatch,
}

impl PodSync<'_> {
    /// The devices of a container: of device plugins, volumes and claims, each once.
    pub(super) async fn container_devices(&self, container: &Container) -> Result<ContainerConfig, Waiting> {
        let of_volumes = self.volumes.container_devices(container);
        let of_claims = self.dra.cdi_devices(self.pod, container);
        let files_of_claims = self.dra.device_files(self.pod, container);
        let config = self.devices.container_config(&self.pod.metadata.uid, container).await;
        let mut config = config.map_err(|error| config_error(&error))?;
        config.devices.extend(of_volumes.map_err(|error| config_error(&error))?);
        for ContainerFile { path, permissions } in files_of_claims.map_err(|error| config_error(&error))? {
            if !config.devices.iter().any(|added| added.container_path == path) {
                config.devices.push(Device { container_path: path.clone(), host_path: path, permissions });
            }
        }
        for name in of_claims.map_err(|error| config_error(&error))? {
            if !config.cdi_devices.iter().any(|added| added.name == name) {
                config.cdi_devices.push(CdiDevice { name });
            }
        }
        Ok(config)
    }
}

/// Why the container is not created.
pub(super) fn config_error(error: &(dyn Error + 'static)) -> Waiting {
    Waiting::new(Reason::CREATE_CONTAINER_CONFIG_ERROR, ErrorChain(error).to_string())
}
