//! Merges the pods of all sources into one set of wanted pods, and computes its changes. Pure.

use std::sync::Arc;

use crate::state::objects::SourceObject;
use crate::state::pods::{SourceName, SourcePod, SourceProblem, SourceUpdate, StoppedPods};
use crate::types::api::annotations::{CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE};
use crate::types::api::{Map, Pod, PodUid, Time};
use crate::types::sorted::{SortOnce, SortedMap, SortedSet};

/// The last update of every source, and the wanted pods that follow from them.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    sources: SortedMap<SourceName, Source>,
    wanted: SortedMap<PodUid, SourcePod>,
    /// The pods of Jobs, which no source lists, each with the source of its Job.
    jobs: Vec<(SourceName, SourcePod)>,
    /// The node's own pods that are not wanted until a user starts them.
    stopped: StoppedPods,
    /// The wanted pods have been computed. Before that, only the sources' own pods are known.
    merged: bool,
}

#[derive(Debug, Default)]
struct Source {
    /// The source has reported its complete set at least once.
    ready: bool,
    pods: Vec<SourcePod>,
    objects: Vec<SourceObject>,
    problems: Vec<SourceProblem>,
    unread: Vec<PodUid>,
    mirrors: Vec<Arc<Pod>>,
    /// Found by the merge.
    duplicates: Vec<SourceProblem>,
    /// Objects that were refused.
    refused: Vec<SourceProblem>,
}

/// The changes of the set of wanted pods. Removals are carried out before additions.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) removed: Vec<PodUid>,
    pub(crate) added: Vec<Arc<Pod>>,
    /// The same uid with other content.
    pub(crate) updated: Vec<Arc<Pod>>,
    /// The same content with another status: another client wrote the status.
    pub(crate) reconciled: Vec<Arc<Pod>>,
    /// Pods that newly lost their name or uid to another pod, with the reason and their origin.
    pub(crate) ignored: Vec<(Arc<Pod>, SourceProblem)>,
}

/// One source as the local socket shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceView {
    pub(crate) name: SourceName,
    pub(crate) ready: bool,
    pub(crate) pods: usize,
    pub(crate) problems: Vec<SourceProblem>,
}

impl Sources {
    /// `expected` are the sources that must report before orphaned pods are removed.
    pub(crate) fn new(expected: &[SourceName]) -> Self {
        let sources = expected.iter().map(|name| (*name, Source::default())).collect();
        Self { sources, ..Self::default() }
    }

    /// Sets the stopped pods of a former agent.
    pub(crate) fn with_stopped_pods(self, stopped: StoppedPods) -> Self {
        Self { stopped, ..self }
    }

    /// Stores the update of a source. [`Self::changes`] computes its effects.
    pub(crate) fn receive(&mut self, update: SourceUpdate) {
        let source = self.sources.entry(update.source).or_default();
        source.ready |= update.complete;
        source.pods = update.pods;
        source.objects = update.objects;
        source.problems = update.problems;
        source.unread = update.unread;
        source.mirrors = update.mirrors;
    }

    /// Replaces the pods of Jobs.
    pub(crate) fn set_job_pods(&mut self, pods: Vec<(SourceName, SourcePod)>) {
        self.jobs = pods;
    }

    /// Whether another pod of any source has this name.
    pub(crate) fn has_namesake(&self, pod: &Pod) -> bool {
        let (name, uid) = (pod.full_name(), &pod.metadata.uid);
        let pods = self.sources.iter().filter(|(source, _)| **source != SourceName::Api);
        let mut pods = pods.flat_map(|(source, has)| has.pods.iter().map(move |other| (*source, other)));
        pods.any(|(source, other)| {
            other.pod.metadata.uid != *uid
                && pod.annotation(CONFIG_SOURCE) != Some(source.as_str())
                && other.pod.full_name() == name
        })
    }

    /// Replaces each pod for which `version` returns another one.
    pub(crate) fn replace_pods(&mut self, version: impl Fn(&SourcePod) -> Option<Arc<Pod>>) {
        let pods = self.sources.values_mut().flat_map(|source| &mut source.pods);
        for source in pods {
            if let Some(pod) = version(source) {
                source.pod = pod;
            }
        }
    }

    /// The ConfigMaps and Secrets of all manifests.
    pub(crate) fn objects(&self) -> Vec<SourceObject> {
        self.sources.values().flat_map(|source| &source.objects).cloned().collect()
    }

