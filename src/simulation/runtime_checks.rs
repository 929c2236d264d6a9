//! Checks of each call to the container runtime against the wanted pods and the earlier calls.

use std::collections::BTreeSet;

use super::container_runtime::{ContainerRuntime, MINUTE, POD_UID, revision, short};
use super::record::Rule;
use super::wanted::{REVISION, TOO_MUCH, shares};
use super::{device_plugin, dra_driver, fake_cri};
use crate::platform::cri::v1;
use crate::protocol::protobuf::decode;

/// In [`super::machine::Machine::disk`].
const ALLOCATED: &str = "/tmp/coracle-simulation/pods/allocated_pods_state";
/// Calls per minute that count as a storm. Some twenty failing pods need half of it.
const STORM_CALLS_PER_MINUTE: u32 = 6000;
/// What a pod adds: a start of it needs some twenty-five, and the power may be cut twice within a minute.
const CALLS_OF_A_POD: usize = 50;
/// What a Job's pod adds within its minute: a sandbox, a container, its start and end, and the statuses between them.
const CALLS_OF_A_JOB: u32 = 40;

impl ContainerRuntime {
    /// A call that may have had an effect is repeated only after the pod's containers were listed.
    pub(super) fn check_repeated(&self, method: &str, message: &[u8]) {
        let Some(uid) = self.uid_of(method, message) else { return };
        let call = (uid, method.to_owned(), message.to_vec());
        if !self.since_list.borrow_mut().insert(call) {
            let about = self.about(method, message);
            self.record.violated(Rule::Relists, format!("{method}{about} is repeated before the pod was listed"));
        }
    }

    /// The UID of the pod in which the call starts or stops something.
    fn uid_of(&self, method: &str, message: &[u8]) -> Option<String> {
        match method {
            "RunPodSandbox" => Some(decode::<v1::RunPodSandboxRequest>(message).ok()?.config?.metadata?.uid),
            "CreateContainer" => {
                Some(decode::<v1::CreateContainerRequest>(message).ok()?.sandbox_config?.metadata?.uid)
            }
            "StartContainer" | "StopContainer" => {
                let id = decode::<v1::StartContainerRequest>(message).ok()?.container_id;
                self.look(|runtime| {
                    let container = runtime.world.containers.iter().find(|one| one.id == id)?;
                    container.config.labels.get(POD_UID).cloned()
                })
            }
            _ => None,
        }
    }

    /// The sandbox's pod is in the checkpoint of allocated resources, unless they are too many. The pod may have been
    /// replaced while the call was on its way; then it need not be there.
    pub(super) fn check_allocation(&self, message: &[u8]) {
        if self.record.has_failed_disk() {
            return;
        }
        let Some(config) = decode::<v1::RunPodSandboxRequest>(message).ok().and_then(|request| request.config) else {
            return;
        };
        let (wanted, revision) = (self.wanted.borrow(), config.labels.get(REVISION).map_or("", String::as_str));
        if !wanted.is_wanted(revision) || wanted.left_out.contains(revision) {
            return;
        }
        let uid = config.metadata.unwrap_or_default().uid;
        let text = std::fs::read_to_string(ALLOCATED).unwrap_or_default();
        if !text.contains(&uid) {
            self.record.violated(Rule::RecordsAllocation, format!("pod {uid} starts before its allocation is on disk"));
        }
    }

