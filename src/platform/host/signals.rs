//! Termination signals: an event for the executor, and a forced exit if the executor does not react.

use std::fs::File;
use std::future::Future;
use std::io::{self, Write as _};
use std::process;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::platform::rt;

/// How long an orderly shutdown may take. Service managers and tests wait at least 5 seconds.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(4);
/// For closing the watchdog device, which would reset the board otherwise.
const CLOSE_LIMIT: Duration = Duration::from_millis(900);
/// For a log line: standard error may be on a disk that hangs.
const LOG_LIMIT: Duration = Duration::from_millis(100);

/// Handles SIGTERM and SIGINT from now on; the future resolves when one of them arrives. Must be called before any
/// thread is started, as threads inherit the signal mask.
///
/// A dedicated thread waits for the signals, so that the process exits 4 seconds later even if its executor hangs or
/// spins. Pods keep running either way, and the next start reconstructs unsaved state.
pub(crate) fn termination() -> io::Result<impl Future<Output = ()>> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let (sender, receiver) = async_channel::bounded::<()>(1);
    rt::thread("signals", move || {
        if let Err(error) = wait(|| signals.wait()) {
            // The signals are blocked: without this thread only SIGKILL would end the process.
            end(1, move || log!(error, "failed to wait for signals, exiting", error = error));
        }
        // The executor may have finished.
        let _ = sender.try_send(());
        thread::sleep(SHUTDOWN_TIMEOUT);
        end(0, || log!(error, "failed to shut down in time, exiting", seconds = SHUTDOWN_TIMEOUT.as_secs()));
    })?;
    Ok(async move {
        if receiver.recv().await.is_err() {
            // The thread is about to end the process.
            std::future::pending::<()>().await;
        }
    })
}

/// Waits for a signal, and retries on EINTR.
fn wait(mut next: impl FnMut() -> nix::Result<Signal>) -> nix::Result<Signal> {
    loop {
        match next() {
            Err(nix::Error::EINTR) => {}
            ended => return ended,
        }
    }
}

/// Exits without the executor, whatever locks other threads hold: every wait here has a timeout.
fn end(code: i32, log: impl FnOnce() + Send + 'static) -> ! {
    let closed = start(|| LAST_WRITE.write());
    let logged = start(log);
    // Either may hang.
    let _ = closed.recv_timeout(CLOSE_LIMIT);
    let _ = logged.recv_timeout(LOG_LIMIT);
    process::exit(code)
}

/// Runs `work` on a thread of its own. The receiver disconnects when it is done or cannot be started.
fn start(work: impl FnOnce() + Send + 'static) -> Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    // Without a thread there is nothing to wait for.
    let _ = rt::thread("last-act", move || {
        work();
        drop(sender);
    });
    receiver
}

/// The last write of a forced exit: it disarms the hardware watchdog, which would reset the board otherwise.
pub(crate) static LAST_WRITE: LastWrite = LastWrite(Mutex::new(None));

#[derive(Debug)]
pub(crate) struct LastWrite(Mutex<Option<(Weak<File>, &'static [u8])>>);

impl LastWrite {
    /// Sets the write, which takes effect only while the file is open.
    pub(crate) fn set(&self, file: &Arc<File>, bytes: &'static [u8]) {
        let last = Some((Arc::downgrade(file), bytes));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    fn write(&self) {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((file, bytes)) = last.and_then(|(file, bytes)| Some((file.upgrade()?, bytes))) else { return };
        // The process exits either way.
        let _ = (&*file).write_all(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn interrupted_wait_is_retried() {
        let mut results = [Err(nix::Error::EINTR), Err(nix::Error::EINTR), Ok(Signal::SIGTERM)].into_iter();
        assert_eq!(wait(|| results.next().unwrap()), Ok(Signal::SIGTERM));
        assert_eq!(wait(|| Err(nix::Error::EINVAL)), Err(nix::Error::EINVAL));
    }

    #[test]
    fn hanging_last_write_does_not_block_the_exit() {
        let (release, released) = mpsc::channel::<()>();
        let hangs = start(move || {
            let _ = released.recv();
        });
        assert_eq!(hangs.recv_timeout(Duration::from_millis(1)), Err(mpsc::RecvTimeoutError::Timeout));
        drop(release);
        assert_eq!(hangs.recv(), Err(mpsc::RecvError));
    }

    #[test]
    fn forced_exit_writes_to_an_open_device() {
        let last = LastWrite(Mutex::new(None));
        last.write();
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let device = Arc::new(File::from(OwnedFd::from(writer)));
        last.set(&device, b"V");
        last.write();
        last.set(&device, b"V");
        drop(device);
        last.write();
        let mut written = String::new();
        reader.read_to_string(&mut written).unwrap();
        assert_eq!(written, "V");
    }
}
