//! Updates of the agent by the running agent: puts them on trial, judges the trial that it is, and tells the end.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use async_channel::Sender;

use super::views::NodeViews;
use crate::control::pod_sources::merge::SourceView;
use crate::control::pod_table::PodRecords;
use crate::control::server::{AgentRequest, AnswerFuture, SyncHealth};
use crate::control::versions::Versions;
use crate::kubelet::agent_update::{
    AgentUpdates, Before, Judge, NodeNow, Place, Record, RunBefore, SLOT_VARIABLE, SeenRun, Slot, Subject, Verdict,
    Wanted, end_alarm, fault, is_damage,
};
use crate::kubelet::node::StatusInputs;
use crate::platform::apiserver::Client;
use crate::platform::host::clock;
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::protocol::sha256::sha256;
use crate::state::pods::{
    ContainerState, NodeEvent, ObservedCache, ObservedContainer, SourceName, SourceProblem, SyncEvent,
};
use crate::types::api::{EventKind, Pod, Reason, RestartPolicy};
use crate::types::error::ErrorChain;
use crate::types::time::Backoff;

pub(crate) struct AgentControl {
    pub(crate) root_dir: PathBuf,
    /// The file of `--config`.
    pub(crate) config_file: Option<PathBuf>,
    pub(crate) views: NodeViews,
    pub(crate) health: SyncHealth,
    pub(crate) status_inputs: Rc<StatusInputs>,
    /// `None` without a cluster.
    pub(crate) cluster: Option<Client>,
    pub(crate) inbox: Sender<SyncEvent>,
    /// For `coracle status`.
    pub(crate) line: RefCell<Option<String>>,
    /// The record that was read last.
    pub(crate) known: RefCell<Option<Record>>,
    /// Notified when the record has changed.
    pub(crate) changed: Signal,
    /// Ends this process, and starts the launcher in its place.
    pub(crate) restart: Sender<()>,
}

/// Interval of the checks during a trial.
const TRIAL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// First and longest wait after the record could not be read.
const UPDATE_RECORD_WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

impl AgentControl {
    /// Carries out a request. Returns what happens next, as one line.
    pub(super) fn request(self: &Rc<Self>, request: AgentRequest) -> AnswerFuture<String> {
        let control = Rc::clone(self);
        Box::pin(async move {
            control.record().await?;
            let line = match request {
                AgentRequest::Url { .. } => return Err("not supported here".to_owned()),
                AgentRequest::RuntimeVerdict => {
                    return control.read_record().await.map(|_| String::new());
                }
                AgentRequest::RollBack => {
                    let updates = control.updates();
                    let now = clock::timestamp().to_string();
                    let next = rt::blocking(move || updates.roll_back(&now)).await?;
                    format!("the agent restarts as {next}")
                }
                AgentRequest::Program { digest, version, within } => {
                    control.arm(Place::Program, digest, Some(version), within, None).await?
                }
                AgentRequest::Config { digest, within } => {
                    control.arm(Place::Config, digest, None, within, None).await?
                }
            };
            let _ = control.restart.try_send(());
            Ok(line)
        })
    }

    /// `requested_key`: the key of what the cluster or the manifests asked for.
    pub(super) async fn arm(
        &self,
        area: Place,
        digest: String,
        version: Option<String>,
        within: Duration,
        requested_key: Option<String>,
    ) -> Result<String, String> {
        let (updates, before, file) = (self.updates(), self.before(within), self.config_file.clone());
        let wanted = if version.is_some() { Wanted::Program } else { Wanted::Config };
        rt::blocking(move || {
            let stored = updates.path(area, &digest);
            updates.read(area, &digest).map_err(|error| format!("{}: {error}", stored.display()))?;
            let subject = match version {
                Some(version) => Subject::Program(Slot { digest, version }),
                None => config_subject(&updates, file, digest, requested_key.is_none())?,
            };
            let name = subject.name();
            // The record is written after the file: a power cut between them leaves a file that the next upgrade
            // removes.
            let written = updates.change(|record| {
                let armed = record.arm(subject, within, before);
                // In the same write, so that a rejected program is not tried again at the next start.
                if let Some(key) = requested_key {
                    *record.requested_key(wanted) = key;
                }
                armed
            });
            written.map_err(|error| format!("{}: {error}", updates.record_path().display()))??;
            Ok(format!("the agent restarts with {name} on trial"))
        })
        .await
    }

