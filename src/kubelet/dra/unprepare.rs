//! Unprepares the claims of pods that have stopped.

use std::rc::Rc;
use std::time::Duration;

use super::DraManager;
use super::claim_info::{Batches, ClaimName};
use super::error::DraError;
use super::plugin::UNPREPARE;
use super::v1::{Claim, UnprepareResponse};
use crate::platform::rt;
use crate::state::objects::{DEVICE_FILES_DRIVER, Objects, pod_claims};
use crate::types::api::{Pod, PodUid};
use crate::types::error::ErrorChain;
use crate::types::metrics::{self, Timed};
use crate::types::owned::View;
use crate::types::time::{Backoff, jitter};

/// Back-off for the claims of pods that this process has not stopped, and for a checkpoint that cannot be written.
const FIRST_UNPREPARE_DELAY: Duration = Duration::from_secs(1);
const MAX_UNPREPARE_DELAY: Duration = Duration::from_secs(60);

/// Claims that no pod may join while they are unprepared.
struct UnpreparingClaims<'a> {
    manager: &'a DraManager,
    names: &'a [ClaimName],
}

impl<'a> UnpreparingClaims<'a> {
    fn new(manager: &'a DraManager, names: &'a [ClaimName]) -> Self {
        manager.leaving.borrow_mut().extend(names.iter().cloned());
        Self { manager, names }
    }
}

impl Drop for UnpreparingClaims<'_> {
    fn drop(&mut self) {
        let mut leaving = self.manager.leaving.borrow_mut();
        for name in self.names {
            leaving.remove(name);
        }
    }
}

impl DraManager {
    /// Unprepares the claims that only this pod uses. All its containers have stopped. May be repeated. `spec` is the
    /// pod if it is known; only a pod without claims ends while the checkpoint cannot be read.
    pub(crate) async fn unprepare(
        self: &Rc<Self>,
        pod: &PodUid,
        spec: Option<&Pod>,
        objects: &View<Objects>,
    ) -> Result<(), DraError> {
        if let Err(error) = self.read().await {
            if spec.is_some_and(|spec| pod_claims(spec).next().is_some()) {
                return Err(DraError::Checkpoint(error));
            }
            // Claims of pods that are gone are reclaimed once the checkpoint is readable.
            log!(warn, "failed to read the DRA checkpoint", file = self.file.path().display(), error = error);
        }
        self.rebuild(objects);
        if !self.cache.borrow().is_used_by(pod) {
            return Ok(());
        }
        self.unprepare_of(pod).await
    }

    async fn unprepare_of(self: &Rc<Self>, pod: &PodUid) -> Result<(), DraError> {
        let begun = rt::now();
        let unprepared = self.unprepare_claims(pod).await;
        let is_error = if unprepared.is_err() { "true" } else { "false" };
        metrics::took(Timed::DraOperations, &["UnprepareResources", is_error], rt::elapsed(begun));
        unprepared
    }

