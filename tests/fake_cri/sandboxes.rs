//! Sandboxes, with the behaviour of containerd 1.6.

use coracle::platform::cri::v1;
use coracle::protocol::grpc::{Code, Status};

use super::world::{POD_UID, World, selects};

#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) config: v1::PodSandboxConfig,
    pub(crate) runtime_handler: String,
    pub(crate) state: v1::PodSandboxState,
    pub(crate) created_at: i64,
    /// Empty on the host network.
    pub(crate) ip: String,
    /// Of the other family, on a dual-stack network.
    pub(crate) additional_ips: Vec<v1::PodIp>,
    pub(crate) pid: u32,
}

impl Sandbox {
    pub(crate) fn name(&self) -> &str {
        self.config.metadata.as_ref().map_or("", |metadata| metadata.name.as_str())
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.state == v1::PodSandboxState::Ready
    }

    pub(super) fn status(&self) -> v1::PodSandboxStatus {
        let options = self.namespaces().cloned();
        v1::PodSandboxStatus {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state,
            created_at: self.created_at,
            network: Some(v1::PodSandboxNetworkStatus {
                ip: self.ip.clone(),
                additional_ips: self.additional_ips.clone(),
            }),
            linux: Some(v1::LinuxPodSandboxStatus { namespaces: Some(v1::Namespace { options }) }),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.runtime_handler.clone(),
        }
    }

    pub(super) fn listed(&self) -> v1::PodSandbox {
        v1::PodSandbox {
            id: self.id.clone(),
            metadata: self.config.metadata.clone(),
            state: self.state,
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.runtime_handler.clone(),
        }
    }

    fn give_uid(&mut self, uid: &str) {
        self.config.labels.insert(POD_UID.to_owned(), uid.to_owned());
        if let Some(metadata) = &mut self.config.metadata {
            uid.clone_into(&mut metadata.uid);
        }
    }

    fn namespaces(&self) -> Option<&v1::NamespaceOption> {
        self.config.linux.as_ref()?.security_context.as_ref()?.namespace_options.as_ref()
    }
}

impl World {
    pub(super) fn run_sandbox(&mut self, request: v1::RunPodSandboxRequest) -> Result<String, Status> {
        let v1::RunPodSandboxRequest { config, runtime_handler } = request;
        let config = config.unwrap_or_default();
        if let Some(other) = self.sandboxes.iter().find(|sandbox| sandbox.config.metadata == config.metadata) {
            let message = format!("failed to reserve sandbox name: name is reserved for \"{}\"", other.id);
            return Err(Status::new(Code::Unknown, message));
        }
        let id = self.new_id();
        let process = self.start_process();
        let mut sandbox = Sandbox {
            id: id.clone(),
            config,
            runtime_handler,
            state: v1::PodSandboxState::Ready,
            created_at: self.now(),
            ip: String::new(),
            additional_ips: Vec::new(),
            pid: process.pid(),
        };
        if sandbox.namespaces().is_none_or(|options| options.network != v1::NamespaceMode::Node) {
            let mut ips = (self.ips)(self.sandboxes.len() + 2).into_iter();
            sandbox.ip = ips.next().unwrap_or_default();
            sandbox.additional_ips.extend(ips.map(|ip| v1::PodIp { ip }));
        }
        self.processes.insert(id.clone(), process);
        self.sandboxes.push(sandbox);
        self.tell(&id, &id, v1::ContainerEventType::Created);
        self.tell(&id, &id, v1::ContainerEventType::Started);
        Ok(id)
    }

    pub(super) fn double(&mut self, pod: &str, uid: &str) {
        let sandboxes: Vec<_> = self.sandboxes.iter().filter(|sandbox| sandbox.name() == pod).cloned().collect();
        for mut sandbox in sandboxes {
            let (old, process) = (std::mem::replace(&mut sandbox.id, self.new_id()), self.start_process());
            sandbox.pid = process.pid();
            sandbox.give_uid(uid);
            self.processes.insert(sandbox.id.clone(), process);
            let containers: Vec<_> = self.containers.iter().filter(|one| one.sandbox_id == old).cloned().collect();
            for mut container in containers {
                let process = self.start_process();
                (container.id, container.pid) = (self.new_id(), process.pid());
                sandbox.id.clone_into(&mut container.sandbox_id);
                container.give_uid(uid);
                self.processes.insert(container.id.clone(), process);
                self.containers.push(container);
            }
            self.sandboxes.push(sandbox);
        }
    }

