//! What the runtime shows of Jobs, and the rules for each start of one of their containers.
//!
//! The judge knows the documents and the runtime's calls. Of the agent's own records it knows which Jobs have finished.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;
use serde_json::Value;

use super::{INDEX, JOB_NAME, JOB_REVISION, JobTraits};
use crate::platform::cri::v1;
use crate::platform::rt;
use crate::simulation::container_runtime::{ContainerRuntime, POD_UID};
use crate::simulation::fake_cri::Container;
use crate::simulation::fake_cri::in_process::Runtime;
use crate::simulation::plan::Numbers;
use crate::simulation::record::Rule;

/// In [`crate::simulation::machine::Machine::disk`].
const RECORDS: &str = "/tmp/coracle-simulation/pods/coracle/jobs";
/// The deadline of a call that starts a container, whose caller has learned meanwhile that the Job has finished.
const CALL_DEADLINE: Duration = Duration::from_secs(130);

/// An exit of a container that will happen.
struct Exit {
    id: String,
    code: i32,
    after: Duration,
}

#[derive(Default)]
pub(in crate::simulation) struct JobRules {
    /// By revision. Those that were removed stay.
    pub(super) documents: BTreeMap<u64, Document>,
    /// By uid.
    pods: BTreeMap<String, JobPod>,
    /// By revision and name.
    pub(super) jobs: BTreeMap<(u64, String), Job>,
    /// Containers that have exited with success.
    seen: BTreeSet<String>,
    starts: u64,
    exits: Option<(Sender<Exit>, Numbers)>,
    /// The last time that something happened which delays Jobs.
    pub(super) disturbed: Duration,
    /// What the wall clock has shown between its steps, from and to.
    shown: Vec<(Duration, Duration)>,
    /// When it was set last.
    stepped: Duration,
    /// When the node has converged last.
    settled: Duration,
}

pub(super) struct Document {
    pub(super) name: String,
    pub(super) traits: JobTraits,
    pub(super) is_wanted: bool,
    /// It changed since the last convergence: what a change relaxes may still happen.
    pub(super) is_edited: bool,
    /// It has ever changed.
    pub(super) was_edited: bool,
    /// The largest parallelism since then.
    parallelism: u32,
    pub(super) changed: Duration,
    /// The Job that was started last.
    newest: String,
    pub(super) last_start: Duration,
}

#[derive(Default)]
pub(super) struct Job {
    /// The uid of its record.
    uid: String,
    /// When its record was first seen as finished.
    finished: Option<Duration>,
    pods: BTreeSet<String>,
    /// Pods that succeeded while no edit was under way.
    pub(super) succeeded: BTreeSet<String>,
    indexes: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobPod {
    uid: String,
    pub(super) revision: u64,
    pub(super) job: String,
    index: Option<String>,
    starts: u32,
    has_succeeded: bool,
}

impl JobRules {
    pub(super) fn has(&self, name: &str) -> bool {
        self.documents.values().any(|document| document.is_wanted && document.name == name)
    }

    pub(super) fn pick(&self, number: u64) -> Option<(u64, String, JobTraits)> {
        let wanted: Vec<_> = self.documents.iter().filter(|(_, document)| document.is_wanted).collect();
        let index = usize::try_from(number).ok()?.checked_rem(wanted.len())?;
        wanted.get(index).map(|(revision, document)| (**revision, document.name.clone(), document.traits))
    }

    /// Returns the revision.
    pub(super) fn add(&mut self, name: &str, traits: JobTraits, now: Duration) -> u64 {
        let revision = self.documents.len() as u64;
        let document = Document {
            name: name.to_owned(),
            traits,
            is_wanted: true,
            is_edited: false,
            was_edited: false,
            parallelism: traits.wanted_parallelism(),
            changed: now,
            newest: String::new(),
            last_start: Duration::ZERO,
        };
        self.documents.insert(revision, document);
        revision
    }

