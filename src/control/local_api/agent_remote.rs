//! Upgrades of the agent from a URL: asked for by `coracle upgrade URL`, or by an annotation of the node.

use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::agent_control::AgentControl;
use crate::control::server::{AgentRequest, AnswerFuture};
use crate::kubelet::agent_update::{Place, Record, foreign_program, is_newer};
use crate::kubelet::image_transfer::{FileFetch, LinkBudget, fetch_small};
use crate::platform::apiserver::{Client, Patch, Rank, Request};
use crate::platform::host::{clock, file, program};
use crate::platform::net::{Dialer, Url};
use crate::platform::rt;
use crate::protocol::ed25519::{EXPECTED_PUBLIC_KEY, PublicKey, plain_signature};
use crate::protocol::sha256::sha256;
use crate::types::architecture::ARCHITECTURE;
use crate::types::error::ErrorChain;
use crate::types::text::without_credentials;
use crate::types::time::Backoff;

pub(crate) struct RemoteUpgrades {
    pub(crate) control: Rc<AgentControl>,
    pub(crate) dialer: Dialer,
    pub(crate) budget: Rc<LinkBudget>,
    /// File with the key that must have signed every program.
    pub(crate) key: PathBuf,
    pub(crate) node_name: String,
}

/// How the last trial ended, as one line.
const UPGRADE_STATUS_ANNOTATION: &str = "coracle.dev/upgrade-status";
/// Condition of the node: the last trial was accepted.
const UPGRADE_CONDITION: &str = "AgentUpgraded";
/// The limit of a trial that an annotation asks for.
const REMOTE_TRIAL_LIMIT: Duration = Duration::from_secs(300);
/// How long a new program may take to print its version.
const REMOTE_VERSION_TIMEOUT: Duration = Duration::from_secs(30);
/// First and longest wait after a failed fetch or report.
const REMOTE_WAITS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(3600));
const MAX_REMOTE_KEY_BYTES: u64 = 64 << 10;
const MAX_REMOTE_PROGRAM_BYTES: u64 = 64 << 20;

/// Why an upgrade did not begin, as one line.
enum Obstacle {
    /// It is tried again.
    Passing(String),
    /// The file is not accepted, whenever it is fetched.
    Final(String),
    /// The program runs already.
    Present(String),
}

impl RemoteUpgrades {
    pub(super) fn request(self: &Rc<Self>, request: AgentRequest) -> AnswerFuture<String> {
        let AgentRequest::Url { url, within, allow_downgrade } = request else { return self.control.request(request) };
        let remote = Rc::clone(self);
        Box::pin(async move {
            let armed = remote.upgrade(&url, within, allow_downgrade, None).await;
            let line = armed.map_err(|obstacle| match obstacle {
                Obstacle::Passing(line) | Obstacle::Final(line) | Obstacle::Present(line) => {
                    format!("{}: {line}", without_credentials(&url))
                }
            })?;
            let _ = remote.control.restart.try_send(());
            Ok(line)
        })
    }

