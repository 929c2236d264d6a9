//! Publishes this node's device files as ResourceSlices, and makes no request while they stay as they are.

use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::device_slices::{Change, KnownSlice, changes, published};
use super::slices::SLICES;
use crate::kubelet::devices::Devices;
use crate::kubelet::node::StatusInputs;
use crate::platform::apiserver::{ApiError, Client, Patch, Rank, Request};
use crate::platform::rt;
use crate::state::objects::DEVICE_FILES_DRIVER;
use crate::types::error::ErrorChain;
use crate::types::time::{Backoff, jitter};

const FIRST_SLICE_PUBLISH_DELAY: Duration = Duration::from_secs(1);
const MAX_SLICE_PUBLISH_DELAY: Duration = Duration::from_secs(300);
/// Changes of this time are published together.
const SLICE_CHANGE_DELAY: Duration = Duration::from_millis(300);

pub(crate) struct SlicePublisher {
    pub(crate) client: Client,
    pub(crate) devices: Rc<Devices>,
    pub(crate) node_name: String,
    pub(crate) status_inputs: Rc<StatusInputs>,
}

impl SlicePublisher {
    /// Returns at once without rules. [`super::SliceCleaner`] then removes the slices of an earlier process.
    pub(crate) async fn run(self) {
        if !self.devices.has_rules() {
            return;
        }
        self.status_inputs.admission_is_possible().await;
        let mut backoff = Backoff::new(FIRST_SLICE_PUBLISH_DELAY, MAX_SLICE_PUBLISH_DELAY);
        // The devices that the API server has, the uid of their Node object, with which they are removed, and the history
        // of the server, which has lost them if it was restored from a backup.
        let mut done: Option<(Vec<Value>, String, u64)> = None;
        loop {
            let (devices_seen, uid_seen) = (self.devices.changed().changes(), self.status_inputs.uid_changed.changes());
            let history = self.client.histories().changes();
            let wanted = (published(&self.devices.files()), self.status_inputs.uid(), history);
            let retry = if done.as_ref() == Some(&wanted) {
                None
            } else {
                match self.publish(&wanted.0, &wanted.1).await {
                    Ok(()) => {
                        backoff.reset();
                        done = Some(wanted);
                        None
                    }
                    Err(error) => {
                        log!(warn, "failed to publish ResourceSlices", error = ErrorChain(&error));
                        Some(jitter(backoff.next_wait(), 0.2, rt::random()))
                    }
                }
            };
            let Some(wait) = retry else {
                let uid_changed = self.status_inputs.uid_changed.beyond(uid_seen);
                let is_lost = rt::either(uid_changed, self.client.histories().beyond(history));
                rt::either(self.devices.changed().beyond(devices_seen), is_lost).await;
                rt::sleep(SLICE_CHANGE_DELAY).await;
                continue;
            };
            rt::sleep(wait).await;
        }
    }

    async fn publish(&self, devices: &[Value], node_uid: &str) -> Result<(), ApiError> {
        let selector = format!("spec.nodeName={},spec.driver={DEVICE_FILES_DRIVER}", self.node_name);
        let list = Request::get(SLICES).with_query("fieldSelector", &selector).ranked(Rank::Node);
        let list = match self.client.send(&list).await {
            // A server without the API has no scheduler that asks for it.
            Err(error) if error.is_not_found() => return Ok(()),
            answer => answer?.json()?,
        };
        let current_slices = KnownSlice::read(&list);
        let changes = changes(&self.node_name, node_uid, devices, &current_slices);
        let count = changes.len();
        for change in changes {
            let request = match change {
                Change::Create(object) => Request::post(SLICES, &object),
                Change::Update { name, patch } => Request::patch(format!("{SLICES}/{name}"), Patch::Merge, &patch),
                Change::Delete { name } => Request::delete(format!("{SLICES}/{name}"), &json!({})),
            };
            self.client.send(&request.ranked(Rank::Node)).await?;
        }
        if count > 0 {
            log!(info, "published ResourceSlices", devices = devices.len());
        }
        Ok(())
    }
}