    pub(super) fn edit(&mut self, revision: u64, traits: JobTraits, now: Duration) {
        let Some(document) = self.documents.get_mut(&revision) else { return };
        document.parallelism = document.parallelism.max(traits.wanted_parallelism());
        (document.traits, document.changed) = (traits, now);
        (document.is_edited, document.was_edited) = (true, true);
    }

    pub(super) fn remove(&mut self, revision: u64) {
        if let Some(document) = self.documents.get_mut(&revision) {
            (document.is_wanted, document.is_edited) = (false, true);
        }
    }

    pub(in crate::simulation) fn disturb(&mut self, now: Duration) {
        self.disturbed = now;
    }

    /// The wall clock is about to be set, and shows `wall` now.
    pub(in crate::simulation) fn clock_steps(&mut self, wall: Duration, now: Duration) {
        self.shown.push((wall.saturating_sub(now.saturating_sub(self.stepped)), wall));
        self.stepped = now;
        self.disturb(now);
    }

    /// Whether a scheduled time may be over since the clock was set back. `period`: seconds from one time to the next.
    /// Of those that a step forward misses, the latest is over too.
    pub(super) fn may_be_over(&self, time: i64, period: i64) -> bool {
        let seconds = |wall: Duration| wall.as_secs().cast_signed();
        self.shown.iter().any(|(from, to)| (seconds(*from) - period..=seconds(*to)).contains(&time))
    }

    /// Nothing is known of the agent since the clock was set: times that come before it has looked at the clock do not
    /// count if it shows what it never has.
    pub(super) fn is_clock_new(&self) -> bool {
        self.stepped > self.settled
    }

    /// The node has converged.
    pub(in crate::simulation) fn settle(&mut self, now: Duration) {
        if self.is_clock_new() {
            self.disturb(now);
        }
        self.settled = now;
        for document in self.documents.values_mut() {
            (document.is_edited, document.parallelism) = (false, document.traits.wanted_parallelism());
        }
    }

    /// Number of documents so far.
    pub(in crate::simulation) fn documents(&self) -> u32 {
        u32::try_from(self.documents.len()).unwrap_or(u32::MAX)
    }

    /// Number of starts of containers.
    pub(in crate::simulation) fn starts(&self) -> u64 {
        self.starts
    }

    /// Notes the pod, and draws when its container exits.
    fn note_start(&mut self, pod: &JobPod, container: &str, now: Duration) {
        self.starts += 1;
        let of_uid = self.pods.entry(pod.uid.clone()).or_insert_with(|| pod.clone());
        of_uid.starts += 1;
        let Some(document) = self.documents.get_mut(&pod.revision) else { return };
        document.last_start = now;
        let job = self.jobs.entry((pod.revision, pod.job.clone())).or_insert_with(|| {
            document.newest.clone_from(&pod.job);
            Job::default()
        });
        job.pods.insert(pod.uid.clone());
        job.look_at_record(&pod.job, now);
        let (Some(longest), Some((exits, numbers))) = (document.traits.lasts, &mut self.exits) else { return };
        let after = Duration::from_millis(numbers.below(u64::try_from(longest.as_millis()).unwrap_or(0)));
        let code = i32::from(numbers.chance(document.traits.fails));
        // Fails only when the simulation is ending.
        let _ = exits.try_send(Exit { id: container.to_owned(), code, after });
    }

