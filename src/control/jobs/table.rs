//! The Jobs and CronJobs of the node: documents and records by name, the pods that follow from them, and what users see.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::decide::{JobTimes, wanted_completions};
use super::record::{CronRun, JobRecord};
use crate::control::pod_sources::static_pod::{
    cron_job_of_template, job_name, job_of_template, job_pod, job_pod_uid, scheduled_job, scheduled_job_name,
};
use crate::control::server::{CronJobRow, JobRow};
use crate::platform::config::parse_duration;
use crate::platform::host::durable::{self, StoredFile};
use crate::state::pods::{SourceName, SourcePod};
use crate::types::api::{CronJobSpec, JobSpec, Pod, PodPhase, PodUid, decode_bytes, encode_text};
use crate::types::cron_schedule::CronSchedule;
use crate::types::sorted::SortedMap;

#[derive(Debug, Default)]
pub(crate) struct JobTable {
    pub(super) directory: PathBuf,
    /// By file name.
    pub(super) jobs: SortedMap<String, JobEntry>,
    /// Records that are there and could not be read.
    pub(super) unread: Vec<String>,
    /// The directory could not be read.
    pub(super) is_unlisted: bool,
}

#[derive(Debug, Default)]
pub(super) struct JobEntry {
    /// `None` if no source has it, or none has reported it yet.
    pub(super) document: Option<JobDocument>,
    /// Of the last document; `None` if no source has reported one yet.
    pub(super) source: Option<SourceName>,
    /// Every source has reported, and none has it: its record is to be removed.
    pub(super) is_gone: bool,
    /// As it is on the disk.
    pub(super) record: Option<JobRecord>,
    pub(super) times: JobTimes,
    pub(super) cron_times: CronTimes,
}

#[derive(Clone, Debug)]
pub(super) struct JobDocument {
    pub(super) source: SourceName,
    /// With the pod that is the template.
    pub(super) template: SourcePod,
    pub(super) spec: DocumentSpec,
}

#[derive(Clone, Debug)]
pub(super) enum DocumentSpec {
    CronJob(Box<CronJobSpec>, CronSchedule),
    Job(Box<JobSpec>),
}

/// What only this process knows of a CronJob.
#[derive(Clone, Debug, Default)]
pub(super) struct CronTimes {
    /// The Unix times of the last look and of the next start: in between there is nothing to decide.
    pub(super) next: Option<(i64, i64)>,
    /// The time that waits for the end of an earlier Job, whose event was written.
    pub(super) waits: Option<i64>,
    /// Why its time zone is not known, whose event was written.
    pub(super) problem: Option<String>,
}

/// Room for a hundred thousand completions.
const MAX_JOB_RECORD_BYTES: u64 = 4 << 20;
const JOB_RECORD_SUFFIX: &str = ".json";

impl JobTable {
    /// Reads the records in `directory`. Blocking. A Job whose record is damaged counts as failed: it may have run. What
    /// the disk cannot read may be readable later.
    pub(crate) fn open(directory: PathBuf) -> Self {
        let mut table = Self { directory, ..Self::default() };
        let entries = match fs::read_dir(&table.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return table,
            entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
        };
        let files = entries.unwrap_or_else(|error| {
            log!(warn, "failed to read records of jobs", directory = table.directory.display(), error = error);
            table.is_unlisted = true;
            Vec::new()
        });
        for entry in files {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(JOB_RECORD_SUFFIX) {
                match read(&entry.path()) {
                    Ok(record) => {
                        table.jobs.insert(name, JobEntry { record: Some(record), ..JobEntry::default() });
                    }
                    Err(error) => {
                        log!(warn, "failed to read record of job", file = entry.path().display(), error = error);
                        table.unread.push(name);
                    }
                }
            }
        }
        table
    }