    /// Stores the refused objects. Returns those that are new.
    pub(crate) fn refuse(&mut self, refused: Vec<SourceProblem>) -> Vec<SourceProblem> {
        let mut new = Vec::new();
        for source in self.sources.values_mut() {
            let is_of = |problem: &&SourceProblem| source.objects.iter().any(|object| object.origin == problem.origin);
            let own: Vec<SourceProblem> = refused.iter().filter(is_of).cloned().collect();
            new.extend(own.iter().filter(|problem| !source.refused.contains(problem)).cloned());
            source.refused = own;
        }
        new
    }

    pub(crate) fn all_ready(&self) -> bool {
        self.sources.values().all(|source| source.ready)
    }

    /// The pods that a source has and cannot read.
    pub(crate) fn unread(&self) -> impl Iterator<Item = &PodUid> {
        self.sources.values().flat_map(|source| &source.unread)
    }

    /// The changes since the last call. `runs` tells which pods the runtime has.
    pub(crate) fn changes(&mut self, runs: impl Fn(&Pod) -> bool) -> Changes {
        let mut changes = Changes::default();
        let wanted = self.merge(runs, &mut changes.ignored);
        self.merged = true;
        for uid in self.wanted.keys() {
            if !wanted.contains_key(uid) {
                changes.removed.push(uid.clone());
            }
        }
        let mut next = SortedMap::new();
        for (uid, new) in wanted {
            let kept = match self.wanted.remove(&uid) {
                // An unchanged pod keeps its allocation, and the time when it was first seen.
                Some(old) if same_content(&old.pod, &new.pod) && old.pod.status == new.pod.status => {
                    SourcePod { pod: old.pod, ..new }
                }
                Some(old) if same_content(&old.pod, &new.pod) => {
                    changes.reconciled.push(Arc::clone(&new.pod));
                    new
                }
                Some(_) => {
                    changes.updated.push(Arc::clone(&new.pod));
                    new
                }
                None => {
                    changes.added.push(Arc::clone(&new.pod));
                    new
                }
            };
            next.insert(uid, kept);
        }
        self.wanted = next;
        changes
    }

    pub(crate) fn stopped_pods(&self) -> &StoppedPods {
        &self.stopped
    }

    pub(crate) fn set_stopped_pods(&mut self, stopped: StoppedPods) {
        self.stopped = stopped;
    }

    /// The pods of the sources that are stopped, each with the time when it was stopped.
    pub(crate) fn stopped(&self) -> impl Iterator<Item = (&SourcePod, Time)> {
        let pods = self.sources.values().flat_map(|source| &source.pods).chain(self.jobs.iter().map(|(_, pod)| pod));
        pods.filter_map(|source| Some((source, self.stopped.since(&source.pod)?)))
    }

    /// Full names of stopped pods that no source has any more. Empty until all sources are ready.
    pub(crate) fn gone_stopped_pods(&self) -> Vec<String> {
        let has = |name: &str| self.stopped().any(|(source, _)| source.pod.full_name() == name);
        let gone = self.stopped.full_names().filter(|name| self.all_ready() && !has(name));
        gone.cloned().collect()
    }

    /// The mirror pods that the API server has.
    pub(crate) fn mirrors(&self) -> &[Arc<Pod>] {
        self.sources.get(&SourceName::Api).map_or(&[], |source| &source.mirrors)
    }

    /// The wanted pods of all sources; before the first merge, all pods of the sources.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &SourcePod> {
        let unmerged =
            self.sources.values().flat_map(|source| &source.pods).chain(self.jobs.iter().map(|(_, pod)| pod));
        let unmerged = unmerged.filter(|_| !self.merged);
        let unmerged = unmerged.filter(|source| self.stopped.since(&source.pod).is_none());
        self.wanted.values().chain(unmerged)
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = SourceView> {
        self.sources.iter().map(|(name, source)| SourceView {
            name: *name,
            ready: source.ready,
            pods: source.pods.len().saturating_sub(source.duplicates.len()),
            problems: source.problems.iter().chain(&source.duplicates).chain(&source.refused).cloned().collect(),
        })
    }

