//! The idle process of a container or sandbox.

use std::process::{Child, Command, Stdio};

/// Ends when dropped, and with the test in any case, because its standard input closes.
#[derive(Debug)]
pub(crate) struct Process(Option<Child>);

impl Process {
    pub(crate) fn start() -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self(Some(child.expect("cat can be started")))
    }

    /// A placeholder for a world without processes.
    pub(crate) fn imagined() -> Self {
        Self(None)
    }

    /// The PID; 0 for a placeholder.
    pub(crate) fn pid(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        // Another process may have killed it.
        let _ = child.kill();
        let _ = child.wait();
    }
}
