//! Checks that must hold once all faults are over: exactly the wanted pods run, and the API server shows them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::api_server::NODE;
use super::container_runtime::{self, revision as revision_of};
use super::life::Node;
use super::record::Rule;
use super::wanted::{Pod, SECRET, TOO_MUCH, WantedPods, own_path, shares, tells_secret};
use super::{dra_driver, fake_cri, trials};
use crate::platform::cri::v1;
use crate::types::metrics;

impl Node {
    /// Whether exactly the wanted pods run, and the API server shows their state.
    pub(super) fn converged(&self) -> Result<(), String> {
        if self.is_alone {
            return self.jobs_converged();
        }
        let wanted = self.wanted.borrow();
        for (revision, pod) in &wanted.pods {
            self.runs(revision, pod).map_err(|what| format!("pod {} (revision {revision}): {what}", pod.name))?;
        }
        self.runtime.look(|runtime| {
            let world = &runtime.world;
            for sandbox in world.sandboxes.iter().filter(|one| one.is_ready()) {
                let revision = revision_of(&sandbox.config.labels, sandbox);
                if !wanted.is_wanted(&revision) {
                    return Err(format!("pod {} (revision {revision}) runs, but is not wanted", sandbox.name()));
                }
            }
            Ok(())
        })?;
        self.no_survivors()?;
        self.api_shows_no_others(&wanted)?;
        self.volumes_are_where_they_belong(&wanted)?;
        self.claims_are_prepared_for_running_pods(&wanted)?;
        self.files_are_current(&wanted)?;
        self.node_is_ready()
    }

    /// The CSI driver's volumes are published for the pods that want them, and for no others.
    fn volumes_are_where_they_belong(&self, wanted: &WantedPods) -> Result<(), String> {
        let driver = &self.csi.service;
        let mut users = BTreeSet::new();
        for (revision, pod) in wanted.pods.iter().filter(|(_, pod)| pod.traits.volume) {
            if self.running_of(revision).is_some() {
                let object = self.api.look(|server| server.get(&pod.path()));
                users.extend(object.and_then(|object| Some(object["metadata"]["uid"].as_str()?.to_owned())));
            }
        }
        let published = driver.pods();
        if let Some(uid) = users.difference(&published).next() {
            return Err(format!("pod {uid} runs without its volume"));
        }
        // A completed pod keeps its volume until its owner deletes it.
        let is_done = |uid: &String| {
            let pods = self.api.look(|server| server.list("/api/v1/pods"));
            pods.iter().any(|pod| pod["metadata"]["uid"] == **uid)
        };
        if let Some(uid) = published.difference(&users).find(|uid| !is_done(uid)) {
            return Err(format!("a volume is published for pod {uid}, which is gone"));
        }
        driver.left_staged().map_or(Ok(()), |volume| Err(format!("{volume} is staged, but no pod uses it")))
    }

    /// The files of pods with objects of their own have the objects' content.
    fn files_are_current(&self, wanted: &WantedPods) -> Result<(), String> {
        let own = wanted.pods.iter().filter(|(_, pod)| pod.traits.own);
        for (revision, pod) in own.filter(|(revision, _)| self.running_of(revision).is_some()) {
            let get = |path: &str| self.api.look(|server| server.get(path)).unwrap_or_default();
            let version = get(&own_path("configmaps", revision))["data"]["version"].clone();
            let uid = get(&pod.path())["metadata"]["uid"].clone();
            let volumes = format!("pods/pods/{}/volumes", uid.as_str().unwrap_or_default());
            let read = |file: &str| std::fs::read_to_string(self.machine.disk.join(&volumes).join(file)).ok();
            let settings = read("kubernetes.io~configmap/settings/version");
            if settings.as_deref() != version.as_str() {
                return Err(format!("pod {}: its file says {settings:?}, its ConfigMap {version}", pod.name));
            }
            if read("kubernetes.io~secret/code/code").as_deref() != Some(SECRET) {
                return Err(format!("pod {} has no Secret", pod.name));
            }
        }
        Ok(())
    }

