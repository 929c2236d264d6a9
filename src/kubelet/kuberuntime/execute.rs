//! Executes plans: each action is one or two calls to the runtime.

use std::net::IpAddr;
use std::time::Duration;

use crate::kubelet::images::{PresentImage, WantedImage};
use crate::kubelet::kuberuntime::config_error::ConfigError;
use crate::kubelet::kuberuntime::container_config::{ContainerInput, container_config};
use crate::kubelet::kuberuntime::cpu_placement::{lift_quota, put};
use crate::kubelet::kuberuntime::dns::{PodDns, needs_host_dns, pod_dns};
use crate::kubelet::kuberuntime::environment::{Environment, EnvironmentInputs};
use crate::kubelet::kuberuntime::error::{KillError, SandboxError};
use crate::kubelet::kuberuntime::etc_hosts::{host_dns, make_own_files};
use crate::kubelet::kuberuntime::grace::grace_of_kill;
use crate::kubelet::kuberuntime::kill::ContainerKill;
use crate::kubelet::kuberuntime::network_results::ignore_not_found;
use crate::kubelet::kuberuntime::pod_actions::KillReason;
use crate::kubelet::kuberuntime::pod_index::PodIndex;
use crate::kubelet::kuberuntime::pod_sync::{PodSync, config_error};
use crate::kubelet::kuberuntime::post_start::StartedContainer;
use crate::kubelet::kuberuntime::previous_runs;
use crate::kubelet::kuberuntime::record_event::runtime_message;
use crate::kubelet::kuberuntime::sandbox_config::{sandbox_config, set_shim_group};
use crate::kubelet::kuberuntime::security_context::ImageUser;
use crate::kubelet::kuberuntime::start_metrics;
use crate::kubelet::kuberuntime::survivor_plan::{Scope, SurvivorSearch};
use crate::kubelet::kuberuntime::user_namespace::share_users;
use crate::kubelet::kuberuntime::{Action, CancelWatch, ContainerIndex, Plan, PodRuntime, handler};
use crate::platform::cgroups::CgroupName;
use crate::platform::cri::{self, v1};
use crate::platform::rt;
use crate::state::pods::{ObservedCache, ObservedPod, SyncEvent, Waiting};
use crate::types::api::{Container, EventKind, PodUid, Reason, qos_class};
use crate::types::cpu_set::CpuSet;
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Count, Timed};
use crate::types::owned::View;
use crate::types::sorted::SortedMap;

/// The result of a plan.
#[derive(Debug, Default)]
pub(crate) struct ExecuteResult {
    /// For each container with an action: its waiting state, or `None` if the action succeeded.
    pub(crate) containers: Vec<(String, Option<Waiting>)>,
    /// What stopped the whole plan; one line.
    pub(crate) failure: Option<String>,
    /// Why a container, or the pod, could not be resized; one line.
    pub(crate) resize_failure: Option<String>,
}

impl ExecuteResult {
    fn has_failed(&self) -> bool {
        self.failure.is_some() || self.containers.iter().any(|(_, waiting)| waiting.is_some())
    }
}

/// The sandbox in which containers are created.
struct Sandbox {
    id: String,
    config: v1::PodSandboxConfig,
    ips: Vec<IpAddr>,
}

