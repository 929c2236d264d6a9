//! The runtime service: sandboxes, containers and the runtime itself.

use std::rc::Rc;
use std::time::Duration;

use super::Error;
use super::call::{call, call_truncated, id as require, read, whole_seconds};
use super::v1::*;
use crate::platform::rpc;
use crate::platform::rt::{self, Turn, Turns};
use crate::protocol::grpc::{Code, Status};
use crate::protocol::protobuf::{Message, encode, put_message, put_str};

/// A handle on the runtime service. Clones share its connection.
#[derive(Clone, Debug)]
pub struct RuntimeService {
    client: rpc::Client,
    /// The timeout of calls that do not wait for something themselves.
    timeout: Duration,
    execs: Rc<Turns>,
}

/// Most commands that run at the same time, and those of one pod.
const MAX_EXECS: usize = 96;
/// The slow probes and hooks of one pod leave room for those of others.
const MAX_EXECS_OF_POD: usize = 4;

/// Bytes kept of each output of a probe or hook. Upstream keeps as much of a probe's output.
const MAX_EXEC_OUTPUT_BYTES: usize = 10 * 1024;

/// Expands to a method's path.
macro_rules! path {
    ($method:literal) => {
        concat!("/runtime.v1.RuntimeService/", $method)
    };
}

/// The runtime itself.
impl RuntimeService {
    /// `timeout` is the kubelet's `runtimeRequestTimeout`.
    pub fn new(client: rpc::Client, timeout: Duration) -> Self {
        Self { client, timeout, execs: Turns::new(MAX_EXECS, MAX_EXECS_OF_POD) }
    }

    /// A handle whose calls are made for the pod with this uid. All others are the node's own: they have a share of the
    /// connection that no pod can take.
    pub fn of_pod(&self, uid: &str) -> Self {
        Self { client: self.client.of(uid), ..self.clone() }
    }

    /// Watches the connection being made and lost.
    pub fn watch(&self) -> rpc::Watch {
        self.client.watch()
    }

    pub async fn version(&self) -> Result<VersionResponse, Error> {
        // The version of the kubelet's own API, which runtimes ignore.
        let request = VersionRequest { version: "0.1.0".to_owned() };
        self.call(path!("Version"), "", &request).await
    }

    /// The conditions; with `verbose` also the runtime's configuration as JSON. `status` is always set.
    pub async fn status(&self, verbose: bool) -> Result<StatusResponse, Error> {
        let path = path!("Status");
        let response: StatusResponse = self.call(path, "", &StatusRequest { verbose }).await?;
        if response.status.is_none() { Err(Error::lacks(path, "", "status")) } else { Ok(response) }
    }

    /// The cgroup driver by RuntimeConfig, if the runtime reports one.
    pub async fn cgroup_driver(&self) -> Result<Option<CgroupDriver>, Error> {
        let response: RuntimeConfigResponse = self.call(path!("RuntimeConfig"), "", &RuntimeConfigRequest {}).await?;
        Ok(response.linux.map(|linux| linux.cgroup_driver))
    }

    /// Sets the pod CIDR of the runtime's network by UpdateRuntimeConfig.
    pub async fn update_pod_cidr(&self, pod_cidr: &str) -> Result<(), Error> {
        let network_config = Some(NetworkConfig { pod_cidr: pod_cidr.to_owned() });
        let request = UpdateRuntimeConfigRequest { runtime_config: Some(RuntimeConfig { network_config }) };
        let UpdateRuntimeConfigResponse {} = self.call(path!("UpdateRuntimeConfig"), pod_cidr, &request).await?;
        Ok(())
    }

    /// Subscribes to container events by GetContainerEvents. The stream has no deadline and ends with the connection.
    pub async fn container_events(&self) -> Result<ContainerEvents, Error> {
        let path = path!("GetContainerEvents");
        match self.client.server_streaming(path, encode(&GetEventsRequest {})).await {
            Ok(answers) => Ok(ContainerEvents { path, answers }),
            Err(error) => Err(Error::rpc(path, "", error)),
        }
    }

