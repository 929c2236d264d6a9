//! Removals of directory trees that may hang: the wait for one is bounded, and none begins twice.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::platform::host::remove_tree::remove_tree;
use crate::platform::rt::{self, Task};

/// The removals under way. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Removals {
    under_way: Rc<RefCell<Vec<UnderWay>>>,
}

struct UnderWay {
    path: PathBuf,
    task: Task<()>,
}

/// How long to wait for the removals of an ended pod. They go on afterwards.
pub(crate) const REMOVAL_PATIENCE: Duration = Duration::from_secs(30);

impl Removals {
    /// Removes the tree `path` for the pod with uid `owner`, or for the node itself. An error of the kind `TimedOut` says
    /// that the removal goes on after `until`, or that an earlier one of this path has not ended.
    pub(crate) async fn remove(&self, path: &Path, owner: Option<&str>, until: Instant) -> io::Result<()> {
        let tree = path.to_owned();
        self.run(path, owner, until, move || remove_tree(&tree)).await
    }

    /// As [`Removals::remove`], for other work that removes something at `path`.
    pub(crate) async fn run(
        &self,
        path: &Path,
        owner: Option<&str>,
        until: Instant,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        if self.is_under_way(|other| other == path) {
            return Err(not_ended());
        }
        let removed: Pin<Box<dyn Future<Output = io::Result<()>>>> = match owner {
            Some(owner) => Box::pin(rt::remove_for(owner, work)),
            None => Box::pin(rt::remove(work)),
        };
        let (sender, receiver) = async_channel::bounded(1);
        // A task of its own sees the end of the removal, also after the caller has given up.
        let task = rt::spawn(async move {
            // Nobody may wait for it any more.
            let _ = sender.try_send(removed.await);
        });
        self.under_way.borrow_mut().push(UnderWay { path: path.to_owned(), task });
        match rt::deadline(until.saturating_duration_since(rt::now()), receiver.recv()).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(rt::Elapsed) => Err(not_ended()),
        }
    }

    /// Whether a removal at such a path has not ended.
    pub(crate) fn is_under_way(&self, is_meant: impl Fn(&Path) -> bool) -> bool {
        let mut under_way = self.under_way.borrow_mut();
        under_way.retain(|removal| !removal.task.is_finished());
        under_way.iter().any(|removal| is_meant(&removal.path))
    }
}

fn not_ended() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the removal has not ended")
}

impl fmt::Debug for Removals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<PathBuf> = self.under_way.borrow().iter().map(|removal| removal.path.clone()).collect();
        f.debug_tuple("Removals").field(&paths).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn removal_that_hangs_is_waited_for_once() {
        let soon = || rt::now() + Duration::from_millis(20);
        rt::block_on(async {
            let removals = Removals::default();
            let (release, released) = mpsc::channel::<()>();
            let hangs = move || {
                released.recv().ok();
                Ok(())
            };
            let kind = |result: io::Result<()>| result.map_err(|error| error.kind());
            let path = Path::new("/nowhere/hung");
            let late = Err(io::ErrorKind::TimedOut);
            assert_eq!(kind(removals.run(path, Some("pod"), soon(), hangs).await), late);
            // The second one does not begin.
            assert_eq!(kind(removals.run(path, None, soon(), || panic!("begins twice")).await), late);
            let later = rt::now() + Duration::from_secs(20);
            assert_eq!(kind(removals.remove(Path::new("/nowhere/other"), Some("pod"), later).await), Ok(()));
            assert!(removals.is_under_way(|other| other.starts_with("/nowhere")));
            release.send(()).unwrap();
            while removals.remove(path, None, later).await.is_err() {
                rt::sleep(Duration::from_millis(1)).await;
            }
        });
    }
}