impl PodRuntime {
    /// Executes `plan` step by step until cancelled.
    pub(crate) async fn execute(&self, sync: PodSync<'_>, plan: &Plan) -> ExecuteResult {
        let PodSync { pod, observed, cancel, views, .. } = sync;
        let mut executed = ExecuteResult::default();
        let index = PodIndex::new(pod);
        let mut sandbox = match self.sandbox_of(sync).await {
            Ok(sandbox) => sandbox,
            Err(error) => return ExecuteResult { failure: Some(one_line(&error)), ..executed },
        };
        if plan.creates_sandbox() && observed.newest_sandbox().is_some() {
            let message = "Pod sandbox changed, it will be killed and re-created.";
            self.recorder.record_pod_event(&pod.metadata.uid, EventKind::Normal, Reason::SANDBOX_CHANGED, message);
        }
        for action in &plan.actions {
            if cancel.is_cancelled() {
                break;
            }
            let done = match action {
                Action::KillPod => {
                    self.kill_pod(Some(pod), observed, None, Some(cancel)).await.map_err(|error| one_line(&error))
                }
                Action::CreateSandbox { attempt } => {
                    start_metrics::pod_starts(pod);
                    let is_stopped = plan.actions.contains(&Action::KillPod);
                    match self.create_sandbox(sync, *attempt, is_stopped).await {
                        Ok(created) => {
                            sandbox = Some(created);
                            Ok(())
                        }
                        Err(error) => {
                            start_metrics::sandbox_failed();
                            let ((reason, what), failure) = (error.event(), one_line(&error));
                            let message = format!("Failed to {what}: {failure}");
                            self.recorder.record_pod_event(&pod.metadata.uid, EventKind::Warning, reason, message);
                            Err(failure)
                        }
                    }
                }
                Action::KillContainer { id, container: position, why, restarts } => {
                    let Some(spec) = position.of(pod) else { continue };
                    let mut seen = observed.containers.named(&spec.name);
                    let Some(container) = seen.find(|container| container.id == *id) else { continue };
                    let grace = grace_of_kill(pod, spec, *why);
                    let message = why.message(&spec.name, *position, *restarts);
                    let kill = self.kill_of(Some(spec), observed, container, grace, message);
                    let kill = ContainerKill { cancel: Some(cancel), ..kill };
                    self.kill_container(kill).await.map_err(|error| one_line(&error))
                }
                Action::KillContainers { ids, why } => {
                    self.kill_containers(pod, observed, (ids, *why), cancel).await.map_err(|error| one_line(&error))
                }
                Action::RemoveContainer { id } => self.remove_exited(sync, id).await.map_err(|error| one_line(&error)),
                Action::ResizePod => Ok(()),
                Action::ResizeContainer { id, container: position, .. } => {
                    let Some(spec) = position.of(pod) else { continue };
                    let mut running = observed.containers.named(&spec.name);
                    let Some(running) = running.find(|container| container.id == *id) else { continue };
                    let is_init = matches!(position, ContainerIndex::Init(_));
                    if let Err(error) = self.resources.resize(&index, spec, is_init, running, &views.placements).await {
                        // Other containers are not affected.
                        let failure = format!("resize container {}: {}", spec.name, ErrorChain(&error));
                        executed.resize_failure.get_or_insert(failure);
                    }
                    Ok(())
                }
                Action::StartContainer { container: position, restart_count } => {
                    let Some(container) = position.of(pod) else { continue };
                    let Some(sandbox) = &sandbox else { continue };
                    let start = ContainerStart {
                        sync,
                        index: &index,
                        container,
                        container_index: *position,
                        sandbox,
                        restart_count: *restart_count,
                    };
                    // A failure does not end the plan: an image that cannot be pulled must not delay other containers.
                    let waiting = self.start_container(&start).await.err();
                    start_metrics::container_started(*position, waiting.as_ref());
                    if let Some(waiting) = &waiting {
                        self.recorder.record_start_failure(&pod.metadata.uid, &container.name, waiting);
                    }
                    executed.containers.push((container.name.clone(), waiting));
                    Ok(())
                }
                Action::StartCreated { id, container: position } => {
                    let Some(container) = position.of(pod) else { continue };
                    let Some(sandbox) = &sandbox else { continue };
                    let started = StartedContainer { pod, container, id, sandbox_ip: sandbox.ips.first().copied() };
                    let waiting = self.start_created(&started, cancel).await.err();
                    if let Some(waiting) = &waiting {
                        self.recorder.record_start_failure(&pod.metadata.uid, &container.name, waiting);
                    }
                    executed.containers.push((container.name.clone(), waiting));
                    Ok(())
                }
            };
            if let Err(failure) = done {
                executed.failure = Some(failure);
                break;
            }
        }
        if plan.creates_sandbox() {
            start_metrics::pod_started(pod, executed.has_failed());
        }
        executed
    }

    /// The pod's existing sandbox, with its reconstructed configuration. CreateContainer takes that configuration, too,
    /// and the runtime does not return it.
    async fn sandbox_of(&self, sync: PodSync<'_>) -> Result<Option<Sandbox>, SandboxError> {
        let Some(seen) = sync.observed.ready_sandbox() else { return Ok(None) };
        let (mut config, _) = self.sandbox_config(sync, seen.attempt).await?;
        // Its containers belong to the shim of the sandbox, whatever the pod would get now.
        set_shim_group(&mut config, &self.node, sync.observed.shim_group.as_deref());
        Ok(Some(Sandbox { id: seen.id.clone(), config, ips: self.node.node_ips.of_pod(&seen.ips) }))
    }

