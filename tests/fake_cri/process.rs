//! The process of a container or sandbox: it only lasts.

use std::process::{Child, Command, Stdio};

/// Ends when it is dropped, and with the test however that ends: its standard input is then closed.
#[derive(Debug)]
pub(crate) struct Process(Option<Child>);

impl Process {
    pub(crate) fn start() -> Self {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        Self(Some(child.expect("cat can be started")))
    }

    /// In a world without processes.
    pub(crate) fn imagined() -> Self {
        Self(None)
    }

    /// 0 if it is imagined.
    pub(crate) fn pid(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else { return };
        // It may have been killed from outside.
        let _ = child.kill();
        let _ = child.wait();
    }
}