    /// A container was started: jobs must start only once.
    pub(super) fn on_started(&self, message: &[u8]) {
        let request: v1::StartContainerRequest = decode(message).unwrap_or_default();
        let started = self.look(|runtime| {
            let container = runtime.world.containers.iter().find(|one| one.id == request.container_id)?;
            let pod = runtime.world.sandboxes.iter().find(|one| one.id == container.sandbox_id)?;
            let device = device_plugin::device_of(&container.config);
            let claim = dra_driver::claim_of(&container.config).map(ToOwned::to_owned);
            let called = (pod.name().to_owned(), container.name().to_owned());
            Some((revision(&container.config.labels, pod), called, pod.id.clone(), (device, claim)))
        });
        self.on_job_started(&request.container_id);
        let Some((revision, (name, container), sandbox, (device, claim))) = started else { return };
        let traits = self.wanted.borrow().pods.get(&revision).map(|pod| pod.traits).unwrap_or_default();
        let is_job = traits.job;
        if traits.stubborn {
            self.change(|runtime| runtime.ignore_sigterm(&request.container_id));
        }
        if traits.device && container == "main" && device.is_none() {
            self.record.violated(Rule::HasDevice, format!("{name} (revision {revision}) starts without its device"));
        }
        if traits.claim && container == "main" {
            let has_it = claim.as_ref().is_some_and(|claim| self.prepared.borrow().contains(claim));
            if !has_it {
                let what = format!("{name} (revision {revision}) starts with {claim:?}, which is not prepared");
                self.record.violated(Rule::ClaimPrepared, what);
            }
        }
        let starts = self.starts(&revision, &container) + 1;
        self.starts.borrow_mut().insert((revision.clone(), container.clone()), starts);
        if !is_job {
            return;
        }
        if starts > 1 {
            let what = format!("{name}/{container} (revision {revision}) must run once, but starts again");
            self.record.violated(Rule::RunsOnce, what);
        }
        let first = self.job_sandboxes.borrow_mut().entry(revision.clone()).or_insert_with(|| sandbox.clone()).clone();
        if first != sandbox {
            let what = format!(
                "{name}/{container} (revision {revision}) starts in another sandbox than the job's other containers"
            );
            self.record.violated(Rule::RunsOnce, what);
        }
    }

    pub(super) fn on_start_failed(&self, message: &[u8]) {
        let request: v1::StartContainerRequest = decode(message).unwrap_or_default();
        let revision = self.look(|runtime| {
            let container = runtime.world.containers.iter().find(|one| one.id == request.container_id)?;
            let pod = runtime.world.sandboxes.iter().find(|one| one.id == container.sandbox_id)?;
            Some(revision(&container.config.labels, pod))
        });
        let mut failed = self.failed_starts.borrow_mut();
        revision.into_iter().for_each(|revision| *failed.entry(revision).or_default() += 1);
    }

    /// A container is being stopped: if it runs, it must not be wanted.
    pub(super) fn on_stop(&self, id: &str) {
        let asked = self.look(|runtime| {
            let runs = |one: &&fake_cri::Container| one.state == v1::ContainerState::Running && one.id == id;
            let container = runtime.world.containers.iter().find(runs)?;
            let pod = runtime.world.sandboxes.iter().find(|one| one.id == container.sandbox_id)?;
            // Containers of a dead sandbox may be stopped.
            let revision = pod.is_ready().then(|| revision(&container.config.labels, pod))?;
            Some((revision, format!("{}/{}", pod.name(), container.name())))
        });
        let Some((revision, name)) = asked else { return };
        let wanted = self.wanted.borrow();
        if wanted.is_wanted(&revision) && !wanted.back.contains(&revision) {
            self.record.violated(
                Rule::WantedRuns,
                format!("the agent stops {name} (revision {revision}), which is wanted and runs"),
            );
        }
        if wanted.locks.is_held(&revision) {
            let what = format!("the agent stops {name} (revision {revision}), which runs and holds its update lock");
            self.record.violated(Rule::LockHolds, what);
        }
    }

    /// A second stop of a container must not lengthen the grace period.
    pub(super) fn on_grace(&self, id: &str, grace: i64) {
        let before = self.graces.borrow_mut().insert(id.to_owned(), grace);
        if before.is_some_and(|before| before < grace) {
            let what = format!("the grace period of container {} grows from {before:?} s to {grace} s", short(id));
            self.record.violated(Rule::GraceShrinks, what);
        }
    }