    /// The sandbox configuration, and the DNS warnings to report when it is used.
    async fn sandbox_config(
        &self,
        sync: PodSync<'_>,
        attempt: u32,
    ) -> Result<(v1::PodSandboxConfig, PodDns), SandboxError> {
        let PodSync { pod, views, .. } = sync;
        let host =
            if needs_host_dns(pod, &self.node) { host_dns(&self.node).await } else { Ok(v1::DnsConfig::default()) };
        let dns = pod_dns(pod, &self.node, &host.map_err(SandboxError::Dns)?);
        let mut config = sandbox_config(pod, attempt, &self.node, &dns.config)?;
        if let (Some(driver), Some(cgroups), Some(linux)) =
            (self.cgroup_driver.get(), &self.node.pod_cgroups, &mut config.linux)
        {
            linux.cgroup_parent = CgroupName::pod(&cgroups.root, qos_class(pod), &pod.metadata.uid).path(driver);
        }
        if views.placements.read().lifts_pod_quota(&pod.metadata.uid) {
            config.linux.as_mut().and_then(|linux| linux.resources.as_mut()).into_iter().for_each(lift_quota);
        }
        let users = self.user_namespaces.of_pod(pod, &views.objects).await?;
        let context = config.linux.as_mut().and_then(|linux| linux.security_context.as_mut());
        if let Some(context) = context {
            context.supplemental_groups.extend(&sync.volumes.groups);
            if let (Some(users), Some(options)) = (users, context.namespace_options.as_mut()) {
                options.userns_options = Some(users);
            }
        }
        Ok((config, dns))
    }

    /// `is_stopped`: the pod has just been killed.
    async fn create_sandbox(&self, sync: PodSync<'_>, attempt: u32, is_stopped: bool) -> Result<Sandbox, SandboxError> {
        let pod = sync.pod;
        if !is_stopped {
            self.end_survivors(former(sync, Scope::NewSandbox, pod.spec.termination_grace())).await?;
        }
        let (mut config, dns) = self.sandbox_config(sync, attempt).await?;
        for warning in dns.warnings {
            self.recorder.record_pod_event(&pod.metadata.uid, EventKind::Warning, warning.reason, warning.message);
        }
        for warning in dns.of_node {
            self.recorder.record_node_event(EventKind::Warning, warning.reason, warning.message);
        }
        let handler = handler(pod, &sync.views.objects.read())?;
        let reserved = self.node.shares_shims.then(|| self.shim_groups.reserve(sync)).flatten();
        set_shim_group(&mut config, &self.node, reserved.as_ref().map(|reserved| reserved.group.as_str()));
        let begun = rt::now();
        let made = self.cri_for(&pod.metadata.uid).run_pod_sandbox(&config, &handler).await;
        drop(reserved);
        let id = made.map_err(|error| {
            metrics::count(Count::SandboxErrors, &[&handler]);
            SandboxError::Run(error)
        })?;
        metrics::took(Timed::Sandboxes, &[&handler], rt::elapsed(begun));
        let ips = if pod.spec.host_network {
            self.node.node_ips.current().clone()
        } else {
            self.sandbox_ips(&pod.metadata.uid, &id).await.map_err(SandboxError::Status)?
        };
        Ok(Sandbox { id, config, ips })
    }

    async fn sandbox_ips(&self, pod: &PodUid, id: &str) -> Result<Vec<IpAddr>, cri::Error> {
        let response = self.cri_for(pod).pod_sandbox_status(id, false).await?;
        let ips = response.status.map_or_else(Vec::new, |status| super::observe::sandbox(status, None).ips);
        Ok(self.node.node_ips.of_pod(&ips))
    }

