//! The idle process of a container or sandbox.

use std::process::{Child, Command, Stdio};

/// Ends when dropped, and with the test in any case, because its standard input closes.
pub(crate) enum Process {
    Real(Child),
    /// One that only a simulation knows: its pid, and what ends it when dropped.
    Simulated(u32, Box<dyn Send>),
}

impl Process {
    pub(crate) fn start() -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self::Real(child.expect("cat can be started"))
    }

    pub(crate) fn pid(&self) -> u32 {
        match self {
            Self::Real(child) => child.id(),
            Self::Simulated(pid, _) => *pid,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Self::Real(child) = self else { return };
        // Another process may have killed it.
        let _ = child.kill();
        let _ = child.wait();
    }
}
