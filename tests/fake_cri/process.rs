//! The process of a container or sandbox: it only lasts.

use std::process::{Child, Command, Stdio};

/// Ends when it is dropped, and with the test however that ends: its standard input is then closed.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start() -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self(child.expect("cat can be started"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have been killed from outside.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
