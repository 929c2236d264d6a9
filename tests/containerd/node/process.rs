//! A process inside the private namespaces, controlled from outside.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::wait_for;

pub(crate) struct Process {
    /// The nsenter process, which waits for the actual process.
    nsenter: Child,
    pid: u32,
}

impl Process {
    /// Starts `command` and waits until nsenter's child runs `program`.
    pub(crate) fn start(mut command: Command, program: &Path) -> Self {
        let mut nsenter = command.spawn().expect("nsenter (util-linux) can be run");
        let pid = wait_for(&format!("{} to start", program.display()), Duration::from_secs(10), || {
            // A program that exits at once is reported by `ended`.
            let ended = nsenter.try_wait().unwrap().is_some();
            child_of(&nsenter, program).or(ended.then_some(0))
        });
        Self { nsenter, pid }
    }

    /// The PID as seen from outside.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if self.pid != 0 {
            let _ = kill(Pid::from_raw(self.pid.try_into().unwrap()), signal);
        }
    }

    /// Sends a signal and waits for the exit.
    pub(crate) fn end(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        wait_for("a process to end", Duration::from_secs(20), || self.nsenter.try_wait().unwrap())
    }

    /// The exit code if the process has exited; 128 plus the number for a signal.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let status = self.nsenter.try_wait().unwrap()?;
        status.code().or(status.signal().map(|signal| 128 + signal))
    }
}

/// The child of a process that runs `program`.
pub(super) fn child_of(parent: &Child, program: &Path) -> Option<u32> {
    let parent = parent.id();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let pid = children.split_whitespace().next()?.parse().ok()?;
    let runs = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    (runs.file_name() == program.file_name()).then_some(pid)
}
