//! Jobs and CronJobs of a node without a cluster: their documents, their records on disk, and their pods.
//!
//! ```text
//! Sources -> take_documents
//! ScheduleDue                 -> round: decide_cron -+
//! a pod has ended, a deadline -> round: decide ------+-> the disk (blocking) -> JobsWritten -> pods, events
//! ```
//!
//! A document arrives as the template of its pods, and its pods take the template's place. They always follow from the
//! records on disk.

mod cron_jobs;
mod decide;
mod decide_cron;
mod record;
mod schedule_clock;
mod table;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_channel::Sender;

use self::decide::{Decision, JobEvent, JobInput, Moment, PodState, decide};
use self::record::JobRecord;
use self::schedule_clock::ScheduleClock;
use self::table::{CronTimes, DocumentSpec, JobDocument, JobEntry, job_of, key, write};
use crate::control::pod_sources::static_pod::{
    WorkloadKind, is_pod_name_of, job_name, job_pod, job_pod_uid, owning_workload,
};
use crate::control::pod_sources::unread_records::UnreadRecords;
use crate::control::pod_table::{Effect, PodTable};
use crate::control::pod_workers::State;
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::pods::{
    EventObject, PodEvent, SourceName, SourcePod, SourceProblem, SourceUpdate, SyncEvent, ZoneFile,
};
use crate::types::api::{ContainerStatus, EventKind, ObjectKind, Pod, PodPhase, PodUid, Reason};
use crate::types::owned::{Owned, View};

pub(crate) use self::table::JobTable;

pub(crate) struct Jobs {
    table: Owned<JobTable>,
    clock: ScheduleClock,
    inbox: Sender<SyncEvent>,
    /// Something that decisions depend on may have changed.
    is_stale: bool,
    /// When a Job is to be decided about without an event, or a failed write is retried.
    due: Option<Instant>,
    writer: Option<rt::Task<()>>,
    /// What the write under way has.
    in_flight: Vec<JobChange>,
    /// The last write failed.
    fault: Option<String>,
    /// Files of failed writes, in their order: each may have what was decided and never took effect.
    doubtful: Vec<String>,
    /// Until they are read, nothing is decided.
    unread: Option<UnreadRecords<JobTable>>,
}

struct JobChange {
    key: String,
    /// `None`: the Job is gone.
    record: Option<JobRecord>,
    effects: Vec<Effect>,
}

/// Wait before a failed write is retried, unless something changes before.
const JOB_WRITE_RETRY_DELAY: Duration = Duration::from_secs(30);

impl Jobs {
    pub(crate) fn new(table: JobTable, inbox: Sender<SyncEvent>) -> Self {
        let is_whole = table.unread.is_empty() && !table.is_unlisted;
        let unread = (!is_whole).then(|| UnreadRecords::new(reads_again(&table), inbox.clone()));
        let table = Owned::new(table);
        let clock = ScheduleClock::new(inbox.clone());
        let (in_flight, doubtful) = (Vec::new(), Vec::new());
        Self { table, clock, inbox, is_stale: false, due: None, writer: None, in_flight, fault: None, doubtful, unread }
    }

    /// While records cannot be read, the update comes again, and the source is incomplete: no pod of a Job is an orphan.
    /// True if so.
    pub(crate) fn hold(&mut self, update: &SourceUpdate) -> bool {
        self.unread.as_mut().map(|unread| unread.hold(update)).is_some()
    }

    /// The updates that were held, once the records are read.
    pub(crate) fn take_read(&mut self) -> Vec<SourceUpdate> {
        let Some(mut table) = self.unread.as_ref().and_then(UnreadRecords::take_read) else { return Vec::new() };
        let Some(unread) = self.unread.take() else { return Vec::new() };
        if table.is_unlisted || (!table.unread.is_empty() && unread.may_read_again()) {
            self.unread = Some(unread.again(reads_again(&table), self.inbox.clone()));
            return Vec::new();
        }
        let mut known_jobs = self.table.write();
        for (key, entry) in &mut table.jobs {
            known_jobs.jobs.entry(key.clone()).or_default().record = entry.record.take();
        }
        for key in table.unread {
            known_jobs.jobs.entry(key).or_default().record = Some(JobRecord::damaged());
        }
        self.is_stale = true;
        unread.into_held()
    }

    pub(crate) fn view(&self) -> View<JobTable> {
        self.table.view()
    }

    /// A pod has ended or changed its status.
    pub(crate) fn on_change(&mut self) {
        self.is_stale = true;
    }

