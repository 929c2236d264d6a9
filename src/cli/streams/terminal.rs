//! Raw mode of the local terminal.

use std::io::{self, IsTerminal as _};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Sends every key to the other side, including Ctrl-C. Restored on drop and on panic, which aborts without drops.
#[derive(Debug)]
pub(super) struct RawTerminal {
    signals: SignalFd,
}

/// The settings to restore, while in raw mode.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

impl RawTerminal {
    /// Switches the terminal on stdin to raw mode, and blocks the signals that would end the process without
    /// restoring it.
    pub(super) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let hook = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                give_back();
                hook(info);
            }));
        });
        let mut wanted = SigSet::empty();
        for signal in [Signal::SIGWINCH, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
            wanted.add(signal);
        }
        wanted.thread_block()?;
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        // The drop of this value restores the terminal.
        let terminal = Self { signals };
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(terminal)
    }

    pub(super) fn signals(&self) -> &SignalFd {
        &self.signals
    }

    /// A received signal; `None` if it is only a change of the window size.
    pub(super) fn take_signal(&self) -> io::Result<Option<i32>> {
        let mut fatal = None;
        while let Some(come) = self.signals.read_signal()? {
            let number = i32::try_from(come.ssi_signo).unwrap_or_default();
            if number != Signal::SIGWINCH as i32 {
                fatal = Some(number);
            }
        }
        Ok(fatal)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // If this fails, the terminal is gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// The window size as the message for the runtime; `None` if unknown.
pub(super) fn size() -> Option<String> {
    let shown_on = if io::stdout().is_terminal() { tcgetwinsize(io::stdout()) } else { tcgetwinsize(io::stdin()) };
    let size = shown_on.ok().filter(|size| size.ws_col > 0 && size.ws_row > 0)?;
    Some(format!("{{\"Width\":{},\"Height\":{}}}\n", size.ws_col, size.ws_row))
}
