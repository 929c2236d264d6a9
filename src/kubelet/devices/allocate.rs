//! Allocate and PreStartContainer calls to device plugins, and the resulting container configuration.

use std::time::Duration;

use super::allocations::DeviceAllocation;
use super::error::DeviceError;
use super::plugins::{call, method};
use super::v1beta1::*;
use super::{Devices, checkpoint};
use crate::platform::cri::v1;
use crate::platform::rpc;
use crate::platform::rt;
use crate::protocol::protobuf::encode;
use crate::types::api::{Container, Pod, PodUid, annotations};
use crate::types::metrics::{self, Timed};
use crate::types::sorted::SortOnce;

/// Timeout of Allocate, which is then retried.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(60);
/// Shorter than [`ALLOCATE_TIMEOUT`]: the call only chooses among devices. As upstream, no container starts without an
/// answer.
const PREFERRED_ALLOCATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest response to Allocate for a container. It is kept in the checkpoint, which has room for all pods.
const MAX_ALLOCATE_RESPONSE_BYTES: usize = 64 * 1024;
/// `KubeletPreStartContainerRPCTimeoutInSecs`.
const PRE_START_TIMEOUT: Duration = Duration::from_secs(30);

impl Devices {
    /// Allocates all devices of the pod's containers and writes the checkpoint. `runs`: containers that are already
    /// running.
    pub(crate) async fn prepare(&self, pod: &Pod, runs: &dyn Fn(&str) -> bool) -> Result<(), DeviceError> {
        if !self.concerns(pod) {
            return Ok(());
        }
        self.reserve(pod, runs).map_err(DeviceError::Lacks)?;
        let uid = &pod.metadata.uid;
        let unanswered = self.allocations.borrow().unallocated(uid);
        for allocation in unanswered {
            let (allocation, response) = self.call_plugin(allocation).await?;
            if !self.allocations.borrow_mut().set_response(&allocation, response) {
                return Err(DeviceError::TakenBack { resource: allocation.resource });
            }
        }
        // Written before any container starts, so that the devices are still the pod's after a power failure.
        self.write().await.map_err(DeviceError::Checkpoint)
    }

    /// Calls GetPreferredAllocation and Allocate; returns the final devices and the response.
    async fn call_plugin(
        &self,
        allocation: DeviceAllocation,
    ) -> Result<(DeviceAllocation, ContainerAllocateResponse), DeviceError> {
        if let Some(response) = self.of_rule(&allocation) {
            return Ok((allocation, response));
        }
        let resource = allocation.resource.as_str();
        let client = self.client(resource)?;
        let choice = self.allocations.borrow().choice(&allocation);
        let mut allocation = allocation.clone();
        if let Some((available_device_ids, must_include_device_ids)) = choice {
            let allocation_size = i32::try_from(allocation.ids().count()).unwrap_or(i32::MAX);
            let request =
                ContainerPreferredAllocationRequest { available_device_ids, must_include_device_ids, allocation_size };
            let request = PreferredAllocationRequest { container_requests: vec![request] };
            let preferred_allocation: Result<PreferredAllocationResponse, _> =
                call(&client, method!("GetPreferredAllocation"), &request, PREFERRED_ALLOCATION_TIMEOUT).await;
            let doing = "device plugin GetPreferredAllocation rpc failed with err";
            let preferred_allocation =
                preferred_allocation.map_err(DeviceError::from).map_err(DeviceError::during(doing))?;
            let preferred = preferred_allocation.container_responses.into_iter().next().unwrap_or_default().device_ids;
            let mut allocations = self.allocations.borrow_mut();
            allocations.prefer(&allocation, &preferred);
            allocation = allocations.current(&allocation).cloned().unwrap_or(allocation);
        }
        let request = ContainerAllocateRequest { devices_ids: allocation.ids().cloned().collect() };
        let request = AllocateRequest { container_requests: vec![request] };
        let begun = rt::now();
        let allocate_response: Result<AllocateResponse, _> =
            call(&client, method!("Allocate"), &request, ALLOCATE_TIMEOUT).await;
        metrics::took(Timed::DeviceAllocations, &[&allocation.resource], rt::elapsed(begun));
        let response = allocate_response?.container_responses.into_iter().next().ok_or(DeviceError::NoContainers)?;
        if encode(&response).len() > MAX_ALLOCATE_RESPONSE_BYTES {
            return Err(rpc::Error::Protocol("response to Allocate is too long").into());
        }
        Ok((allocation, response))
    }

    /// The client of a resource's plugin, if it is connected.
    fn client(&self, resource: &str) -> Result<rpc::Client, DeviceError> {
        let lives = self.allocations.borrow().options(resource).is_some_and(|(_, lives)| lives);
        let plugins = self.plugins.borrow();
        let plugin = plugins.get(resource).filter(|_| lives);
        let gone = || DeviceError::Gone { resource: resource.to_owned() };
        plugin.map(|plugin| plugin.client.clone()).ok_or_else(gone)
    }

    /// The configuration for the container's devices; all other fields are empty.
    pub(crate) async fn container_config(
        &self,
        pod: &PodUid,
        container: &Container,
    ) -> Result<v1::ContainerConfig, DeviceError> {
        let mut entries: Vec<DeviceAllocation> =
            self.allocations.borrow().of_container(pod, &container.name).cloned().collect();
        entries.sort_once_by(|one, other| one.resource.cmp(&other.resource));
        let mut config = v1::ContainerConfig::default();
        if !entries.is_empty() {
            config.annotations.insert(annotations::DEVICES.to_owned(), checkpoint::mark(&entries));
        }
        for allocation in entries {
            let required = self
                .allocations
                .borrow()
                .options(&allocation.resource)
                .is_some_and(|(options, _)| options.pre_start_required);
            if required {
                let client = self.client(&allocation.resource)?;
                let request = PreStartContainerRequest { devices_ids: allocation.ids().cloned().collect() };
                let done: Result<Empty, _> =
                    call(&client, method!("PreStartContainer"), &request, PRE_START_TIMEOUT).await;
                let doing = "device plugin PreStartContainer rpc failed with err";
                done.map_err(DeviceError::from).map_err(DeviceError::during(doing))?;
            }
            add(&mut config, allocation.response.unwrap_or_default());
        }
        Ok(config)
    }
}

/// If two entries have the same path, the first one is used.
fn add(config: &mut v1::ContainerConfig, response: ContainerAllocateResponse) {
    for (key, value) in response.envs {
        if !config.envs.iter().any(|added| added.key == key) {
            config.envs.push(v1::KeyValue { key, value: value.into_bytes() });
        }
    }
    for DeviceSpec { container_path, host_path, permissions } in response.devices {
        if !config.devices.iter().any(|added| added.container_path == container_path) {
            config.devices.push(v1::Device { container_path, host_path, permissions });
        }
    }
    for Mount { container_path, host_path, read_only } in response.mounts {
        if !config.mounts.iter().any(|added| added.container_path == container_path) {
            let mount = v1::Mount { container_path, host_path, readonly: read_only, ..v1::Mount::default() };
            config.mounts.push(mount);
        }
    }
    for (key, value) in response.annotations {
        config.annotations.entry(key).or_insert(value);
    }
    for CdiDevice { name } in response.cdi_devices {
        if !config.cdi_devices.iter().any(|added| added.name == name) {
            config.cdi_devices.push(v1::CdiDevice { name });
        }
    }
}