    async fn call<M: Message + Default>(
        &self,
        path: &'static str,
        subject: &str,
        request: &dyn Message,
    ) -> Result<M, Error> {
        call(&self.client, path, subject, encode(request), self.timeout).await
    }

    /// All list requests have the same shape: a filter as field 1.
    async fn list<M: Message + Default>(&self, path: &'static str, filter: Option<&dyn Message>) -> Result<M, Error> {
        let mut request = Vec::new();
        if let Some(filter) = filter {
            put_message(1, filter, &mut request);
        }
        call(&self.client, path, "", request, self.timeout).await
    }
}

/// Pod sandboxes.
impl RuntimeService {
    /// Creates and starts a sandbox with its network. Returns its id.
    pub async fn run_pod_sandbox(&self, config: &PodSandboxConfig, runtime_handler: &str) -> Result<String, Error> {
        let path = path!("RunPodSandbox");
        let mut request = Vec::new();
        put_message(1, config, &mut request);
        put_str(2, runtime_handler, &mut request);
        let subject = match &config.metadata {
            Some(pod) => format!("{}/{}", pod.namespace, pod.name),
            None => String::new(),
        };
        // Twice the timeout: network plug-ins may be slow, and the pause image may have to be pulled.
        let timeout = self.timeout.saturating_mul(2);
        let response: RunPodSandboxResponse = call(&self.client, path, &subject, request, timeout).await?;
        require(response.pod_sandbox_id, "sandbox id", path, &subject)
    }

    /// Kills the processes in the sandbox and tears down its network. Idempotent. A missing sandbox is no error in CRI,
    /// but NotFound in containerd 1.6.
    pub async fn stop_pod_sandbox(&self, id: &str) -> Result<(), Error> {
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let StopPodSandboxResponse {} = self.call(path!("StopPodSandbox"), id, &request).await?;
        Ok(())
    }

    /// Removes a sandbox with its containers. Idempotent: a missing sandbox is no error.
    pub async fn remove_pod_sandbox(&self, id: &str) -> Result<(), Error> {
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        let RemovePodSandboxResponse {} = self.call(path!("RemovePodSandbox"), id, &request).await?;
        Ok(())
    }

    /// `status` is always set.
    pub async fn pod_sandbox_status(&self, id: &str, verbose: bool) -> Result<PodSandboxStatusResponse, Error> {
        let path = path!("PodSandboxStatus");
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose };
        let response: PodSandboxStatusResponse = self.call(path, id, &request).await?;
        if response.status.is_none() { Err(Error::lacks(path, id, "status")) } else { Ok(response) }
    }

    pub async fn list_pod_sandbox(&self, filter: Option<&PodSandboxFilter>) -> Result<Vec<PodSandbox>, Error> {
        let response: ListPodSandboxResponse = self.list(path!("ListPodSandbox"), filter.map(|one| one as _)).await?;
        Ok(response.items)
    }

    /// Reports the resources that the kubelet has set in the sandbox's cgroup.
    pub async fn update_pod_sandbox_resources(
        &self,
        id: &str,
        overhead: &LinuxContainerResources,
        resources: &LinuxContainerResources,
    ) -> Result<(), Error> {
        let mut request = Vec::new();
        put_str(1, id, &mut request);
        put_message(2, overhead, &mut request);
        put_message(3, resources, &mut request);
        let path = path!("UpdatePodSandboxResources");
        let UpdatePodSandboxResourcesResponse {} = call(&self.client, path, id, request, self.timeout).await?;
        Ok(())
    }

    pub async fn pod_sandbox_stats(&self, id: &str) -> Result<PodSandboxStats, Error> {
        let path = path!("PodSandboxStats");
        let request = PodSandboxStatsRequest { pod_sandbox_id: id.to_owned() };
        let response: PodSandboxStatsResponse = self.call(path, id, &request).await?;
        response.stats.ok_or_else(|| Error::lacks(path, id, "stats"))
    }

    pub async fn list_pod_sandbox_stats(
        &self,
        filter: Option<&PodSandboxStatsFilter>,
    ) -> Result<Vec<PodSandboxStats>, Error> {
        let path = path!("ListPodSandboxStats");
        let response: ListPodSandboxStatsResponse = self.list(path, filter.map(|one| one as _)).await?;
        Ok(response.stats)
    }
}

