//! Static pods from manifest files: a directory or a single file, watched with inotify and checked periodically.
//!
//! A manifest is read as soon as its writer has closed it or moved it into place, never while a process has it open for
//! writing. A manifest that is unreadable or
//! invalid keeps its last good pods. A file's pods are removed only if two good listings, a moment apart, lack the
//! file. The pods of a file that is deleted and written again in between are restarted, as upstream. The pods of a file
//! that is only renamed away are not. No pod is removed if the directory disappears, becomes unreadable or is suddenly
//! empty, or if it is empty during boot, when it may not be mounted yet.
//!
//! ```text
//!   inotify or the interval -> list (blocking) -> Files::compare -> read (blocking) -> Files::take ->
//!   SyncEvent::Sources
//! ```

mod directory;
mod files;
mod names;
mod watch;

pub(crate) use names::is_manifest;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::{Duration, Instant};

use async_channel::Sender;

use self::files::{Content, FileToRead, Files, Listing, ListingPlan, is_same_update};
use self::names::skip_reason;
use self::watch::{DirectoryEvent, Watch};
use crate::control::pod_sources::static_pod::ManifestNode;
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::pods::{SourceProblem, SourceUpdate, SyncEvent};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedSet;

/// Sends the pods at `path` (a directory of manifests, or one manifest) to `inbox` after the first listing and on every
/// change, until the inbox is closed.
///
/// Checks the directory at least every `interval`: `fileCheckFrequency`. Before `boot_over`, an initially empty
/// directory is taken for one that is not mounted yet.
pub(crate) async fn run(
    path: PathBuf,
    node: ManifestNode,
    interval: Duration,
    boot_over: Instant,
    inbox: Sender<SyncEvent>,
) {
    let files = Files::new(path.clone(), boot_over);
    let watcher = Watcher { watch: None, failure_told: false };
    let mut running =
        StaticFileSource { path, node, interval, inbox, files, skipped: SortedSet::new(), watcher, sent: None };
    while running.round().await.is_ok() {}
}

/// When the machine is expected to have mounted its file systems.
pub(crate) fn boot_over() -> Instant {
    rt::now() + BOOT_MOUNT_WAIT.saturating_sub(clock::uptime())
}

struct StaticFileSource {
    path: PathBuf,
    node: ManifestNode,
    interval: Duration,
    inbox: Sender<SyncEvent>,
    files: Files,
    /// Files of the last listing that are skipped for their names. They have been logged.
    skipped: SortedSet<OsString>,
    watcher: Watcher,
    /// The last update that was sent.
    sent: Option<SourceUpdate>,
}

/// The inbox is closed.
struct Closed;

impl StaticFileSource {
    /// Lists the directory once, and waits until the next listing is due.
    async fn round(&mut self) -> Result<(), Closed> {
        // Before the listing, so that no later change is missed.
        self.watcher.renew(&self.path, self.interval);
        self.list_and_wait().await
    }

    async fn list_and_wait(&mut self) -> Result<(), Closed> {
        let again = match self.list().await? {
            Ok(mut listing) => {
                self.log_skipped(std::mem::take(&mut listing.skipped));
                self.read_changed(&listing).await
            }
            Err(error) => {
                self.files.unlisted(format!("cannot be read: {error}"), clock::now());
                None
            }
        };
        self.send().await?;
        let interval = rt::now() + self.interval;
        self.wait(again.map_or(interval, |again| again.min(interval))).await;
        Ok(())
    }

    async fn list(&mut self) -> Result<io::Result<Listing>, Closed> {
        let path = self.path.clone();
        let was_file = self.files.is_single();
        let mut listing = pin!(rt::blocking(move || directory::list(&path, was_file)));
        match rt::deadline(MANIFEST_LISTING_TIMEOUT, &mut listing).await {
            Ok(listing) => Ok(listing),
            Err(elapsed) => {
                // The file system hangs. A second attempt would hang as well and occupy another thread.
                self.files.unlisted(format!("cannot be read: {elapsed}"), clock::now());
                self.send().await?;
                Ok(listing.await)
            }
        }
    }

    fn log_skipped(&mut self, skipped: SortedSet<OsString>) {
        for name in skipped.difference(&self.skipped) {
            let file = self.path.join(name);
            log!(info, "manifest skipped", file = file.display(), reason = skip_reason(name).unwrap_or_default());
        }
        self.skipped = skipped;
    }

