//! Waiting for a process that is not a child of ours.

use std::io;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::platform::rt;

/// Returns when the process has ended; at once if there is none of that number.
pub(crate) async fn exited(pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let fd = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // Readable means: ended (pidfd_open(2)).
    rt::Async::new_nonblocking(fd)?.readable().await
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_end_of_a_process_is_noticed() {
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
    fn a_process_that_is_gone_has_ended() {
        let mut child = Command::new("true").spawn().expect("true is there");
        let pid = child.id();
        child.wait().expect("it ends by itself");
        rt::block_on(exited(pid)).expect("no process is no error");
    }
}