/// Containers.
impl RuntimeService {
    /// Creates a container in the sandbox `sandbox_id`. Returns its id.
    pub async fn create_container(
        &self,
        sandbox_id: &str,
        config: &ContainerConfig,
        sandbox_config: &PodSandboxConfig,
    ) -> Result<String, Error> {
        let path = path!("CreateContainer");
        let mut request = Vec::new();
        put_str(1, sandbox_id, &mut request);
        put_message(2, config, &mut request);
        put_message(3, sandbox_config, &mut request);
        let name = config.metadata.as_ref().map_or("", |metadata| metadata.name.as_str());
        let subject = format!("{name} in {sandbox_id}");
        let response: CreateContainerResponse = call(&self.client, path, &subject, request, self.timeout).await?;
        require(response.container_id, "container id", path, &subject)
    }

    pub async fn start_container(&self, id: &str) -> Result<(), Error> {
        let request = StartContainerRequest { container_id: id.to_owned() };
        let StartContainerResponse {} = self.call(path!("StartContainer"), id, &request).await?;
        Ok(())
    }

    /// Signals the container, waits for `grace`, and kills it; a zero `grace` kills at once. Idempotent. A missing
    /// container is no error in CRI, but NotFound in containerd 1.6.
    pub async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        let request = StopContainerRequest { container_id: id.to_owned(), timeout: whole_seconds(grace) };
        // As upstream, leaves the runtime time for SIGKILL after the grace period.
        let timeout = self.timeout.saturating_add(grace);
        let StopContainerResponse {} =
            call(&self.client, path!("StopContainer"), id, encode(&request), timeout).await?;
        Ok(())
    }

    /// Removes a container, running or not. Idempotent: a missing container is no error.
    pub async fn remove_container(&self, id: &str) -> Result<(), Error> {
        let request = RemoveContainerRequest { container_id: id.to_owned() };
        let RemoveContainerResponse {} = self.call(path!("RemoveContainer"), id, &request).await?;
        Ok(())
    }

    pub async fn list_containers(&self, filter: Option<&ContainerFilter>) -> Result<Vec<Container>, Error> {
        let response: ListContainersResponse = self.list(path!("ListContainers"), filter.map(|one| one as _)).await?;
        Ok(response.containers)
    }

    /// `status` is always set; with `verbose` also the info that [`ContainerStatusResponse::init_pid`] reads.
    pub async fn container_status(&self, id: &str, verbose: bool) -> Result<ContainerStatusResponse, Error> {
        let path = path!("ContainerStatus");
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose };
        let response: ContainerStatusResponse = self.call(path, id, &request).await?;
        if response.status.is_none() { Err(Error::lacks(path, id, "status")) } else { Ok(response) }
    }

    pub async fn update_container_resources(&self, id: &str, resources: &LinuxContainerResources) -> Result<(), Error> {
        let mut request = Vec::new();
        put_str(1, id, &mut request);
        put_message(2, resources, &mut request);
        let path = path!("UpdateContainerResources");
        let UpdateContainerResourcesResponse {} = call(&self.client, path, id, request, self.timeout).await?;
        Ok(())
    }

    /// Makes the runtime open a new log file after the old one was renamed.
    pub async fn reopen_container_log(&self, id: &str) -> Result<(), Error> {
        let request = ReopenContainerLogRequest { container_id: id.to_owned() };
        let ReopenContainerLogResponse {} = self.call(path!("ReopenContainerLog"), id, &request).await?;
        Ok(())
    }

    pub async fn container_stats(&self, id: &str) -> Result<ContainerStats, Error> {
        let path = path!("ContainerStats");
        let request = ContainerStatsRequest { container_id: id.to_owned() };
        let response: ContainerStatsResponse = self.call(path, id, &request).await?;
        response.stats.ok_or_else(|| Error::lacks(path, id, "stats"))
    }

    pub async fn list_container_stats(
        &self,
        filter: Option<&ContainerStatsFilter>,
    ) -> Result<Vec<ContainerStats>, Error> {
        let path = path!("ListContainerStats");
        let response: ListContainerStatsResponse = self.list(path, filter.map(|one| one as _)).await?;
        Ok(response.stats)
    }

    /// Writes a checkpoint of the container to the file `location`.
    pub async fn checkpoint_container(&self, id: &str, location: &str, limit: Duration) -> Result<(), Error> {
        let request = CheckpointContainerRequest {
            container_id: id.to_owned(),
            location: location.to_owned(),
            timeout: whole_seconds(limit),
        };
        let timeout = self.timeout.saturating_add(limit);
        let path = path!("CheckpointContainer");
        let CheckpointContainerResponse {} = call(&self.client, path, id, encode(&request), timeout).await?;
        Ok(())
    }
}