    pub(super) fn set_uid(&mut self, pod: &str, uid: &str) {
        for sandbox in self.sandboxes.iter_mut().filter(|sandbox| sandbox.name() == pod) {
            sandbox.give_uid(uid);
            for container in self.containers.iter_mut().filter(|container| container.sandbox_id == sandbox.id) {
                container.give_uid(uid);
            }
        }
    }

    pub(super) fn stop_sandbox(&mut self, id: &str) -> Result<(), Status> {
        let Some(id) = self.sandbox(id).map(|sandbox| sandbox.id.clone()) else {
            let message = format!("an error occurred when try to find sandbox \"{id}\": not found");
            return Err(Status::new(Code::NotFound, message));
        };
        self.kill_all(&id);
        self.processes.remove(&id);
        if let Some(sandbox) = self.sandboxes.iter_mut().find(|sandbox| sandbox.id == id) {
            sandbox.state = v1::PodSandboxState::NotReady;
            sandbox.ip.clear();
            sandbox.additional_ips.clear();
            sandbox.pid = 0;
        }
        self.tell(&id, &id, v1::ContainerEventType::Stopped);
        Ok(())
    }

    pub(super) fn remove_sandbox(&mut self, id: &str) {
        let Some(id) = self.sandbox(id).map(|sandbox| sandbox.id.clone()) else { return };
        self.kill_all(&id);
        self.processes.remove(&id);
        self.containers.retain(|container| container.sandbox_id != id);
        self.sandboxes.retain(|sandbox| sandbox.id != id);
        self.tell(&id, &id, v1::ContainerEventType::Deleted);
    }

    pub(super) fn sandbox_status(
        &self,
        request: &v1::PodSandboxStatusRequest,
    ) -> Result<v1::PodSandboxStatusResponse, Status> {
        let Some(sandbox) = self.sandbox(&request.pod_sandbox_id) else {
            let message = "an error occurred when try to find sandbox: not found";
            return Err(Status::new(Code::NotFound, message));
        };
        let mut answer =
            v1::PodSandboxStatusResponse { status: Some(sandbox.status()), ..v1::PodSandboxStatusResponse::default() };
        if request.verbose && !self.pids_hidden {
            let info = format!(r#"{{"pid":{},"processStatus":"","netNamespaceClosed":false}}"#, sandbox.pid);
            answer.info.insert("info".to_owned(), info);
        }
        Ok(answer)
    }

    pub(super) fn list_sandboxes(&self, filter: Option<&v1::PodSandboxFilter>) -> Vec<v1::PodSandbox> {
        let all = v1::PodSandboxFilter::default();
        let filter = filter.unwrap_or(&all);
        let passes = |sandbox: &&Sandbox| {
            sandbox.id.starts_with(&filter.id)
                && filter.state.as_ref().is_none_or(|value| value.state == sandbox.state)
                && selects(&filter.label_selector, &sandbox.config.labels)
        };
        self.sandboxes.iter().filter(passes).map(Sandbox::listed).collect()
    }

    /// Finds a sandbox by its id or a prefix of it.
    pub(super) fn sandbox(&self, id: &str) -> Option<&Sandbox> {
        self.sandboxes.iter().find(|sandbox| !id.is_empty() && sandbox.id.starts_with(id))
    }

    fn kill_all(&mut self, sandbox_id: &str) {
        let running = self.containers.iter().filter(|container| container.sandbox_id == sandbox_id);
        let running = running.filter(|container| container.state == v1::ContainerState::Running);
        let running: Vec<_> = running.map(|container| container.id.clone()).collect();
        for id in running {
            self.container_exited(&id, 137, "Error");
        }
    }
}