    pub(crate) fn on_schedule_due(&mut self, zones: Vec<ZoneFile>) {
        self.clock.on_due(zones);
        self.is_stale = true;
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.filter(|_| self.writer.is_none())
    }

    /// Takes the templates of Jobs out of the update of a source. True if the Jobs of the source are other ones now.
    pub(crate) fn take_documents(&mut self, update: &mut SourceUpdate) -> bool {
        let (templates, pods): (Vec<_>, Vec<_>) =
            std::mem::take(&mut update.pods).into_iter().partition(|pod| job_of(pod).is_some());
        update.pods = pods;
        let mut table = self.table.write();
        let mut has_jobs = !templates.is_empty();
        for entry in table.jobs.values_mut() {
            let is_run = entry.run().is_some();
            let of_source = entry.document.take_if(|document| document.source == update.source && !is_run);
            has_jobs |= of_source.is_some();
        }
        for template in templates {
            let Some(spec) = job_of(&template) else { continue };
            let known = table.jobs.get(&key(&template.pod, &spec)).and_then(|entry| entry.document.as_ref());
            match known.map(|known| duplicate(&template, known)) {
                Some(problem) => update.problems.push(problem),
                None => table.set_document(update.source, template, spec),
            }
        }
        if has_jobs {
            table.set_documents_of_runs();
        }
        self.is_stale |= has_jobs;
        has_jobs
    }

    /// Every source has reported, and now `source` completely: its Jobs without a document are gone, and those that no
    /// source has had. Their records are removed, so that a document that comes again is a new Job.
    pub(crate) fn forget_gone(&mut self, source: SourceName) {
        let mut table = self.table.write();
        let without = table.jobs.values_mut().filter(|entry| entry.document.is_none());
        for entry in without.filter(|entry| entry.source.is_none_or(|of| of == source)) {
            entry.is_gone = true;
            self.is_stale = true;
        }
    }

    pub(crate) fn pods(&self) -> Vec<(SourceName, SourcePod)> {
        self.table.read().pods()
    }

    /// Decides about all Jobs, and writes what changes.
    pub(crate) fn round(&mut self, pods: &PodTable, now: Instant) {
        let is_due = self.is_stale || self.due.is_some_and(|due| due <= now);
        if !is_due || self.writer.is_some() || self.unread.is_some() || !pods.is_relisted() {
            return;
        }
        (self.is_stale, self.due) = (false, None);
        let time = clock::now();
        let at = Moment { now, clock: clock::is_set(time).then(|| time.unix_seconds()) };
        let mut changes = self.decide_cron_jobs(pods, at);
        let from_cron = changes.len();
        let mut table = self.table.write();
        for (key, entry) in &mut table.jobs {
            let is_decided = changes.iter().take(from_cron).any(|change| change.key == *key);
            if is_decided || entry.cron_job().is_some() {
                continue;
            }
            let decision = decide_entry(entry, pods, at);
            let change = match decision.zip(entry.document.as_ref()) {
                Some((decision, document)) => {
                    self.due = self.due.into_iter().chain(decision.due).min();
                    let is_same = entry.record.as_ref() == Some(&decision.record);
                    (!is_same).then(|| {
                        let effects = decision.events.iter().map(|event| shown(event, &document.template.pod));
                        (Some(decision.record), effects.collect())
                    })
                }
                None => entry.is_gone.then(|| (None, Vec::new())),
            };
            changes.extend(change.map(|(record, effects)| JobChange { key: key.clone(), record, effects }));
        }
        drop(table);
        changes.extend(self.changes_back(&changes));
        self.write(changes);
    }

    /// What failed writes may have left in files that `changes` does not write: back to the records that hold. The last
    /// file first, so that the Job of a time is on the disk while its CronJob's record says that the time is over.
    fn changes_back(&self, changes: &[JobChange]) -> Vec<JobChange> {
        let table = self.table.read();
        let keys = self.doubtful.iter().rev().filter(|key| !changes.iter().any(|change| change.key == **key));
        let back = |key: &String| {
            let record = table.jobs.get(key).and_then(|entry| entry.record.clone());
            JobChange { key: key.clone(), record, effects: Vec::new() }
        };
        keys.map(back).collect()
    }

    fn write(&mut self, changes: Vec<JobChange>) {
        if changes.is_empty() {
            return;
        }
        let directory = &self.table.read().directory;
        let files: Vec<(PathBuf, Option<JobRecord>)> =
            changes.iter().map(|change| (directory.join(&change.key), change.record.clone())).collect();
        self.in_flight = changes;
        let inbox = self.inbox.clone();
        self.writer = Some(rt::spawn(async move {
            let written = rt::blocking(move || {
                // Ends at the first failure: a CronJob whose time is over on the disk has the Job of that time there.
                files.iter().find_map(|(path, record)| {
                    let error = write(path, record.as_ref()).err()?;
                    Some(format!("failed to write {}: {error}", path.display()))
                })
            });
            // Fails only when the agent is ending.
            let _ = inbox.send(SyncEvent::JobsWritten(written.await)).await;
        }));
    }