    /// Which rule the start of a container breaks. `running`: the pods of all Jobs whose containers have a process.
    fn broken(&self, pod: &JobPod, running: &[JobPod], now: Duration) -> Option<(Rule, String)> {
        let document = self.documents.get(&pod.revision)?;
        let traits = &document.traits;
        let of_job = self.jobs.get(&(pod.revision, pod.job.clone()))?;
        let known = self.pods.get(&pod.uid)?;
        if known.has_succeeded || (!traits.on_failure && known.starts > 1) {
            return Some((Rule::JobOnce, "a pod that has run starts again".to_owned()));
        }
        if of_job.finished.is_some_and(|finished| now.saturating_sub(finished) > CALL_DEADLINE) {
            return Some((Rule::JobOver, format!("it has finished at {:?}", of_job.finished)));
        }
        if pod.index.as_ref().is_some_and(|index| of_job.indexes.contains(index)) {
            return Some((Rule::JobOnce, "its index has succeeded".to_owned()));
        }
        let others = running.iter().filter(|other| other.uid != pod.uid);
        if let Some(former) = others.clone().find(|other| other.job == pod.job && other.revision != pod.revision) {
            return Some((Rule::JobOnce, format!("a pod of the former Job runs: {former:?}")));
        }
        let siblings: Vec<&JobPod> = others.clone().filter(|other| other.job == pod.job).collect();
        if let Some(twin) = siblings.iter().find(|other| pod.index.is_some() && other.index == pod.index) {
            return Some((Rule::JobOnce, format!("its index runs: {twin:?}")));
        }
        if siblings.len() >= usize::try_from(document.parallelism).unwrap_or(usize::MAX) {
            return Some((Rule::JobBounds, format!("{siblings:?} run")));
        }
        let completions = traits.wanted_completions().and_then(|count| usize::try_from(count).ok());
        if completions.is_some_and(|count| of_job.succeeded.len() + siblings.len() >= count) {
            return Some((Rule::JobBounds, format!("{:?} have succeeded", of_job.succeeded)));
        }
        let most = completions.unwrap_or(1) + usize::try_from(document.parallelism + traits.backoff_limit).unwrap_or(0);
        if !document.was_edited && of_job.pods.len() > most {
            return Some((Rule::JobBounds, format!("it is pod {} of it", of_job.pods.len())));
        }
        if traits.may_overlap() || document.is_edited {
            return None;
        }
        if document.newest != pod.job {
            return Some((Rule::CronJobAlone, format!("{} is newer", document.newest)));
        }
        let other = others.clone().find(|other| other.revision == pod.revision && other.job != pod.job);
        other.map(|other| (Rule::CronJobAlone, format!("{other:?} runs")))
    }
}

/// The pod of a container, if it is of a Job.
fn job_pod(runtime: &Runtime, container: &Container) -> Option<JobPod> {
    let sandbox = runtime.world.sandboxes.iter().find(|one| one.id == container.sandbox_id)?;
    let label = |key: &str| sandbox.config.labels.get(key).cloned();
    Some(JobPod {
        uid: label(POD_UID)?,
        revision: label(JOB_REVISION)?.parse().ok()?,
        job: label(JOB_NAME)?,
        index: label(INDEX),
        starts: 0,
        has_succeeded: false,
    })
}

/// The record of a Job as it is on the disk.
pub(super) fn record_of(job: &str) -> Option<Value> {
    read_record(&PathBuf::from(RECORDS).join(format!("default_{job}.json")))
}

/// The records of the Jobs that CronJobs have started, by name.
pub(super) fn records_of_runs() -> Vec<(String, Value)> {
    let files = fs::read_dir(RECORDS).into_iter().flatten().flatten();
    let runs = files.filter_map(|entry| {
        let record = read_record(&entry.path()).filter(|record| record["run"].is_object())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        Some((name.strip_prefix("default_")?.strip_suffix(".json")?.to_owned(), record))
    });
    let mut runs: Vec<_> = runs.collect();
    runs.sort_by(|one, other| one.0.cmp(&other.0));
    runs
}

fn read_record(path: &PathBuf) -> Option<Value> {
    let text = fs::read_to_string(path).ok()?;
    let (_, record) = text.split_once('\n')?;
    serde_json::from_str(record).ok()
}

impl ContainerRuntime {
    /// Lets the containers of Jobs exit when their time has come.
    pub(in crate::simulation) fn end_job_containers(self: &Rc<Self>, seed: u64) -> rt::Task<()> {
        let (sender, exits) = async_channel::unbounded::<Exit>();
        self.jobs.borrow_mut().exits = Some((sender, Numbers::new(seed ^ 0x4578_6974)));
        let runtime = Rc::downgrade(self);
        rt::spawn(async move {
            let mut waiting: Vec<rt::Task<()>> = Vec::new();
            while let Ok(Exit { id, code, after }) = exits.recv().await {
                waiting.retain(|task| !task.is_finished());
                let runtime = runtime.clone();
                waiting.push(rt::spawn(async move {
                    rt::sleep(after).await;
                    if let Some(runtime) = runtime.upgrade() {
                        runtime.change(|runtime| runtime.exit(&id, code));
                    }
                }));
            }
        })
    }