    /// Of several pods with the same full name or uid, one is selected: a pod that is already wanted or the successor
    /// of such a pod from the same manifest, else one that runs, else the first. The others become problems of their
    /// sources. Pods of the cluster and of manifests do not share names: where they meet, one waits for the other. New
    /// problems are added to `ignored`.
    fn merge(
        &mut self,
        runs: impl Fn(&Pod) -> bool,
        ignored: &mut Vec<(Arc<Pod>, SourceProblem)>,
    ) -> SortedMap<PodUid, SourcePod> {
        let before: SortedSet<(String, Arc<str>)> =
            self.wanted.values().map(|pod| (pod.pod.full_name(), Arc::clone(&pod.origin))).collect();
        let mut pods: Vec<(NameClaim, SourceName, SourcePod)> = Vec::new();
        let mut known = Vec::new();
        let jobs = &self.jobs;
        for (name, source) in &mut self.sources {
            known.append(&mut source.duplicates);
            let of_jobs = jobs.iter().filter(|(source, _)| source == name).map(|(_, pod)| pod);
            for pod in source.pods.iter().chain(of_jobs).filter(|pod| self.stopped.since(&pod.pod).is_none()) {
                let wanted = self.wanted.get(&pod.pod.metadata.uid);
                // Another pod may have a copy of its uid.
                let claim = if wanted.is_some_and(|wanted| is_same_pod(wanted, pod)) {
                    NameClaim::Wanted
                } else if before.contains(&(pod.pod.full_name(), Arc::clone(&pod.origin))) {
                    NameClaim::Succeeds
                } else if runs(&pod.pod) {
                    NameClaim::Runs
                } else {
                    NameClaim::New
                };
                pods.push((claim, *name, pod.clone()));
            }
        }
        // Pods with equal claims stay in the order of their sources.
        pods.sort_once_by_key(|(claim, ..)| *claim);
        let mut wanted: SortedMap<PodUid, SourcePod> = SortedMap::new();
        let mut names: SortedMap<(bool, String), Arc<str>> = SortedMap::new();
        for (_, source, pod) in pods {
            let uid = &pod.pod.metadata.uid;
            let name = (source == SourceName::Api, pod.pod.full_name());
            let other = wanted.get(uid).map(|other| &other.origin).or(names.get(&name));
            if let Some(other) = other {
                let problem = duplicate(&pod, other);
                if !known.iter().any(|one| (&one.origin, &one.message) == (&problem.origin, &problem.message)) {
                    ignored.push((Arc::clone(&pod.pod), problem.clone()));
                }
                self.sources.entry(source).or_default().duplicates.push(problem);
            } else {
                names.insert(name, Arc::clone(&pod.origin));
                wanted.insert(uid.clone(), pod);
            }
        }
        wanted
    }
}

/// How strong a pod's claim to its name is, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NameClaim {
    Wanted,
    /// The wanted pod's manifest has changed to this pod.
    Succeeds,
    Runs,
    New,
}

/// Whether two pods of one uid have the same name and the same manifest.
fn is_same_pod(one: &SourcePod, other: &SourcePod) -> bool {
    let (metadata, other_metadata) = (&one.pod.metadata, &other.pod.metadata);
    one.origin == other.origin && metadata.name == other_metadata.name && metadata.namespace == other_metadata.namespace
}

fn duplicate(pod: &SourcePod, other: &Arc<str>) -> SourceProblem {
    let metadata = &pod.pod.metadata;
    SourceProblem {
        origin: Arc::clone(&pod.origin),
        message: format!(
            "pod {}/{} is ignored: {other} has a pod of this name or uid",
            metadata.namespace, metadata.name
        ),
        keeps_last_good: false,
        since: config_seen(&pod.pod),
    }
}

/// When the source first saw the pod, which is when the conflict started.
pub(crate) fn config_seen(pod: &Pod) -> Time {
    let config_seen = pod.annotation(CONFIG_SEEN).and_then(|config_seen| config_seen.parse().ok());
    Time::from_timestamp(config_seen.unwrap_or_default())
}

/// Whether two pods are equal in everything that a node acts on, ignoring this node's own annotations.
///
/// `podsDifferSemantically` in pkg/kubelet/config/config.go.
pub(crate) fn same_content(old: &Arc<Pod>, new: &Arc<Pod>) -> bool {
    let acted_on = |pod: &Pod| {
        let metadata = &pod.metadata;
        (metadata.deletion_timestamp, metadata.deletion_grace_period_seconds)
    };
    let (one, other) = (&old.metadata, &new.metadata);
    Arc::ptr_eq(old, new)
        || acted_on(old) == acted_on(new)
            && one.labels == other.labels
            && foreign(&one.annotations).eq(foreign(&other.annotations))
            && old.spec == new.spec
}

/// The annotations that this node did not add.
fn foreign(annotations: &Map<String>) -> impl Iterator<Item = (&str, &String)> {
    annotations.iter().filter(|(name, _)| ![CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE].contains(name))
}

#[cfg(test)]
mod tests;