    /// Whether the agent's file has the content with this digest.
    pub(super) async fn has_config(&self, digest: &str) -> bool {
        let (file, digest) = (self.config_file.clone(), digest.to_owned());
        rt::blocking(move || file.is_some_and(|file| fs::read(file).is_ok_and(|text| sha256(&text) == digest))).await
    }

    pub(super) fn updates(&self) -> AgentUpdates {
        AgentUpdates::new(&self.root_dir)
    }

    /// The node before a trial.
    fn before(&self, within: Duration) -> Before {
        let (records, observed) = (self.views.records.read(), self.views.observed.read());
        let steady = i64::try_from(within.as_secs()).unwrap_or(i64::MAX);
        let old = clock::now().unix_seconds().saturating_sub(steady).saturating_mul(1_000_000_000);
        let runs = runs_before(&records, &observed, &self.views.versions.read(), old);
        // A line that is away now is not required of the trial: an update of a board offline would always be undone.
        let is_connected = self.is_connected();
        Before {
            boot: clock::boot_id(),
            runs,
            is_connected,
            has_url: records.sources.views().any(|view| has_url(&view)),
        }
    }

    fn now(&self) -> NodeNow {
        let (records, observed) = (self.views.records.read(), self.views.observed.read());
        let is_remote = |view: &SourceView| matches!(view.name, SourceName::Api | SourceName::Http);
        let has_rounds = self.health.rounds() > 0 && self.health.stalled(rt::now()).is_none();
        let mut now = NodeNow {
            boot: clock::boot_id(),
            loop_runs: has_rounds && records.sources.views().all(|view| view.ready || is_remote(&view)),
            runtime_answers: records.runtime.ready,
            is_connected: self.is_connected() && records.runtime.network_ready,
            has_url: records.sources.views().any(|view| has_url(&view)),
            ..NodeNow::default()
        };
        for pod in observed.iter() {
            for run in pod.containers.iter() {
                let seen = match &run.state {
                    ContainerState::Running { .. } => SeenRun::Running,
                    ContainerState::Exited(exit) => SeenRun::Exited(exit.code),
                    ContainerState::Created | ContainerState::Unknown => continue,
                };
                now.runs.insert(run.id.clone(), seen);
            }
            if pod.containers.iter().any(ObservedContainer::is_running) {
                now.running_pods.push(pod.uid.to_string());
            }
        }
        let wanted = records.sources.pods().filter(|source| source.pod.metadata.deletion_timestamp.is_none());
        now.wanted_pods = wanted.map(|source| records.running_uid(&source.pod.metadata.uid).to_string()).collect();
        now
    }

    /// The API server answers, and this node has its Node object.
    fn is_connected(&self) -> bool {
        self.cluster.as_ref().is_some_and(Client::is_connected) && self.status_inputs.node_is_known()
    }

    /// Judges the trial that this process is, and announces the end of a trial. Ends then.
    pub(crate) async fn run(self: Rc<Self>) {
        let updates = self.updates();
        // Without an update there is nothing to read.
        if !updates.record_path().exists() && !updates.has_runtime_verdict() {
            return;
        }
        let mut waits = Backoff::new(UPDATE_RECORD_WAITS.0, UPDATE_RECORD_WAITS.1);
        let record = loop {
            match self.read_record().await {
                Ok(record) => break record,
                Err(line) => log!(warn, "failed to read the record of updates, retrying", error = line),
            }
            rt::sleep(waits.next_wait()).await;
        };
        if !is_this_process(&record) {
            return;
        }
        let verdict = self.verdict(&record).await;
        if let Some(verdict) = verdict {
            self.end_trial(verdict).await;
        }
    }

    /// The record. A damaged one is replaced by what this process knows of it, in which a trial has failed. The error is
    /// one line.
    pub(super) async fn record(&self) -> Result<Record, String> {
        let (updates, known) = (self.updates(), self.known.borrow().clone());
        let is_slot = std::env::var_os(SLOT_VARIABLE).is_some();
        let is_another = known.as_ref().map_or(is_slot, |known| known.trial.is_some());
        let read = rt::blocking(move || {
            let file = updates.record_path();
            let read = match updates.record() {
                Err(error) if is_damage(&error) => {
                    log!(error, "record of updates unusable, set aside", file = file.display(), error = error);
                    let now = clock::timestamp().to_string();
                    updates.replace_damaged(known.unwrap_or_default(), &now).map(|record| (record, true))
                }
                read => read.map(|record| (record, false)),
            };
            read.map_err(|error| format!("{}: {error}", file.display()))
        });
        let (record, is_replaced) = read.await?;
        self.known.replace(Some(record.clone()));
        if is_replaced && is_another {
            // The new record has another program or configuration than this process, and the next one announces it.
            let _ = self.restart.try_send(());
        } else if is_replaced {
            self.line.replace(record.line());
            self.announce(&record).await;
        }
        Ok(record)
    }

