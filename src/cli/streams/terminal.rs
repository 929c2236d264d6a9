//! The terminal that this program runs on, taken over for as long as another one is shown on it.

use std::io::{self, IsTerminal as _};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Every key goes to the other side, Ctrl-C too. Given back when dropped, and by a panic, after which nothing is.
#[derive(Debug)]
pub(super) struct RawTerminal {
    signals: SignalFd,
}

/// What was before, while it is not so.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

impl RawTerminal {
    /// Takes the terminal of the standard input over, and the signals that would leave it as it is then.
    pub(super) fn take() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let told = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                give_back();
                told(info);
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
        // From here on it is given back, however this ends.
        let terminal = Self { signals };
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(terminal)
    }

    pub(super) fn signals(&self) -> &SignalFd {
        &self.signals
    }

    /// A signal that has come; `None` where it is only the terminal that has another size.
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
        // Where that fails there is no terminal any more.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &before);
    }
}

/// As the other side is told of it; `None` where nobody knows.
pub(super) fn size() -> Option<String> {
    let shown_on = if io::stdout().is_terminal() { tcgetwinsize(io::stdout()) } else { tcgetwinsize(io::stdin()) };
    let size = shown_on.ok().filter(|size| size.ws_col > 0 && size.ws_row > 0)?;
    Some(format!("{{\"Width\":{},\"Height\":{}}}\n", size.ws_col, size.ws_row))
}
