//! The steps of a plan that are not faults: pods are added and removed, containers exit, agents end.

use std::time::Duration;

use serde_json::json;

use super::agent::LATEST_CALL_TIME;
use super::dra_driver::DraDriver;
use super::full_size::create_own;
use super::life::Node;
use super::plan::StepKind;
use super::record::Rule;
use super::wanted::{Pod, Source, TOO_MUCH, Traits, app, resources};
use crate::platform::cri::v1;
use crate::platform::rt;

/// Within this time other pods run while a call is slow: after a relist, and before the call's deadline.
const OTHER_PODS_TIME: Duration = Duration::from_secs(110);
/// Maximum number of pods, besides those of a node of full size.
pub(super) const MAX_STEP_PODS: usize = 12;

impl Node {
    pub(super) async fn take(&mut self, kind: &StepKind) {
        match kind {
            StepKind::CreatePod(traits) => self.create_pod(*traits),
            StepKind::FillNode { pods } => self.fill(*pods).await,
            StepKind::DeletePod { which, grace } => self.delete_pod(*which, *grace),
            StepKind::DeleteTwice { which, first, second } => self.delete_twice(*which, *first, *second).await,
            StepKind::Job(step) => self.take_job_step(*step),
            StepKind::WriteManifest(traits) => self.write_manifest(*traits),
            StepKind::ChangeManifest(which) => {
                let Some((old, pod)) = self.wanted.borrow().pick(Source::Manifest, *which) else { return };
                self.release_unrecorded(&pod.name);
                self.hold_lock(&old, &pod.name, *which);
                self.wanted.borrow_mut().pods.remove(&old);
                let revision = self.want(&pod);
                self.machine.write_manifest(&pod.name, &pod.object(&revision).to_string());
            }
            StepKind::RemoveManifest(which) => {
                let Some((old, pod)) = self.wanted.borrow().pick(Source::Manifest, *which) else { return };
                self.wanted.borrow_mut().pods.remove(&old);
                self.wanted.borrow_mut().locks.release_of(&pod.name);
                self.machine.remove_manifest(&pod.name);
            }
            StepKind::Exit { which, code } => {
                if let Some(id) = self.running(*which) {
                    self.record.count("containers ended");
                    self.runtime.change(|runtime| runtime.exit(&id, *code));
                }
            }
            StepKind::SandboxDies(which) => self.sandbox_dies(*which),
            StepKind::ShimDies { which, whole } => self.shim_dies(*which, *whole),
            StepKind::CallGoesWrong { method, skip, fault } => self.runtime.arm(method, *skip, *fault),
            StepKind::KillAgentInCall(held) => self.kill_agent_in_call(*held).await,
            StepKind::OthersGoOn { restart } => self.others_go_on(*restart).await,
            StepKind::IgnoreSigterm(which) => {
                if let Some(id) = self.running(*which) {
                    self.runtime.change(|runtime| runtime.ignore_sigterm(&id));
                }
            }
            StepKind::ChangeConfigMap => {
                self.names += 1;
                let patch = json!({"data": {"version": self.names.to_string()}});
                self.api.change(|server| server.patch("/api/v1/namespaces/default/configmaps/settings", &patch));
                self.change_own(&patch);
            }
            StepKind::Resize { which, cpu } => self.resize(*which, *cpu),
            StepKind::KillAgent { down } => {
                self.record.count("agents killed");
                self.kill_agent().await;
                self.starts = Some(self.world.passed() + *down);
            }
            StepKind::EndAgent { down } => {
                self.record.count("agents ended by a signal");
                self.end_agent().await;
                self.starts = Some(self.world.passed() + *down);
            }
            StepKind::Reboot { down } => {
                self.cut_power(*down).await;
                self.starts = Some(self.world.passed() + self.world.duration_below(Duration::from_secs(5)));
            }
            _ => self.take_fault(kind),
        }
    }

    async fn others_go_on(&mut self, restart: bool) {
        self.wanted.borrow_mut().locks.release_all();
        if self.agent.is_none() {
            self.start_agent();
        }
        if rt::deadline(LATEST_CALL_TIME, self.runtime.until_slow()).await.is_err() {
            return self.record.violated(Rule::Recovers, "the slow call was not made".into());
        }
        let other = self.wanted.borrow().pick(Source::Manifest, 0).filter(|_| restart);
        if let Some((revision, _)) = other {
            let running = self.running_of(&revision);
            running.into_iter().for_each(|(id, _)| self.runtime.change(|runtime| runtime.exit(&id, 1)));
        }
        self.write_manifest(Traits::default());
        let begun = self.world.passed();
        while let Err(what) = self.others_run() {
            if self.world.passed().saturating_sub(begun) > OTHER_PODS_TIME {
                return self.record.violated(Rule::Recovers, format!("while a call of another pod is slow: {what}"));
            }
            rt::sleep(Duration::from_millis(100)).await;
        }
        self.runtime.release().await;
    }

    /// Whether the first and the last of the wanted static pods run, and the API server shows it.
    fn others_run(&self) -> Result<(), String> {
        let pods = self.wanted.borrow().of(Source::Manifest);
        let [first, last] = [pods.iter().next(), pods.iter().next_back()];
        first.into_iter().chain(last).try_for_each(|(revision, pod)| self.runs(revision, pod))
    }

