//! Repeats NodePublishVolume for drivers with `requiresRepublish`.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::drivers::method;
use super::error::{CsiError, Phase};
use super::v1::Empty;
use super::volume::is_published;
use super::{Csi, CsiVolume};
use crate::platform::rt;
use crate::types::api::{EventKind, Reason};
use crate::types::error::ErrorChain;

/// The repeated call for one volume.
pub(super) struct Republish {
    host_path: PathBuf,
    task: rt::Task<()>,
}

impl Csi {
    /// Repeats NodePublishVolume for a published volume, because its volume context may have changed. The call runs in
    /// the background: its driver may hang, and the pod goes on. Nothing is done while the last call for the volume is
    /// in progress. The volume stays published even if this fails.
    pub(crate) fn republish(self: &Rc<Self>, volume: CsiVolume) {
        let mut republishes = self.republishes.borrow_mut();
        republishes.retain(|republish| !republish.task.is_finished());
        if republishes.iter().any(|republish| republish.host_path == volume.host_path) {
            return;
        }
        let (csi, host_path) = (Rc::downgrade(self), volume.host_path.clone());
        let task = rt::spawn(async move {
            let Some(csi) = csi.upgrade() else { return };
            if let Err(error) = csi.publish_again(&volume).await {
                let reason = if volume.is_block { Reason::FAILED_MAP_VOLUME } else { Reason::FAILED_MOUNT };
                let operation = Phase::SetUp.operation(volume.is_block);
                let message = format!("{operation} failed for volume {:?} : {}", volume.name, ErrorChain(&error));
                csi.record_event(&volume, EventKind::Warning, reason, message);
            }
        });
        republishes.push(Republish { host_path, task });
    }

    /// Stops the work for the pod with this directory. A call in progress keeps the volume's lock until it ends.
    pub(super) fn end_republish(&self, pod: &Path) {
        self.republishes.borrow_mut().retain(|republish| !republish.host_path.starts_with(pod));
    }

    async fn publish_again(&self, volume: &CsiVolume) -> Result<(), CsiError> {
        let turn = self.volume_turn(&volume.driver, &volume.handle).await;
        if !is_published(volume).await? {
            return Ok(());
        }
        if let Some(missing) = &volume.missing {
            return Err(CsiError::Missing(missing.clone()));
        }
        let driver = self.driver(&volume.driver)?;
        let request = self.publish_request(volume, &driver);
        let call = async move { driver.call(method!("NodePublishVolume"), request, &mut Empty::default()).await };
        Ok(self.run_to_end(&turn, Box::pin(call)).await?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use nix::mount::{MntFlags, MsFlags, mount, umount2};

    use super::*;

    #[test]
    fn one_call_for_a_volume_runs_at_a_time_until_its_pod_ends() {
        rt::block_on(async {
            let csi = Csi::new(Path::new("/nowhere"), "n", async_channel::bounded(1).0, None);
            let volume = |path: &str| CsiVolume {
                driver: "d".to_owned(),
                handle: path.to_owned(),
                host_path: path.into(),
                ..CsiVolume::default()
            };
            // Hangs in the first call.
            let _turn = csi.volume_turn("d", "/pods/a/1").await;
            for path in ["/pods/a/1", "/pods/a/1", "/pods/b/1"] {
                csi.republish(volume(path));
            }
            let running = || {
                let republishes = csi.republishes.borrow();
                republishes.iter().map(|one| one.host_path.display().to_string()).collect::<Vec<_>>()
            };
            assert_eq!(running(), ["/pods/a/1", "/pods/b/1"]);
            csi.end_republish(Path::new("/pods/a"));
            assert_eq!(running(), ["/pods/b/1"]);
        });
    }

    #[test]
    fn set_up_of_a_published_volume_does_not_wait_for_a_call_that_hangs() {
        let host_path = std::env::temp_dir().join(format!("coracle-republish-{}", std::process::id()));
        let volume = CsiVolume { host_path: host_path.clone(), ..CsiVolume::default() };
        fs::create_dir_all(volume.target()).unwrap();
        mount(Some("tmpfs"), &volume.target(), Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        let done = rt::block_on(async {
            let csi = Csi::new(Path::new("/nowhere"), "n", async_channel::bounded(1).0, None);
            let _turn = csi.volume_turn(&volume.driver, &volume.handle).await;
            let mut never: super::super::PodTerminating = Box::pin(std::future::pending());
            rt::deadline(Duration::from_secs(5), csi.set_up(&volume, &mut never)).await.is_ok_and(|done| done.is_ok())
        });
        umount2(&volume.target(), MntFlags::MNT_DETACH).unwrap();
        fs::remove_dir_all(&host_path).unwrap();
        assert!(done);
    }
}
