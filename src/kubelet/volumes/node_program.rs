//! Programs of the node that prepare volumes: `mkfs`, `mount`, `chattr` and others.

use std::io;
use std::process::{Command, Stdio};

use super::error::Problem;

/// Runs a program that has to succeed.
pub(super) fn run_checked(command: Command, name: &str) -> Result<(), Problem> {
    match run(command, name)? {
        (Some(0), _) => Ok(()),
        (_, message) => Err(failed(name, message)),
    }
}

/// Runs a program; returns its exit code, and its status with its output.
pub(super) fn run(mut command: Command, name: &str) -> Result<(Option<i32>, String), Problem> {
    let ended = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed(name, "not installed, but required for this volume".to_owned()),
        _ => failed(name, error.to_string()),
    })?;
    let message = [ended.stdout, ended.stderr].concat();
    let message = String::from_utf8_lossy(&message).trim().replace('\n', "; ");
    Ok((ended.status.code(), format!("{}: {message}", ended.status)))
}

pub(super) fn failed(program: &str, message: String) -> Problem {
    Problem::Helper { program: program.into(), message }
}
