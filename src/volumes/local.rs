//! Local volumes: a directory or a disk of this node that a claim is bound to, mounted for each pod that uses it.
//!
//! As pkg/volume/local does and, for disks, k8s.io/mount-utils; but a disk is mounted for each pod by itself, and nowhere for all
//! of them: the kernel has one file system for all mounts of it, and each goes with its pod.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::mount::{MsFlags, mount};

use super::empty_dir::mark;
use super::error::Problem;
use super::ownership;
use super::plan::Local;
use crate::error::ErrorChain;
use crate::host::directories;
use crate::host::mounts::mounted_at;
use crate::host::program::{self, ProgramError};
use crate::rt;

/// Mounts `local`, unless it is already, and gives it to the pod's group, unless another pod has it.
pub(super) async fn set_up(local: Local) -> Result<(), Problem> {
    let (local, state) = rt::blocking(move || prepare(&local).map(|state| (local, state))).await?;
    let State::Due { is_disk, is_mounted, is_shared } = state else { return Ok(()) };
    match (is_disk, is_mounted) {
        (true, true) => {}
        (true, false) => mount_disk(&local, is_shared).await?,
        (false, _) => mount_directory(&local, is_mounted).await?,
    }
    rt::blocking(move || {
        if let Some(group) = local.group.filter(|_| !local.read_only && !is_shared) {
            ownership::give(&local.path, group, local.on_mismatch)
                .map_err(Problem::io("give to the group", &local.path))?;
        }
        let ready = local.marker.join("ready");
        mark(&local.marker, &ready).map_err(Problem::io("make", &ready))
    })
    .await
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Ready,
    Due {
        is_disk: bool,
        is_mounted: bool,
        /// Another pod has it.
        is_shared: bool,
    },
}

fn prepare(local: &Local) -> Result<State, Problem> {
    let is_mounted = mounted_at(&local.path).map_err(Problem::io("look for a mount at", &local.path))?;
    if is_mounted && local.marker.join("ready").is_file() {
        return Ok(State::Ready);
    }
    let found = fs::metadata(&local.from).map_err(Problem::io("look at", &local.from))?.file_type();
    if !found.is_dir() && !found.is_block_device() {
        return Err(Problem::HostPathType { path: local.from.clone(), expected: "directory or block device" });
    }
    let make = || {
        if let Some(parent) = local.path.parent() {
            directories::make_own(parent, 0o750)?;
        }
        directories::make_own(&local.path, 0o750)
    };
    make().map_err(Problem::io("make", &local.path))?;
    let is_shared = is_used_elsewhere(local).map_err(Problem::io("look at", &local.pods))?;
    Ok(State::Due { is_disk: found.is_block_device(), is_mounted, is_shared })
}

fn is_used_elsewhere(local: &Local) -> io::Result<bool> {
    let Ok(here) = local.path.strip_prefix(&local.pods) else { return Ok(false) };
    let below = here.iter().skip(1).collect::<PathBuf>();
    for pod in fs::read_dir(&local.pods)? {
        let other = pod?.path().join(&below);
        if other != local.path && mounted_at(&other)? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn mount_directory(local: &Local, is_bound: bool) -> Result<(), Problem> {
    if !is_bound {
        let bound = mount(Some(&local.from), &local.path, None::<&str>, MsFlags::MS_BIND, None::<&str>);
        bound.map_err(io::Error::from).map_err(Problem::io("mount", &local.from))?;
    }
    if local.options.is_empty() {
        return Ok(());
    }
    let mut options = Command::new("mount");
    options.args(["-o", &format!("remount,bind,{}", local.options.join(","))]).arg(&local.from).arg(&local.path);
    succeeds(options, "mount").await
}

async fn mount_disk(local: &Local, is_shared: bool) -> Result<(), Problem> {
    if !is_shared {
        make_mountable(local).await?;
    }
    let mut mount = Command::new("mount");
    mount.args(["-t", &local.fs_type]);
    if !local.options.is_empty() {
        mount.args(["-o", &local.options.join(",")]);
    }
    mount.arg(&local.from).arg(&local.path);
    succeeds(mount, "mount").await
}

/// A disk that has nothing on it gets a file system; one that has one gets what is broken in it mended.
async fn make_mountable(local: &Local) -> Result<(), Problem> {
    let disk = &local.from;
    let mut probe = Command::new("blkid");
    probe.args(["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"]).arg(disk);
    let (code, _, words) = run(probe, "blkid").await?;
    match code {
        Some(0) => {
            let mut mend = Command::new("fsck");
            mend.arg("-a").arg(disk);
            match run(mend, "fsck").await {
                Ok((Some(UNMENDED), said, _)) => {
                    Err(failed("fsck", format!("found errors it could not correct: {said}")))
                }
                Ok((Some(MENDED), said, _)) => {
                    log!(warn, "errors on a disk were corrected", disk = disk.display(), said = said);
                    Ok(())
                }
                // It has nothing for this kind of file system, or is not there: mounting tells more.
                Ok(_) => Ok(()),
                Err(problem) => {
                    log!(warn, "a disk was not looked at for errors", disk = disk.display(), error = problem);
                    Ok(())
                }
            }
        }
        Some(NOTHING_FOUND) if local.read_only => Err(Problem::Io {
            doing: "mount read-only an unformatted disk",
            path: disk.clone(),
            source: io::ErrorKind::InvalidData.into(),
        }),
        Some(NOTHING_FOUND) => {
            let program = format!("mkfs.{}", local.fs_type);
            let mut format = Command::new(&program);
            format.args(format_options(&local.fs_type)).arg(disk);
            log!(info, "a disk has nothing on it and is formatted", disk = disk.display(), kind = local.fs_type);
            succeeds(format, &program).await
        }
        _ => Err(failed("blkid", words)),
    }
}

fn format_options(fs_type: &str) -> &'static [&'static str] {
    match fs_type {
        // Nothing is kept back for root.
        "ext3" | "ext4" => &["-F", "-m0"],
        "xfs" => &["-f"],
        _ => &[],
    }
}

async fn succeeds(command: Command, name: &str) -> Result<(), Problem> {
    match run(command, name).await? {
        (Some(0), ..) => Ok(()),
        (_, _, words) => Err(failed(name, words)),
    }
}

/// The exit code of a program, what it said, and what is wrong if it should have succeeded.
async fn run(command: Command, name: &str) -> Result<(Option<i32>, String, String), Problem> {
    let ended = program::run(command, Vec::new(), LIMIT).await.map_err(|error| match error {
        ProgramError::Start(error) if error.kind() == io::ErrorKind::NotFound => {
            failed(name, "it is not there, and local volumes that are disks take it".to_owned())
        }
        error => failed(name, ErrorChain(&error).to_string()),
    })?;
    let line = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().replace('\n', "; ");
    let (said, complained) = (line(&ended.stdout), line(&ended.stderr));
    let words = format!("{}: {complained}", ended.status);
    Ok((ended.status.code(), said, words))
}

fn failed(program: &str, what: String) -> Problem {
    Problem::Helper { program: program.into(), what }
}

/// A large and slow disk is formatted, or looked through, for minutes.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// blkid: neither a file system nor a table of partitions.
const NOTHING_FOUND: i32 = 2;
/// fsck.
const MENDED: i32 = 1;
const UNMENDED: i32 = 4;