    /// A source reports this Job or CronJob, which is new, changed or the same.
    pub(super) fn set_document(&mut self, source: SourceName, template: SourcePod, spec: DocumentSpec) {
        let entry = self.jobs.entry(key(&template.pod, &spec)).or_default();
        let uid = template.pod.metadata.uid.as_str();
        match &mut entry.record {
            Some(record) if record.uid.is_empty() => uid.clone_into(&mut record.uid),
            Some(_) | None => {}
        }
        (entry.is_gone, entry.source) = (false, Some(source));
        entry.cron_times = CronTimes::default();
        entry.document = Some(JobDocument { source, template, spec });
    }

    /// The Jobs of CronJobs have a document as long as their CronJob has one.
    pub(super) fn set_documents_of_runs(&mut self) {
        let cron_jobs = self.jobs.iter().filter_map(|(key, entry)| {
            let (JobDocument { source, template, .. }, ..) = entry.cron_job()?;
            Some((key.clone(), *source, Arc::clone(&template.origin)))
        });
        let cron_jobs: Vec<(String, SourceName, Arc<str>)> = cron_jobs.collect();
        for entry in self.jobs.values_mut() {
            let Some(run) = entry.record.as_ref().and_then(|record| record.run.as_ref()) else { continue };
            match (cron_jobs.iter().find(|(key, ..)| *key == run.cron_job), &mut entry.document) {
                (None, document) => *document = None,
                (Some((_, source, origin)), Some(document)) => {
                    (document.source, document.template.origin) = (*source, Arc::clone(origin));
                }
                (Some((_, source, origin)), document @ None) => *document = document_of_run(run, *source, origin),
            }
            if let Some(document) = &entry.document {
                (entry.is_gone, entry.source) = (false, Some(document.source));
            }
        }
    }

    /// The pods of all Jobs. Those that have ended do not run again.
    pub(crate) fn pods(&self) -> Vec<(SourceName, SourcePod)> {
        let mut pods = Vec::new();
        for entry in self.jobs.values() {
            let (Some(document), Some(record)) = (&entry.document, entry.its_record()) else { continue };
            let mut add = |serial, index, ended: Option<PodPhase>| {
                let pod = Arc::new(job_pod(&document.template.pod, serial, index, ended));
                pods.push((document.source, SourcePod { pod, origin: Arc::clone(&document.template.origin) }));
            };
            record.active.iter().for_each(|pod| add(pod.serial, pod.index, None));
            record.ended.iter().for_each(|pod| add(pod.serial, pod.index, Some(pod.phase())));
        }
        pods
    }

    pub(crate) fn rows(&self) -> Vec<JobRow> {
        let jobs = self.jobs.values().filter_map(|entry| Some((entry.document.as_ref()?, entry.its_record()?)));
        let row = |(document, record): (&JobDocument, &JobRecord)| {
            let DocumentSpec::Job(spec) = &document.spec else { return None };
            Some(JobRow {
                namespace: document.template.pod.metadata.namespace.clone(),
                name: job_name(&document.template.pod).to_owned(),
                status: match &*record.condition {
                    "" if record.is_suspended => "Suspended".to_owned(),
                    "" => "Running".to_owned(),
                    condition => condition.to_owned(),
                },
                reason: record.reason.clone(),
                completions: wanted_completions(spec),
                active: u32::try_from(record.active.len()).unwrap_or(u32::MAX),
                succeeded: record.succeeded,
                failed: record.failed,
                start_time: record.started,
                completion_time: record.finished,
            })
        };
        jobs.filter_map(row).collect()
    }

    pub(crate) fn cron_rows(&self) -> Vec<CronJobRow> {
        let row = |(key, entry): (&String, &JobEntry)| {
            let (document, spec, _) = entry.cron_job()?;
            let runs = self.jobs.values().filter(|entry| entry.run().is_some_and(|run| run.cron_job == *key));
            let is_active = |entry: &&JobEntry| entry.record.as_ref().is_some_and(|record| !record.is_finished());
            Some(CronJobRow {
                namespace: document.template.pod.metadata.namespace.clone(),
                name: job_name(&document.template.pod).to_owned(),
                schedule: spec.schedule.clone(),
                time_zone: spec.time_zone.clone(),
                suspend: spec.suspend,
                active: u32::try_from(runs.filter(is_active).count()).unwrap_or(u32::MAX),
                last_schedule_time: entry.record.as_ref().and_then(|record| record.schedule.as_ref()?.last),
                next_schedule_time: entry.cron_times.next.map(|(_, next)| next),
                problem: entry.cron_times.problem.clone().unwrap_or_default(),
            })
        };
        self.jobs.iter().filter_map(row).collect()
    }
}

