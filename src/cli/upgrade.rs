//! `coracle upgrade` and `coracle config apply`: updates of the agent and of its configuration, as a trial.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::command_table::{Config, Upgrade};
use super::local_api::{RequestFailure, change, change_within, escaped, get};
use super::outputs::TopOutput;
use super::{complain, failed, misused, print};
use crate::control::server::NodeStatus;
use crate::kubelet::agent_update::{
    AgentUpdates, Before, Place, Record, Slot, Subject, Trial, UPGRADE_KEY, foreign_program, is_newer,
};
use crate::kubelet::image_archives::FileDelta;
use crate::platform::config;
use crate::platform::host::{clock, file};
use crate::protocol::ed25519::{EXPECTED_PUBLIC_KEY, PublicKey, plain_signature};
use crate::protocol::sha256::sha256;

const MAX_UPGRADE_KEY_BYTES: u64 = 64 << 10;
/// How long a new program may take to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);
const VERSION_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// An interrupted command leaves the part of the file, which the next one continues.
const FETCH_TIMEOUT: Duration = Duration::from_secs(3600);
/// Interval of the checks of `--wait`.
const VERDICT_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Three starts, each with the pause of an init system, after the limit of a trial.
const WAIT_MARGIN: Duration = Duration::from_secs(120);

pub(super) fn run(command: &Upgrade) -> ExitCode {
    let done = match command.program.as_str() {
        "status" => return status(command),
        "rollback" => roll_back(command),
        url if ["https://", "http://", "oci://"].iter().any(|scheme| url.starts_with(scheme)) => {
            upgrade_from(command, url)
        }
        path => upgrade(command, Path::new(path)),
    };
    done.map_or_else(|line| failed(&line), |line| print(&format!("{line}\n")))
}

fn status(command: &Upgrade) -> ExitCode {
    let updates = AgentUpdates::new(&command.root_dir);
    match updates.record() {
        Ok(record) => print(&match command.output {
            TopOutput::Json => format!("{:#}\n", record.to_json()),
            TopOutput::Table => text(&record),
        }),
        Err(error) => failed(&format!("{}: {error}", updates.record_path().display())),
    }
}

fn text(record: &Record) -> String {
    let name = |slot: &Option<Slot>| slot.as_ref().map_or_else(|| "the installed program".to_owned(), Slot::name);
    let mut lines = vec![format!("Runs:   {}", name(&record.current))];
    if record.current.is_some() || record.previous.is_some() {
        lines.push(format!("Former: {}", name(&record.previous)));
    }
    if let Some(trial) = &record.trial {
        let Trial { subject, starts, within, .. } = trial;
        lines.push(format!("Trial:  {}, start {starts}, within {} s", subject.name(), within.as_secs()));
    }
    lines.extend(record.last.as_ref().map(|last| format!("Last:   {} {}", last.time, last.line())));
    lines.join("\n") + "\n"
}

fn roll_back(command: &Upgrade) -> Result<String, String> {
    match change(&command.local_socket, "POST", "/agent?what=rollback", &[]) {
        Ok(response) => Ok(result_line(&response)),
        Err(RequestFailure::Unreachable(_)) => {
            let next = AgentUpdates::new(&command.root_dir).roll_back(&clock::timestamp().to_string())?;
            Ok(format!("the agent is not running; its next start is {next}"))
        }
        Err(refused) => Err(refused.line()),
    }
}

/// The agent fetches the program itself, within its windows and budgets, and verifies it with its own key.
fn upgrade_from(command: &Upgrade, url: &str) -> Result<String, String> {
    if command.unsigned || command.signature.is_some() || command.public_key.is_some() {
        return Err(
            "--unsigned, --signature and --public-key are for files: of a URL the agent verifies URL.sig".to_owned()
        );
    }
    let (within, downgrade) = (command.within.0, command.allow_downgrade);
    let query = format!("what=url&url={}&within={}&downgrade={downgrade}", escaped(url), within.as_secs());
    let response = change_within(FETCH_TIMEOUT, &command.local_socket, "POST", &format!("/agent?{query}"), &[]);
    let line = response.map(|response| result_line(&response)).map_err(RequestFailure::line)?;
    if command.wait { wait(&AgentUpdates::new(&command.root_dir), within) } else { Ok(line) }
}