    /// The decisions are on the disk and take effect, or everything is decided again, and their files are written again
    /// even if the new decision is another one.
    pub(crate) fn on_written(&mut self, fault: Option<String>, now: Instant) -> Vec<Effect> {
        self.writer = None;
        let changes = std::mem::take(&mut self.in_flight);
        if let Some(line) = fault.as_ref().filter(|_| fault != self.fault) {
            log!(warn, line);
        }
        let has_failed = fault.is_some();
        self.fault = fault;
        if has_failed {
            let keys = changes.into_iter().map(|change| change.key);
            let keys: Vec<String> = keys.filter(|key| !self.doubtful.contains(key)).collect();
            self.doubtful.extend(keys);
            // What was decided about a time is decided again, with its events.
            self.table.write().jobs.values_mut().for_each(|entry| entry.cron_times = CronTimes::default());
            self.due = now.checked_add(JOB_WRITE_RETRY_DELAY);
            return Vec::new();
        }
        self.doubtful.clear();
        self.is_stale = true;
        let mut effects = Vec::new();
        let mut table = self.table.write();
        let is_of_run = |change: &JobChange| change.record.as_ref().is_some_and(|record| record.run.is_some());
        let has_runs = changes.iter().any(is_of_run);
        for change in changes {
            let entry = table.jobs.entry(change.key.clone()).or_default();
            let was_run = entry.run().is_some();
            entry.record = change.record;
            effects.extend(change.effects);
            if entry.record.is_none() && (was_run || entry.document.is_none()) {
                table.jobs.remove(&change.key);
            }
        }
        if has_runs {
            table.set_documents_of_runs();
        }
        effects
    }
}

fn reads_again(table: &JobTable) -> impl FnOnce() -> JobTable + use<> {
    let directory = table.directory.clone();
    move || JobTable::open(directory)
}

/// `None` if the Job is gone.
fn decide_entry(entry: &mut JobEntry, pods: &PodTable, at: Moment) -> Option<Decision> {
    let uids = entry.pod_uids();
    let fresh = entry.its_record().is_none();
    let document = entry.document.as_ref()?;
    let DocumentSpec::Job(spec) = &document.spec else { return None };
    let template = &*document.template.pod;
    let new;
    let record = match &entry.record {
        Some(record) if !fresh => record,
        Some(_) | None => {
            entry.times = decide::JobTimes::default();
            new = JobRecord::new(template.metadata.uid.as_str());
            &new
        }
    };
    let input = JobInput {
        spec,
        restart_policy: template.spec.restart_policy,
        state: &|pod| state(&job_pod_uid(template, pod.serial), pods),
        has_leaving_pods: &|| has_leaving_pods(template, &uids, pods),
    };
    Some(decide(&input, record, &mut entry.times, at))
}

/// A pod has ended when nothing of it runs any more. A rejected pod is admitted later, and a stopped one is started.
fn state(uid: &PodUid, pods: &PodTable) -> PodState {
    let records = pods.records();
    let uid = records.running_uid(uid);
    let Some(status) = records.statuses.status(uid) else { return PodState::Active { restarts: 0 } };
    let is_rejected = || pods.failed().any(|(failed, failure)| failed == uid && failure.is_rejection());
    let has_stopped = pods.worker(uid).is_some_and(|worker| worker.wanted) && !pods.may_run(uid);
    match status.phase {
        PodPhase::Succeeded if has_stopped => PodState::Succeeded,
        PodPhase::Succeeded => PodState::Ending,
        PodPhase::Failed if has_stopped && !is_rejected() => PodState::Failed,
        PodPhase::Pending | PodPhase::Running | PodPhase::Failed | PodPhase::Unknown => {
            let all = status.container_statuses.iter().chain(&status.init_container_statuses);
            let restarts = |container: &ContainerStatus| u32::try_from(container.restart_count).unwrap_or(0);
            PodState::Active { restarts: all.map(restarts).fold(0, u32::saturating_add) }
        }
    }
}

