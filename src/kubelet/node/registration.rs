//! Registers the node and keeps its Node object up to date.

use std::rc::Rc;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender, bounded};

use super::lease_task;
use super::node_images::shown_images;
use super::node_object::{NodeObjectState, NodeStep, Outcome};

use super::status_inputs::{CONFIG_ANNOTATION, UPGRADE_ANNOTATION};
use super::{NodeInfo, NodeObservation, NodeProfile, StatusInputs};
use crate::platform::apiserver::{ApiError, Change, Client, Collection, Patch, Rank, Request, Requester, reflect};
use crate::platform::config::Reporting;
use crate::platform::cri::ImageService;
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::pods::{NodeFields, SyncEvent};
use crate::types::api::{ContainerImage, Node, ObjectText};
use crate::types::error::ErrorChain;

pub(crate) struct NodeRegistration {
    pub(crate) client: Client,
    pub(crate) profile: NodeProfile,
    pub(crate) reporting: Reporting,
    pub(crate) status_inputs: Rc<StatusInputs>,
    /// Lists the images for the status.
    pub(crate) images: ImageService,
    /// The sync loop's inbox, for events.
    pub(crate) inbox: Sender<SyncEvent>,
}

/// Capacity of the channel of object changes.
const MAX_PENDING_NODE_CHANGES: usize = 8;
/// Deadline of the image list, which is only needed for the status.
const IMAGE_LIST_TIMEOUT: Duration = Duration::from_secs(10);

impl NodeRegistration {
    /// Starts the tasks; dropping them stops them.
    pub(crate) fn start(self) -> [rt::Task<()>; 2] {
        let name = self.profile.metadata.name.clone();
        let lease =
            lease_task::run(self.client.clone(), name, self.reporting.lease_duration, Rc::clone(&self.status_inputs));
        [rt::spawn(lease), rt::spawn(self.run())]
    }

    async fn run(self) {
        let (sender, changes) = bounded(MAX_PENDING_NODE_CHANGES);
        let collection = Collection {
            path: "/api/v1/nodes".to_owned(),
            field_selector: format!("metadata.name={}", self.profile.metadata.name),
            // Heartbeats change the object often enough.
            bookmarks: false,
            // A node that was deleted during an outage registers again.
            rereads_after_loss: true,
            rank: Rank::Node,
            requester: Requester::Node,
        };
        let _follower = rt::spawn(reflect(self.client.clone(), collection, sender));
        let Reporting { register, status_period, .. } = self.reporting;
        let mut node_state = NodeObjectState::new(self.profile.clone(), register, status_period, rt::now());
        let mut talk = NodeExchange::default();
        let mut images = Vec::new();
        let mut terms = None;
        loop {
            if self.client.gate().is_shut() {
                // Lets tasks that wait for the first contact with the cluster continue.
                self.status_inputs.set_away();
            }
            self.client.gate().admitted(Rank::Node).await;
            let seen = self.status_inputs.changed.changes();
            while let Ok(change) = changes.try_recv() {
                self.apply(&mut node_state, change);
            }
            let was_read = self.status_inputs.take_wanted_read();
            if was_read {
                self.read_again(&mut node_state).await;
            }
            if node_state.report_is_due(rt::now()) {
                images = self.list_images().await.unwrap_or(images);
            }
            let addresses = NodeInfo::read_addresses();
            self.status_inputs.set_addresses(self.profile.addresses(&addresses, node_state.addresses()));
            node_state.set_reports(&self.status_inputs.reports.borrow());
            let step = node_state.next(&NodeObservation {
                pressures: &self.status_inputs.pressures.borrow(),
                board: self.status_inputs.board.borrow().known_conditions(),
                runtime: &self.status_inputs.runtime.borrow(),
                addresses: &addresses,
                images: &images,
                shuts_down: self.status_inputs.shuts_down.get(),
                volumes_in_use: &self.status_inputs.volumes_in_use.borrow(),
                devices: &self.status_inputs.devices.borrow(),
                now: clock::now(),
                instant: rt::now(),
            });
            for event in node_state.take_events() {
                // Events may be dropped when the inbox is full.
                let _ = self.inbox.try_send(SyncEvent::NodeEvent(event));
            }
            self.send_node_fields(&node_state, &mut terms).await;
            if was_read {
                self.status_inputs.set_node_read();
            }
            self.status_inputs.set_uid(node_state.server().map_or("", |node| node.metadata.uid.as_str()));
            let wanted = |name| {
                node_state.server().and_then(|node| node.metadata.annotations.get(name)).map_or("", String::as_str)
            };
            self.status_inputs.set_wanted(wanted(UPGRADE_ANNOTATION), wanted(CONFIG_ANNOTATION));
            match step {
                NodeStep::Wait(until) => {
                    if let Some(change) = self.wait(&changes, seen, until).await {
                        self.apply(&mut node_state, change);
                    }
                }
                step => {
                    let outcome = send(&self.client, &self.profile.metadata.name, &step, &mut talk).await;
                    node_state.done(outcome, rt::now(), rt::random());
                }
            }
        }
    }