    /// Follows the annotation of the node, and reports there how the last trial ended.
    pub(crate) async fn run(self: Rc<Self>) {
        let Some(client) = &self.control.cluster else { return };
        let inputs = &self.control.status_inputs;
        let mut waits = Backoff::new(REMOTE_WAITS.0, REMOTE_WAITS.1);
        let mut reported = None;
        loop {
            let seen = (inputs.wanted_upgrade_changed.changes(), self.control.changed.changes());
            let wanted = inputs.wanted_upgrade();
            let record = self.record(&wanted).await;
            let last = record.as_ref().and_then(|record| record.last.as_ref());
            let status = last.map(|last| (last.is_accepted, last.line(), last.time.clone()));
            let mut is_late = false;
            if status.is_some() && status != reported {
                is_late = !self.report(client, status.as_ref()).await;
                reported = if is_late { None } else { status };
            }
            if !wanted.is_empty() && record.is_some_and(|record| record.trial.is_none() && record.asked != wanted) {
                is_late |= self.follow(&wanted).await;
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

    /// `None` if there is nothing to report and to do, or the record cannot be read.
    async fn record(&self, wanted: &str) -> Option<Record> {
        let updates = self.control.updates();
        // On a node without updates, the disk is not asked.
        if wanted.is_empty() && !updates.record_path().exists() {
            return None;
        }
        rt::blocking(move || updates.record()).await.ok()
    }

    /// Upgrades as the annotation asks. True if it has to be tried again.
    async fn follow(&self, url: &str) -> bool {
        match self.upgrade(url, REMOTE_TRIAL_LIMIT, false, Some(url.to_owned())).await {
            Ok(line) => {
                log!(info, "upgrade requested by the node's annotation", url = without_credentials(url), result = line);
                let _ = self.control.restart.try_send(());
                false
            }
            Err(Obstacle::Passing(line)) => {
                log!(warn, "failed to fetch upgrade, retrying", url = without_credentials(url), error = line);
                true
            }
            Err(Obstacle::Present(_)) => {
                let (updates, url) = (self.control.updates(), url.to_owned());
                rt::blocking(move || updates.change(|record| record.asked = url)).await.is_err()
            }
            Err(Obstacle::Final(line)) => {
                let (updates, url, now) = (self.control.updates(), url.to_owned(), clock::timestamp().to_string());
                let shown = without_credentials(&url);
                let refused = rt::blocking(move || {
                    updates.change(|record| record.refuse(&url, &shown, &line, &now))?;
                    updates.record()
                });
                match refused.await {
                    Ok(record) => {
                        self.control.announce(&record).await;
                        false
                    }
                    Err(error) => {
                        log!(warn, "failed to write the record of updates", error = ErrorChain(&error));
                        true
                    }
                }
            }
        }
    }

    /// Fetches and verifies the program, and puts it on trial.
    async fn upgrade(
        &self,
        url: &str,
        within: Duration,
        allow_downgrade: bool,
        asked: Option<String>,
    ) -> Result<String, Obstacle> {
        let text = url.replace("{arch}", ARCHITECTURE);
        let at = Url::parse(&text).ok_or_else(|| Obstacle::Final("expected an http or https URL".to_owned()))?;
        let (key, signature) = self.signature(&at).await.map_err(Obstacle::Passing)?;
        // A part belongs to its signature, so that none of another file is continued.
        let part = self.control.root_dir.join("coracle/agent/fetch").join(sha256(&signature));
        let (dialer, budget) = (self.dialer.clone(), Rc::clone(&self.budget));
        let fetch = FileFetch { dialer, budget, part, limit: MAX_REMOTE_PROGRAM_BYTES };
        fetch.forget_others().await;
        let program = fetch.run(&at).await.map_err(Obstacle::Passing)?;
        fetch.forget().await;
        if !key.has_signed(&program, &signature) {
            return Err(Obstacle::Final("it is not signed by this node's key".to_owned()));
        }
        foreign_program(&program).map_or(Ok(()), |line| Err(Obstacle::Final(line)))?;
        let updates = self.control.updates();
        let stored = rt::blocking(move || {
            let digest = updates.store(Place::Program, &program)?;
            Ok::<_, std::io::Error>((updates.path(Place::Program, &digest), digest))
        });
        let (path, digest) = stored.await.map_err(|error| Obstacle::Passing(error.to_string()))?;
        let record = self.record(url).await.unwrap_or_default();
        if record.current.is_some_and(|current| current.digest == digest) {
            return Err(Obstacle::Present("it runs already".to_owned()));
        }
        let version = version_of(path).await.map_err(Obstacle::Final)?;
        let running = env!("CARGO_PKG_VERSION");
        if is_newer(running, &version) && !allow_downgrade {
            return Err(Obstacle::Final(format!("version {version} is older than {running}, which runs")));
        }
        self.control.arm(Place::Program, digest, Some(version), within, asked).await.map_err(Obstacle::Final)
    }

    /// The key of this node, and the signature beside the program: one that is missing costs no program.
    async fn signature(&self, at: &Url) -> Result<(PublicKey, Vec<u8>), String> {
        let (path, shown) = (self.key.clone(), self.key.display().to_string());
        let key = rt::blocking(move || file::read_all(&path, MAX_REMOTE_KEY_BYTES)).await;
        let key = key.map_err(|error| format!("{shown}: {error}"))?;
        let key = PublicKey::parse(&key).ok_or_else(|| format!("{shown}: {EXPECTED_PUBLIC_KEY}"))?;
        let mut place = at.clone();
        place.target = match at.target.split_once('?') {
            Some((path, query)) => format!("{path}.sig?{query}"),
            None => format!("{}.sig", at.target),
        };
        let response = fetch_small(&self.dialer, &place, MAX_REMOTE_KEY_BYTES).await;
        let response = response.map_err(|line| format!("signature: {line}"))?;
        let signature = plain_signature(&response).ok_or("signature: expected 64 bytes, raw or in base64")?;
        Ok((key, signature))
    }

    /// Writes the annotation and the condition. False if that failed.
    async fn report(&self, client: &Client, status: Option<&(bool, String, String)>) -> bool {
        let Some((is_accepted, line, time)) = status else { return true };
        let path = format!("/api/v1/nodes/{}", self.node_name);
        let annotation = json!({ "metadata": { "annotations": { UPGRADE_STATUS_ANNOTATION: line } } });
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
