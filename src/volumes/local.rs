//! Local volumes: a directory or a disk of this node that a claim is bound to, mounted for each pod that uses it.
//!
//! As pkg/volume/local does and, for disks, k8s.io/mount-utils; but a disk is mounted for each pod by itself, and nowhere for all
//! of them: the kernel has one file system for all mounts of it, and each goes with its pod.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::mount::{MsFlags, mount};

use super::empty_dir::mark;
use super::error::Problem;
use super::ownership;
use super::plan::Local;
use crate::host::directories;
use crate::host::mounts::mounted_at;
use crate::rt;

/// Mounts `local`, unless it is already, and gives it to the pod's group, unless another pod has it. In a thread of its own: a
/// large and slow disk is formatted, or looked through, for minutes.
pub(super) async fn set_up(local: &Local) -> Result<(), Problem> {
    let local = local.clone();
    let (tell, told) = async_channel::bounded(1);
    let work = move || drop(tell.try_send(mount_and_give(&local)));
    rt::thread("local volume", work).map_err(|error| failed("a thread", error.to_string()))?;
    told.recv().await.unwrap_or_else(|_| Err(failed("a thread", "it ended".to_owned())))
}

fn mount_and_give(local: &Local) -> Result<(), Problem> {
    let ready = local.marker.join("ready");
    let is_mounted = mounted_at(&local.path).map_err(Problem::io("look for a mount at", &local.path))?;
    if is_mounted && ready.is_file() {
        return Ok(());
    }
    let found = fs::metadata(&local.from).map_err(Problem::io("look at", &local.from))?.file_type();
    let is_shared = is_used_elsewhere(local).map_err(Problem::io("look at", &local.pods))?;
    let parent = local.path.parent().map_or(Ok(()), |parent| directories::make_own(parent, 0o750));
    parent.and_then(|()| directories::make_own(&local.path, 0o750)).map_err(Problem::io("make", &local.path))?;
    if found.is_dir() {
        mount_directory(local, is_mounted)?;
    } else if !found.is_block_device() {
        return Err(Problem::HostPathType { path: local.from.clone(), expected: "directory or block device" });
    } else if !is_mounted {
        mount_disk(local, is_shared)?;
    }
    if let Some(group) = local.group.filter(|_| !local.read_only && !is_shared) {
        ownership::give(&local.path, group, local.on_mismatch)
            .map_err(Problem::io("give to the group", &local.path))?;
    }
    mark(&local.marker, &ready).map_err(Problem::io("make", &ready))
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

fn mount_directory(local: &Local, is_bound: bool) -> Result<(), Problem> {
    if !is_bound {
        let bound = mount(Some(&local.from), &local.path, None::<&str>, MsFlags::MS_BIND, None::<&str>);
        bound.map_err(io::Error::from).map_err(Problem::io("mount", &local.from))?;
    }
    if local.options.is_empty() {
        return Ok(());
    }
    let mut options = Command::new("mount");
    options.args(["-o", "remount,bind", "-o", &local.options.join(",")]).arg(&local.from).arg(&local.path);
    succeeds(options, "mount")
}

fn mount_disk(local: &Local, is_shared: bool) -> Result<(), Problem> {
    if !is_shared {
        make_mountable(local)?;
    }
    let mut mount = Command::new("mount");
    mount.args(["-t", &local.fs_type]);
    if !local.options.is_empty() {
        mount.args(["-o", &local.options.join(",")]);
    }
    mount.arg(&local.from).arg(&local.path);
    succeeds(mount, "mount")
}

/// A disk that has nothing on it gets a file system; one that has one gets what is broken in it mended.
fn make_mountable(local: &Local) -> Result<(), Problem> {
    let disk = &local.from;
    let mut probe = Command::new("blkid");
    probe.args(["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"]).arg(disk);
    match run(probe, "blkid")? {
        (Some(0), _) => {
            let mut mend = Command::new("fsck");
            mend.arg("-a").arg(disk);
            match run(mend, "fsck") {
                Ok((Some(UNMENDED), said)) => Err(failed("fsck", format!("found errors it could not correct: {said}"))),
                Ok((Some(MENDED), said)) => {
                    log!(warn, "errors on a disk were corrected", disk = disk.display(), said = said);
                    Ok(())
                }
                // It has nothing for this kind of file system, or is not there: mounting tells more.
                _ => Ok(()),
            }
        }
        (Some(NOTHING_FOUND), _) if local.read_only => {
            Err(failed("mkfs", format!("{} is unformatted and to be mounted read-only", disk.display())))
        }
        (Some(NOTHING_FOUND), _) => {
            let program = format!("mkfs.{}", local.fs_type);
            let mut format = Command::new(&program);
            format.args(format_options(&local.fs_type)).arg(disk);
            log!(info, "a disk has nothing on it and is formatted", disk = disk.display(), kind = local.fs_type);
            succeeds(format, &program)
        }
        (_, said) => Err(failed("blkid", said)),
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

fn succeeds(command: Command, name: &str) -> Result<(), Problem> {
    match run(command, name)? {
        (Some(0), _) => Ok(()),
        (_, said) => Err(failed(name, said)),
    }
}

/// The exit code of a program, and how it ended with what it said.
fn run(mut command: Command, name: &str) -> Result<(Option<i32>, String), Problem> {
    let ended = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed(name, "it is not there, and local volumes take it".to_owned()),
        _ => failed(name, error.to_string()),
    })?;
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().replace('\n', "; ");
    Ok((ended.status.code(), format!("{}: {said}", ended.status)))
}

fn failed(program: &str, what: String) -> Problem {
    Problem::Helper { program: program.into(), what }
}

/// blkid: neither a file system nor a table of partitions.
const NOTHING_FOUND: i32 = 2;
/// fsck.
const MENDED: i32 = 1;
const UNMENDED: i32 = 4;
