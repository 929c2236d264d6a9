//! Local persistent volumes: a directory or disk of this node, mounted for each pod that uses it.
//!
//! As pkg/volume/local and, for disks, k8s.io/mount-utils, except that a disk has no global mount: each pod has its
//! own mount of the same file system, which is removed with the pod.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use nix::mount::{MsFlags, mount};

use super::empty_dir::mark;
use super::error::Problem;
use super::node_program::{failed, run, run_checked};
use super::ownership;
use super::plan::Local;
use super::progress::Progress;
use crate::kubelet::csi::PodTerminating;
use crate::platform::host::directories;
use crate::platform::host::mounts::mounted_at;
use crate::platform::rt::{self, Semaphore};
use crate::types::sorted::SortedMap;

/// Mounts `local` unless it is mounted, and sets the group unless another pod uses it. Runs in its own thread:
/// formatting or checking a large, slow disk takes minutes.
///
/// When the pod terminates, only a mount in progress is waited for, because it must be unmounted with the pod.
/// Formatting in progress continues in the background, since a partly formatted disk is worse; it mounts nothing
/// afterwards.
pub(super) async fn set_up(local: &Local, termination: &mut PodTerminating) -> Result<(), Problem> {
    let from = local.from.clone();
    let local = local.clone();
    in_thread(&from, termination, move |progress| mount_and_give(&local, progress)).await
}

async fn in_thread(
    disk: &Path,
    termination: &mut PodTerminating,
    work: impl FnOnce(&Progress) -> Result<(), Problem> + Send + 'static,
) -> Result<(), Problem> {
    let progress = Arc::new(Progress::default());
    let given_up = AbandonOnDrop(Arc::clone(&progress));
    let worked = async {
        // Held by the thread, so that no other pod formats or repairs the disk, even if this pod is gone.
        let turn = disk_lock(disk).acquire_arc().await;
        let (sender, result) = async_channel::bounded(1);
        let work = move || {
            let _turn = turn;
            // The receiver is gone if the pod has terminated.
            let _ = sender.try_send(work(&progress));
        };
        rt::thread("local volume", work).map_err(|error| failed("a thread", error.to_string()))?;
        result.recv().await.unwrap_or_else(|_| Err(failed("a thread", "it exited without a result".to_owned())))
    };
    let ended = async {
        termination.await;
        given_up.0.gives_up().await;
        Err(failed("local volume", "the pod is terminating".to_owned()))
    };
    let late = |_| Err(failed("local volume", format!("not set up within {} s", LOCAL_VOLUME_SETUP_TIMEOUT.as_secs())));
    rt::deadline(LOCAL_VOLUME_SETUP_TIMEOUT, rt::either(worked, ended)).await.unwrap_or_else(late)
}

/// Deadline of the whole set-up.
const LOCAL_VOLUME_SETUP_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Serializes set-ups of the same disk or directory.
fn disk_lock(disk: &Path) -> Arc<Semaphore> {
    static TURNS: Mutex<SortedMap<PathBuf, Weak<Semaphore>>> = Mutex::new(SortedMap::new());
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    turns.retain(|_, turn| turn.strong_count() > 0);
    if let Some(turn) = turns.get(disk).and_then(Weak::upgrade) {
        return turn;
    }
    let turn = Arc::new(Semaphore::new(1));
    turns.insert(disk.to_owned(), Arc::downgrade(&turn));
    turn
}

