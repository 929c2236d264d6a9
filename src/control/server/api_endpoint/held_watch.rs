//! A watch without the server. Its events are only of what the node knows better. It ends when the server is back, so
//! that the client asks the server.

use std::time::{Duration, Instant};

use super::ApiEndpoint;
use super::status::OwnStatus;
use crate::kubelet::api_cache::{AnswerForm, OwnNode, ReadRequest, Remembered};
use crate::platform::rt;

pub(super) struct HeldWatch {
    pub(super) content_type: String,
    remembered: Remembered,
    /// Whether the node may know some of the fields better.
    is_correctable: bool,
    /// What the node knew when it last looked; `None` before.
    last_own_node: Option<OwnNode>,
    /// The version of the corrected list that the client has.
    version: Option<u64>,
    /// What is to be sent.
    events: Vec<u8>,
    /// The limit of the client.
    end: Option<Instant>,
    /// It lasts until then, for the case that the components' requests fail although the node's do not.
    earliest_end: Instant,
}

const MIN_HELD_WATCH_TIME: Duration = Duration::from_secs(2);
/// Changes of pods within this time are sent together.
const OWN_CHANGES_DELAY: Duration = Duration::from_millis(200);

impl HeldWatch {
    /// The error is for a client that has to list again.
    pub(super) async fn open(
        endpoint: &ApiEndpoint,
        remembered: Remembered,
        read: &ReadRequest,
        limit: Option<Duration>,
    ) -> Result<Self, OwnStatus> {
        let now = rt::now();
        let mut watch = Self {
            content_type: [&*remembered.content_type, ";stream=watch"].concat(),
            remembered,
            is_correctable: read.is_correctable,
            last_own_node: None,
            version: read.corrected_version,
            events: Vec::new(),
            end: limit.and_then(|limit| now.checked_add(limit)),
            earliest_end: now + MIN_HELD_WATCH_TIME,
        };
        watch.catch_up(endpoint).await?;
        Ok(watch)
    }

    /// The next events. `None`: the watch ends.
    pub(super) async fn next(&mut self, endpoint: &ApiEndpoint) -> Option<Vec<u8>> {
        loop {
            let seen = endpoint.status_inputs.pods_or_addresses_changes();
            self.catch_up(endpoint).await.ok()?;
            if !self.events.is_empty() {
                return Some(std::mem::take(&mut self.events));
            }
            if !self.outlasts(endpoint, seen).await {
                return None;
            }
        }
    }

    /// Brings the client to what the node knows now.
    async fn catch_up(&mut self, endpoint: &ApiEndpoint) -> Result<(), OwnStatus> {
        let own_node = Some(endpoint.own_node.own_node()).filter(|_| self.is_correctable);
        if own_node == self.last_own_node {
            return Ok(());
        }
        self.last_own_node.clone_from(&own_node);
        let cached_events = endpoint.cache.answer(&self.remembered, own_node, AnswerForm::Events).await;
        let (cached_events, _) = cached_events.ok_or_else(OwnStatus::expired)?;
        if cached_events.version == self.version {
            return Ok(());
        }
        // All is as the server says again, which a list tells.
        let version = cached_events.version.ok_or_else(OwnStatus::expired)?;
        (self.version, self.events) = (Some(version), cached_events.bytes);
        Ok(())
    }

    /// Waits for a change, or the end of the watch. False at its end.
    async fn outlasts(&self, endpoint: &ApiEndpoint, generation: u64) -> bool {
        let is_back = async {
            rt::sleep_until(self.earliest_end).await;
            endpoint.node.connection(true).await;
            false
        };
        let end = async {
            match self.end {
                Some(end) => rt::sleep_until(end).await,
                None => std::future::pending().await,
            }
            false
        };
        let change = async {
            match self.is_correctable {
                true => endpoint.status_inputs.pods_or_addresses_beyond(generation).await,
                false => std::future::pending().await,
            }
            rt::sleep(OWN_CHANGES_DELAY).await;
            true
        };
        rt::either(change, rt::either(end, is_back)).await
    }
}

#[cfg(test)]
mod tests;