    /// Reads the record, with the verdict on the runtime's configuration if there is a new one, and announces the last
    /// one.
    async fn read_record(&self) -> Result<Record, String> {
        // A damaged one takes no verdict.
        self.record().await?;
        let updates = self.updates();
        if let Err(error) = rt::blocking(move || updates.take_runtime_verdict()).await {
            log!(warn, "failed to take the verdict on the runtime's configuration", error = ErrorChain(&error));
        }
        let record = self.record().await?;
        self.line.replace(record.line());
        self.announce(&record).await;
        Ok(record)
    }

    /// `None` without a trial.
    async fn verdict(&self, record: &Record) -> Option<Verdict> {
        let trial = record.trial.as_ref()?;
        let mut judge = Judge::new(trial.within, trial.settle_time(), rt::now());
        let (mut was_connected, mut had_url) = (false, false);
        loop {
            rt::sleep(TRIAL_CHECK_INTERVAL).await;
            let mut now = self.now();
            // One answer since the start is enough: the line may go away again.
            was_connected |= now.is_connected;
            had_url |= now.has_url;
            (now.is_connected, now.has_url) = (was_connected, had_url);
            let verdict = judge.judge(fault(&trial.before, &now), rt::now());
            if verdict.is_some() {
                return verdict;
            }
        }
    }

    /// Writes the verdict. A bad one ends this process.
    async fn end_trial(&self, verdict: Verdict) {
        loop {
            let (updates, verdict) = (self.updates(), verdict.clone());
            let time = clock::timestamp().to_string();
            let written = rt::blocking(move || match verdict {
                Verdict::Good => updates.change(|record| record.accept(&time)),
                Verdict::Bad(reason) => updates.reject(&reason, &time).map(|()| false),
            });
            match written.await {
                Ok(true) => {
                    end_alarm();
                    if let Ok(record) = self.record().await {
                        self.line.replace(record.line());
                        self.announce(&record).await;
                    }
                    return;
                }
                Ok(false) => {
                    // The former program announces it.
                    log!(error, "trial of this agent failed, the former one runs again");
                    let _ = self.restart.try_send(());
                    return;
                }
                // The alarm ends this process if it goes on.
                Err(error) => log!(error, "failed to write the end of a trial", error = ErrorChain(&error)),
            }
            // Without a usable record the trial has failed.
            let _ = self.record().await;
            rt::sleep(TRIAL_CHECK_INTERVAL).await;
        }
    }

    /// Sends the event of the end of the last trial, once, and removes the files that it has left.
    pub(super) async fn announce(&self, record: &Record) {
        let Some(last) = record.last.as_ref().filter(|last| !last.is_announced) else { return };
        let line = last.line();
        let (kind, reason) = match last.is_accepted {
            true => (EventKind::Normal, Reason::AGENT_UPDATE_ACCEPTED),
            false => (EventKind::Warning, Reason::AGENT_UPDATE_REJECTED),
        };
        // The sync loop also logs it.
        // Sent first: a kill before the write repeats the event, and loses none.
        let _ = self.inbox.send(SyncEvent::NodeEvent(NodeEvent::new(kind, reason, line))).await;
        let updates = self.updates();
        let written = rt::blocking(move || {
            updates.change(|record| record.last.iter_mut().for_each(|last| last.is_announced = true))?;
            // A refused or rejected program is not needed any longer, nor is a former one. That of a lost record stays until
            // the next update, of which the file may be there already.
            let record = updates.record()?;
            if !record.is_lost() {
                updates.clean(&record, None);
            }
            Ok::<_, io::Error>(())
        });
        if let Err(error) = written.await {
            log!(warn, "failed to write the record of updates", error = ErrorChain(&error));
        }
        self.changed.notify();
    }
}

