//! Allocate and PreStartContainer calls to device plugins, and the resulting container configuration.

use std::time::Duration;

use super::allocations::Given;
use super::plugins::{call, method};
use super::v1beta1::*;
use super::{Devices, checkpoint};
use crate::platform::cri::v1;
use crate::platform::rpc;
use crate::platform::rt;
use crate::types::api::{Container, Pod, PodUid, annotations};
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Timed};

/// Why a pod cannot start.
#[derive(Debug)]
pub(crate) enum NotGiven {
    /// A retry may succeed.
    Waits(String),
    /// The plugin has refused.
    Refused(String),
}

/// Timeout of Allocate, which is then retried.
const ALLOCATE: Duration = Duration::from_secs(60);
const PREFER: Duration = Duration::from_secs(10);
/// `KubeletPreStartContainerRPCTimeoutInSecs`.
const PRE_START: Duration = Duration::from_secs(30);

impl Devices {
    /// Allocates all devices of the pod's containers and writes the checkpoint. `runs`: containers that are already
    /// running.
    pub(crate) async fn prepare(&self, pod: &Pod, runs: &dyn Fn(&str) -> bool) -> Result<(), NotGiven> {
        if !self.concerns(pod) {
            return Ok(());
        }
        self.reserve(pod, runs).map_err(|lacks| NotGiven::Waits(lacks.0))?;
        let uid = &pod.metadata.uid;
        let unanswered = self.book.borrow().unanswered(uid);
        for given in unanswered {
            let (given, response) = self.ask(given).await?;
            if !self.book.borrow_mut().answered(&given, response) {
                return Err(NotGiven::Waits(format!("devices of {} were released meanwhile", given.resource)));
            }
        }
        // Written before any container starts, so that the devices are still the pod's after a power failure.
        self.write().await.map_err(|error| NotGiven::Waits(format!("failed to write the device checkpoint: {error}")))
    }

    /// Calls GetPreferredAllocation and Allocate; returns the final devices and the response.
    async fn ask(&self, given: Given) -> Result<(Given, ContainerAllocateResponse), NotGiven> {
        if let Some(response) = self.of_rule(&given) {
            return Ok((given, response));
        }
        let resource = given.resource.as_str();
        let client = self.client(resource).map_err(NotGiven::Waits)?;
        let choice = self.book.borrow().choice(&given);
        let mut given = given.clone();
        if let Some((available_device_ids, must_include_device_ids)) = choice {
            let allocation_size = i32::try_from(given.ids().count()).unwrap_or(i32::MAX);
            let request =
                ContainerPreferredAllocationRequest { available_device_ids, must_include_device_ids, allocation_size };
            let request = PreferredAllocationRequest { container_requests: vec![request] };
            let answer: Result<PreferredAllocationResponse, _> =
                call(&client, method!("GetPreferredAllocation"), &request, PREFER).await;
            let answer = answer
                .map_err(|error| not_given(&error, "device plugin GetPreferredAllocation rpc failed with err: "))?;
            let preferred = answer.container_responses.into_iter().next().unwrap_or_default().device_ids;
            let mut book = self.book.borrow_mut();
            book.prefer(&given, &preferred);
            given = book.current(&given).cloned().unwrap_or(given);
        }
        let request = ContainerAllocateRequest { devices_ids: given.ids().cloned().collect() };
        let request = AllocateRequest { container_requests: vec![request] };
        let begun = rt::now();
        let answer: Result<AllocateResponse, _> = call(&client, method!("Allocate"), &request, ALLOCATE).await;
        metrics::took(Timed::DeviceAllocations, &[&given.resource], rt::elapsed(begun));
        let answer = answer.map_err(|error| not_given(&error, ""))?;
        let response = answer.container_responses.into_iter().next();
        let nothing = || NotGiven::Refused("no containers return in allocation response".to_owned());
        Ok((given, response.ok_or_else(nothing)?))
    }

    /// The client of a resource's plugin, if it is connected.
    fn client(&self, resource: &str) -> Result<rpc::Client, String> {
        let lives = self.book.borrow().options(resource).is_some_and(|(_, lives)| lives);
        let plugins = self.plugins.borrow();
        let plugin = plugins.get(resource).filter(|_| lives);
        plugin.map(|plugin| plugin.client.clone()).ok_or_else(|| format!("the device plugin of {resource} is gone"))
    }

    /// The configuration for the container's devices; all other fields are empty.
    pub(crate) async fn container_config(
        &self,
        pod: &PodUid,
        container: &Container,
    ) -> Result<v1::ContainerConfig, String> {
        let mut given: Vec<Given> = self.book.borrow().of_container(pod, &container.name).cloned().collect();
        given.sort_by(|one, other| one.resource.cmp(&other.resource));
        let mut config = v1::ContainerConfig::default();
        if !given.is_empty() {
            config.annotations.insert(annotations::DEVICES.to_owned(), checkpoint::mark(&given));
        }
        for given in given {
            let required =
                self.book.borrow().options(&given.resource).is_some_and(|(options, _)| options.pre_start_required);
            if required {
                let client = self.client(&given.resource)?;
                let request = PreStartContainerRequest { devices_ids: given.ids().cloned().collect() };
                let done: Result<Empty, _> = call(&client, method!("PreStartContainer"), &request, PRE_START).await;
                done.map_err(|error| {
                    format!("device plugin PreStartContainer rpc failed with err: {}", ErrorChain(&error))
                })?;
            }
            add(&mut config, given.response.unwrap_or_default());
        }
        Ok(config)
    }
}

/// If two entries have the same path, the first one is used.
fn add(config: &mut v1::ContainerConfig, response: ContainerAllocateResponse) {
    for (key, value) in response.envs {
        if !config.envs.iter().any(|known| known.key == key) {
            config.envs.push(v1::KeyValue { key, value: value.into_bytes() });
        }
    }
    for DeviceSpec { container_path, host_path, permissions } in response.devices {
        if !config.devices.iter().any(|known| known.container_path == container_path) {
            config.devices.push(v1::Device { container_path, host_path, permissions });
        }
    }
    for Mount { container_path, host_path, read_only } in response.mounts {
        if !config.mounts.iter().any(|known| known.container_path == container_path) {
            let mount = v1::Mount { container_path, host_path, readonly: read_only, ..v1::Mount::default() };
            config.mounts.push(mount);
        }
    }
    for (key, value) in response.annotations {
        config.annotations.entry(key).or_insert(value);
    }
    for CdiDevice { name } in response.cdi_devices {
        if !config.cdi_devices.iter().any(|known| known.name == name) {
            config.cdi_devices.push(v1::CdiDevice { name });
        }
    }
}

/// An error status from the plugin is final; other errors are retried.
fn not_given(error: &rpc::Error, doing: &str) -> NotGiven {
    match error.status() {
        Some(status) => {
            NotGiven::Refused(format!("{doing}rpc error: code = {} desc = {}", status.code, status.message))
        }
        None => NotGiven::Waits(format!("{doing}{}", ErrorChain(error))),
    }
}
