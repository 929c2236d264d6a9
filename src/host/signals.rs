//! The signals that ask this process to end: an event for the executor, and the end of a process that does not hear it.

use std::future::Future;
use std::io;
use std::process;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::rt;

/// How long an orderly end may take. Service managers and tests wait at least 5 seconds.
const LIMIT: Duration = Duration::from_secs(4);

/// Takes SIGTERM and SIGINT from now on; the future is done when one of them comes. To be called before any thread is
/// started, as a thread keeps the signals that it was born with.
///
/// A thread of its own takes them, so that a process whose executor hangs or spins ends too: 4 seconds after the signal.
/// Pods run on either way, and what was not written down is seen again by the next start.
pub(crate) fn termination() -> io::Result<impl Future<Output = ()>> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let (sender, receiver) = async_channel::bounded::<()>(1);
    rt::thread("signals", move || {
        while let Err(error) = signals.wait() {
            if error != nix::Error::EINTR {
                log!(error, "failed to wait for signals", error = error);
                return;
            }
        }
        // The executor may have ended.
        let _ = sender.try_send(());
        thread::sleep(LIMIT);
        log!(error, "failed to end in time, ending now", seconds = LIMIT.as_secs());
        process::exit(0);
    })?;
    Ok(async move {
        if receiver.recv().await.is_err() {
            // The thread is gone: no signal will be heard.
            std::future::pending::<()>().await;
        }
    })
}
