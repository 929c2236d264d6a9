//! Signals with CRI's numbers, which differ from the kernel's. Pure.

use crate::protocol::protobuf::{Field, Slot};

/// The stop signal of a container. The default leaves it to the image and the runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signal(pub i32);

impl Signal {
    pub const RUNTIME_DEFAULT: Self = Self(0);

    /// The signal with a name such as `SIGTERM` or `SIGRTMIN+3`.
    pub fn from_name(name: &str) -> Option<Self> {
        let index = SIGNAL_NAMES.iter().position(|signal_name| *signal_name == name)?;
        i32::try_from(index).ok().map(|index| Self(index + 1))
    }

    /// The name, such as `SIGTERM`; `None` for the runtime's default and for unknown numbers.
    pub fn name(self) -> Option<&'static str> {
        let index = usize::try_from(self.0).ok()?.checked_sub(1)?;
        SIGNAL_NAMES.get(index).copied()
    }
}

impl Field for Signal {
    fn put(&self, number: u32, out: &mut Vec<u8>) {
        self.0.put(number, out);
    }

    fn slot(&mut self) -> Option<Slot<'_>> {
        self.0.slot()
    }

    #[cfg(test)]
    fn json(&self) -> Option<serde_json::Value> {
        self.0.json()
    }
}

/// By number, from 1.
#[rustfmt::skip]
const SIGNAL_NAMES: [&str; 65] = [
    "SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT",
    "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGSEGV", "SIGSTKFLT",
    "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2",
    "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ",
    "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+2", "SIGRTMIN+3", "SIGRTMIN+4", "SIGRTMIN+5", "SIGRTMIN+6", "SIGRTMIN+7",
    "SIGRTMIN+8", "SIGRTMIN+9", "SIGRTMIN+10", "SIGRTMIN+11", "SIGRTMIN+12", "SIGRTMIN+13", "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMAX-14", "SIGRTMAX-13", "SIGRTMAX-12", "SIGRTMAX-11", "SIGRTMAX-10", "SIGRTMAX-9", "SIGRTMAX-8",
    "SIGRTMAX-7", "SIGRTMAX-6", "SIGRTMAX-5", "SIGRTMAX-4", "SIGRTMAX-3", "SIGRTMAX-2", "SIGRTMAX-1", "SIGRTMAX",
];