    /// Reads the object for a pod that its known labels would reject. A failure leaves it as it is known.
    async fn read_again(&self, state: &mut NodeObjectState) {
        if state.server().is_none() {
            return;
        }
        let request = Request::get(format!("/api/v1/nodes/{}", self.profile.metadata.name)).ranked(Rank::Node);
        match get_node(&self.client, &request).await {
            Ok(node) => state.on_server_object(node),
            Err(error) => log!(debug, "failed to read node object again", error = ErrorChain(&error)),
        }
    }

    fn apply(&self, state: &mut NodeObjectState, change: Change) {
        if matches!(change, Change::Away(_)) {
            self.status_inputs.set_away();
        }
        apply(state, change);
    }

    /// Must be sent before any pod of the cluster: admission depends on it.
    async fn send_node_fields(&self, state: &NodeObjectState, sent: &mut Option<NodeFields>) {
        let terms = state.terms();
        if let Some(terms) = terms.filter(|terms| sent.as_ref() != Some(terms)) {
            *sent = Some(terms.clone());
            // The receiver is gone only at shutdown.
            let _ = self.inbox.send(SyncEvent::NodeChanged(terms)).await;
        }
        if sent.is_some() || state.is_created_elsewhere() {
            self.status_inputs.set_node_known();
        }
    }

    /// `None` if no images are reported or the runtime did not list them.
    async fn list_images(&self) -> Option<Vec<ContainerImage>> {
        let most = self.reporting.max_images;
        if most == Some(0) {
            return None;
        }
        let listed = rt::deadline(IMAGE_LIST_TIMEOUT, self.images.list_images(None)).await;
        listed.ok()?.ok().map(|images| shown_images(images, most))
    }

    async fn wait(&self, changes: &Receiver<Change>, generation: u64, until: Option<Instant>) -> Option<Change> {
        let status_inputs = async {
            self.status_inputs.changed.beyond(generation).await;
            None
        };
        let due = async {
            match until {
                Some(time) => rt::sleep_until(time).await,
                None => std::future::pending().await,
            }
            None
        };
        // The reflector lives as long as this task.
        let change = async { changes.recv().await.ok() };
        rt::either(change, rt::either(status_inputs, due)).await
    }
}

fn apply(node_state: &mut NodeObjectState, change: Change) {
    match change {
        Change::Replaced(objects) => {
            let node = objects.first().map(read);
            match node {
                Some(Some(node)) => node_state.on_list(Some(node)),
                None => node_state.on_list(None),
                Some(None) => {}
            }
        }
        Change::Applied(object) => read(&object).into_iter().for_each(|node| node_state.on_server_object(node)),
        Change::Deleted(_) => {
            log!(warn, "node object was deleted, registering again only after a restart");
            node_state.on_deletion();
        }
        Change::Away(_) => {}
    }
}

fn read(object: &ObjectText) -> Option<Node> {
    match object.decode() {
        Ok(node) => Some(node.value),
        Err(error) => {
            log!(error, "failed to decode node object", error = ErrorChain(&error));
            None
        }
    }
}

/// Whether a failure was logged already.
#[derive(Debug, Default)]
struct NodeExchange {
    fails: bool,
}

async fn send(client: &Client, name: &str, step: &NodeStep, talk: &mut NodeExchange) -> Outcome {
    let path = format!("/api/v1/nodes/{name}");
    let response = match step {
        NodeStep::Create(node) => seen(client, &Request::post("/api/v1/nodes", node).ranked(Rank::Node)).await,
        NodeStep::Get => seen(client, &Request::get(path).ranked(Rank::Node)).await,
        NodeStep::Patch(patch) => {
            // The watch delivers the updated object.
            let request = Request::patch(path + "/status", Patch::StrategicMerge, patch).unread();
            client.send(&request.ranked(Rank::Node)).await.map(|_| Outcome::Patched)
        }
        NodeStep::Wait(_) => return Outcome::Failed { is_retryable: true },
    };
    match response {
        Ok(outcome) => {
            if matches!(step, NodeStep::Create(_)) {
                log!(info, "node registered", node = name);
            }
            if std::mem::take(&mut talk.fails) {
                log!(info, "node status updated again");
            }
            outcome
        }
        Err(error) if error.is_not_found() => Outcome::NotFound,
        Err(error) if error.is_already_exists() => Outcome::Exists,
        Err(error) => {
            if !std::mem::replace(&mut talk.fails, true) {
                log!(warn, "failed to update node status, retrying", error = ErrorChain(&error));
            }
            match step {
                // The object may exist even if this node may not create it.
                NodeStep::Create(_) if error.is_forbidden() => Outcome::Exists,
                _ => Outcome::Failed { is_retryable: error.is_retryable() },
            }
        }
    }
}

async fn get_node(client: &Client, request: &Request) -> Result<Node, ApiError> {
    client.send(request).await?.decode()
}

async fn seen(client: &Client, request: &Request) -> Result<Outcome, ApiError> {
    get_node(client, request).await.map(|node| Outcome::Seen(Box::new(node)))
}
