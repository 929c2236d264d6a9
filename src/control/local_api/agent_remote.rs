//! Updates of the agent and of its configuration from elsewhere: asked for by `coracle upgrade URL`, annotations of the
//! node, or the document in the signed manifests of a URL.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::agent_control::AgentControl;
use super::agent_fetch::{Obstacle, ProgramFetch};
use crate::control::server::{AgentRequest, AnswerFuture};
use crate::kubelet::agent_update::{ConfigWish, Place, Record, Wanted, Wish, foreign_program};
use crate::kubelet::image_archives::FileDelta;
use crate::kubelet::node::UPGRADE_CONDITION;
use crate::platform::apiserver::{Client, Patch, Rank, Request};
use crate::platform::config::check_configuration_text;
use crate::platform::host::{clock, file, program};
use crate::platform::rt;
use crate::protocol::sha256::sha256;
use crate::types::error::ErrorChain;
use crate::types::text::without_credentials;
use crate::types::time::Backoff;

pub(crate) struct RemoteUpgrades {
    pub(crate) control: Rc<AgentControl>,
    pub(crate) fetch: ProgramFetch,
    pub(crate) node_name: String,
    /// What became of the document of the manifests, as one line; empty without one.
    pub(crate) followed: RefCell<String>,
}

/// How the last trial ended, as one line.
const UPGRADE_STATUS_ANNOTATION: &str = "coracle.dev/upgrade-status";
/// What the cluster or the manifests asked for last, once it is decided.
const UPGRADE_TRIED_ANNOTATION: &str = "coracle.dev/upgrade-tried";
const CONFIG_TRIED_ANNOTATION: &str = "coracle.dev/config-tried";
/// How long a new program may take to print its version.
const REMOTE_VERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// First and longest wait after a failed fetch or report.
const REMOTE_WAITS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));
const MAX_RUNNING_PROGRAM_BYTES: u64 = 256 << 20;

impl RemoteUpgrades {
    pub(super) fn request(self: &Rc<Self>, request: AgentRequest) -> AnswerFuture<String> {
        let AgentRequest::Url { url, within, allow_downgrade } = request else { return self.control.request(request) };
        let remote = Rc::clone(self);
        Box::pin(async move {
            let wish = Wish { within, allow_downgrade, ..Wish::of_url(&url) };
            let armed = remote.upgrade(&wish, false).await;
            let line = armed.map_err(|obstacle| format!("{}: {}", without_credentials(&url), obstacle.line()))?;
            let _ = remote.control.restart.try_send(());
            Ok(line)
        })
    }

    /// Follows the document of the manifests, else the annotations of the node, and reports how the last trial ended.
    pub(crate) async fn run(self: Rc<Self>) {
        let inputs = &self.control.status_inputs;
        let mut waits = Backoff::new(REMOTE_WAITS.0, REMOTE_WAITS.1);
        let mut reported = None;
        loop {
            let seen = (inputs.wanted_upgrade_changed.changes(), self.control.changed.changes());
            let (wish, config) = self.wishes();
            let mut is_late = false;
            let record = self.record(wish.is_some() || config.is_some()).await.unwrap_or_else(|line| {
                log!(warn, "failed to read the record of updates, retrying", error = line);
                self.show(line + "; tried again");
                is_late = true;
                None
            });
            let report = record.as_ref().and_then(TrialReport::of);
            if let (Some(client), Some(report)) = (&self.control.cluster, report) {
                if reported.as_ref() != Some(&report) {
                    is_late = !self.report(client, &report).await;
                    reported = (!is_late).then_some(report);
                }
            }
            if let Some(record) = &record {
                if wish.is_some() || config.is_some() {
                    self.show(record.line().unwrap_or_else(|| "nothing to do".to_owned()));
                }
                let open = wish.as_ref().filter(|wish| wish.is_open(record));
                let open_config = config.as_ref().filter(|config| config.is_open(record));
                match self.follow_all(open, open_config).await {
                    // The record has changed.
                    Ok(true) => continue,
                    Ok(false) => {}
                    Err(line) => {
                        self.show(line + "; tried again");
                        is_late = true;
                    }
                }
            }
            let changed = rt::either(inputs.wanted_upgrade_changed.beyond(seen.0), self.control.changed.beyond(seen.1));
            if is_late {
                rt::either(changed, rt::sleep(waits.next_wait())).await;
            } else {
                waits.reset();
                changed.await;
            }
        }
    }

    /// What the manifests ask for, or else the cluster.
    fn wishes(&self) -> (Option<Wish>, Option<ConfigWish>) {
        let inputs = &self.control.status_inputs;
        let Some(document) = inputs.wanted_agent() else {
            self.followed.take();
            let url = |url: String| Some(url).filter(|url| !url.is_empty());
            let wish = url(inputs.wanted_upgrade()).map(|url| Wish::of_url(&url));
            return (wish, url(inputs.wanted_config()).map(ConfigWish::Url));
        };
        let wish = Wish::of_document(&document).unwrap_or_else(|line| {
            self.followed.replace(line);
            None
        });
        (wish, ConfigWish::of_document(&document))
    }