/// Gives the volume up on drop.
struct AbandonOnDrop(Arc<Progress>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

fn mount_and_give(local: &Local, progress: &Progress) -> Result<(), Problem> {
    let ready = local.marker.join("ready");
    let is_mounted = mounted_at(&local.path).map_err(Problem::io("check for a mount at", &local.path))?;
    if is_mounted && ready.is_file() {
        return Ok(());
    }
    let file_type = fs::metadata(&local.from).map_err(Problem::io("stat", &local.from))?.file_type();
    let is_shared = is_used_elsewhere(local).map_err(Problem::io("stat", &local.pods))?;
    let parent = local.path.parent().map_or(Ok(()), |parent| directories::make_own(parent, 0o750));
    parent.and_then(|()| directories::make_own(&local.path, 0o750)).map_err(Problem::io("create", &local.path))?;
    if file_type.is_dir() {
        let _mount = progress.mount().ok_or_else(given_up)?;
        mount_directory(local, is_mounted)?;
    } else if !file_type.is_block_device() {
        return Err(Problem::HostPathType { path: local.from.clone(), expected: "directory or block device" });
    } else if !is_mounted {
        // A file system that another pod has mounted must not be repaired (fsck(8)).
        if !is_shared {
            make_mountable(local)?;
        }
        let _mount = progress.mount().ok_or_else(given_up)?;
        mount_disk(local)?;
    }
    // As upstream, the first pod that mounts the volume sets its group: it must not change under running pods.
    if let Some(group) = local.group.filter(|_| !local.read_only && !is_shared) {
        ownership::set_ownership(&local.path, group, local.on_mismatch, progress)
            .map_err(Problem::io("set group of", &local.path))?;
    }
    mark(&local.marker, &ready).map_err(Problem::io("create", &ready))
}

fn given_up() -> Problem {
    failed("local volume", "the pod has terminated".to_owned())
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
    // The kernel ignores the options of a bind mount; they take a remount (mount(2)).
    let mut options = Command::new("mount");
    options.args(["-o", "remount,bind", "-o", &local.options.join(",")]).arg(&local.from).arg(&local.path);
    run_checked(options, "mount")
}

fn mount_disk(local: &Local) -> Result<(), Problem> {
    let mut mount = Command::new("mount");
    mount.args(["-t", &local.fs_type]);
    if !local.options.is_empty() {
        mount.args(["-o", &local.options.join(",")]);
    }
    mount.arg(&local.from).arg(&local.path);
    run_checked(mount, "mount")
}

/// Formats an empty disk; checks and repairs an existing file system.
fn make_mountable(local: &Local) -> Result<(), Problem> {
    let disk = &local.from;
    // `-p` reads the disk itself: by an old cache, a disk with data could pass for empty.
    let mut probe = Command::new("blkid");
    probe.args(["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"]).arg(disk);
    match run(probe, "blkid")? {
        (Some(0), _) => {
            let mut mend = Command::new("fsck");
            mend.arg("-a").arg(disk);
            match run(mend, "fsck") {
                Ok((Some(UNCORRECTED_STATUS), message)) => {
                    Err(failed("fsck", format!("found errors it could not correct: {message}")))
                }
                Ok((Some(CORRECTED_STATUS), message)) => {
                    log!(warn, "corrected file system errors", disk = disk.display(), message = message);
                    Ok(())
                }
                // fsck does not support the file system or is not installed; mount reports any problem.
                _ => Ok(()),
            }
        }
        (Some(NOTHING_FOUND_STATUS), _) if local.read_only => {
            Err(failed("mkfs", format!("{} is unformatted and to be mounted read-only", disk.display())))
        }
        (Some(NOTHING_FOUND_STATUS), _) => {
            let program = format!("mkfs.{}", local.fs_type);
            let mut format = Command::new(&program);
            format.args(format_options(&local.fs_type)).arg(disk);
            log!(info, "formatting empty disk", disk = disk.display(), kind = local.fs_type);
            run_checked(format, &program)
        }
        (_, message) => Err(failed("blkid", message)),
    }
}

fn format_options(fs_type: &str) -> &'static [&'static str] {
    match fs_type {
        // No blocks are reserved for root.
        "ext3" | "ext4" => &["-F", "-m0"],
        "xfs" => &["-f"],
        _ => &[],
    }
}

/// blkid: neither a file system nor a partition table.
const NOTHING_FOUND_STATUS: i32 = 2;
/// fsck: errors corrected, errors left uncorrected.
const CORRECTED_STATUS: i32 = 1;
const UNCORRECTED_STATUS: i32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::rt::block_on;

    fn ends_now() -> PodTerminating {
        Box::pin(std::future::ready(()))
    }

    #[test]
    fn terminating_pod_does_not_wait_for_formatting() {
        let disk = Path::new("/dev/of-a-test-that-ends");
        let (release, formats) = async_channel::bounded::<()>(1);
        let (sender, mounts) = async_channel::bounded(1);
        let work = move |progress: &Progress| {
            let _ = formats.recv_blocking();
            let _ = sender.try_send(progress.mount().is_some());
            Ok(())
        };
        block_on(async {
            let error = in_thread(disk, &mut ends_now(), work).await.unwrap_err();
            assert!(error.to_string().contains("the pod is terminating"), "{error}");
            let mut never: PodTerminating = Box::pin(std::future::pending());
            let mut second = Box::pin(in_thread(disk, &mut never, |_| Ok(())));
            let early = rt::deadline(Duration::ZERO, &mut second).await;
            assert!(early.is_err(), "the disk was formatted twice concurrently");
            drop(release);
            assert_eq!(mounts.recv().await, Ok(false), "it was mounted for a terminated pod");
            second.await.unwrap();
        });
    }

    #[test]
    fn terminating_pod_waits_for_a_mount_in_progress() {
        let (release, mounts) = async_channel::bounded::<()>(1);
        let (sender, begun) = async_channel::bounded(1);
        let work = move |progress: &Progress| {
            let _mount = progress.mount().ok_or_else(given_up)?;
            let _ = sender.try_send(());
            let _ = mounts.recv_blocking();
            Ok(())
        };
        block_on(async {
            let mut ends: PodTerminating = Box::pin(async move {
                let _ = begun.recv().await;
            });
            let mut set_up = Box::pin(in_thread(Path::new("/dev/of-a-test-that-mounts"), &mut ends, work));
            assert!(rt::deadline(Duration::from_millis(20), &mut set_up).await.is_err());
            drop(release);
            let _ = set_up.await;
        });
    }
}
