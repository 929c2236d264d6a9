//! The signals that ask this process to end, as an event.

use std::future::Future;
use std::io;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::rt;

/// Takes SIGTERM and SIGINT from now on; the future is done when one of them comes. To be called before any thread is
/// started, as a thread keeps the signals that it was born with.
pub(crate) fn termination() -> io::Result<impl Future<Output = ()>> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let fd = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let fd = rt::Async::new_nonblocking(fd)?;
    Ok(async move {
        if let Err(error) = fd.readable().await {
            log!(error, "signals not watched", error = crate::error::ErrorChain(&error));
            std::future::pending::<()>().await;
        }
    })
}