    async fn unprepare_claims(self: &Rc<Self>, pod: &PodUid) -> Result<(), DraError> {
        // A claim that another pod shared at first may be the pod's alone after the calls. Each round releases claims.
        while self.cache.borrow().is_used_by(pod) {
            let names = self.cache.borrow().last_used_by(pod);
            let _leaving = UnpreparingClaims::new(self, &names);
            let batches: Batches = self.cache.borrow().batches(&names);
            for (driver, claims) in batches.iter().filter(|(driver, _)| *driver != DEVICE_FILES_DRIVER) {
                let response = self.plugin(driver)?.unprepare(claims).await?;
                check(claims, response)?;
            }
            self.cache.borrow_mut().release(pod, &names);
            self.claim_files();
            if let Err(error) = self.write().await {
                self.rewrite();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the checkpoint until it is on disk. The pod ends without waiting for it: a later process that reads the
    /// former checkpoint unprepares the claims again, which drivers accept.
    fn rewrite(self: &Rc<Self>) {
        let manager = Rc::clone(self);
        let task = rt::spawn(async move {
            let mut backoff = Backoff::new(FIRST_UNPREPARE_DELAY, MAX_UNPREPARE_DELAY);
            loop {
                rt::sleep(jitter(backoff.next_wait(), 0.2, rt::random())).await;
                if manager.write().await.is_ok() {
                    return;
                }
            }
        });
        self.rewriting.replace(Some(task));
    }

    /// Unprepares the claims of pods that are gone without having been stopped by this process.
    pub(crate) fn keep_only(self: &Rc<Self>, stays: &dyn Fn(&PodUid) -> bool) {
        let mut reclaimed = self.reclaimed.borrow_mut();
        for pod in self.cache.borrow().pods() {
            if !stays(&pod) && !reclaimed.contains_key(&pod) {
                reclaimed.insert(pod.clone(), rt::spawn(reclaim(Rc::clone(self), pod)));
            }
        }
    }
}

async fn reclaim(manager: Rc<DraManager>, pod: PodUid) {
    let mut backoff = Backoff::new(FIRST_UNPREPARE_DELAY, MAX_UNPREPARE_DELAY);
    while let Err(error) = manager.unprepare_of(&pod).await {
        log!(warn, "failed to unprepare claims of a pod that is gone", pod = pod, error = ErrorChain(&error));
        rt::sleep(jitter(backoff.next_wait(), 0.2, rt::random())).await;
    }
    manager.reclaimed.borrow_mut().remove(&pod);
}

fn check(claims: &[Claim], response: UnprepareResponse) -> Result<(), DraError> {
    let count = response.claims.len();
    for entry in response.claims {
        let Some(claim) = claims.iter().find(|claim| claim.uid == entry.uid) else {
            return Err(DraError::UnknownClaim { method: UNPREPARE, uid: entry.uid });
        };
        let message = entry.result.unwrap_or_default().error;
        if !message.is_empty() {
            return Err(DraError::Claim { method: UNPREPARE, claim: claim.name.clone(), message });
        }
    }
    match claims.len().saturating_sub(count) {
        0 => Ok(()),
        count => Err(DraError::Skipped { method: UNPREPARE, count }),
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs, process};

    use super::super::DRA_CHECKPOINT_FILE;
    use super::super::claim_info::ClaimInfo;
    use super::*;
    use crate::kubelet::devices::Devices;
    use crate::state::objects::ResourceClaim;
    use crate::types::owned::Owned;
    use crate::types::sorted::SortedSet;

    #[test]
    fn released_claims_leave_the_checkpoint_when_the_disk_takes_it() {
        let root = env::temp_dir().join(format!("coracle-unprepare-{}", process::id()));
        fs::create_dir_all(&root).unwrap();
        let seen = rt::simulate(1, |world| {
            let root = root.clone();
            async move {
                let inbox = async_channel::bounded(1).0;
                let devices = Devices::open(&root, Vec::new(), inbox.clone()).await;
                let dra = DraManager::open(&root, devices, inbox).await;
                let (name, pod) = (("ns".to_owned(), "claim".to_owned()), PodUid::from("pod-uid"));
                let claim = ClaimInfo::new(&ResourceClaim {
                    uid: "c".to_owned(),
                    drivers: SortedSet::new(),
                    files: Vec::new(),
                });
                dra.cache.borrow_mut().reserve(name, claim, &pod).unwrap();
                dra.write().await.unwrap();
                let is_listed = || fs::read_to_string(root.join(DRA_CHECKPOINT_FILE)).unwrap().contains("pod-uid");
                assert!(is_listed());
                world.files.failing.set(1000);
                let objects = Owned::default().view();
                dra.unprepare(&pod, None, &objects).await.unwrap_err();
                dra.unprepare(&pod, None, &objects).await.unwrap();
                world.files.failing.set(0);
                rt::sleep(2 * MAX_UNPREPARE_DELAY).await;
                is_listed()
            }
        });
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(seen, Ok(false));
    }
}
