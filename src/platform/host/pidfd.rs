//! Waits for processes that are not children of this one.

use std::io;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::platform::rt;

/// Returns when the process has exited, or at once if it does not exist.
pub(crate) async fn exited(pid: u32) -> io::Result<()> {
    #[cfg(test)]
    if rt::simulated_exit(pid).await.is_some() {
        return Ok(());
    }
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let fd = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // Readable means exited (pidfd_open(2)).
    rt::Async::new_nonblocking(fd)?.readable().await
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn exit_of_a_process_is_noticed() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep is there");
        let pid = child.id();
        rt::block_on(async move {
            let watch = rt::spawn(exited(pid));
            rt::yield_now().await;
            assert!(!watch.is_finished());
            child.kill().expect("our own child");
            watch.await.expect("a process of our own can be watched");
            child.wait().expect("it was killed");
        });
    }

    #[test]
    fn missing_process_counts_as_exited() {
        let mut child = Command::new("true").spawn().expect("true is there");
        let pid = child.id();
        child.wait().expect("it ends by itself");
        rt::block_on(exited(pid)).expect("no process is no error");
    }
}
