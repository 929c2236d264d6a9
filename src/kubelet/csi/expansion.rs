//! Expands the volumes of running pods. Claims are polled, because nodes may not watch them.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use super::drivers::{Driver, method};
use super::error::ExpandSecretError;
use super::v1::{CapacityRange, EXPAND_VOLUME, NodeExpandVolumeRequest, NodeExpandVolumeResponse};
use super::volume::{VolumeTurn, capability, is_published};
use super::{Csi, CsiVolume, paths};
use crate::platform::apiserver::{ApiError, Patch, Request, Requester};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::protocol::grpc::Code;
use crate::protocol::protobuf::encode;
use crate::state::objects::{
    ConfigObject, ExpansionDue, ObjectKey, Target, begun_patch, capacity, done_patch, failed_patch, growth_due,
    size_in_bytes,
};
use crate::state::pods::{PodEvent, SyncEvent};
use crate::types::api::{EventKind, Reason, Secret, decode};
use crate::types::error::ErrorChain;
use crate::types::sorted::SortedMap;
use crate::types::time::jitter;

/// The polling of one volume's claim.
pub(super) struct ExpansionPoll {
    volume: CsiVolume,
    #[expect(dead_code, reason = "dropping the task cancels it")]
    task: rt::Task<()>,
}

/// Sizes of a volume in bytes, while a pod of the node uses it. Shared by all its pods, because an
/// expansion counts for all.
#[derive(Default)]
pub(super) struct ExpansionState {
    capacity: Cell<Option<i64>>,
    /// The size that the driver refused while the volume is in use.
    refused: Cell<Option<i64>>,
}

/// The polling interval in sync periods: network traffic is expensive, and expansions are rare.
const EXPANSION_POLL_SYNCS: u32 = 3;
/// How long the start of a pod waits for the claim: some drivers expand a volume only before it is used.
const EXPANSION_WAIT: Duration = Duration::from_secs(3);

impl Csi {
    /// Whether the driver has the capability to expand volumes.
    pub(crate) fn can_expand(&self, driver: &str) -> bool {
        self.driver(driver).is_ok_and(|driver| driver.can(EXPAND_VOLUME))
    }

    /// Polls the claims of these volumes and no others, at a multiple of `sync_frequency`.
    pub(crate) fn follow_expansion(self: &Rc<Self>, wanted: Vec<CsiVolume>, sync_frequency: Duration) {
        let period = sync_frequency.saturating_mul(EXPANSION_POLL_SYNCS);
        let mut before = self.growths.take();
        let wanted = wanted.into_iter().filter(|volume| self.can_grow(volume).is_some());
        let growth = |volume: CsiVolume| {
            let running_poll = before.iter().position(|old| old.volume.host_path == volume.host_path);
            running_poll.map(|index| before.swap_remove(index)).unwrap_or_else(|| self.poll_expansion(volume, period))
        };
        let growths = wanted.map(growth).collect();
        self.growths.replace(growths);
    }

    /// Stops polling for the pod with this directory. A call in progress keeps the volume's lock until it ends.
    pub(super) fn end_expansion(&self, pod: &Path) {
        self.growths.borrow_mut().retain(|growth| !growth.volume.host_path.starts_with(pod));
        self.expansions.borrow_mut().retain(|(host_path, _)| !host_path.starts_with(pod));
    }

    fn expansion_state(&self, volume: &CsiVolume) -> Rc<ExpansionState> {
        let mut expansions = self.expansions.borrow_mut();
        // In every pod, the last component of the path is the volume's name.
        let of_same_volume =
            expansions.iter().find(|(host_path, _)| host_path.file_name() == volume.host_path.file_name());
        let state = of_same_volume.map(|(_, state)| Rc::clone(state)).unwrap_or_default();
        if expansions.iter().all(|(host_path, _)| *host_path != volume.host_path) {
            expansions.push((volume.host_path.clone(), Rc::clone(&state)));
        }
        state
    }

    fn poll_expansion(self: &Rc<Self>, volume: CsiVolume, period: Duration) -> ExpansionPoll {
        let (csi, of, state) = (Rc::downgrade(self), volume.clone(), self.expansion_state(&volume));
        let task = rt::spawn(async move {
            loop {
                rt::sleep(jitter(period, 0.2, rt::random())).await;
                let Some(csi) = csi.upgrade() else { return };
                if let Some(driver) = csi.can_grow(&of) {
                    csi.expand_if_due(&of, &driver, &state).await;
                }
            }
        });
        ExpansionPoll { volume, task }
    }

    /// The driver, if it can expand the volume.
    fn can_grow(&self, volume: &CsiVolume) -> Option<Rc<Driver>> {
        self.expanding_driver(volume).filter(|_| !volume.read_only)
    }