    /// The pods of Jobs whose containers have a process, whatever the runtime says of it.
    pub(super) fn running_job_pods(&self) -> Vec<JobPod> {
        let survivors = self.survivors.borrow();
        self.look(|runtime| {
            let running = runtime.world.containers.iter().filter(|one| one.state == v1::ContainerState::Running);
            let all = running.chain(survivors.iter().filter_map(|one| one.container.as_ref()));
            all.filter_map(|container| job_pod(runtime, container)).collect()
        })
    }

    /// A container was started.
    pub(in crate::simulation) fn on_job_started(&self, id: &str) {
        let pod = self.look(|runtime| {
            let container = runtime.world.containers.iter().find(|one| one.id == id)?;
            job_pod(runtime, container)
        });
        let Some(pod) = pod else { return };
        let (now, running) = (self.world.passed(), self.running_job_pods());
        let mut jobs = self.jobs.borrow_mut();
        jobs.note_start(&pod, id, now);
        if let Some((rule, why)) = jobs.broken(&pod, &running, now) {
            drop(jobs);
            self.record.violated(rule, format!("{pod:?} starts, but {why}"));
        }
    }

    /// Notes pods that have succeeded.
    pub(in crate::simulation) fn look_for_ended_jobs(&self) {
        let mut jobs = self.jobs.borrow_mut();
        if jobs.documents.is_empty() {
            return;
        }
        let JobRules { documents, pods, jobs, seen, .. } = &mut *jobs;
        let ended: Vec<JobPod> = self.look(|runtime| {
            let is_done = |one: &&Container| one.state == v1::ContainerState::Exited && one.exit_code == 0;
            let ended = runtime.world.containers.iter().filter(is_done);
            let new = ended.filter(|one| one.started_at > 0 && seen.insert(one.id.clone()));
            new.filter_map(|one| job_pod(runtime, one)).collect()
        });
        for JobPod { uid, revision, job, index, .. } in ended {
            let Some(pod) = pods.get_mut(&uid).filter(|pod| !pod.has_succeeded) else { continue };
            pod.has_succeeded = true;
            let is_edited = documents.get(&revision).is_none_or(|document| document.is_edited);
            if let Some(of_job) = jobs.get_mut(&(revision, job)).filter(|_| !is_edited) {
                of_job.succeeded.insert(uid);
                of_job.indexes.extend(index);
            }
        }
    }

    /// Notes the Jobs whose records have finished.
    pub(super) fn look_for_finished_jobs(&self) {
        let now = self.world.passed();
        for ((_, name), job) in self.jobs.borrow_mut().jobs.iter_mut().filter(|(_, job)| job.finished.is_none()) {
            job.look_at_record(name, now);
        }
    }
}

impl Job {
    fn look_at_record(&mut self, name: &str, now: Duration) {
        let Some(record) = record_of(name) else { return };
        let (uid, is_finished) = (record["uid"].as_str().unwrap_or_default(), record["condition"] != "");
        if self.uid.is_empty() && !is_finished {
            uid.clone_into(&mut self.uid);
        }
        if is_finished && self.uid == uid {
            self.finished = self.finished.or(Some(now));
        }
    }
}