impl JobEntry {
    /// Of a CronJob with a document.
    pub(super) fn cron_job(&self) -> Option<(&JobDocument, &CronJobSpec, &CronSchedule)> {
        let document = self.document.as_ref()?;
        match &document.spec {
            DocumentSpec::CronJob(spec, schedule) => Some((document, spec, schedule)),
            DocumentSpec::Job(_) => None,
        }
    }

    /// Why a CronJob has started this Job.
    pub(super) fn run(&self) -> Option<&CronRun> {
        self.record.as_ref()?.run.as_ref()
    }

    /// The record of the document's Job, not of a former one with its name.
    pub(super) fn its_record(&self) -> Option<&JobRecord> {
        let document = self.document.as_ref()?;
        self.record.as_ref().filter(|record| record.uid == document.template.pod.metadata.uid.as_str())
    }

    /// The uids of the pods that this Job has.
    pub(super) fn pod_uids(&self) -> Vec<PodUid> {
        let (Some(document), Some(record)) = (&self.document, self.its_record()) else { return Vec::new() };
        let serials = record.active.iter().map(|pod| pod.serial).chain(record.ended.iter().map(|pod| pod.serial));
        serials.map(|serial| job_pod_uid(&document.template.pod, serial)).collect()
    }
}

/// The file of the Job or CronJob with this template. No name has an underscore.
pub(super) fn key(template: &Pod, spec: &DocumentSpec) -> String {
    let kind = match spec {
        DocumentSpec::CronJob(..) => "_cron",
        DocumentSpec::Job(_) => "",
    };
    [&*template.metadata.namespace, "_", job_name(template), kind, JOB_RECORD_SUFFIX].concat()
}

/// The file of the Job that the CronJob starts for this time.
pub(super) fn key_of_run(cron_template: &Pod, time: i64) -> String {
    let name = scheduled_job_name(cron_template, time);
    [&*cron_template.metadata.namespace, "_", &name, JOB_RECORD_SUFFIX].concat()
}

/// The Job or CronJob whose template the pod is.
pub(super) fn job_of(pod: &SourcePod) -> Option<DocumentSpec> {
    if let Some(spec) = job_of_template(&pod.pod) {
        return Some(DocumentSpec::Job(Box::new(spec)));
    }
    let spec = cron_job_of_template(&pod.pod)?;
    let schedule = CronSchedule::parse(&spec.schedule, parse_duration).ok()?;
    Some(DocumentSpec::CronJob(Box::new(spec), schedule))
}

/// A Job for this time, which nothing was decided about.
pub(super) fn new_run(cron_job: &str, of: &JobDocument, time: i64) -> JobEntry {
    let template = scheduled_job(&of.template.pod, time);
    let run = CronRun { cron_job: cron_job.to_owned(), time, template: encode_text(&template) };
    let record = JobRecord { run: Some(run), ..JobRecord::new(template.metadata.uid.as_str()) };
    let origin = &of.template.origin;
    let document = record.run.as_ref().and_then(|run| document_of_run(run, of.source, origin));
    JobEntry { document, record: Some(record), ..JobEntry::default() }
}

fn document_of_run(run: &CronRun, source: SourceName, origin: &Arc<str>) -> Option<JobDocument> {
    let pod: Pod = decode_bytes(run.template.as_bytes()).ok()?;
    let spec = job_of_template(&pod)?;
    let template = SourcePod { pod: Arc::new(pod), origin: Arc::clone(origin) };
    Some(JobDocument { source, template, spec: DocumentSpec::Job(Box::new(spec)) })
}