    /// The driver of a volume with a claim, if it expands volumes.
    fn expanding_driver(&self, volume: &CsiVolume) -> Option<Rc<Driver>> {
        let driver = self.driver(&volume.driver).ok()?;
        (volume.claim.is_some() && driver.can(EXPAND_VOLUME)).then_some(driver)
    }

    async fn expand_if_due(&self, volume: &CsiVolume, driver: &Rc<Driver>, state: &ExpansionState) {
        // A failed request is retried at the next poll.
        let Ok(Some((claim, target))) = self.due(volume, state, |request| request).await else { return };
        let turn = self.volume_turn(&volume.driver, &volume.handle).await;
        // The claim may have been updated for another pod of the volume in the meantime.
        let is_due = growth_due(&claim, state.capacity.get()) != ExpansionDue::Nothing;
        if is_due && is_published(volume).await.is_ok_and(|is_published| is_published) {
            self.grow(volume, driver, &turn, (&claim, &target), state).await;
        }
    }

    /// Expands a volume before its first use: some drivers can only expand unused volumes. A failure does not prevent the
    /// use of the volume, unlike upstream.
    pub(super) async fn expand_before_use(&self, volume: &CsiVolume, turn: &VolumeTurn) {
        let Some(driver) = self.expanding_driver(volume) else { return };
        let state = self.expansion_state(volume);
        let due = self.due(volume, &state, Request::at_once);
        let Ok(Ok(Some((claim, target)))) = rt::deadline(EXPANSION_WAIT, due).await else { return };
        if volume.read_only {
            let message = format!(
                "MountVolume.NodeExpandVolume failed for volume {:?} requested read-only file system",
                volume.name
            );
            self.record_event(volume, EventKind::Warning, Reason::FILE_SYSTEM_RESIZE_FAILED, message);
        } else {
            self.grow(volume, &driver, turn, (&claim, &target), &state).await;
        }
    }

