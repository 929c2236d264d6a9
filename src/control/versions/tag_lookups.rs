//! Looks up the tags of images at the interval that their pods ask for.
//!
//! ```text
//!   due -> a task asks the registry -> TagsLookedUp -> the tag has moved: a new version, as if the manifest had changed
//!                                                   -> failed: another lookup after a while
//! ```

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_channel::Sender;

use super::image_tags::{lookup_interval, tagged_images};
use super::pod_versions::PodVersions;
use crate::control::pod_table::{Effect, PodTable};
use crate::platform::rt;
use crate::state::objects::Objects;
use crate::state::pods::{PodEvent, SyncEvent, TagTarget, Waiting};
use crate::types::api::{EventKind, Pod, PodUid, Reason};
use crate::types::owned::View;
use crate::types::sorted::SortedMap;

pub(crate) struct TagLookups {
    /// For the Secrets of lookups.
    objects: View<Objects>,
    inbox: Sender<SyncEvent>,
    /// By the full name of the pod.
    lookups: SortedMap<String, TagLookup>,
}

struct TagLookup {
    /// `None` while one is under way.
    /// Not stored: a board that is on for an hour a day looks each day.
    due: Option<Instant>,
    /// Dropping it cancels the lookup.
    task: Option<rt::Task<()>>,
    /// The last lookup failed.
    has_failed: bool,
}

/// First lookups of all pods and nodes are spread over this time, or over the interval if that is shorter.
const FIRST_LOOKUP_SPREAD: Duration = Duration::from_secs(600);
/// Waits after a failure: an eighth of the interval, within these.
const MIN_LOOKUP_RETRY: Duration = Duration::from_secs(60);
const MAX_LOOKUP_RETRY: Duration = Duration::from_secs(3600);

impl TagLookups {
    pub(crate) fn new(objects: View<Objects>, inbox: Sender<SyncEvent>) -> Self {
        Self { objects, inbox, lookups: SortedMap::new() }
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.lookups.values().filter_map(|lookup| lookup.due).min()
    }

    /// Starts the lookups that are due, and cancels those of pods that no longer ask for them.
    pub(crate) fn round(&mut self, versions: &PodVersions, pods: &PodTable, now: Instant) {
        let manifests: Vec<Arc<Pod>> = versions.read().auto_updated().cloned().collect();
        self.lookups.retain(|name, _| manifests.iter().any(|pod| pod.full_name() == *name));
        for manifest in manifests {
            let due = now + first_wait(&manifest);
            let first = || TagLookup { due: Some(due), task: None, has_failed: false };
            let lookup = self.lookups.entry(manifest.full_name()).or_insert_with(first);
            if pods.can_work() && lookup.due.is_some_and(|due| due <= now) {
                lookup.due = None;
                let (runtime, objects, inbox) = (Rc::clone(pods.runtime()), self.objects.clone(), self.inbox.clone());
                lookup.task = Some(rt::spawn(async move {
                    let targets = runtime.images.look_up_tags(&manifest, tagged_images(&manifest), &objects).await;
                    // Fails only when the agent is ending.
                    let _ = inbox.send(SyncEvent::TagsLookedUp { pod: manifest, targets }).await;
                }));
            }
        }
    }

    /// A lookup has ended.
    pub(crate) fn on_looked_up(
        &mut self,
        manifest: &Pod,
        targets: Result<Vec<(String, TagTarget)>, Waiting>,
        versions: &mut PodVersions,
        pods: &PodTable,
        now: Instant,
    ) -> Vec<Effect> {
        // An event of a cancelled lookup may still have been queued.
        let Some(lookup) = self.lookups.get_mut(&manifest.full_name()) else { return Vec::new() };
        lookup.task = None;
        let interval = lookup_interval(manifest).unwrap_or(MAX_LOOKUP_RETRY);
        match targets {
            Ok(targets) => {
                lookup.due = Some(now + interval);
                lookup.has_failed = false;
                versions.on_tags(manifest, &targets, pods)
            }
            Err(waiting) => {
                let retry = (interval / 8).clamp(MIN_LOOKUP_RETRY, MAX_LOOKUP_RETRY);
                lookup.due = Some(waiting.until.unwrap_or(now + retry));
                // Windows and budgets are no failure.
                let is_news = waiting.reason != Reason::IMAGE_PULL_WAITING && !lookup.has_failed;
                lookup.has_failed |= is_news;
                let running = versions.read().running_of(manifest);
                match running.filter(|_| is_news) {
                    Some(running) => vec![failed(pods.records().running_uid(&running), &waiting.message)],
                    None => Vec::new(),
                }
            }
        }
    }
}

fn failed(running: &PodUid, why: &str) -> Effect {
    let message = format!("Failed to look up whether the tag has moved, the present version runs on: {why}");
    Effect::Record(PodEvent::of_pod(running, EventKind::Warning, Reason::TAG_LOOKUP_FAILED, message))
}

/// Derived from the uid, which differs between nodes, so that a fleet does not ask its registry all at once.
fn first_wait(manifest: &Pod) -> Duration {
    let interval = lookup_interval(manifest).unwrap_or_default();
    let spread = interval.min(FIRST_LOOKUP_SPREAD);
    let digits = manifest.metadata.uid.as_str().get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    spread * digits.unwrap_or_default() / 0xffff
}
