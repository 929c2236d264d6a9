//! Starts the node agent: settings, then process setup, then the agent.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::process::ExitCode;

use nix::fcntl::{Flock, FlockArg};

use super::cluster_flags::{root_dir, with_cluster_flags};
use super::{failed, help, misused, print};
use crate::control::server::{record_panics, systemd};
use crate::kubelet::agent_update;
use crate::node_agent;
use crate::platform::config::{self, Config, KeptIdentity, Request};
use crate::platform::host::board_identity;
use crate::platform::host::procfs::Procfs;
use crate::types::error::ErrorChain;
use crate::types::log;

pub(super) fn run(arguments: &[String], is_kubelet: bool) -> ExitCode {
    // Before anything that another version may do in another way: flags and files may be those of the other.
    if !is_question(arguments) {
        agent_update::launch(&root_dir(arguments), env!("CARGO_PKG_VERSION"), &super::complain);
    }
    let (config, warnings) = match config::load(&with_cluster_flags(arguments)) {
        Ok(Request::Help) => return print(&help::text()),
        Ok(Request::Version) => return print(&help::version(is_kubelet)),
        Ok(Request::Run(config, warnings)) => (config, warnings),
        Err(error) => return misused(&ErrorChain(&error).to_string()),
    };
    log::init(config.process.verbosity, systemd::stderr_is_journal());
    for warning in &warnings.0 {
        log!(warn, warning);
    }
    // Before anything asks the runtime, which may be restarted.
    undo_runtime_trial(&config.root_dir);
    record_panics(&config.root_dir);
    // Memory limits of pods are less strict with swap.
    if let Some(swap) = Procfs::host().swap_area().filter(|_| config.process.fail_swap_on) {
        return failed(&format!("swap is on ({swap}): turn it off, or set failSwapOn to false"));
    }
    protect_from_oom(&config);
    let _lock = match config.process.lock_file.as_deref().map(hold).transpose() {
        Ok(lock) => lock,
        Err(error) => return failed(&format!("--lock-file: {error}")),
    };
    keep_identity(&config);
    node_agent::run(*config)
}

/// Keeps the name that a template gave the node, and the board's serial number. Only `coracle replace` makes the state
/// of another board that of this one.
fn keep_identity(config: &Config) {
    let serial = board_identity::serial(Path::new("/"));
    let kept = KeptIdentity::read(&config.root_dir);
    if let Some(serial) = serial.as_deref().filter(|serial| kept.is_of_other_board(serial)) {
        log!(warn, "state directory is of another board", board = kept.serial, this = serial);
    }
    let kept = kept.with(&config.node.name, config.node.template.as_ref(), serial);
    if kept == KeptIdentity::default() {
        return;
    }
    if let Err(error) = kept.keep(&config.root_dir) {
        log!(warn, "failed to keep the name of the node", error = ErrorChain(&error));
    }
}

/// Restores the runtime's configuration if nothing has judged the last one.
fn undo_runtime_trial(root_dir: &Path) {
    match agent_update::RuntimeTrial::abandoned(root_dir) {
        None => {}
        Some(Ok(trial)) => {
            let result = trial.undo("its trial has ended without a verdict");
            log!(warn, "configuration of the runtime", result = result);
        }
        Some(Err(error)) => log!(warn, "failed to read the trial of the runtime's configuration", error = error),
    }
}

/// Whether the agent would only print its help or version.
fn is_question(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| matches!(argument.as_str(), "-h" | "--help" | "--version"))
}

/// Waits for the lock, which is released when the process ends.
fn hold(path: &Path) -> io::Result<Flock<File>> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err((file, nix::Error::EWOULDBLOCK)) => {
            log!(info, "waiting for lock file", file = path.display());
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
        }
        Err((_, error)) => Err(error.into()),
    }
}

/// Makes the OOM killer prefer pods over the agent.
fn protect_from_oom(config: &Config) {
    if let Err(error) = fs::write("/proc/self/oom_score_adj", config.process.oom_score_adj.to_string()) {
        log!(warn, "failed to set oom_score_adj", wanted = config.process.oom_score_adj, error = ErrorChain(&error));
    }
}