    /// An agent that starts learns the grace periods of the pods that the API server still has. It ends the others,
    /// which were deleted with force meanwhile, with the pod's own grace period.
    pub(super) fn forget_graces_except(&self, pods: &[&str]) {
        let is_known = |id: &String| {
            self.look(|runtime| {
                let container = runtime.world.containers.iter().find(|one| one.id == *id);
                let uid = container.and_then(|container| container.config.labels.get(POD_UID));
                uid.is_some_and(|uid| pods.contains(&uid.as_str()))
            })
        };
        self.graces.borrow_mut().retain(|id, _| is_known(id));
    }

    /// A container, or its sandbox, gets these resources: no node has as much as a refused resize asks for.
    pub(super) fn on_resources(&self, method: &str, message: &[u8]) {
        let given = match method {
            "CreateContainer" => {
                decode::<v1::CreateContainerRequest>(message).ok().and_then(|request| request.config?.linux?.resources)
            }
            "UpdateContainerResources" => {
                decode::<v1::UpdateContainerResourcesRequest>(message).ok().and_then(|request| request.linux)
            }
            "UpdatePodSandboxResources" => {
                decode::<v1::UpdatePodSandboxResourcesRequest>(message).ok().and_then(|request| request.resources)
            }
            _ => None,
        };
        if let Some(shares) = given.map(|given| given.cpu_shares).filter(|given| *given >= shares(TOO_MUCH / 10)) {
            let about = self.about(method, message);
            self.record.violated(Rule::Resizes, format!("{method}{about} has {shares} shares, which the node has not"));
        }
    }

    pub(super) fn count_call(&self) {
        let (now, (since, count)) = (self.world.passed(), self.rate.get());
        let (since, count) = if now.saturating_sub(since) < MINUTE { (since, count + 1) } else { (now, 1) };
        self.rate.set((since, count));
        let of_pods = u32::try_from(CALLS_OF_A_POD * self.wanted.borrow().pods.len()).unwrap_or(u32::MAX);
        let most = STORM_CALLS_PER_MINUTE + of_pods + CALLS_OF_A_JOB * self.jobs.borrow().documents();
        if count >= most {
            self.record.violated(Rule::Modest, format!("{most} calls of the runtime within a minute"));
        }
    }

    /// Checks that must hold after every call.
    pub(super) fn check(&self) {
        let twice = self.look(|runtime| {
            let world = &runtime.world;
            let mut seen = BTreeSet::new();
            for one in world.containers.iter().filter(|one| one.state == v1::ContainerState::Running) {
                let key = (one.config.labels.get(POD_UID), one.name());
                if !seen.insert(key) {
                    return Some(format!("container {key:?} runs twice"));
                }
            }
            let ready: Vec<_> = world.sandboxes.iter().filter(|one| one.is_ready()).collect();
            for (index, one) in ready.iter().enumerate() {
                let uid = |one: &fake_cri::Sandbox| {
                    one.config.metadata.as_ref().map_or(String::new(), |metadata| metadata.uid.clone())
                };
                if ready.iter().take(index).any(|other| uid(other) == uid(one)) {
                    return Some(format!("pod {} has two sandboxes that are ready", one.name()));
                }
            }
            None
        });
        if let Some(twice) = twice {
            self.record.violated(Rule::Once, twice);
        }
        self.check_survivors();
        device_plugin::check(self, &self.record);
        self.check_mounts();
    }

    /// The mount sources of running containers exist.
    fn check_mounts(&self) {
        let survivors = self.survivors.borrow();
        let missing = self.look(|runtime| {
            let running = runtime.world.containers.iter().filter(|one| one.state == v1::ContainerState::Running);
            let survivors = survivors.iter().filter_map(|one| one.container.as_ref());
            // The runtime itself keeps the images of volumes.
            let mut mounts = running.chain(survivors).flat_map(|one| {
                one.config.mounts.iter().filter(|mount| mount.image.is_none()).map(move |mount| (one, mount))
            });
            let (container, mount) = mounts.find(|(_, mount)| !std::path::Path::new(&mount.host_path).exists())?;
            Some(format!("{} is gone, but container {} that mounts it runs", mount.host_path, short(&container.id)))
        });
        if let Some(missing) = missing {
            self.record.violated(Rule::VolumeStays, missing);
        }
    }
}