/// Whether pods of this Job that are not among `uids` have not ended: after a change of the Job, or of a former agent.
fn has_leaving_pods(template: &Pod, uids: &[PodUid], pods: &PodTable) -> bool {
    let (records, observed) = (pods.records(), pods.observed());
    let is_other = |uid: &PodUid, namespace: &str, name: &str| {
        namespace == template.metadata.namespace
            && is_pod_name_of(template, name)
            && !uids.iter().any(|own| records.running_uid(own) == uid)
            && !records.sources.pods().any(|source| source.pod.metadata.uid == *uid)
    };
    let mut workers = pods.workers().iter();
    workers.any(|worker| {
        let identity = &worker.identity;
        matches!(worker.state, State::Sync | State::Terminating { .. })
            && is_other(&identity.uid, &identity.namespace, &identity.name)
    }) || observed.iter().any(|pod| {
        pods.worker(&pod.uid).is_none()
            && pod.ready_sandbox().is_some()
            && pod.source.as_deref().is_some_and(|source| source != SourceName::Api.as_str())
            && is_other(&pod.uid, &pod.namespace, &pod.name)
    })
}

fn duplicate(template: &SourcePod, existing: &JobDocument) -> SourceProblem {
    let metadata = &template.pod.metadata;
    let (kind, name) = owning_workload(&template.pod).map_or(("", ""), |owner| (&owner.kind, &owner.name));
    let (namespace, origin) = (&metadata.namespace, &existing.template.origin);
    let message = format!("{kind} {namespace}/{name} is ignored: {origin} has a {kind} of this name");
    log!(warn, "manifest problem", file = template.origin, problem = message);
    SourceProblem { origin: template.origin.clone(), message, keeps_last_good: false, since: clock::now() }
}

fn shown(event: &JobEvent, template: &Pod) -> Effect {
    let (kind, reason, message) = match event {
        JobEvent::Created(pod) => {
            let created = job_pod(template, pod.serial, pod.index, None).metadata.name;
            (EventKind::Normal, Reason::SUCCESSFUL_CREATE, ["Created pod: ", &created].concat())
        }
        JobEvent::Other(kind, reason, message) => (*kind, reason.clone(), (*message).to_owned()),
    };
    event_of(template, kind, reason, message)
}