/// The containers that the agent on trial has to leave alone. `old` is the time, in nanoseconds since 1970, before which
/// one that was restarted was created if it runs steadily.
fn runs_before(records: &PodRecords, observed: &ObservedCache, versions: &Versions, old: i64) -> Vec<RunBefore> {
    let mut runs = Vec::new();
    for pod in records.pods() {
        let uid = records.running_uid(&pod.metadata.uid);
        // The agent on trial may have to replace it by another version.
        let stays = pod.metadata.deletion_timestamp.is_none() && !versions.may_be_replaced(&pod.metadata.uid);
        let Some(seen) = observed.pod(uid).filter(|_| stays) else { continue };
        // A container in a crash loop says nothing about the agent.
        let is_steady = |run: &&ObservedContainer| run.is_running() && (run.restart_count == 0 || run.created_at < old);
        runs.extend(seen.containers.iter().filter(is_steady).map(|run| RunBefore {
            id: run.id.clone(),
            uid: uid.to_string(),
            name: format!("{}/{}/{}", pod.metadata.namespace, pod.metadata.name, run.name),
            is_of_cluster: !pod.is_static(),
            may_end: may_end(pod, &run.name),
        }));
    }
    runs
}

/// The configuration with this digest in place of the agent's file. `is_change`: the file must have another content.
fn config_subject(
    updates: &AgentUpdates,
    file: Option<PathBuf>,
    candidate: String,
    is_change: bool,
) -> Result<Subject, String> {
    let path = file.ok_or("the agent has no --config FILE")?;
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    // A link stays one.
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::path::absolute(&path).map_err(failed)?,
        Err(error) => return Err(failed(error)),
    };
    let former = match fs::read(&path) {
        Ok(content) => Some(updates.store(Place::Config, &content).map_err(failed)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if is_change && former.as_ref() == Some(&candidate) {
        return Err(format!("{} has this content already", path.display()));
    }
    Ok(Subject::Config { path, candidate, former })
}

/// Whether this process runs what is on trial.
fn is_this_process(record: &Record) -> bool {
    let Some(trial) = record.trial.as_ref().filter(|trial| trial.starts > 0) else { return false };
    match &trial.subject {
        Subject::Program(slot) => std::env::var_os(SLOT_VARIABLE).is_some_and(|digest| digest == *slot.digest),
        Subject::Config { .. } => true,
    }
}

fn may_end(pod: &Pod, container: &str) -> bool {
    let is_main = pod.spec.containers.iter().any(|main| main.name == container);
    !is_main || pod.spec.restart_policy != RestartPolicy::Always
}

fn has_url(view: &SourceView) -> bool {
    let is_answer = |problem: &SourceProblem| problem.message.starts_with("warning: ");
    view.name == SourceName::Http && view.ready && view.problems.iter().all(is_answer)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::control::pod_sources::merge::Sources;
    use crate::control::pod_sources::static_pod::testing::pods_of;
    use crate::state::pods::{ObservedPod, SourcePod, SourceUpdate};

    fn update(image: &str) -> SourceUpdate {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: web, annotations: {{coracle.dev/ready-within: 60s}}}}, \
             spec: {{containers: [{{name: main, image: {image}}}]}}}}"
        );
        let pods = pods_of(&text).into_iter().map(|pod| SourcePod { pod: Arc::new(pod), origin: "/m/web.yaml".into() });
        SourceUpdate {
            source: SourceName::File,
            pods: pods.collect(),
            objects: Vec::new(),
            mirrors: Vec::new(),
            problems: Vec::new(),
            unread: Vec::new(),
            complete: true,
            relisted: false,
        }
    }

    /// The source and the runtime have the version that `versions` selects.
    fn runs(versions: &mut Versions, image: &str) -> Vec<RunBefore> {
        let mut update = update(image);
        versions.apply(&mut update, |_| false, |_| false);
        let uid = update.pods[0].pod.metadata.uid.clone();
        let mut pod = ObservedPod::new(uid.clone(), "default", "web-node");
        *pod.containers = vec![ObservedContainer::seen("c", "main", "s", ContainerState::Running { started_at: 1 })];
        let (mut records, mut observed) =
            (PodRecords::new(Sources::new(&[SourceName::File])), ObservedCache::default());
        records.sources.receive(update);
        let ticket = observed.begin();
        observed.observe(pod, &ticket);
        runs_before(&records, &observed, versions, 0)
    }

    #[test]
    fn trial_does_not_need_containers_whose_pod_is_about_to_be_replaced() {
        let mut versions = Versions::default();
        assert_eq!(runs(&mut versions, "a").len(), 1);
        assert_eq!(runs(&mut versions, "b"), [], "the images of the next version are being pulled");
        let next = versions.nexts().next().unwrap().1.metadata.uid.clone();
        assert!(versions.take_next(&next));
        assert_eq!(runs(&mut versions, "b"), [], "the version is on trial, and may be rejected");
    }
}