    pub(super) fn create_pod(&mut self, traits: Traits) {
        if self.wanted.borrow().count(Source::Api) >= self.most_pods {
            return;
        }
        self.names += 1;
        // Names are reused, like those of a StatefulSet.
        let name = format!("web-{}", self.names % (u64::try_from(self.most_pods).unwrap_or(u64::MAX) + 8));
        let pod = Pod { name, source: Source::Api, traits };
        if self.api.look(|server| server.get(&pod.path())).is_some() {
            return;
        }
        let revision = self.want(&pod);
        self.record.line(&format!("pod     {} revision {revision}", pod.name));
        self.api.change(|server| {
            if traits.own {
                create_own(server, &revision);
            }
            let created = server.create(&pod.object(&revision));
            if traits.claim {
                DraDriver::reserve(server, &revision, &created);
            }
        });
    }

    /// Adds a wanted pod, whose image the registry has from now on. Returns its revision.
    fn want(&self, pod: &Pod) -> String {
        let revision = self.wanted.borrow_mut().add(pod.clone());
        if pod.traits.pull {
            self.runtime.change(|runtime| runtime.publish_image(&app(&revision)));
        }
        revision
    }

    fn resize(&mut self, which: u64, cpu: u64) {
        let Some((revision, pod)) = self.wanted.borrow().pick(Source::Api, which) else { return };
        let object = self.api.look(|server| server.get(&pod.path())).filter(|_| pod.traits.cpu > 0);
        let Some(mut object) = object else { return };
        self.record.count(if cpu == TOO_MUCH { "resizes beyond the node" } else { "resizes" });
        self.record.line(&format!("pod     {} revision {revision} is to have {cpu}m of CPU", pod.name));
        let container = &mut object["spec"]["containers"][0]["resources"];
        for (kind, amounts) in resources(cpu).as_object().into_iter().flatten() {
            container[kind]["cpu"] = amounts["cpu"].clone();
        }
        let patch = json!({"spec": {"containers": object["spec"]["containers"]}});
        self.api.change(|server| server.patch(&pod.path(), &patch));
        let is_admitted = object["status"]["containerStatuses"][0]["allocatedResources"].is_object();
        self.wanted.borrow_mut().resize(&revision, cpu, is_admitted);
    }

    fn delete_pod(&mut self, which: u64, grace: Option<i64>) {
        let Some((revision, pod)) = self.wanted.borrow().pick(Source::Api, which) else { return };
        self.wanted.borrow_mut().pods.remove(&revision);
        self.record.line(&format!("pod     {} revision {revision} is deleted", pod.name));
        self.api.change(|server| server.delete(&pod.path(), grace));
    }

    /// Deletes a pod whose processes ignore SIGTERM, and a second later again. With no grace period the object
    /// disappears, and only the agent knows how long the pod may take to end.
    async fn delete_twice(&mut self, which: u64, first: i64, second: i64) {
        let Some((revision, pod)) = self.wanted.borrow().pick(Source::Api, which) else { return };
        if let Some((id, _)) = self.running_of(&revision) {
            self.runtime.change(|runtime| runtime.ignore_sigterm(&id));
        }
        self.delete_pod(which, Some(first));
        rt::sleep(Duration::from_secs(1)).await;
        if self.api.look(|server| server.get(&pod.path())).is_some() {
            self.record.count("pods deleted twice");
            self.record.line(&format!("pod     {} is deleted again", pod.name));
            self.api.change(|server| server.delete(&pod.path(), Some(second)));
        }
    }

    fn write_manifest(&mut self, traits: Traits) {
        if self.wanted.borrow().count(Source::Manifest) >= MAX_STEP_PODS / 2 {
            return;
        }
        self.names += 1;
        let pod = Pod { name: format!("static-{}", self.names), source: Source::Manifest, traits };
        let revision = self.want(&pod);
        self.machine.write_manifest(&pod.name, &pod.object(&revision).to_string());
    }

    fn running(&self, which: u64) -> Option<String> {
        self.runtime.look(|runtime| {
            let running = runtime.world.containers.iter().filter(|one| one.state == v1::ContainerState::Running);
            let running: Vec<_> = running.map(|one| one.id.clone()).collect();
            let index = usize::try_from(which).ok()?.checked_rem(running.len())?;
            running.get(index).cloned()
        })
    }

    /// Picks a ready sandbox; `None` if there is none.
    pub(super) fn ready_sandbox(&self, which: u64) -> Option<String> {
        self.runtime.look(|runtime| {
            let ready = runtime.world.sandboxes.iter().filter(|one| one.is_ready());
            let ready: Vec<_> = ready.map(|one| one.id.clone()).collect();
            let index = usize::try_from(which).ok()?.checked_rem(ready.len())?;
            ready.get(index).cloned()
        })
    }

    /// Ends the process that holds a pod's namespaces, and its containers with it.
    fn sandbox_dies(&mut self, which: u64) {
        let Some(id) = self.ready_sandbox(which) else { return };
        self.record.count("sandboxes that died");
        self.runtime.change(|runtime| {
            let request = crate::protocol::protobuf::encode(&v1::StopPodSandboxRequest { pod_sandbox_id: id });
            // The sandbox exists.
            let _ = runtime.answer("StopPodSandbox", &request);
        });
    }
}
