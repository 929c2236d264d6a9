//! Containers, with the behaviour of containerd 1.6.

use std::fs;
use std::sync::PoisonError;
use std::time::Duration;

use coracle::platform::cri::v1;
use coracle::protocol::grpc::{Code, Status};

use super::images::Images;
use super::world::{POD_UID, World, selects};
use super::{Shared, lock};

#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) sandbox_id: String,
    pub(crate) config: v1::ContainerConfig,
    pub(crate) log_path: String,
    pub(crate) image_id: String,
    pub(crate) state: v1::ContainerState,
    pub(crate) created_at: i64,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    /// Zero if the container is not running.
    pub(crate) pid: u32,
}

impl Container {
    pub(crate) fn name(&self) -> &str {
        self.config.metadata.as_ref().map_or("", |metadata| metadata.name.as_str())
    }

    /// Number of earlier instances.
    pub(crate) fn attempt(&self) -> u32 {
        self.config.metadata.as_ref().map_or(0, |metadata| metadata.attempt)
    }

    pub(super) fn status(&self, images: &Images) -> v1::ContainerStatus {
        let name = images.find(&self.image_id).and_then(|image| image.repo_tags.first().cloned());
        let image = name.unwrap_or_else(|| self.image_id.clone());
        let linux = self.config.linux.as_ref().and_then(|linux| linux.resources.clone());
        v1::ContainerStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state,
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            exit_code: self.exit_code,
            image: Some(v1::ImageSpec { image, ..v1::ImageSpec::default() }),
            image_ref: self.image_id.clone(),
            reason: self.reason.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: self.log_path.clone(),
            resources: Some(v1::ContainerResources { linux }),
            ..v1::ContainerStatus::default()
        }
    }

    fn listed(&self) -> v1::Container {
        v1::Container {
            id: self.id.clone(),
            pod_sandbox_id: self.sandbox_id.clone(),
            metadata: self.config.metadata.clone(),
            image: self.config.image.clone(),
            image_ref: self.image_id.clone(),
            state: self.state,
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            image_id: String::new(),
        }
    }

    pub(super) fn give_uid(&mut self, uid: &str) {
        self.config.labels.insert(POD_UID.to_owned(), uid.to_owned());
    }

    pub(super) fn attributes(&self) -> v1::ContainerAttributes {
        v1::ContainerAttributes {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
        }
    }
}

impl World {
    pub(super) fn create_container(&mut self, request: v1::CreateContainerRequest) -> Result<String, Status> {
        let config = request.config.unwrap_or_default();
        let Some(sandbox) = self.sandbox(&request.pod_sandbox_id) else {
            let message = format!("failed to find sandbox id \"{}\": not found", request.pod_sandbox_id);
            return Err(Status::new(Code::NotFound, message));
        };
        if !sandbox.is_ready() {
            let message = "failed to get sandbox container task: no running task found: not found";
            return Err(Status::new(Code::NotFound, message));
        }
        let sandbox_id = sandbox.id.clone();
        let log_path = format!("{}/{}", sandbox.config.log_directory, config.log_path);
        let same =
            |container: &&Container| container.sandbox_id == sandbox_id && container.config.metadata == config.metadata;
        if let Some(other) = self.containers.iter().find(same) {
            let message = format!("failed to reserve container name: name is reserved for \"{}\"", other.id);
            return Err(Status::new(Code::Unknown, message));
        }
        let reference = config.image.as_ref().map_or("", |image| image.image.as_str());
        let Some(image) = self.images.find(reference) else {
            return Err(Status::new(Code::NotFound, format!("failed to resolve image \"{reference}\": not found")));
        };
        let image_id = image.id.clone();
        let id = self.new_id();
        self.containers.push(Container {
            id: id.clone(),
            sandbox_id: sandbox_id.clone(),
            config,
            log_path,
            image_id,
            state: v1::ContainerState::Created,
            created_at: self.now(),
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: String::new(),
            pid: 0,
        });
        self.tell(&id, &sandbox_id, v1::ContainerEventType::Created);
        Ok(id)
    }

    pub(super) fn start_container(&mut self, id: &str) -> Result<(), Status> {
        let container = self.container(id)?;
        if container.state != v1::ContainerState::Created {
            let message = format!("failed to set starting state for container \"{id}\": container is not created");
            return Err(Status::new(Code::Unknown, message));
        }
        if self.sandbox(&container.sandbox_id).is_none_or(|sandbox| !sandbox.is_ready()) {
            return Err(Status::new(Code::Unknown, "sandbox container is not running"));
        }
        let (id, sandbox_id) = (container.id.clone(), container.sandbox_id.clone());
        open_log(&container.log_path);
        let (process, now) = (self.start_process(), self.now());
        if let Some(container) = self.containers.iter_mut().find(|container| container.id == id) {
            container.state = v1::ContainerState::Running;
            container.started_at = now;
            container.pid = process.pid();
        }
        self.processes.insert(id.clone(), process);
        self.tell(&id, &sandbox_id, v1::ContainerEventType::Started);
        Ok(())
    }