    /// Whether something has begun or was refused for good. An error is tried again, and does not keep the configuration
    /// from being tried.
    async fn follow_all(&self, wish: Option<&Wish>, config: Option<&ConfigWish>) -> Result<bool, String> {
        let mut late = None;
        if let Some(wish) = wish {
            match self.follow(wish).await {
                Ok(()) => return Ok(true),
                Err(line) => late = Some(format!("{}: {line}", wish.name())),
            }
        }
        if let Some(config) = config {
            let begun = self.configure(config).await;
            let (key, name) = (config.key(), config.name());
            match self.conclude(Wanted::Config, key, name.clone(), begun).await {
                Ok(()) => return Ok(true),
                Err(line) => late = Some(format!("{name}: {line}")),
            }
        }
        late.map_or(Ok(false), Err)
    }

    /// Shows the line if the manifests ask for a version.
    fn show(&self, line: String) {
        if self.control.status_inputs.wanted_agent().is_some() {
            self.followed.replace(line);
        }
    }

    /// `None` if there is nothing to report and to do. The error is one line.
    async fn record(&self, is_needed: bool) -> Result<Option<Record>, String> {
        // On a node without updates, the disk is not asked.
        if !is_needed && !self.control.updates().record_path().exists() {
            return Ok(None);
        }
        self.control.record().await.map(Some)
    }

    async fn follow(&self, wish: &Wish) -> Result<(), String> {
        let begun = self.upgrade(wish, true).await;
        self.conclude(Wanted::Program, wish.key.clone(), wish.name(), begun).await
    }

    /// Restarts into a trial that has begun, or notes that the wish was tried. An error is tried again.
    async fn conclude(
        &self,
        wanted: Wanted,
        key: String,
        name: String,
        begun: Result<String, Obstacle>,
    ) -> Result<(), String> {
        let obstacle = match begun {
            Ok(line) => {
                log!(info, "update requested", wanted = name, result = line);
                let _ = self.control.restart.try_send(());
                return Ok(());
            }
            Err(obstacle) => obstacle,
        };
        let (updates, now) = (self.control.updates(), clock::timestamp().to_string());
        let written = match obstacle {
            Obstacle::Passing(line) => {
                log!(warn, "failed to fetch update, retrying", wanted = name, error = line);
                return Err(line);
            }
            // The key of a document is not its name. A document is followed without a report.
            Obstacle::Present(_) if key == name => {
                rt::blocking(move || updates.change(|record| record.note_present(wanted, &key, &name, &now))).await
            }
            Obstacle::Present(_) => {
                rt::blocking(move || updates.change(|record| *record.requested_key(wanted) = key)).await
            }
            Obstacle::Final(line) => {
                rt::blocking(move || updates.change(|record| record.refuse(wanted, &key, &name, &line, &now))).await
            }
        };
        if let Err(error) = written {
            log!(warn, "failed to write the record of updates", error = ErrorChain(&error));
            return Err(ErrorChain(&error).to_string());
        }
        if let Ok(Some(record)) = self.record(true).await {
            self.control.line.replace(record.line());
            self.control.announce(&record).await;
        }
        Ok(())
    }

    /// Checks the wanted configuration, and puts it on trial.
    async fn configure(&self, config: &ConfigWish) -> Result<String, Obstacle> {
        let text = match config {
            ConfigWish::Text(text, _) => text.clone().into_bytes(),
            ConfigWish::Url(url) => self.fetch.file(&Wish::of_url(url), Wanted::Config).await?,
        };
        check_configuration_text(&text).map_err(Obstacle::Final)?;
        let updates = self.control.updates();
        let stored = rt::blocking(move || updates.store(Place::Config, &text)).await;
        let digest = stored.map_err(|error| Obstacle::Passing(error.to_string()))?;
        let record = self.record(true).await.map_err(Obstacle::Passing)?;
        // That of a lost record may have been on trial, and has another one.
        let is_lost = record.is_some_and(|record| record.is_lost());
        if !is_lost && self.control.has_config(&digest).await {
            return Err(Obstacle::Present("it is the present one".to_owned()));
        }
        let armed = self.control.arm(Place::Config, digest, None, config.within(), Some(config.key())).await;
        armed.map_err(Obstacle::Final)
    }

