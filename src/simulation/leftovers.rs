//! The rule NothingLeft: after a long quiet, the machine has nothing of pods that are gone, and little of what has died
//! of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::container_runtime::{POD_UID, revision, short};
use super::fake_cri::{Container, Sandbox};
use super::life::Node;
use super::record::Rule;
use crate::platform::cri::v1;
use crate::platform::host::procfs::Procfs;
use crate::types::api::annotations::CONFIG_HASH;

/// By then the agent has removed everything: it relists every 90 s at most, and waits 10 s at most after a failed call.
const REMOVAL_TIME: Duration = Duration::from_secs(15 * 60);
/// The same if files could not be removed: the agent tries again after a minute at first, and after an hour at most
/// (`sync_loop/leftovers.rs`).
const FAILED_REMOVAL_TIME: Duration = Duration::from_secs(75 * 60);
/// The last state of a container (`kuberuntime/container_gc.rs`).
const MAX_DEAD_INSTANCES: usize = 1;

impl Node {
    /// After a quiet of this time.
    pub(super) fn check_leftovers(&self, quiet: Duration) {
        // The rules of Jobs count their pods, which have no revision.
        if self.is_alone || quiet < REMOVAL_TIME {
            return;
        }
        if self.record.has_failed_disk() && quiet < FAILED_REMOVAL_TIME {
            return;
        }
        self.record.count("quiet times after which nothing may be left");
        if let Err(what) = self.nothing_is_left() {
            self.record.violated(Rule::NothingLeft, format!("after {quiet:?} of quiet: {what}"));
        }
    }

    fn nothing_is_left(&self) -> Result<(), String> {
        let known = self.known_uids();
        self.runtime_has_nothing_left(&known)?;
        for (directory, what) in [("pods/pods", "a directory"), ("logs", "a log directory")] {
            for name in names_in(&self.machine.disk.join(directory)) {
                // Those of logs are `<namespace>_<name>_<uid>`.
                let uid = name.rsplit('_').next().unwrap_or_default();
                if !known.contains(uid) {
                    return Err(format!("pod {uid} is gone and has {what}: {name}"));
                }
            }
        }
        self.links_lead_to_logs(&known)?;
        self.mounts_are_of_pods(&known)?;
        self.claims_are_of_pods(&known)
    }

    /// The uids of pods that the API server has, and of those in the runtime that are wanted: a static pod and its
    /// mirror pod have different ones.
    fn known_uids(&self) -> BTreeSet<String> {
        let objects = self.api.look(|server| server.list("/api/v1/pods"));
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let of_objects = objects.iter().flat_map(|object| {
            let metadata = &object["metadata"];
            [text(&metadata["uid"]), text(&metadata["annotations"][CONFIG_HASH])].into_iter().flatten()
        });
        let mut known: BTreeSet<String> = of_objects.collect();
        let wanted = self.wanted.borrow();
        self.runtime.look(|runtime| {
            let sandboxes = runtime.world.sandboxes.iter();
            let wanted = sandboxes.filter(|one| wanted.is_wanted(&revision(&one.config.labels, one)));
            known.extend(wanted.filter_map(|one| one.config.labels.get(POD_UID).cloned()));
        });
        known
    }

    /// No container and no sandbox of pods that are gone, and of the others the last state of each container and the
    /// newest sandbox.
    fn runtime_has_nothing_left(&self, known: &BTreeSet<String>) -> Result<(), String> {
        self.runtime.look(|runtime| {
            let world = &runtime.world;
            let uid_of = |labels: &crate::types::sorted::SortedMap<String, String>| {
                labels.get(POD_UID).cloned().unwrap_or_default()
            };
            let mut dead: BTreeMap<(String, &str), usize> = BTreeMap::new();
            for one in &world.containers {
                let uid = uid_of(&one.config.labels);
                let name = one.name();
                if !known.contains(&uid) {
                    return Err(format!("pod {uid} is gone, and the runtime has its container {name}"));
                }
                if one.state == v1::ContainerState::Exited {
                    let count = dead.entry((uid.clone(), name)).or_default();
                    *count += 1;
                    if *count > MAX_DEAD_INSTANCES {
                        return Err(format!("pod {uid} has {count} dead containers {name}"));
                    }
                }
            }
            for (index, one) in world.sandboxes.iter().enumerate() {
                let uid = uid_of(&one.config.labels);
                if !known.contains(&uid) {
                    return Err(format!("pod {uid} is gone, and the runtime has its sandbox {}", short(&one.id)));
                }
                let is_newer = |other: &Sandbox| uid_of(&other.config.labels) == uid;
                let is_newest = !world.sandboxes.iter().skip(index + 1).any(is_newer);
                let is_used = world.containers.iter().any(|container: &Container| container.sandbox_id == one.id);
                if !is_newest && !is_used {
                    return Err(format!("pod {uid} has an old sandbox without containers: {}", short(&one.id)));
                }
            }
            Ok(())
        })
    }

    /// No link in `/var/log/containers` belongs to a pod that is gone.
    fn links_lead_to_logs(&self, known: &BTreeSet<String>) -> Result<(), String> {
        let links = self.machine.disk.join("containers");
        for name in names_in(&links) {
            let Ok(log) = fs::read_link(links.join(&name)) else { continue };
            let of_pod = log.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default();
            let uid = of_pod.to_string_lossy().rsplit('_').next().unwrap_or_default().to_owned();
            if !known.contains(&uid) {
                return Err(format!("pod {uid} is gone and has the link {name}"));
            }
        }
        Ok(())
    }

    /// Nothing is mounted for pods that are gone, and nothing twice at one path.
    fn mounts_are_of_pods(&self, known: &BTreeSet<String>) -> Result<(), String> {
        let mounts = Procfs::host().mounts().map_err(|error| format!("the mounts cannot be read: {error}"))?;
        let pods = self.machine.disk.join("pods");
        let points: Vec<PathBuf> = mounts.into_iter().map(|mount| mount.point).collect();
        let mut seen = BTreeSet::new();
        for point in points.iter().filter(|point| point.starts_with(&pods)) {
            if !seen.insert(point) {
                return Err(format!("two mounts are at {}", point.display()));
            }
            let Ok(below) = point.strip_prefix(pods.join("pods")) else { continue };
            let uid = below.iter().next().unwrap_or_default().to_string_lossy();
            if !known.contains(&*uid) {
                return Err(format!("pod {uid} is gone and has the mount {}", point.display()));
            }
        }
        Ok(())
    }

    /// The checkpoint of prepared claims names no pod that is gone. Those of allocations and devices are written with
    /// the next change.
    fn claims_are_of_pods(&self, known: &BTreeSet<String>) -> Result<(), String> {
        let text = fs::read_to_string(self.machine.disk.join("pods/dra_manager_state")).unwrap_or_default();
        let file: Value = serde_json::from_str(&text).unwrap_or_default();
        let data: Value = serde_json::from_str(file["Data"].as_str().unwrap_or_default()).unwrap_or_default();
        let claims = data["ClaimInfoStateList"].as_array().into_iter().flatten();
        let users = claims.flat_map(|claim| claim["PodUIDs"].as_object().into_iter().flatten().map(|(uid, _)| uid));
        let gone = users.into_iter().find(|uid| !known.contains(*uid));
        gone.map_or(Ok(()), |uid| Err(format!("pod {uid} is gone and is in the checkpoint of claims")))
    }
}

/// The names in a directory; none if it does not exist.
fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