/// Commands in containers, and the addresses to stream them from.
impl RuntimeService {
    /// Runs `cmd` and waits for its exit. The runtime kills it after `limit`. The output is cut to
    /// [`MAX_EXEC_OUTPUT_BYTES`] bytes.
    ///
    /// The wait for other commands of `owner`, such as a pod's uid, does not count.
    pub fn exec_sync(
        &self,
        owner: &str,
        id: &str,
        cmd: &[String],
        limit: Duration,
    ) -> impl Future<Output = Result<ExecSyncResponse, Error>> {
        self.exec_keeping(owner, id, cmd, limit, MAX_EXEC_OUTPUT_BYTES)
    }

    /// As [`Self::exec_sync`], but keeps `most` bytes of each output.
    pub async fn exec_keeping(
        &self,
        owner: &str,
        id: &str,
        cmd: &[String],
        limit: Duration,
        most: usize,
    ) -> Result<ExecSyncResponse, Error> {
        let turn = self.execs.take(owner).await;
        // 0 would mean no timeout.
        self.of_pod(owner).exec_for(turn, id, cmd, whole_seconds(limit).max(1), limit, most).await
    }

    /// Runs `cmd` and waits for its exit, for `longest` at most. Until then the runtime kills it only with its
    /// container: as upstream, hooks have no timeout there.
    pub async fn exec_hook(
        &self,
        owner: &str,
        id: &str,
        cmd: &[String],
        longest: Duration,
    ) -> Result<ExecSyncResponse, Error> {
        let Ok(turn) = rt::deadline(longest, self.execs.take(owner)).await else {
            let late = Status::new(Code::DeadlineExceeded, "too many other commands run in the pod");
            return Err(Error::rpc(path!("ExecSync"), id, rpc::Error::Status(late)));
        };
        self.of_pod(owner).exec_for(turn, id, cmd, 0, longest, MAX_EXEC_OUTPUT_BYTES).await
    }

    async fn exec_for(
        &self,
        _turn: Turn,
        id: &str,
        cmd: &[String],
        timeout: i64,
        longest: Duration,
        most: usize,
    ) -> Result<ExecSyncResponse, Error> {
        let request = ExecSyncRequest { container_id: id.to_owned(), cmd: cmd.to_vec(), timeout };
        // As upstream, leaves the runtime time to end the command and to clean up.
        let longest = self.timeout.saturating_add(longest);
        call_truncated(&self.client, path!("ExecSync"), id, encode(&request), longest, most).await
    }

    /// The URL to stream from.
    pub async fn exec(&self, request: &ExecRequest) -> Result<String, Error> {
        let (path, id) = (path!("Exec"), &request.container_id);
        let response: ExecResponse = self.call(path, id, request).await?;
        require(response.url, "URL", path, id)
    }