    /// Fetches and verifies the program, and puts it on trial. `is_noted`: the record keeps the key of the wish.
    async fn upgrade(&self, wish: &Wish, is_noted: bool) -> Result<String, Obstacle> {
        let record = self.record(true).await.map_err(Obstacle::Passing)?.unwrap_or_default();
        let current = record.current.map(|current| current.digest);
        let running = env!("CARGO_PKG_VERSION");
        let digest = match &current {
            None if wish.digest.is_some() => {
                rt::blocking(|| running_program().ok().map(|program| sha256(&program))).await
            }
            digest => digest.clone(),
        };
        if wish.is_met_by(running, || digest) {
            return Err(Obstacle::Present("it runs already".to_owned()));
        }
        let updates = self.control.updates();
        // Makes room first: a small disk may not have it for a third program.
        let _ = rt::blocking(move || updates.record().map(|record| updates.clean(&record, None))).await;
        let program = self.fetch.file(wish, Wanted::Program).await?;
        let rebuilt = rt::slow(move || match FileDelta::read(&program) {
            Some(delta) => delta?.rebuild(&running_program().map_err(|error| error.to_string())?),
            None => Ok(program),
        });
        let program = rebuilt.await.map_err(Obstacle::Final)?;
        foreign_program(&program).map_or(Ok(()), |line| Err(Obstacle::Final(line)))?;
        let updates = self.control.updates();
        let stored = rt::blocking(move || {
            let digest = updates.store(Place::Program, &program)?;
            Ok::<_, io::Error>((updates.path(Place::Program, &digest), digest))
        });
        let (path, digest) = stored.await.map_err(|error| Obstacle::Passing(error.to_string()))?;
        if current.as_ref() == Some(&digest) {
            return Err(Obstacle::Present("it runs already".to_owned()));
        }
        let version = version_of(path).await.map_err(Obstacle::Final)?;
        wish.refusal(&version, running).map_or(Ok(()), |line| Err(Obstacle::Final(line)))?;
        let asked = is_noted.then(|| wish.key.clone());
        self.control.arm(Place::Program, digest, Some(version), wish.within, asked).await.map_err(Obstacle::Final)
    }

    /// Writes the annotations and the condition. False if that failed.
    async fn report(&self, client: &Client, report: &TrialReport) -> bool {
        let TrialReport { is_accepted, line, time, tried } = report;
        let path = format!("/api/v1/nodes/{}", self.node_name);
        let mut annotations = json!({ UPGRADE_STATUS_ANNOTATION: line });
        for (name, key) in [UPGRADE_TRIED_ANNOTATION, CONFIG_TRIED_ANNOTATION].into_iter().zip(tried) {
            if let (Value::Object(annotations), false) = (&mut annotations, key.is_empty()) {
                annotations.insert(name.to_owned(), key.as_str().into());
            }
        }
        let annotation = json!({ "metadata": { "annotations": annotations } });
        let (status, reason) = if *is_accepted { ("True", "Accepted") } else { ("False", "Rejected") };
        let condition = json!({ "status": { "conditions": [{
            "type": UPGRADE_CONDITION, "status": status, "reason": reason, "message": line,
            "lastTransitionTime": time, "lastHeartbeatTime": time,
        }] } });
        for (path, patch) in [(path.clone(), annotation), (path + "/status", condition)] {
            let request = Request::patch(path, Patch::StrategicMerge, &patch).unread().ranked(Rank::Node);
            if let Err(error) = client.send(&request).await {
                log!(info, "failed to report the end of a trial, retrying", error = ErrorChain(&error));
                return false;
            }
        }
        true
    }
}

/// How the last trial ended, for the cluster.
#[derive(Debug, PartialEq, Eq)]
struct TrialReport {
    is_accepted: bool,
    line: String,
    time: String,
    /// The program and the configuration that were asked for last.
    tried: [String; 2],
}

impl TrialReport {
    /// `None` without a trial, and while there is one.
    fn of(record: &Record) -> Option<Self> {
        let last = record.last.as_ref().filter(|_| record.trial.is_none())?;
        let tried = [record.requested_key.clone(), record.requested_config_key.clone()];
        Some(Self { is_accepted: last.is_accepted, line: last.line(), time: last.time.clone(), tried })
    }
}

/// What the program says of itself. So it has run once before it replaces anything.
async fn version_of(path: PathBuf) -> Result<String, String> {
    let mut command = Command::new(path);
    command.args(["version", "-o", "json"]);
    let output = program::run(command, Vec::new(), REMOTE_VERSION_TIMEOUT).await;
    let output = output.map_err(|error| format!("it cannot be executed: {}", ErrorChain(&error)))?;
    let version: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    let version = version.and_then(|value| Some(value.get("version")?.as_str()?.to_owned()));
    version.filter(|_| output.status.success()).ok_or_else(|| "it does not print its version".to_owned())
}

/// The program that runs.
fn running_program() -> io::Result<Vec<u8>> {
    file::read_all(Path::new("/proc/self/exe"), MAX_RUNNING_PROGRAM_BYTES)
}
