//! Mounts NFS volumes with mount.nfs.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::ioctl_fionbio;

use super::error::Problem;
use super::plan::Nfs;
use crate::platform::host::directories;
use crate::platform::host::mounts::mounted_at;
use crate::platform::host::pidfd;
use crate::platform::rt;

/// Mounts `nfs` unless it is mounted. A server that does not respond blocks no thread of the pool.
pub(super) async fn set_up(pod: &str, nfs: &Nfs, program: &Path) -> Result<(), Problem> {
    let path = nfs.path.clone();
    let is_mounted = rt::blocking_for(pod, move || prepare(&path)).await?;
    if is_mounted {
        return Ok(());
    }
    let failed = |message: String| Problem::Helper { program: program.to_owned(), message };
    let mut command = Command::new(program);
    command.arg(&nfs.device).arg(&nfs.path);
    if !nfs.options.is_empty() {
        command.arg("-o").arg(nfs.options.join(","));
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed("not installed, but required for NFS volumes".to_owned()),
        _ => failed(error.to_string()),
    })?;
    let mut helper = Helper { child: Some(child) };
    let Some(child) = &mut helper.child else { return Ok(()) };
    match rt::deadline(NFS_MOUNT_DEADLINE, pidfd::exited(child.id())).await {
        Ok(ended) => ended.map_err(|error| failed(error.to_string()))?,
        Err(_) => return Err(failed(format!("no answer within {} s", NFS_MOUNT_DEADLINE.as_secs()))),
    }
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    let words = last_words(child);
    helper.child = None;
    if status.success() { Ok(()) } else { Err(failed(format!("{status}: {words}"))) }
}

/// The running program. Killed on drop.
struct Helper {
    child: Option<Child>,
}

impl Drop for Helper {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let _ = child.kill();
        // A process blocked in the kernel ends when the server responds, or never.
        if !matches!(child.try_wait(), Ok(Some(_))) {
            let _ = rt::thread("mount.nfs", move || drop(child.wait()));
        }
    }
}

/// Creates the mount point; true if something is mounted there. The file system is not accessed, because it may hang.
fn prepare(path: &Path) -> Result<bool, Problem> {
    if mounted_at(path).map_err(Problem::io("check for a mount at", path))? {
        return Ok(true);
    }
    let make = || {
        if let Some(parent) = path.parent() {
            directories::make_own(parent, 0o750)?;
        }
        directories::make_own(path, 0o750)
    };
    make().map_err(Problem::io("create", path)).map(|()| false)
}

/// What the ended program has written. A process that it started may still have the pipe open: nothing is waited for.
fn last_words(child: &mut Child) -> String {
    let mut words = [0; MAX_NFS_TEXT_BYTES];
    let stderr = child.stderr.take().map(OwnedFd::from);
    // Unreadable output is ignored.
    let read = stderr.and_then(|stderr| {
        ioctl_fionbio(&stderr, true).ok()?;
        rustix::io::read(&stderr, &mut words).ok()
    });
    let words = words.get(..read.unwrap_or_default()).unwrap_or_default();
    String::from_utf8_lossy(words).trim().replace('\n', "; ")
}

pub(super) const PROGRAM: &str = "/sbin/mount.nfs";
/// mount.nfs itself retries for two minutes.
const NFS_MOUNT_DEADLINE: Duration = Duration::from_secs(125);
const MAX_NFS_TEXT_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::platform::host::mounts::unmount_below;
    use crate::platform::rt::block_on;

    struct Scratch(PathBuf);

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = unmount_below(&self.0).and_then(|()| fs::remove_dir_all(&self.0));
        }
    }

    /// A temporary directory, and a program that mounts a tmpfs instead of NFS.
    fn scratch(name: &str, script: &str) -> (Scratch, PathBuf, Nfs) {
        let top = std::env::temp_dir().join(format!("coracle-nfs-{name}-{}", std::process::id()));
        fs::create_dir_all(&top).unwrap();
        let program = top.join("mount.nfs");
        // Written by another process: a test that forks meanwhile would keep the file open for writing, and so busy.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"";
        let written = Command::new("sh").args(["-c", write]).arg(&program).arg(script).status().unwrap();
        assert!(written.success());
        let nfs = Nfs {
            device: "server:/export".to_owned(),
            path: top.join("volumes/v"),
            options: vec!["ro".to_owned(), "soft".to_owned()],
            read_only: true,
        };
        (Scratch(top), program, nfs)
    }

    #[test]
    fn volume_is_mounted_once_and_unmounted() {
        let (scratch, program, nfs) =
            scratch("once", "echo \"$@\" >>\"$0.calls\"; mount -t tmpfs tmpfs \"$2\"; touch \"$2/file\"");
        block_on(async {
            set_up("u", &nfs, &program).await.unwrap();
            set_up("u", &nfs, &program).await.unwrap();
        });
        let calls = fs::read_to_string(scratch.0.join("mount.nfs.calls")).unwrap();
        assert_eq!(calls, format!("server:/export {} -o ro,soft\n", nfs.path.display()));
        assert!(nfs.path.join("file").exists());
        unmount_below(&scratch.0).unwrap();
        assert!(!nfs.path.join("file").exists());
    }

    #[test]
    fn output_of_the_program_is_in_the_error() {
        let (_scratch, program, nfs) = scratch("words", "echo 'no route' >&2; echo more >&2; exit 32");
        let error = block_on(set_up("u", &nfs, &program)).unwrap_err();
        assert_eq!(error.to_string(), format!("{}: exit status: 32: no route; more", program.display()));
        let error = block_on(set_up("u", &nfs, Path::new("/nonexistent/mount.nfs"))).unwrap_err();
        assert!(error.to_string().contains("not installed"), "{error}");
    }

    #[test]
    fn program_that_leaves_its_output_open_delays_nothing() {
        let (scratch, program, nfs) = scratch("open", "echo 'no route' >&2; sleep 100 & echo $! >\"$0.pid\"; exit 32");
        let ended = block_on(async {
            let begun = rt::now();
            let error = set_up("u", &nfs, &program).await.unwrap_err();
            (rt::elapsed(begun), error.to_string())
        });
        let pid = fs::read_to_string(scratch.0.join("mount.nfs.pid")).unwrap();
        Command::new("kill").arg(pid.trim()).status().unwrap();
        assert!(ended.0 < Duration::from_secs(50) && ended.1.ends_with("exit status: 32: no route"), "{ended:?}");
    }
}