    /// The URL to stream from.
    pub async fn attach(&self, request: &AttachRequest) -> Result<String, Error> {
        let (path, id) = (path!("Attach"), &request.container_id);
        let response: AttachResponse = self.call(path, id, request).await?;
        require(response.url, "URL", path, id)
    }

    /// The URL to stream from.
    pub async fn port_forward(&self, sandbox_id: &str, ports: &[i32]) -> Result<String, Error> {
        let path = path!("PortForward");
        let request = PortForwardRequest { pod_sandbox_id: sandbox_id.to_owned(), port: ports.to_vec() };
        let response: PortForwardResponse = self.call(path, sandbox_id, &request).await?;
        require(response.url, "URL", path, sandbox_id)
    }
}

/// The stream of container events. Dropping it cancels the call.
#[derive(Debug)]
pub struct ContainerEvents {
    path: &'static str,
    answers: rpc::Streaming,
}

impl ContainerEvents {
    /// The next event; `None` at the end of the stream. The containers' statuses are only decoded if there is no status
    /// of the sandbox.
    pub async fn next(&mut self) -> Result<Option<ContainerEventResponse>, Error> {
        match self.answers.next().await {
            Ok(Some(response)) => read_event(&response, self.path).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(Error::rpc(self.path, "", error)),
        }
    }
}

fn read_event(response: &[u8], path: &'static str) -> Result<ContainerEventResponse, Error> {
    let mut of_sandbox = SandboxOfEvent::default();
    read(&mut of_sandbox, response, path, "")?;
    let SandboxOfEvent { container_id, container_event_type, created_at, pod_sandbox_status } = of_sandbox;
    let containers_statuses = Vec::new();
    let mut event = ContainerEventResponse {
        container_id,
        container_event_type,
        created_at,
        pod_sandbox_status,
        containers_statuses,
    };
    if event.pod_sandbox_status.is_none() {
        read(&mut event, response, path, "")?;
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rpc::{Client, Server, hanging};

    #[test]
    fn event_is_read_without_the_containers_if_it_has_the_sandbox() {
        let container = ContainerStatus { id: "c".to_owned(), ..Default::default() };
        let sandbox = Some(PodSandboxStatus { id: "s".to_owned(), ..Default::default() });
        let of = |pod_sandbox_status| {
            let containers_statuses = vec![container.clone(); 3];
            let sent = ContainerEventResponse { pod_sandbox_status, containers_statuses, ..Default::default() };
            let event = read_event(&encode(&sent), "x").unwrap();
            (event.pod_sandbox_status.map(|sandbox| sandbox.id), event.containers_statuses.len())
        };
        assert_eq!(of(sandbox), (Some("s".to_owned()), 0));
        assert_eq!(of(None), (None, 3));
    }

    #[test]
    fn hanging_commands_of_a_pod_delay_neither_other_pods_nor_the_node() {
        let folder = std::env::temp_dir().join(format!("coracle-execs-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let answers = rt::block_on(async {
            // It allows 100 streams.
            let server = Server::bind(&folder.join("s")).unwrap();
            let (hangs, hung) = hanging(|message| message.windows(6).any(|part| part == b"greedy"));
            let _served = rt::spawn(async move { match server.serve(hangs).await {} });
            let hour = Duration::from_secs(3600);
            let cri = RuntimeService::new(Client::new(&folder.join("s").to_string_lossy()), hour);
            let exec = |pod: &'static str| {
                let cri = cri.clone();
                rt::spawn(async move { cri.exec_sync(pod, pod, &[], hour).await.is_ok() })
            };
            let _greedy: Vec<_> = (0..200).map(|_| exec("greedy")).collect();
            // The greedy pod's calls occupy their share first.
            let limit = Duration::from_secs(10);
            let occupied = async {
                while hung.get() < MAX_EXECS_OF_POD {
                    rt::yield_now().await;
                }
            };
            rt::deadline(limit, occupied).await.expect("the greedy pod's calls are under way");
            (rt::deadline(limit, exec("honest")).await, rt::deadline(limit, cri.version()).await.is_ok())
        });
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(answers, (Ok(true), true));
    }
}