    async fn start_container(&self, start: &ContainerStart<'_>) -> Result<(), Waiting> {
        let ContainerStart { sync, index, container, container_index: position, sandbox, mut restart_count } = *start;
        let PodSync { pod, observed, volumes, views, cancel, .. } = sync;
        if restart_count == 0 {
            let logs = self.dirs.logs(&pod.metadata.namespace, &pod.metadata.name, &pod.metadata.uid);
            restart_count = previous_runs::restart_count(pod.metadata.uid.as_str(), logs.join(&container.name)).await;
        }
        let image = self.image(start, WantedImage::by(container)).await?;
        let from_files = volumes.file_values(container).await;
        let environment = {
            let (objects, node) = (views.objects.read(), &self.node);
            let env_sources =
                EnvironmentInputs { index, pod_ips: &sandbox.ips, node, objects: &objects, from_files: &from_files };
            Environment::new(container, env_sources)
        };
        let environment = environment.map_err(|error| Waiting::new(error.reason(), one_line(&error)))?;
        let recursive_read_only = self.mounts_read_only_recursively(pod, &views.objects.read()).unwrap_or(false);
        let expand = |text: &str| environment.expand_path(text);
        let mounts = volumes.container_mounts(container, &expand, recursive_read_only, cancel.to_cancelled()).await;
        let mut mounts = mounts.map_err(|error| config_error(&error))?;
        self.pull_volume_images(start, &mut mounts).await?;
        let (ips, names) = (&sandbox.ips, &views.host_names);
        let own_files = make_own_files(pod, container, restart_count, ips, &mounts, &self.node, names).await;
        mounts.extend(own_files.map_err(|error| config_error(&error))?);
        let target = target(container, observed);
        let target = target.map_err(|error| Waiting::new(error.reason(), one_line(&error)))?;
        let input = ContainerInput {
            index,
            container,
            is_init: matches!(position, ContainerIndex::Init(_)),
            restart_count,
            image_ref: &image.image_ref,
            image_user: &image_user(&image),
            environment,
            mounts,
            target,
            node: &self.node,
        };
        let mut config = container_config(input).map_err(|error| Waiting::new(error.reason(), one_line(&error)))?;
        share_users(&sandbox.config, &mut config);
        if let Some(context) = config.linux.as_mut().and_then(|linux| linux.security_context.as_mut()) {
            context.supplemental_groups.extend(&volumes.groups);
        }
        if let Some(resources) = config.linux.as_mut().and_then(|linux| linux.resources.as_mut()) {
            put(resources, &views.placements.read(), &pod.metadata.uid, &container.name);
        }
        add_devices(&mut config, sync.container_devices(container).await?);
        let grace = grace_of_kill(pod, container, KillReason::StateUnknown);
        let ended = self.end_survivors(former(sync, Scope::Container(&container.name), grace)).await;
        ended.map_err(|error| Waiting::new(Reason::CREATE_CONTAINER_ERROR, one_line(&error)))?;
        // A sync ends between two calls, so that no call of the runtime is interrupted.
        if cancel.is_cancelled() {
            return Err(Waiting::new(Reason::CONTAINER_CREATING, ""));
        }
        self.resources.record_actuated(pod, container).await;
        let created = self.cri_for(&pod.metadata.uid).create_container(&sandbox.id, &config, &sandbox.config).await;
        let created = created.map_err(|error| runtime_message(&error));
        start_metrics::container_created(pod, container, created.as_ref().err().map(String::as_str));
        let id = created.map_err(|failure| Waiting::new(Reason::CREATE_CONTAINER_ERROR, failure))?;
        self.recorder.record_event(
            &pod.metadata.uid,
            &container.name,
            EventKind::Normal,
            Reason::CREATED,
            "Container created",
        );
        if let Some(resources) = config.linux.as_ref().and_then(|linux| linux.resources.as_ref()) {
            self.resources.record_applied(&id, resources, container);
            self.cpus.record(&id, CpuSet::parse(&resources.cpuset_cpus).unwrap_or_default());
        }
        let started = StartedContainer { pod, container, id: &id, sandbox_ip: sandbox.ips.first().copied() };
        self.start_created(&started, cancel).await
    }

    /// Removes a container so that its next instance starts as if for the first time: none of its processes may be left,
    /// because nothing then tells what they are.
    async fn remove_exited(&self, sync: PodSync<'_>, id: &str) -> Result<(), KillError> {
        let container = sync.observed.containers.iter().find(|container| container.id == id);
        if let Some(container) = container {
            self.end_survivors(former(sync, Scope::Container(&container.name), Duration::ZERO)).await?;
        }
        let uid = &sync.pod.metadata.uid;
        ignore_not_found(self.cri_for(uid).remove_container(id).await)?;
        if let Some(container) = container {
            let log = self.dirs.termination_log(uid, &container.name, container.restart_count);
            // What cannot be removed now is removed with the pod.
            let _ = rt::blocking_for(uid.as_str(), move || std::fs::remove_file(log)).await;
        }
        Ok(())
    }

    async fn image(&self, start: &ContainerStart<'_>, wanted: WantedImage<'_>) -> Result<PresentImage, Waiting> {
        let ContainerStart { sync: PodSync { pod, views, cancel, .. }, sandbox, .. } = *start;
        let secrets = start.index.pull_secrets(&views.objects.read());
        let ensured = self.images.pulls.ensure(pod, wanted, &sandbox.config, secrets, cancel.cancelled());
        let late = async {
            rt::sleep(LONG_PULL_TIME).await;
            self.send_observation(&pod.metadata.uid, &views.observed).await;
            std::future::pending().await
        };
        let image = rt::either(late, ensured).await;
        image.map_err(|waiting| {
            // The first failure is retried like any other action; then the image is in back-off.
            let backs_off = waiting.reason == Reason::IMAGE_PULL_BACK_OFF;
            let retry = backs_off.then(|| self.images.pulls.retry_at(&pod.metadata.uid, wanted.image)).flatten();
            Waiting { until: waiting.until.or(retry), ..waiting }
        })
    }