    /// Records the exit of a container's process.
    pub(super) fn container_exited(&mut self, id: &str, exit_code: i32, reason: &str) {
        let now = self.now();
        let Some(container) = self.containers.iter_mut().find(|container| container.id == id) else { return };
        container.state = v1::ContainerState::Exited;
        container.finished_at = now;
        container.exit_code = exit_code;
        reason.clone_into(&mut container.reason);
        container.pid = 0;
        let sandbox_id = container.sandbox_id.clone();
        // Update the state first: a client that notices the exit may ask at once.
        self.processes.remove(id);
        self.tell(id, &sandbox_id, v1::ContainerEventType::Stopped);
    }

    pub(super) fn remove_container(&mut self, id: &str) {
        let Ok(container) = self.container(id) else { return };
        let (id, sandbox_id) = (container.id.clone(), container.sandbox_id.clone());
        self.processes.remove(&id);
        self.containers.retain(|container| container.id != id);
        self.tell(&id, &sandbox_id, v1::ContainerEventType::Deleted);
    }

    pub(super) fn container_status(
        &self,
        request: &v1::ContainerStatusRequest,
    ) -> Result<v1::ContainerStatusResponse, Status> {
        let container = self.container(&request.container_id)?;
        let status = Some(container.status(&self.images));
        let mut answer = v1::ContainerStatusResponse { status, ..v1::ContainerStatusResponse::default() };
        if request.verbose && !self.pids_hidden {
            let info = format!(
                r#"{{"sandboxID":"{}","pid":{},"removing":false,"runtimeType":"io.containerd.runc.v2"}}"#,
                container.sandbox_id, container.pid
            );
            answer.info.insert("info".to_owned(), info);
        }
        Ok(answer)
    }

    pub(super) fn list_containers(&self, filter: Option<&v1::ContainerFilter>) -> Vec<v1::Container> {
        let all = v1::ContainerFilter::default();
        let filter = filter.unwrap_or(&all);
        let passes = |container: &&Container| {
            container.id.starts_with(&filter.id)
                && container.sandbox_id.starts_with(&filter.pod_sandbox_id)
                && filter.state.as_ref().is_none_or(|value| value.state == container.state)
                && selects(&filter.label_selector, &container.config.labels)
        };
        self.containers.iter().filter(passes).map(Container::listed).collect()
    }

    /// The container, or an error if it is not running.
    pub(super) fn running_container(&self, id: &str) -> Result<&Container, Status> {
        let container = self.container(id)?;
        if container.state == v1::ContainerState::Running {
            Ok(container)
        } else {
            Err(Status::new(Code::Unknown, "container is not running"))
        }
    }

    /// Finds a container by its id or a prefix of it.
    pub(super) fn container(&self, id: &str) -> Result<&Container, Status> {
        let found = self.containers.iter().find(|container| !id.is_empty() && container.id.starts_with(id));
        found.ok_or_else(|| {
            Status::new(Code::NotFound, format!("an error occurred when try to find container \"{id}\": not found"))
        })
    }

    fn ignores_sigterm(&self, container: &Container) -> bool {
        self.ignoring_sigterm.iter().any(|called| self.is_called(container, called))
    }
}

/// Creates the log file. The kubelet creates the directory.
fn open_log(path: &str) {
    // Tests without a log directory need no logs.
    let _ = fs::File::options().create(true).append(true).open(path);
}

/// Stops a container as containerd does: signal, wait, kill.
pub(super) fn stop(shared: &Shared, request: &v1::StopContainerRequest) -> Result<(), Status> {
    let mut world = lock(&shared.world);
    let container = world.container(&request.container_id)?;
    let id = container.id.clone();
    if request.timeout > 0 && world.ignores_sigterm(container) {
        let grace = Duration::from_secs(request.timeout.unsigned_abs());
        let runs = |world: &mut World| !world.ended && world.running(&id).is_some();
        let waited = shared.changed.wait_timeout_while(world, grace, runs);
        world = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    if world.running(&id).is_some() {
        let killed = request.timeout == 0 || world.container(&id).is_ok_and(|one| world.ignores_sigterm(one));
        world.container_exited(&id, if killed { 137 } else { 143 }, "Error");
    }
    shared.changed.notify_all();
    Ok(())
}