    /// No claim stays prepared when the pods that use it have ended.
    fn claims_are_prepared_for_running_pods(&self, wanted: &WantedPods) -> Result<(), String> {
        let users = wanted.pods.iter().filter(|(_, pod)| pod.traits.claim);
        let running = users.filter(|(revision, _)| {
            ["main", "side"].iter().any(|container| self.running_container(revision, container).is_some())
        });
        let used: BTreeSet<String> =
            running.map(|(revision, _)| dra_driver::claim(revision.parse().unwrap_or_default())).collect();
        let prepared = self.dra.service.prepared();
        let left = prepared.difference(&used).next();
        left.map_or(Ok(()), |claim| Err(format!("claim {claim} is prepared, and no pod that uses it runs")))
    }

    pub(super) fn runs(&self, revision: &str, pod: &Pod) -> Result<(), String> {
        let object = self.api.look(|server| server.get(&pod.path()));
        let status = object.as_ref().map(|object| object["status"].clone()).unwrap_or_default();
        let running = self.running_of(revision);
        let phase = status["phase"].as_str().unwrap_or_default();
        let Some((id, attempt)) = running else {
            let may_be_done = pod.traits.job || self.wanted.borrow().back.contains(revision);
            let is_done = may_be_done && ["Succeeded", "Failed"].contains(&phase);
            let is_half_done =
                pod.traits.job && phase == "Running" && self.running_container(revision, "side").is_some();
            let is_done = is_done || is_half_done;
            return if is_done || self.was_refused(revision, pod) {
                Ok(())
            } else {
                Err(format!("it does not run; the API server shows {phase:?}"))
            };
        };
        let shown = &status["containerStatuses"][0];
        let shown_id = shown["containerID"].as_str().unwrap_or_default();
        if phase != "Running" || !shown_id.ends_with(&id) || shown["state"]["running"].is_null() {
            return Err(format!(
                "it runs as {}, but the API server shows {phase:?} and {shown}",
                container_runtime::short(&id)
            ));
        }
        let (starts, restarts) =
            (self.runtime.starts(revision, "main"), shown["restartCount"].as_u64().unwrap_or_default());
        if pod.traits.side && !pod.traits.job && self.running_container(revision, "side").is_none() {
            return Err("its second container does not run".into());
        }
        // A failed start may have used up an attempt, also if the runtime then forgets that container.
        let failed = self.runtime.failed_starts.borrow().get(revision).copied().unwrap_or_default();
        let most = u64::from(attempt).max((starts + failed).saturating_sub(1));
        if restarts < u64::from(attempt) || restarts > most || shown["ready"] != true {
            let truth = format!("attempt {attempt} runs, after {starts} starts in all");
            return Err(format!("{truth}, but the API server shows {shown}"));
        }
        if pod.is_tried(revision) && object.as_ref().and_then(trials::verdict_of).is_none() {
            return Err("the API server has no verdict about it".into());
        }
        if pod.traits.cpu > 0 { self.has_its_resources(pod.traits.cpu, &status, &id) } else { Ok(()) }
    }

    /// The node did not admit the pod, because it lacks a device, or because it was resized beyond the node before.
    fn was_refused(&self, revision: &str, pod: &Pod) -> bool {
        let object = self.api.look(|server| server.get(&pod.path())).unwrap_or_default();
        let status = &object["status"];
        let is_too_large = || status["reason"] == "OutOfcpu" && self.wanted.borrow().too_large.contains(revision);
        status["phase"] == "Failed"
            && self.runtime.starts(revision, "main") == 0
            && (pod.traits.device || is_too_large())
    }

