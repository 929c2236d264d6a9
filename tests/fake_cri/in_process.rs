//! The runtime without socket, threads and processes, for simulations.

use std::time::Duration;

use coracle::platform::cri::v1;
use coracle::protocol::grpc::Status;
use coracle::protocol::protobuf::decode;

use super::answers::{self, Answer};
use super::connection::sendable;
use super::process::Process;
use super::world::{Listener, World};

pub(crate) struct Runtime {
    pub(crate) world: World,
}

/// The result of stopping a container.
pub(crate) enum Stop {
    Done,
    /// The process ignores the signal. Kill it after this time.
    Waits(Duration),
}

impl Runtime {
    /// `clock` returns nanoseconds since 1970, `start` starts a simulated process.
    pub(crate) fn new(clock: fn() -> i64, start: fn() -> Process) -> Self {
        Self { world: World { clock, start, ..World::default() } }
    }

    /// Leaves pids out of all statuses.
    pub(crate) fn hide_pids(&mut self) {
        self.world.pids_hidden = true;
    }

    /// Answers every call except those that take time: GetContainerEvents and StopContainer.
    pub(crate) fn answer(&mut self, method: &str, request: &[u8]) -> Answer {
        answers::unary(&mut self.world, method, request).and_then(sendable)
    }

    /// Enables GetContainerEvents.
    pub(crate) fn enable_events(&mut self) {
        self.world.events.get_or_insert_default();
    }

    /// Adds a listener for events. Returns whether events are enabled.
    pub(crate) fn listen(&mut self, listener: Listener) -> bool {
        self.world.events.as_mut().map(|listeners| listeners.push(listener)).is_some()
    }

    pub(crate) fn add_image(&mut self, reference: &str) {
        self.world.images.add(reference);
    }

    /// Publishes an image in the registry that the node has not pulled.
    pub(crate) fn publish_image(&mut self, reference: &str) {
        self.world.images.publish(reference);
    }

    pub(crate) fn begin_stop(&mut self, request: &v1::StopContainerRequest) -> Result<Stop, Status> {
        let container = self.world.container(&request.container_id)?;
        let (id, runs) = (container.id.clone(), container.state == v1::ContainerState::Running);
        let stubborn = self.world.ignoring_sigterm.iter().any(|called| self.world.is_called(container, called));
        if runs && stubborn && request.timeout > 0 {
            return Ok(Stop::Waits(Duration::from_secs(request.timeout.unsigned_abs())));
        }
        if runs {
            let code = if stubborn || request.timeout == 0 { 137 } else { 143 };
            self.world.container_exited(&id, code, "Error");
        }
        Ok(Stop::Done)
    }

    /// Lets a running container exit by itself.
    pub(crate) fn exit(&mut self, id: &str, code: i32) {
        let runs = self.world.container(id).is_ok_and(|container| container.state == v1::ContainerState::Running);
        if runs {
            self.world.container_exited(id, code, if code == 0 { "Completed" } else { "Error" });
        }
    }

    /// The processes of running containers and sandboxes: their ids and pids.
    pub(crate) fn processes(&self) -> Vec<(String, u32)> {
        self.world.processes.iter().map(|(id, process)| (id.clone(), process.pid())).collect()
    }

    /// Reports the exit of a container whose process lives. Returns the process, and whether it ignores SIGTERM.
    pub(crate) fn lose_container(&mut self, id: &str) -> Option<(Process, bool)> {
        let process = self.world.processes.remove(id)?;
        let container = self.world.container(id).ok()?;
        let ignores = self.world.ignoring_sigterm.iter().any(|called| self.world.is_called(container, called));
        self.world.container_exited(id, 255, "Unknown");
        Some((process, ignores))
    }

    /// Reports that a sandbox has stopped whose process lives, and returns the process.
    pub(crate) fn lose_sandbox(&mut self, id: &str) -> Option<Process> {
        let process = self.world.processes.remove(id)?;
        self.world.stop_sandbox(id).ok()?;
        Some(process)
    }

    /// Simulates a reboot: the runtime knows every pod, and nothing runs.
    pub(crate) fn end_pods(&mut self) {
        self.world.end_pods();
    }

    pub(crate) fn ignore_sigterm(&mut self, container: &str) {
        self.world.ignoring_sigterm.push(container.to_owned());
    }
}

pub(crate) fn stop_request(bytes: &[u8]) -> v1::StopContainerRequest {
    decode(bytes).unwrap_or_default()
}