    async fn due(
        &self,
        volume: &CsiVolume,
        state: &ExpansionState,
        ranked: fn(Request) -> Request,
    ) -> Result<Option<(Value, Target)>, ApiError> {
        let (Some(client), Some((namespace, name))) = (&self.client, &volume.claim) else { return Ok(None) };
        let get =
            async |path: String| client.send(&ranked(Request::get(path).requested_by(Requester::Tenant))).await?.json();
        let claim = get(format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")).await?;
        let due = growth_due(&claim, state.capacity.get());
        state.capacity.set(state.capacity.get().or_else(|| capacity(&claim)));
        let target = match due {
            ExpansionDue::Nothing => return Ok(None),
            ExpansionDue::To(target) => target,
            ExpansionDue::AsLargeAsVolume => {
                let bound = get(format!("/api/v1/persistentvolumes/{}", volume.name)).await?;
                let size = bound.pointer("/spec/capacity/storage").and_then(Value::as_str);
                let Some(size) = size.map(str::to_owned) else { return Ok(None) };
                Target { size, is_marked: true, updates_claim: true }
            }
        };
        let is_refused = state.refused.get().is_some() && state.refused.get() == size_in_bytes(&target.size);
        Ok((!is_refused).then_some((claim, target)))
    }

    /// Holds the volume's lock, so no request waits at the gate, which may stay shut for hours. The next poll repeats
    /// what was not sent, and NodeExpandVolume may be repeated.
    async fn grow(
        &self,
        volume: &CsiVolume,
        driver: &Rc<Driver>,
        turn: &VolumeTurn,
        (claim, target): (&Value, &Target),
        state: &ExpansionState,
    ) {
        let size = size_in_bytes(&target.size);
        let failed = |why: &str| {
            let message = format!("NodeExpandVolume.NodeExpandVolume failed for volume {:?} : {why}", volume.name);
            self.record_event(volume, EventKind::Warning, Reason::VOLUME_RESIZE_FAILED, message);
        };
        let mut claim = Cow::Borrowed(claim);
        if target.updates_claim && !target.is_marked {
            match self.patch_claim(volume, &begun_patch(&claim)).await {
                Ok(marked) => claim = Cow::Owned(marked),
                Err(error) => {
                    // The claim has changed, or the server is unreachable: retried at the next poll.
                    log!(info, "volume expansion postponed", volume = volume.name, error = error);
                    return;
                }
            }
        }
        let request = match self.secrets(volume.expand_secret.as_ref()).await {
            Ok(secrets) => self.expand_request(volume, driver, size.unwrap_or(0), secrets),
            Err(error) => return failed(&ErrorChain(&error).to_string()),
        };
        let called = Rc::clone(driver);
        let call = async move {
            let mut response = NodeExpandVolumeResponse::default();
            called.call(method!("NodeExpandVolume"), encode(&request), &mut response).await
        };
        let expanded = self.run_to_end(turn, Box::pin(call)).await;
        let patch = match &expanded {
            Ok(()) => Some(done_patch(&claim, &target.size)),
            Err(error) => {
                let code = error.code().filter(|code| is_final(*code));
                code.map(|code| failed_patch(&ErrorChain(error).to_string(), can_never_be(code), clock::now()))
            }
        };
        let patched = match patch.filter(|_| target.updates_claim) {
            Some(patch) => self.patch_claim(volume, &patch).await.map(drop),
            None => Ok(()),
        };
        match expanded {
            Ok(()) => {
                state.capacity.set(size.or(state.capacity.get()));
                let message =
                    format!("MountVolume.NodeExpandVolume succeeded for volume {:?} {}", volume.name, self.node_name);
                self.record_event(volume, EventKind::Normal, Reason::FILE_SYSTEM_RESIZE_SUCCESSFUL, message);
            }
            Err(error) => {
                if error.code() == Some(Code::FailedPrecondition) {
                    state.refused.set(size);
                }
                failed(&format!("Expander.NodeExpand failed to expand the volume : {}", ErrorChain(&error)));
            }
        }
        if let Err(error) = patched {
            log!(warn, "failed to update claim after volume expansion", volume = volume.name, error = error);
        }
    }

    fn expand_request(
        &self,
        volume: &CsiVolume,
        driver: &Driver,
        bytes: i64,
        secrets: SortedMap<String, String>,
    ) -> NodeExpandVolumeRequest {
        let staged_at = self.staged_at(volume, driver);
        NodeExpandVolumeRequest {
            volume_id: volume.handle.clone(),
            volume_path: volume.target().display().to_string(),
            capacity_range: Some(CapacityRange { required_bytes: bytes }),
            staging_target_path: staged_at.map_or_else(String::new, |path| path.display().to_string()),
            volume_capability: Some(capability(volume, driver)),
            secrets,
        }
    }

    async fn secrets(&self, key: Option<&ObjectKey>) -> Result<SortedMap<String, String>, ExpandSecretError> {
        let (Some(key), Some(client)) = (key, &self.client) else { return Ok(SortedMap::new()) };
        let ObjectKey { namespace, name, .. } = key;
        let failed = |source| ExpandSecretError { namespace: namespace.clone(), name: name.clone(), source };
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let secret_object = client
            .send(&Request::get(path).requested_by(Requester::Tenant).at_once())
            .await
            .and_then(|response| response.json());
        let secret_object = secret_object.map_err(|error| failed(error.into()))?;
        let secret: ConfigObject = decode::<Secret>(secret_object).map_err(|error| failed(error.into()))?.value.into();
        Ok(secret.texts())
    }

    /// The claim after the patch.
    async fn patch_claim(&self, volume: &CsiVolume, patch: &Value) -> Result<Value, ApiError> {
        let (Some(client), Some((namespace, name))) = (&self.client, &volume.claim) else { return Ok(Value::Null) };
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status");
        let request = Request::patch(path, Patch::StrategicMerge, patch);
        client.send(&request.requested_by(Requester::Tenant).at_once()).await?.json()
    }

    pub(super) fn record_event(&self, volume: &CsiVolume, kind: EventKind, reason: Reason, message: String) {
        let event = PodEvent::of_pod(&paths::pod_uid(&volume.host_path), kind, reason, message);
        // Events may be dropped when the inbox is full.
        let _ = self.inbox.try_send(SyncEvent::PodEvent(event));
    }
}

/// Whether the operation is certainly over (upstream's `isFinalError`).
fn is_final(code: Code) -> bool {
    !matches!(
        code,
        Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::ResourceExhausted | Code::Aborted
    )
}

/// Upstream's `isInfeasibleError`.
fn can_never_be(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::OutOfRange | Code::NotFound)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::platform::apiserver::{Client, Gate, Opening};
    use crate::platform::net::{Dialer, ProxySettings};
    use crate::state::objects::ObjectKind;

    #[test]
    fn expansion_does_not_wait_for_the_gate() {
        let ended = rt::simulate(1, |_| async {
            let gate = Gate::new(Opening::Shut, None);
            let client = Client::behind(gate, "/nowhere".into(), Dialer::of_server(ProxySettings::default()));
            let csi = Csi::new(Path::new("/nowhere"), "n", async_channel::bounded(1).0, Some(client));
            let (namespace, name) = ("ns".to_owned(), "n".to_owned());
            let volume = CsiVolume {
                claim: Some((namespace.clone(), name.clone())),
                expand_secret: Some(ObjectKey { kind: ObjectKind::Secret, namespace, name }),
                ..CsiVolume::default()
            };
            let driver = Rc::new(Driver::named("node-7", &[], 1));
            let turn = csi.volume_turn("d", "h").await;
            for is_marked in [false, true] {
                let target = Target { size: "2Gi".to_owned(), is_marked, updates_claim: true };
                csi.grow(&volume, &driver, &turn, (&json!({}), &target), &ExpansionState::default()).await;
            }
        });
        assert_eq!(ended, Ok(()));
    }
}
