//! `coracle runtime-config RUNTIME --apply FILE`: puts a configuration of the runtime on trial.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::board_reader::agent_config;
use crate::cli::command_table::RuntimeConfig;
use crate::cli::outputs::RuntimeName;
use crate::kubelet::agent_update::{Fault, Judge, RuntimeTrial, Verdict};
use crate::platform::cri::{RuntimeService, v1};
use crate::platform::{rpc, rt};
use crate::protocol::grpc;
use crate::types::error::ErrorChain;

/// Time limit of one question.
const RUNTIME_TRIAL_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const RUNTIME_TRIAL_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long the runtime has to be good, at most.
const MAX_RUNTIME_SETTLE_TIME: Duration = Duration::from_secs(10);

/// Returns what happened, as one line.
pub(super) fn apply(command: &RuntimeConfig, source: &Path) -> Result<String, String> {
    let content = fs::read(source).map_err(|error| format!("{}: {error}", source.display()))?;
    if let Some(abandoned) = RuntimeTrial::abandoned(&command.root_dir) {
        return Err(abandoned.map_or_else(|line| line, |trial| trial.undo("no verdict")) + "; run the command again");
    }
    let endpoint = agent_config(command).runtime.endpoint.to_string_lossy().into_owned();
    let before = running(&endpoint).map_err(|error| format!("the runtime does not answer: {error}"))?;
    let target = command.file.clone().unwrap_or_else(|| default_file(command.runtime));
    let restart = command.restart_command.clone().map_or_else(|| restart_command(command.runtime), Ok)?;
    let trial = RuntimeTrial::begin(&command.root_dir, &target, &content, &restart)?;
    let within = command.within.0;
    let mut judge = Judge::new(within, (within / 5).min(MAX_RUNTIME_SETTLE_TIME), Instant::now());
    loop {
        thread::sleep(RUNTIME_TRIAL_CHECK_INTERVAL);
        match judge.judge(fault(&before, running(&endpoint).as_deref()), Instant::now()) {
            None => {}
            Some(Verdict::Good) => return trial.accept().map(|()| format!("{} accepted", target.display())),
            Some(Verdict::Bad(why)) => return Err(trial.undo(&why)),
        }
    }
}

/// What is not as it was before. Everything may pass until the limit: a runtime finds its containers after its start.
fn fault(before: &[String], now: Result<&[String], &String>) -> Option<Fault> {
    let line = match now {
        Err(error) => format!("the runtime does not answer: {error}"),
        Ok(now) => format!("container {} does not run any longer", before.iter().find(|id| !now.contains(id))?),
    };
    Some(Fault { line, is_final: false })
}

/// The ids of the running containers.
fn running(endpoint: &str) -> Result<Vec<String>, String> {
    let client = rpc::Client::with_limit(endpoint, grpc::MAX_MESSAGE_BYTES);
    let runtime = RuntimeService::new(client, RUNTIME_TRIAL_ANSWER_TIMEOUT);
    let listed = rt::block_on(rt::deadline(RUNTIME_TRIAL_ANSWER_TIMEOUT, runtime.list_containers(None)));
    let listed = listed.map_err(|_| "timed out".to_owned())?.map_err(|error| ErrorChain(&error).to_string())?;
    let running = listed.into_iter().filter(|container| container.state == v1::ContainerState::Running);
    Ok(running.map(|container| container.id).collect())
}

fn default_file(runtime: RuntimeName) -> PathBuf {
    match runtime {
        RuntimeName::Containerd => "/etc/containerd/config.toml".into(),
        RuntimeName::Crio => "/etc/crio/crio.conf.d/90-coracle-lean.conf".into(),
    }
}

fn restart_command(runtime: RuntimeName) -> Result<String, String> {
    let name = runtime.program();
    if Path::new("/run/systemd/system").is_dir() {
        return Ok(format!("systemctl restart {name}"));
    }
    match Path::new("/sbin/rc-service").exists() {
        true => Ok(format!("rc-service {name} restart")),
        false => Err(format!("--restart-command is required: neither systemd nor OpenRC restarts {name} here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_container_has_to_run_again_and_new_ones_may() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let line = |before: &[&str], now: Result<&[&str], &str>| {
            let now = now.map(ids).map_err(str::to_owned);
            fault(&ids(before), now.as_deref()).map(|fault| fault.line)
        };
        assert_eq!(line(&["a", "b"], Ok(&["b", "c", "a"])), None);
        assert_eq!(line(&[], Ok(&[])), None);
        assert_eq!(line(&["a", "b"], Ok(&["a"])).unwrap(), "container b does not run any longer");
        assert_eq!(line(&[], Err("x")).unwrap(), "the runtime does not answer: x");
    }
}
