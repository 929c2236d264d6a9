//! The launcher: the start of the installed program, which executes the program of an upgrade in its place.
//!
//! The process stays the same, so the init system, its pid file and its notifications know nothing of it. An alarm
//! outlives the execution: a candidate that hangs dies of SIGALRM, also one that knows nothing of trials.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::SigSet;
use nix::unistd::{alarm, execve};

use super::record::{Record, Slot, StartPlan, TrialEnd};
use super::slots::{AgentUpdates, Place, is_damage};
use crate::platform::host::clock;

/// The digest of the slot that was executed.
pub(crate) const SLOT_VARIABLE: &str = "CORACLE_AGENT_SLOT";
/// The path of the launcher.
pub(super) const LAUNCHER_VARIABLE: &str = "CORACLE_AGENT_LAUNCHER";

/// Executes what the record says in place of this process, or returns if that is this program. `say` logs one line.
pub(crate) fn launch(root_dir: &Path, version: &str, say: &dyn Fn(&str)) {
    let updates = AgentUpdates::new(root_dir);
    // The program of a slot begins here, too, and must not execute itself again.
    if env::var_os(SLOT_VARIABLE).is_some() || !updates.record_path().exists() {
        return;
    }
    let now = || clock::timestamp().to_string();
    let mut record = match updates.record() {
        Ok(record) => record,
        Err(error) => {
            say(&format!("{}: {error}; the installed program runs", updates.record_path().display()));
            if is_damage(&error) {
                if let Err(error) = updates.replace_damaged(Record::default(), &now()) {
                    say(&format!("the damaged record is not set aside: {error}"));
                }
            }
            return;
        }
    };
    let plan = record.plan(version, &now());
    // A candidate that cannot be executed or counted is rejected, and the second plan has no trial.
    let Err(reason) = carry_out(&updates, &plan, say) else { return };
    record = plan.after;
    if record.trial.is_some() {
        let writes = record.reject(&reason, &now());
        say(&record.last.as_ref().map_or_else(|| reason.clone(), TrialEnd::line));
        if let Err(error) = updates.carry_out(&writes, &record) {
            say(&format!("the end of the trial is not written: {error}"));
        }
        let plan =
            StartPlan { writes: Vec::new(), run: record.current.clone(), after: record, limit: None, line: None };
        match carry_out(&updates, &plan, say) {
            Ok(()) => return,
            Err(reason) => say(&reason),
        }
    } else {
        say(&reason);
    }
    say("the installed program runs");
}

/// Returns an error if the slot of the plan does not run, and `Ok` if this program is to go on.
fn carry_out(updates: &AgentUpdates, plan: &StartPlan, say: &dyn Fn(&str)) -> Result<(), String> {
    plan.line.iter().for_each(|line| say(line));
    updates.carry_out(&plan.writes, &plan.after).map_err(|error| format!("the start cannot be recorded: {error}"))?;
    if let Some(limit) = plan.limit {
        set_alarm(limit);
    }
    let Some(slot) = &plan.run else { return Ok(()) };
    let failure = execute_slot(updates, slot);
    end_alarm();
    Err(format!("{}: {failure}", updates.path(Place::Program, &slot.digest).display()))
}

/// Returns only if it fails.
fn execute_slot(updates: &AgentUpdates, slot: &Slot) -> io::Error {
    // Compares the digest: a card that loses bits costs the upgrade and not the agent.
    if let Err(error) = updates.read(Place::Program, &slot.digest) {
        return error;
    }
    let launcher = env::current_exe().unwrap_or_default();
    let variables = [(SLOT_VARIABLE, Some(slot.digest.as_ref())), (LAUNCHER_VARIABLE, Some(launcher.as_os_str()))];
    execute(&updates.path(Place::Program, &slot.digest), &variables)
}

/// Executes the launcher in place of this process, so that it decides again. Returns only if it fails.
pub(crate) fn restart() -> io::Error {
    end_alarm();
    let launcher = match env::var_os(LAUNCHER_VARIABLE) {
        Some(launcher) => PathBuf::from(launcher),
        None => match env::current_exe() {
            Ok(launcher) => launcher,
            Err(error) => return error,
        },
    };
    // A package has replaced the file, and the kernel names the former one.
    let launcher = launcher.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
    execute(Path::new(&launcher), &[(SLOT_VARIABLE, None), (LAUNCHER_VARIABLE, None)])
}

/// Executes `program` with the arguments and the environment of this process, but for `variables`. Returns only if it
/// fails. Not by `Command`, which hands a file that is no program to the shell.
fn execute(program: &Path, variables: &[(&str, Option<&OsStr>)]) -> io::Error {
    let text = |text: OsString| CString::new(text.into_vec()).ok();
    let Some(path) = text(program.as_os_str().to_owned()) else { return io::ErrorKind::InvalidInput.into() };
    let arguments: Vec<CString> = env::args_os().filter_map(text).collect();
    let is_other = |name: &OsStr| variables.iter().all(|(variable, _)| name != *variable);
    let kept = env::vars_os().filter(|(name, _)| is_other(name));
    let set = variables.iter().filter_map(|(name, value)| Some((OsString::from(name), OsString::from((*value)?))));
    let pair = |(mut name, value): (OsString, OsString)| {
        name.push("=");
        name.push(value);
        text(name)
    };
    let environment: Vec<CString> = kept.chain(set).filter_map(pair).collect();
    // The agent waits for SIGTERM with the signal blocked, and the mask outlives the execution.
    if let Err(error) = SigSet::empty().thread_set_mask() {
        return error.into();
    }
    match execve(&path, &arguments, &environment) {
        Err(error) => error.into(),
        Ok(never) => match never {},
    }
}

fn set_alarm(limit: Duration) {
    alarm::set(u32::try_from(limit.as_secs()).unwrap_or(u32::MAX).max(1));
}

/// After the verdict the process may run as long as it likes.
pub(crate) fn end_alarm() {
    alarm::cancel();
}