    /// The container has what the API server shows as allocated: `cpu` if the node has that, and otherwise what it had.
    fn has_its_resources(&self, cpu: u64, status: &Value, id: &str) -> Result<(), String> {
        let has = |kind: &str| {
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == kind)
        };
        let shown = &status["containerStatuses"][0];
        let allocated = thousandths(&shown["allocatedResources"]["cpu"]);
        let told = self.runtime.look(|runtime| {
            let container = runtime.world.containers.iter().find(|one| one.id == id)?;
            Some(container.config.linux.as_ref()?.resources.as_ref()?.cpu_shares)
        });
        let is_too_much = cpu == TOO_MUCH;
        let is_right = told == Some(shares(allocated))
            && thousandths(&shown["resources"]["requests"]["cpu"]) == allocated
            && (allocated == cpu) != is_too_much
            && has("PodResizePending") == is_too_much
            && !has("PodResizeInProgress");
        let truth = || format!("it is to have {cpu}m of CPU, its container has {told:?} shares");
        if is_right { Ok(()) } else { Err(format!("{}, and the API server shows {status}", truth())) }
    }

    fn api_shows_no_others(&self, wanted: &WantedPods) -> Result<(), String> {
        let objects = self.api.look(|server| server.list("/api/v1/pods"));
        for object in objects {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let revision = object["metadata"]["labels"]["revision"].as_str().unwrap_or_default();
            if !wanted.is_wanted(revision) {
                return Err(format!(
                    "the API server has pod {name} (revision {revision}), which is not wanted: {}",
                    object["status"]
                ));
            }
        }
        Ok(())
    }

    fn node_is_ready(&self) -> Result<(), String> {
        let node = self.api.look(|server| server.get(&format!("/api/v1/nodes/{NODE}"))).ok_or("there is no node")?;
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready").unwrap_or(&Value::Null);
        if ready["status"] != "True" {
            return Err(format!("the node is not ready: {ready}"));
        }
        match self.api.lease.age() {
            age if age <= self.lease => Ok(()),
            age => Err(format!("the node's lease was renewed {age:?} ago")),
        }
    }

    pub(super) fn check_counters(&self) {
        let stalls = metrics::labels_of(metrics::Count::LoopStalls);
        if !stalls.is_empty() {
            self.record.violated(
                Rule::Alive,
                format!("a part of the sync loop was due and did nothing: {}", stalls.join(", ")),
            );
        }
        for (name, object) in self.api.look(|server| server.list("/api/v1/events")).iter().enumerate() {
            if tells_secret(&object.to_string()) {
                self.record.violated(Rule::Discreet, format!("event {name} contains a secret: {object}"));
            }
        }
    }

    /// The data stored for a start without the cluster contains no plain secrets.
    pub(super) fn check_disk(&self) {
        let mut folders = vec![self.machine.disk.join("pods/coracle")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if tells_secret(&String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default())) {
                    self.record.violated(Rule::Discreet, format!("{} contains a secret", path.display()));
                }
            }
        }
    }

    /// A wanted pod that does not run. Completed jobs and pods that were refused do not count.
    pub(super) fn not_running(&self) -> Option<String> {
        let wanted = self.wanted.borrow();
        let lasting = wanted.pods.iter().filter(|(revision, pod)| !pod.traits.job && !self.was_refused(revision, pod));
        let missing = |(revision, pod): (&String, &Pod)| {
            self.running_of(revision).is_none().then(|| format!("{} (revision {revision})", pod.name))
        };
        lasting.into_iter().find_map(missing)
    }

    /// The id and attempt of a revision's running main container.
    pub(super) fn running_of(&self, revision: &str) -> Option<(String, u32)> {
        self.running_container(revision, "main")
    }

    fn running_container(&self, revision: &str, name: &str) -> Option<(String, u32)> {
        self.runtime.look(|runtime| {
            let world = &runtime.world;
            let of_it = |one: &&fake_cri::Sandbox| revision_of(&one.config.labels, one) == revision;
            let ids: Vec<&str> = world.sandboxes.iter().filter(of_it).map(|one| one.id.as_str()).collect();
            let of_name = |one: &&fake_cri::Container| one.name() == name && ids.contains(&one.sandbox_id.as_str());
            let mut containers = world.containers.iter().filter(of_name);
            containers.find(|one| one.state == v1::ContainerState::Running).map(|one| (one.id.clone(), one.attempt()))
        })
    }
}

/// A quantity of CPU.
fn thousandths(quantity: &Value) -> u64 {
    let text = quantity.as_str().unwrap_or_default();
    let number = |text: &str| text.parse().unwrap_or(0);
    text.strip_suffix('m').map_or_else(|| number(text) * 1000, number)
}