/// An event of the Job or CronJob with this template.
fn event_of(template: &Pod, kind: EventKind, reason: Reason, message: String) -> Effect {
    let (of_kind, uid) = owning_workload(template).map_or(("", ""), |owner| (&owner.kind, &owner.uid));
    let uid = PodUid::from(uid);
    let object = EventObject {
        kind: if of_kind == WorkloadKind::CronJob.as_str() { ObjectKind::CronJob } else { ObjectKind::Job },
        namespace: template.metadata.namespace.clone(),
        name: job_name(template).to_owned(),
        uid: uid.clone(),
    };
    Effect::RecordOf(object, PodEvent::of_pod(&uid, kind, reason, message))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::control::jobs::record::ActivePod;
    use crate::control::pod_sources::static_pod::testing::pods_of;
    use crate::control::pod_sources::unread_records::MAX_RECORD_READS;
    use crate::control::pod_table::testing::with_node;
    use crate::platform::rt::TestFolder;

    fn update(source: SourceName, names: &[&str], complete: bool) -> SourceUpdate {
        let pods = names.iter().flat_map(|name| {
            pods_of(&format!(
                "{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}}}, spec: {{template: {{spec: {{restartPolicy: Never, \
                 containers: [{{name: c, image: i}}]}}}}}}}}"
            ))
        });
        let pods = pods.map(|pod| SourcePod { pod: Arc::new(pod), origin: source.as_str().into() }).collect();
        SourceUpdate {
            source,
            pods,
            objects: Vec::new(),
            mirrors: Vec::new(),
            problems: Vec::new(),
            unread: Vec::new(),
            complete,
            relisted: false,
        }
    }

    /// With the records of an earlier agent.
    fn jobs(inbox: Sender<SyncEvent>, names: &[&str]) -> Jobs {
        let mut table = JobTable::default();
        for name in names {
            let template = update(SourceName::File, &[name], true).pods.remove(0);
            let mut record = JobRecord::new(template.pod.metadata.uid.as_str());
            record.active.push(ActivePod { serial: 0, index: None });
            let spec = job_of(&template).expect("a template");
            table.jobs.insert(key(&template.pod, &spec), JobEntry { record: Some(record), ..JobEntry::default() });
        }
        Jobs::new(table, inbox)
    }

    fn gone(jobs: &Jobs) -> Vec<bool> {
        jobs.table.read().jobs.values().map(|entry| entry.is_gone).collect()
    }

    #[test]
    fn templates_give_way_to_the_pods_of_the_records() {
        with_node(|node| {
            let mut jobs = jobs(node.inbox, &["a"]);
            let mut update = update(SourceName::File, &["a", "b"], true);
            assert!(jobs.take_documents(&mut update));
            assert_eq!(update.pods.len(), 0);
            let pods = jobs.pods();
            assert_eq!(pods.len(), 1, "b has no record yet");
            assert!(pods[0].1.pod.metadata.name.starts_with("a-"));
        });
    }

    #[test]
    fn record_is_forgotten_when_its_own_source_is_complete_without_it() {
        with_node(|node| {
            let mut jobs = jobs(node.inbox, &["a", "never-reported"]);
            jobs.take_documents(&mut update(SourceName::File, &["a"], true));
            jobs.take_documents(&mut update(SourceName::File, &[], false));
            jobs.forget_gone(SourceName::Local);
            assert_eq!(gone(&jobs), [false, true]);
            jobs.take_documents(&mut update(SourceName::File, &[], true));
            jobs.forget_gone(SourceName::File);
            assert_eq!(gone(&jobs), [true, true]);
            jobs.take_documents(&mut update(SourceName::File, &["a"], true));
            assert_eq!(gone(&jobs), [false, true], "it has come again");
        });
    }

    #[test]
    fn unread_record_holds_its_source_until_it_is_read_or_counts_as_damaged() {
        with_node(|node| {
            let folder = TestFolder::new("jobs-held");
            std::fs::create_dir_all(folder.0.join("default_a.json")).unwrap();
            let mut jobs = Jobs::new(JobTable::open(folder.0.clone()), node.inbox);
            assert!(jobs.hold(&update(SourceName::File, &["a"], true)));
            let read_again = |jobs: &mut Jobs| {
                jobs.unread.as_mut().expect("unread").set_read(JobTable::open(folder.0.clone()));
                jobs.take_read().len()
            };
            for attempt in 1..MAX_RECORD_READS {
                assert_eq!(read_again(&mut jobs), 0, "attempt {attempt}");
            }
            assert_eq!(read_again(&mut jobs), 1);
            assert!(jobs.unread.is_none());
            jobs.take_documents(&mut update(SourceName::File, &["a"], true));
            assert_eq!(jobs.table.read().rows()[0].reason, "RecordDamaged");
        });
    }

    #[test]
    fn second_job_of_a_name_is_a_problem_of_its_source() {
        with_node(|node| {
            let mut jobs = jobs(node.inbox, &[]);
            jobs.take_documents(&mut update(SourceName::File, &["a"], true));
            let mut other = update(SourceName::Local, &["a"], true);
            jobs.take_documents(&mut other);
            assert_eq!(other.problems[0].message, "Job default/a is ignored: file has a Job of this name");
        });
    }

    #[test]
    fn decision_takes_effect_when_it_is_written_and_is_repeated_after_a_failure() {
        with_node(|mut node| {
            let mut jobs = jobs(node.inbox.clone(), &[]);
            jobs.take_documents(&mut update(SourceName::File, &["a"], true));
            node.list(Vec::new());
            assert!(node.pods.relisted());
            let now = rt::now();
            jobs.round(&node.pods, now);
            assert!(jobs.writer.is_some() && jobs.pods().is_empty(), "before the write");
            assert_eq!(jobs.on_written(Some("disk full".to_owned()), now), []);
            assert_eq!((jobs.pods().len(), jobs.next_due()), (0, now.checked_add(JOB_WRITE_RETRY_DELAY)));
            jobs.round(&node.pods, now + JOB_WRITE_RETRY_DELAY);
            let effects = jobs.on_written(None, now);
            assert_eq!((effects.len(), jobs.pods().len()), (1, 1));
            jobs.round(&node.pods, now);
            assert!(jobs.writer.is_none() && jobs.next_due().is_none(), "nothing is left to decide");
        });
    }

    #[test]
    fn file_of_failed_write_is_removed_when_its_job_has_gone() {
        with_node(|mut node| {
            let mut jobs = jobs(node.inbox.clone(), &[]);
            jobs.take_documents(&mut update(SourceName::File, &["a", "b"], true));
            node.list(Vec::new());
            assert!(node.pods.relisted());
            let now = rt::now();
            jobs.round(&node.pods, now);
            jobs.on_written(Some("disk full".to_owned()), now);
            jobs.take_documents(&mut update(SourceName::File, &["a"], true));
            jobs.round(&node.pods, now + JOB_WRITE_RETRY_DELAY);
            let files: Vec<_> = jobs.in_flight.iter().map(|change| (&*change.key, change.record.is_some())).collect();
            assert_eq!(files, [("default_a.json", true), ("default_b.json", false)]);
        });
    }
}
