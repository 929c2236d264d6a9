//! What follows from the answer for a topic without a watch. Pure.

use std::time::Duration;

use crate::state::pods::SyncEvent;

#[derive(Default)]
pub(super) struct NextStep {
    pub(super) events: Vec<SyncEvent>,
    /// When to request the topic; `None` after an answer that cannot change any more.
    pub(super) request_after: Option<Duration>,
    /// When to call `on_attention`.
    pub(super) attention_after: Option<Duration>,
    /// From when on the next opening of the gate requests the topic: it may be the last one in time.
    pub(super) opening_after: Option<Duration>,
}