fn upgrade(command: &Upgrade, path: &Path) -> Result<String, String> {
    let program =
        file::read_all(path, Place::Program.limit()).map_err(|error| format!("{}: {error}", path.display()))?;
    let refused = |line: String| format!("{}: {line}", path.display());
    verify(command, path, &program)?;
    let updates = AgentUpdates::new(&command.root_dir);
    let program = rebuilt(&updates, program).map_err(refused)?;
    foreign_program(&program).map_or(Ok(()), Err).map_err(refused)?;
    let at_slots = |error: io::Error| format!("{}: {error}", updates.path(Place::Program, "").display());
    // Makes room first: a small disk may not have it for a third program.
    if let Ok(record) = updates.record() {
        updates.clean(&record, Some(&sha256(&program)));
    }
    let digest = updates.store(Place::Program, &program).map_err(at_slots)?;
    let version = version_of(&updates.path(Place::Program, &digest)).map_err(refused)?;
    let running = running_version(&command.local_socket);
    if is_newer(&running, &version) && !command.allow_downgrade {
        let line = format!("version {version} is older than {running}, which runs (--allow-downgrade takes it)");
        return Err(refused(line));
    }
    let within = command.within.0;
    let query = format!("what=program&digest={digest}&version={}&within={}", escaped(&version), within.as_secs());
    let subject = Subject::Program(Slot { digest, version });
    let line = arm(&updates, &command.local_socket, &query, subject, within)?;
    let installed = "the installed program stays; a package with a newer version replaces this upgrade";
    if command.wait { wait(&updates, within) } else { Ok(format!("{line}\n{installed}")) }
}

/// The program that a delta makes of the one that runs; other files stay what they are.
fn rebuilt(updates: &AgentUpdates, file: Vec<u8>) -> Result<Vec<u8>, String> {
    let Some(delta) = FileDelta::read(&file) else { return Ok(file) };
    let current = updates.record().map_err(|error| error.to_string())?.current;
    let old = match current {
        Some(current) => updates.read(Place::Program, &current.digest),
        None => fs::read("/proc/self/exe"),
    };
    delta?.rebuild(&old.map_err(|error| format!("the program that runs: {error}"))?)
}

/// Puts the subject on trial: by the running agent, which knows its pods, or by the next start.
fn arm(
    updates: &AgentUpdates,
    socket: &Path,
    query: &str,
    subject: Subject,
    within: Duration,
) -> Result<String, String> {
    match change(socket, "POST", &format!("/agent?{query}"), &[]) {
        Ok(response) => Ok(result_line(&response)),
        Err(RequestFailure::Unreachable(_)) => {
            let name = subject.name();
            let written = updates.change(|record| record.arm(subject, within, Before::default()));
            written.map_err(|error| format!("{}: {error}", updates.record_path().display()))??;
            Ok(format!("the agent is not running; its next start has {name} on trial"))
        }
        Err(refused) => Err(refused.line()),
    }
}

