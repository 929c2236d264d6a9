//! Pull records on disk, at upstream's path: `image_manager/{pulling,pulled}` in the state directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::pulls_under_way::PullGuard;
use super::verification::{credentials_of, intent, may_have_brought, recorded};
use crate::kubelet::image_credentials::Credential;
use crate::platform::host::clock;
use crate::platform::host::file::{read_all, replace_within};
use crate::platform::rt;
use crate::protocol::sha256::sha256;
use serde_json::Value;

#[derive(Clone, Debug)]
pub(super) struct PullRecords {
    dir: PathBuf,
    /// Held by each job that changes a record, even if its task is dropped.
    write_lock: Arc<rt::Semaphore>,
}

/// The records of an image.
#[derive(Debug, Default)]
pub(super) struct KnownRecords {
    pub(super) record: Option<Value>,
    /// A pull under this name may have brought it without a record.
    pub(super) intended: bool,
}

impl PullRecords {
    pub(super) fn new(root_dir: &Path) -> Self {
        Self { dir: root_dir.join("image_manager"), write_lock: Arc::new(rt::Semaphore::new(1)) }
    }

    /// The records of an image with the runtime's id `image_ref` and the name `image`. An unreadable record counts as
    /// missing, so that it does not prevent a pod from starting.
    pub(super) async fn of_image(&self, image_ref: &str, image: &str) -> KnownRecords {
        let (record, intent) = (self.pulled(image_ref), self.pulling(image));
        let image_ref = image_ref.to_owned();
        // In this order: a pull that ends writes the record before it removes the intent.
        rt::blocking(move || KnownRecords { intended: intended(&intent, &image_ref), record: read(&record) }).await
    }

    /// Written before a pull with a pod's credentials: if its result is never recorded, the image is not open to all
    /// pods. An image without a pull, `present` under this name, stays as open as it is.
    pub(super) async fn intend(
        &self,
        image: &str,
        repository: &str,
        present: Option<String>,
        pull: &PullGuard,
    ) -> io::Result<()> {
        let path = self.pulling(image);
        let record = present.as_deref().map(|image_ref| self.pulled(image_ref));
        let (name, repository) = (image.to_owned(), repository.to_owned());
        let turn = self.write_lock.acquire_arc().await;
        let change = move || {
            let existed = path.exists();
            let is_pulled = record
                .and_then(|record| read(&record))
                .is_some_and(|record| credentials_of(&record, &repository).is_some());
            let former = present.filter(|image_ref| !is_pulled && !intended(&path, image_ref));
            let text = intent(&name, former.as_deref()).to_string();
            let written = replace_within(&path, text.as_bytes(), MAX_PULL_RECORD_BYTES);
            (turn, written.map(|()| existed))
        };
        let (_turn, existed) = rt::blocking(change).await;
        pull.intends(image, existed?);
        Ok(())
    }

    /// Adds the credential that pulled the image to its record. One job reads and writes, so that pulls that end
    /// together are all recorded.
    pub(super) async fn record(
        &self,
        image_ref: &str,
        repository: &str,
        credential: Option<&Credential>,
    ) -> io::Result<()> {
        let (path, now) = (self.pulled(image_ref), clock::now().to_string());
        let (image_ref, repository, credential) = (image_ref.to_owned(), repository.to_owned(), credential.cloned());
        let turn = self.write_lock.acquire_arc().await;
        let change = move || {
            let _turn = turn;
            match recorded(read(&path).as_ref(), &image_ref, &repository, credential.as_ref(), &now) {
                Some(record) => replace_within(&path, record.to_string().as_bytes(), MAX_PULL_RECORD_BYTES),
                None => Ok(()),
            }
        };
        rt::blocking(change).await
    }

    /// The pull has ended, and was `recorded` or has failed: removes the intent if no other pull needs it.
    pub(super) async fn end(&self, image: &str, pull: &PullGuard, recorded: bool) {
        let turn = self.write_lock.acquire_arc().await;
        if pull.ends_intent(image, recorded) {
            self.remove(turn, self.pulling(image)).await;
        }
    }

    /// The image was removed.
    pub(super) async fn forget(&self, image_ref: &str) {
        self.remove(self.write_lock.acquire_arc().await, self.pulled(image_ref)).await;
    }

    async fn remove(&self, turn: rt::SemaphoreGuardArc, path: PathBuf) {
        let shown = path.display().to_string();
        let change = move || {
            let _turn = turn;
            fs::remove_file(path)
        };
        match rt::blocking(change).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log!(warn, "failed to remove pull record", file = shown, error = error);
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn pulled(&self, image_ref: &str) -> PathBuf {
        self.dir.join("pulled").join(file_name(image_ref))
    }

    fn pulling(&self, image: &str) -> PathBuf {
        self.dir.join("pulling").join(file_name(image))
    }
}

/// Whether a pull with this intent may have brought the image. An unreadable intent is one of any image.
fn intended(intent: &Path, image_ref: &str) -> bool {
    intent.exists() && read(intent).is_none_or(|intent| may_have_brought(&intent, image_ref))
}

fn read(path: &Path) -> Option<Value> {
    let problem = match read_all(path, MAX_PULL_RECORD_BYTES) {
        Ok(text) => match serde_json::from_slice::<Value>(&text) {
            Ok(record) if record.is_object() => return Some(record),
            Ok(_) => "no mapping".to_owned(),
            Err(error) => error.to_string(),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => error.to_string(),
    };
    log!(warn, "failed to read pull record", file = path.display(), problem = problem);
    None
}

const MAX_PULL_RECORD_BYTES: u64 = 1 << 20;

fn file_name(text: &str) -> String {
    ["sha256-", &sha256(text.as_bytes())].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::images::PullsUnderWay;

    #[test]
    fn record_is_kept_until_the_image_is_removed() {
        let dir = std::env::temp_dir().join(format!("coracle-pull-records-{}", std::process::id()));
        let records = PullRecords::new(&dir);
        let pull = PullsUnderWay::default().add("a:1", "web", rt::now());
        let (known, intended, after) = rt::block_on(async {
            let nothing = records.of_image("sha256:1", "a:1").await;
            assert!(nothing.record.is_none() && !nothing.intended);
            records.intend("a:1", "a", None, &pull).await.unwrap();
            let intended = records.of_image("sha256:1", "a:1").await.intended;
            records.record("sha256:1", "r.io/a", None).await.unwrap();
            records.end("a:1", &pull, true).await;
            let known = records.of_image("sha256:1", "a:1").await;
            records.forget("sha256:1").await;
            records.forget("sha256:1").await;
            (known, intended, records.of_image("sha256:1", "a:1").await)
        });
        let is_broken = {
            fs::write(records.pulled("sha256:2"), "{").unwrap();
            rt::block_on(records.of_image("sha256:2", "a:1")).record.is_none()
        };
        fs::remove_dir_all(&dir).unwrap();
        assert!(intended && !known.intended && is_broken);
        assert_eq!(known.record.unwrap()["imageRef"], "sha256:1");
        assert!(after.record.is_none());
    }
}