fn read(path: &Path) -> io::Result<JobRecord> {
    let record = match durable::read(path, MAX_JOB_RECORD_BYTES)? {
        StoredFile::Whole(text) => decode_bytes(&text).ok(),
        StoredFile::Damaged | StoredFile::Nothing => None,
    };
    Ok(record.unwrap_or_else(|| {
        log!(warn, "record of job is damaged, it counts as failed", file = path.display());
        JobRecord::damaged()
    }))
}

/// Writes a record, or removes it. Blocking.
pub(super) fn write(path: &Path, record: Option<&JobRecord>) -> io::Result<()> {
    match record {
        Some(record) => {
            let text = serde_json::to_vec(record)?;
            durable::write_changed_within(path, &text, MAX_JOB_RECORD_BYTES).map(drop)
        }
        None => durable::remove(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::jobs::record::{ActivePod, EndedPod};
    use crate::control::pod_sources::static_pod::testing::pods_of;
    use crate::platform::rt::TestFolder;

    fn template() -> SourcePod {
        let document = "{apiVersion: batch/v1, kind: Job, metadata: {name: task}, spec: {template: {spec: \
                        {restartPolicy: Never, containers: [{name: c, image: i}]}}}}";
        SourcePod { pod: Arc::new(pods_of(document).remove(0)), origin: "x".into() }
    }

    fn opened(folder: &TestFolder) -> JobTable {
        let mut table = JobTable::open(folder.0.clone());
        let spec = job_of(&template()).expect("a template");
        table.set_document(SourceName::File, template(), spec);
        table
    }

    #[test]
    fn record_round_trips_and_its_pods_come_back() {
        let folder = TestFolder::new("jobs-whole");
        let mut record = JobRecord::new(template().pod.metadata.uid.as_str());
        record.active.push(ActivePod { serial: 1, index: Some(4) });
        record.ended.push(EndedPod { serial: 0, index: None, succeeded: true });
        record.completed.push((0, 3));
        record.started = Some(7);
        let path = folder.0.join("default_task.json");
        write(&path, Some(&record)).unwrap();
        let table = opened(&folder);
        assert_eq!(table.jobs.values().next().and_then(JobEntry::its_record), Some(&record));
        let phases: Vec<_> = table.pods().into_iter().map(|(_, source)| source.pod.status.phase).collect();
        assert_eq!(phases, [PodPhase::Pending, PodPhase::Succeeded]);
        write(&path, None).unwrap();
        assert_eq!(opened(&folder).pods().len(), 0);
    }

    #[test]
    fn record_that_cannot_be_read_is_not_damaged() {
        let folder = TestFolder::new("jobs-unread");
        let record = folder.0.join("default_task.json");
        fs::create_dir_all(&record).unwrap();
        let table = opened(&folder);
        assert_eq!(
            (&*table.unread, table.rows().len(), table.is_unlisted),
            (&["default_task.json".to_owned()][..], 0, false)
        );
        let table = JobTable::open(folder.0.join("default_task.json/file"));
        assert!(!table.is_unlisted, "there are no records");
        fs::remove_dir(&record).unwrap();
        fs::write(&record, "").unwrap();
        assert!(JobTable::open(record).is_unlisted);
    }

    #[test]
    fn record_of_another_template_has_no_pods() {
        let folder = TestFolder::new("jobs-other");
        let mut record = JobRecord::new("another");
        record.active.push(ActivePod { serial: 1, index: None });
        write(&folder.0.join("default_task.json"), Some(&record)).unwrap();
        assert_eq!(opened(&folder).pods().len(), 0);
    }

    #[test]
    fn job_with_a_damaged_record_has_failed_after_each_start() {
        let folder = TestFolder::new("jobs-damaged");
        fs::create_dir_all(&folder.0).unwrap();
        fs::write(folder.0.join("default_task.json"), "half").unwrap();
        for _ in 0..2 {
            let rows = opened(&folder).rows();
            assert_eq!((&*rows[0].status, &*rows[0].reason), ("Failed", "RecordDamaged"));
        }
    }
}