    /// Observes the pod during its sync, so that its status shows the sandbox: not every runtime sends events.
    async fn send_observation(&self, uid: &PodUid, observed: &View<ObservedCache>) {
        if let Ok(observation) = self.observe_pod(uid, observed).await {
            // The loop outlives its workers.
            let _ = self.inbox.send(SyncEvent::Observed(observation)).await;
        }
    }

    /// Pulls the images of image volumes, each once. There is a mount for each volume mount, in the same order.
    async fn pull_volume_images(&self, start: &ContainerStart<'_>, mounts: &mut [v1::Mount]) -> Result<(), Waiting> {
        let mut images: SortedMap<&str, String> = SortedMap::new();
        for (named, mount) in start.container.volume_mounts.iter().zip(mounts) {
            if mount.image.is_none() {
                continue;
            }
            let Some(source) = start.index.image_volume(&named.name) else { continue };
            let image = match images.get(named.name.as_str()) {
                Some(image) => image.clone(),
                None => {
                    let wanted = WantedImage { image: &source.reference, policy: source.pull_policy, container: None };
                    let image = self.image(start, wanted).await?.image_ref;
                    images.insert(&named.name, image.clone());
                    image
                }
            };
            let user_specified_image = source.reference.clone();
            mount.image = Some(v1::ImageSpec { image, user_specified_image, ..v1::ImageSpec::default() });
        }
        Ok(())
    }

    async fn start_created(&self, started: &StartedContainer<'_>, cancel: &CancelWatch) -> Result<(), Waiting> {
        if let Err(error) = self.cri_for(&started.pod.metadata.uid).start_container(started.id).await {
            return Err(Waiting::new(Reason::RUN_CONTAINER_ERROR, runtime_message(&error)));
        }
        let (uid, name) = (&started.pod.metadata.uid, &started.container.name);
        self.recorder.record_event(uid, name, EventKind::Normal, Reason::STARTED, "Container started");
        self.after_start(started, cancel).await
    }
}

/// The former processes of a pod or a container, which end before it starts.
fn former<'a>(sync: PodSync<'a>, scope: Scope<'a>, grace: Duration) -> SurvivorSearch<'a> {
    let PodSync { pod, observed, cancel, .. } = sync;
    SurvivorSearch { pod: Some(pod), observed, scope, grace: Some(grace), cancel: Some(cancel) }
}

/// Device variables come first, so that the container's own values take precedence; its annotations do too.
fn add_devices(config: &mut v1::ContainerConfig, mut devices: v1::ContainerConfig) {
    devices.envs.append(&mut config.envs);
    config.envs = devices.envs;
    devices.mounts.append(&mut config.mounts);
    config.mounts = devices.mounts;
    for (name, value) in devices.annotations {
        config.annotations.entry(name).or_insert(value);
    }
    config.devices = devices.devices;
    config.cdi_devices = devices.cdi_devices;
}

/// A numeric user takes precedence over a name; an image without a user runs as root.
fn image_user(image: &PresentImage) -> ImageUser {
    match image.user.uid {
        Some(uid) => ImageUser::Uid(uid),
        None if image.user.name.is_empty() => ImageUser::Uid(0),
        None => ImageUser::Name(image.user.name.clone()),
    }
}

/// Container id of an ephemeral container's target.
fn target<'a>(container: &Container, observed: &'a ObservedPod) -> Result<Option<&'a str>, ConfigError> {
    let name = &container.target_container_name;
    if name.is_empty() {
        return Ok(None);
    }
    let target = observed.container(name).ok_or_else(|| ConfigError::NoTarget { name: name.clone() })?;
    Ok(Some(&target.id))
}

/// After this time in a pull, the pod is observed, so that its status shows the sandbox.
const LONG_PULL_TIME: Duration = Duration::from_secs(1);

/// The context of a container start.
#[derive(Clone, Copy)]
struct ContainerStart<'a> {
    sync: PodSync<'a>,
    index: &'a PodIndex<'a>,
    container: &'a Container,
    container_index: ContainerIndex,
    sandbox: &'a Sandbox,
    restart_count: u32,
}

fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    ErrorChain(error).to_string()
}