fn result_line(response: &Value) -> String {
    response.get("result").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Waits for the verdict. A rejection is an error.
fn wait(updates: &AgentUpdates, within: Duration) -> Result<String, String> {
    let end = Instant::now() + within * 3 + WAIT_MARGIN;
    loop {
        let record = updates.record().map_err(|error| format!("{}: {error}", updates.record_path().display()))?;
        match (record.trial, record.last) {
            (None, Some(last)) if last.is_accepted => return Ok(last.line()),
            (None, Some(last)) => return Err(last.line()),
            (None, None) => return Err("there is no trial".to_owned()),
            (Some(_), _) if Instant::now() >= end => {
                return Err("no verdict yet, see coracle upgrade status".to_owned());
            }
            (Some(_), _) => thread::sleep(VERDICT_CHECK_INTERVAL),
        }
    }
}

fn verify(command: &Upgrade, path: &Path, program: &[u8]) -> Result<(), String> {
    if command.unsigned {
        return Ok(());
    }
    let key_path = command.public_key.clone().unwrap_or_else(|| PathBuf::from(UPGRADE_KEY));
    let key = file::read_all(&key_path, MAX_UPGRADE_KEY_BYTES).map_err(|error| {
        format!("{}: {error} (--public-key names another, --unsigned needs none)", key_path.display())
    })?;
    let key = PublicKey::parse(&key).ok_or_else(|| format!("{}: {EXPECTED_PUBLIC_KEY}", key_path.display()))?;
    let signature_path = command.signature.clone().unwrap_or_else(|| {
        let mut name = path.as_os_str().to_owned();
        name.push(".sig");
        PathBuf::from(name)
    });
    let shown = signature_path.display();
    let signature =
        file::read_all(&signature_path, MAX_UPGRADE_KEY_BYTES).map_err(|error| format!("{shown}: {error}"))?;
    let signature =
        plain_signature(&signature).ok_or_else(|| format!("{shown}: expected 64 bytes, raw or in base64"))?;
    match key.has_signed(program, &signature) {
        true => Ok(()),
        false => Err(format!("{shown}: it is not the signature of {} by this key", path.display())),
    }
}

/// What the program says of itself. So it has run once before it replaces anything.
fn version_of(program: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("it cannot be executed: {error}");
    let mut command = Command::new(program);
    command.args(["version", "-o", "json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(failed)?;
    let end = Instant::now() + VERSION_TIMEOUT;
    // Nothing reads the pipe meanwhile, which has room for a version: a program that says more runs into the limit.
    while child.try_wait().map_err(failed)?.is_none() {
        if Instant::now() >= end {
            let _ = child.kill();
            let _ = child.wait();
            return Err("it does not print its version".to_owned());
        }
        thread::sleep(VERSION_CHECK_INTERVAL);
    }
    let output = child.wait_with_output().map_err(failed)?;
    let version: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    let version = version.and_then(|value| Some(value.get("version")?.as_str()?.to_owned()));
    version.filter(|_| output.status.success()).ok_or_else(|| "it does not print its version".to_owned())
}

/// Of the running agent, else of this program.
fn running_version(socket: &Path) -> String {
    let status: Option<NodeStatus> = get(socket, "/status").ok();
    status.map_or_else(|| env!("CARGO_PKG_VERSION").to_owned(), |status| status.version)
}

pub(super) fn configure(command: &Config) -> ExitCode {
    if command.action != "apply" {
        return misused(&format!("config: expected apply FILE, found {:?}", command.action));
    }
    apply(command).map_or_else(|line| failed(&line), |line| print(&format!("{line}\n")))
}

fn apply(command: &Config) -> Result<String, String> {
    let shown = command.file.display();
    let text = fs::read(&command.file).map_err(|error| format!("{shown}: {error}"))?;
    for warning in config::check_configuration_text(&text).map_err(|line| format!("{shown}: {line}"))? {
        complain(&format!("{shown}: {warning}"));
    }
    let updates = AgentUpdates::new(&command.root_dir);
    let digest = updates.store(Place::Config, &text).map_err(|error| format!("{shown}: {error}"))?;
    let within = command.within.0;
    // Only the running agent knows its file and its pods.
    let query = format!("what=config&digest={digest}&within={}", within.as_secs());
    let response = change(&command.local_socket, "POST", &format!("/agent?{query}"), &[]);
    let line = response.map(|response| result_line(&response)).map_err(|refused| refused.line())?;
    if command.wait { wait(&updates, within) } else { Ok(line) }
}