    /// Reads the changed files. Returns when to list again.
    async fn read_changed(&mut self, listing: &Listing) -> Option<Instant> {
        let ListingPlan { read, again } = self.files.compare(listing, rt::now(), clock::now());
        if !read.is_empty() {
            for (name, content) in self.read(read).await {
                self.files.take(&name, content, clock::now());
            }
        }
        again
    }

    async fn read(&self, files: Vec<FileToRead>) -> Vec<(OsString, Content)> {
        let node = self.node.clone();
        rt::blocking(move || directory::read_all(files, &node)).await
    }

    async fn send(&mut self) -> Result<(), Closed> {
        if let Some(update) = self.files.update_of_deletions() {
            self.inbox.send(SyncEvent::Sources(update.clone())).await.map_err(|_| Closed)?;
            self.sent = Some(update);
        }
        let update = self.files.update();
        if self.sent.as_ref().is_some_and(|sent| is_same_update(sent, &update)) {
            return Ok(());
        }
        log_problems(self.sent.as_ref().map_or(&[], |sent| &sent.problems), &update.problems);
        // Waits if the inbox is full: the next update has all changes made meanwhile.
        self.inbox.send(SyncEvent::Sources(update.clone())).await.map_err(|_| Closed)?;
        self.sent = Some(update);
        Ok(())
    }

    /// Waits until `due`, or until an event makes a listing due earlier.
    async fn wait(&mut self, mut due: Instant) {
        while rt::now() < due {
            let Some(noticed) = self.watcher.until(due).await else { return };
            let moment = rt::now();
            for noticed in noticed {
                let look_at = match noticed {
                    DirectoryEvent::Directory => Some(moment),
                    DirectoryEvent::File(name, event) => self.files.note(&name, event, moment),
                };
                due = look_at.map_or(due, |look_at| due.min(look_at));
            }
        }
    }
}

/// The inotify watch. If it cannot be set up, only the interval applies.
struct Watcher {
    watch: Option<Watch>,
    failure_told: bool,
}

impl Watcher {
    fn renew(&mut self, path: &Path, interval: Duration) {
        let renewed = match &mut self.watch {
            Some(watch) => watch.renew(),
            None => Watch::new(path).and_then(|mut watch| {
                watch.renew()?;
                self.watch = Some(watch);
                Ok(())
            }),
        };
        if let Err(error) = renewed {
            self.failed(&error, interval);
        }
    }

    fn failed(&mut self, error: &io::Error, interval: Duration) {
        if !std::mem::replace(&mut self.failure_told, true) {
            let seconds = interval.as_secs_f32();
            log!(
                warn,
                "failed to watch manifests, checking periodically",
                every_s = seconds,
                error = ErrorChain(error)
            );
        }
    }

    /// Events, or `None` at `due`.
    async fn until(&mut self, due: Instant) -> Option<Vec<DirectoryEvent>> {
        let timer = async {
            rt::sleep_until(due).await;
            Ok(None)
        };
        let events = match &self.watch {
            Some(watch) => rt::either(async { watch.events().await.map(Some) }, timer).await,
            None => timer.await,
        };
        match events {
            Ok(events) => events,
            Err(error) => {
                log!(warn, "failed to read manifest events", error = ErrorChain(&error));
                self.watch = None;
                rt::sleep_until(due).await;
                None
            }
        }
    }
}

/// Logs new problems, and problems that are solved.
fn log_problems(old: &[SourceProblem], new: &[SourceProblem]) {
    let same = |one: &SourceProblem, other: &SourceProblem| one.origin == other.origin && one.message == other.message;
    for problem in new.iter().filter(|new| !old.iter().any(|old| same(old, new))) {
        log!(
            warn,
            "manifest problem",
            file = problem.origin,
            problem = problem.message,
            keeps_pods = problem.keeps_last_good
        );
    }
    for problem in old.iter().filter(|old| !new.iter().any(|new| same(old, new))) {
        log!(info, "manifest problem solved", file = problem.origin, problem = problem.message);
    }
}

/// A directory that does not answer for this long is reported as a problem.
const MANIFEST_LISTING_TIMEOUT: Duration = Duration::from_secs(30);

/// How long after power-on a machine may take to mount its file systems: checking a card takes a while.
const BOOT_MOUNT_WAIT: Duration = Duration::from_secs(180);

#[cfg(test)]
mod tests;
