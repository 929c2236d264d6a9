//! Requests the topics that have no watch: tokens, claims, attachments, and objects beyond the limit of watches.
//!
//! One task starts all requests. A topic has no task of its own, because a tenant decides how many there are.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::lookups::look_up;
use super::next_step::NextStep;
use super::pod_certificates::{SentRequest, request_certificate};
use super::token_work::request_token;
use super::topic_content::collection;
use super::topic_queue::TopicQueue;
use super::topic_work::{Answer, TopicWork};
use super::trust_bundles::bundles;
use super::watch_context::WatchContext;
use crate::kubelet::offline::OfflineStore;
use crate::platform::apiserver::{ApiError, Client, Collection, Rank, Request, Requester};
use crate::platform::config::FeatureGates;
use crate::platform::host::{boot_timer, clock};
use crate::platform::rpc::Signal;
use crate::platform::rt;
use crate::state::objects::{ObjectKey, Topic};
use crate::state::pods::SyncEvent;
use crate::types::api::{DecodeError, ObjectText, PodUid};
use crate::types::time::TokenBucket;

/// The followed topics, and the task that requests them.
pub(super) struct TopicRequests {
    shared: Rc<Shared>,
    /// Runs while topics are followed.
    task: Option<rt::Task<()>>,
}

struct Shared {
    context: WatchContext,
    state: RefCell<State>,
    /// A topic was added, or a request has ended.
    changed: Signal,
}

struct State {
    topics: BTreeMap<Arc<Topic>, Entry>,
    queue: TopicQueue,
    /// When topics need attention without a request.
    attention: BTreeSet<(Instant, Arc<Topic>)>,
    pace: TokenBucket,
}

struct Entry {
    pod: PodUid,
    work: TopicWork,
    stage: Stage,
    attention: Option<Instant>,
    /// From when on the next opening of the gate requests the topic.
    opening: Option<Instant>,
}

enum Stage {
    Waiting(Instant),
    UnderWay {
        _task: rt::Task<()>,
    },
    /// The answer cannot change any more.
    Done,
}

/// The pace of requests, as upstream's client: `kubeAPIQPS` and `kubeAPIBurst`.
const TOPIC_REQUEST_INTERVAL: Duration = Duration::from_millis(20);
const TOPIC_REQUEST_BURST: u32 = 100;
/// Requests that only the pace holds back begin this many at a time: one by one, a pod with 300 topics woke the node
/// four times a second.
const PACED_REQUESTS_AT_ONCE: u32 = 25;
/// What is shorter may be the time between the readings of two clocks.
const MIN_SUSPENSION: Duration = Duration::from_secs(1);

impl TopicRequests {
    pub(super) fn new(context: WatchContext) -> Self {
        let state = State {
            topics: BTreeMap::new(),
            queue: TopicQueue::default(),
            attention: BTreeSet::new(),
            pace: TokenBucket::each(TOPIC_REQUEST_INTERVAL, TOPIC_REQUEST_BURST, rt::now()),
        };
        let shared = Shared { context, state: RefCell::new(state), changed: Signal::default() };
        Self { shared: Rc::new(shared), task: None }
    }

    pub(super) fn topics(&self) -> Vec<Arc<Topic>> {
        self.shared.state.borrow().topics.keys().cloned().collect()
    }

    /// Requests a topic on behalf of this pod from now on. False if it is not followed.
    pub(super) fn attribute(&mut self, topic: &Arc<Topic>, pod: &PodUid) -> bool {
        let state = &mut *self.shared.state.borrow_mut();
        let Some(entry) = state.topics.get_mut(topic) else { return false };
        let former = std::mem::replace(&mut entry.pod, pod.clone());
        if former == *pod {
            return true;
        }
        match &mut entry.stage {
            Stage::Waiting(due) => {
                state.queue.remove(&former, topic, *due);
                // The former pod's topics may have stretched the time.
                *due = rt::now();
                state.queue.insert(pod, Arc::clone(topic), *due);
                self.shared.changed.notify();
            }
            Stage::UnderWay { .. } => {
                state.queue.ended(&former);
                state.queue.begun(pod);
            }
            Stage::Done => {}
        }
        true
    }

    /// Whether the topic still needs its stored copy.
    pub(super) fn has_stored_copy(&self, topic: &Topic) -> bool {
        self.shared.state.borrow().topics.get(topic).is_some_and(|entry| entry.work.has_stored_copy())
    }

    /// Requests a topic from now on. Its stored copy is used if there is no answer.
    pub(super) fn follow(&mut self, topic: Arc<Topic>, pod: PodUid, stored: Option<Value>) {
        let now = rt::now();
        let work = TopicWork::new(&topic, stored);
        let attention = work.has_stored_copy().then(|| now + self.shared.context.store.patience());
        let mut state = self.shared.state.borrow_mut();
        state.queue.insert(&pod, Arc::clone(&topic), now);
        state.attention.extend(attention.map(|time| (time, Arc::clone(&topic))));
        state.topics.insert(topic, Entry { pod, work, stage: Stage::Waiting(now), attention, opening: None });
        drop(state);
        self.shared.changed.notify();
        let shared = &self.shared;
        self.task.get_or_insert_with(|| rt::spawn(run(Rc::clone(shared))));
    }

    pub(super) fn release(&mut self, topic: &Arc<Topic>) {
        let mut state = self.shared.state.borrow_mut();
        let Some(entry) = state.topics.remove(topic) else { return };
        if let Some(time) = entry.attention {
            state.attention.remove(&(time, Arc::clone(topic)));
        }
        match entry.stage {
            Stage::Waiting(due) => state.queue.remove(&entry.pod, topic, due),
            Stage::UnderWay { .. } => state.queue.ended(&entry.pod),
            Stage::Done => {}
        }
        let is_empty = state.topics.is_empty();
        drop(state);
        if is_empty {
            self.task = None;
        }
        // Another request may begin.
        self.shared.changed.notify();
    }
}

impl Drop for TopicRequests {
    fn drop(&mut self) {
        // Tasks of requests end here, although others may hold the state.
        self.shared.state.borrow_mut().topics.clear();
    }
}

/// Starts requests when they are due and admitted, and gives topics attention.
async fn run(shared: Rc<Shared>) {
    let gate = Rc::clone(shared.context.client.gate());
    let mut openings = gate.openings();
    let mut suspended = clock::suspended();
    loop {
        let (seen, gate_seen) = (shared.changed.changes(), gate.changed.changes());
        let now = rt::now();
        let before = std::mem::replace(&mut suspended, clock::suspended());
        let lasted = suspended.saturating_sub(before);
        if lasted >= MIN_SUSPENSION {
            shared.state.borrow_mut().on_resume(lasted, now);
        }
        if std::mem::replace(&mut openings, gate.openings()) != openings {
            shared.state.borrow_mut().on_opening(now);
        }
        let events = shared.state.borrow_mut().attend(now);
        if !shared.send(events).await {
            return;
        }
        let is_admitted = gate.admits(Rank::Intent);
        if is_admitted {
            shared.start_requests(now);
        }
        let (requests, attention) = shared.state.borrow().due(rt::now());
        let is_blocked = !is_admitted && requests.is_some_and(|due| due <= rt::now());
        let timer = async {
            match requests.filter(|_| is_admitted).into_iter().chain(attention).min() {
                // Tokens expire while the machine is suspended.
                Some(time) => boot_timer::sleep(time.saturating_duration_since(rt::now())).await,
                None => std::future::pending().await,
            }
        };
        let gate_moves = async {
            match is_blocked {
                // Counts as waiting, so that a round does not end before.
                true => gate.admitted(Rank::Intent).await,
                false => gate.changed.beyond(gate_seen).await,
            }
        };
        rt::either(timer, rt::either(shared.changed.beyond(seen), gate_moves)).await;
    }
}

impl Shared {
    /// False once the sync loop has ended.
    async fn send(&self, events: Vec<SyncEvent>) -> bool {
        for event in events {
            if self.context.inbox.send(event).await.is_err() {
                return false;
            }
        }
        true
    }

    fn start_requests(self: &Rc<Self>, now: Instant) {
        let mut state = self.state.borrow_mut();
        while state.queue.due().is_some_and(|due| due <= now) && state.pace.take(now) {
            let Some(topic) = state.queue.take(now) else { return };
            let Some(entry) = state.topics.get_mut(&topic) else { continue };
            let (client, gates) = (self.context.client.clone(), self.context.gates.clone());
            let sent = entry.work.sent_request();
            let task = rt::spawn(request(Rc::downgrade(self), client, gates, topic, sent));
            entry.stage = Stage::UnderWay { _task: task };
        }
    }
}

impl State {
    /// When requests may begin, and when a topic needs attention.
    fn due(&self, now: Instant) -> (Option<Instant>, Option<Instant>) {
        let requests = match self.queue.due() {
            // Only the pace holds it back: several requests begin at once, so that the node wakes less often.
            Some(due) if due <= now => Some(now + TOPIC_REQUEST_INTERVAL * PACED_REQUESTS_AT_ONCE),
            due => due,
        };
        (requests, self.attention.first().map(|(time, _)| *time))
    }

    /// Requests again what may not be renewed in time after this opening.
    fn on_opening(&mut self, now: Instant) {
        for (topic, entry) in &mut self.topics {
            if entry.opening.take_if(|from| *from <= now).is_none() {
                continue;
            }
            if let Stage::Waiting(due) = &mut entry.stage {
                self.queue.remove(&entry.pod, topic, *due);
                *due = now;
                self.queue.insert(&entry.pod, Arc::clone(topic), now);
            }
        }
    }

    /// The machine was suspended: what expires does so by the wall clock, and is due earlier.
    fn on_resume(&mut self, lasted: Duration, now: Instant) {
        let earlier = |time: Instant| time.checked_sub(lasted).unwrap_or(now);
        for (topic, entry) in &mut self.topics {
            if entry.work.may_be_early() {
                continue;
            }
            entry.opening = entry.opening.map(earlier);
            if let Some(time) = &mut entry.attention {
                self.attention.remove(&(*time, Arc::clone(topic)));
                *time = earlier(*time);
                self.attention.insert((*time, Arc::clone(topic)));
            }
            if let Stage::Waiting(due) = &mut entry.stage {
                self.queue.remove(&entry.pod, topic, *due);
                *due = earlier(*due).max(now);
                self.queue.insert(&entry.pod, Arc::clone(topic), *due);
            }
        }
    }

    /// The events of the topics that need attention now.
    fn attend(&mut self, now: Instant) -> Vec<SyncEvent> {
        let mut events = Vec::new();
        while self.attention.first().is_some_and(|(time, _)| *time <= now) {
            let Some((_, topic)) = self.attention.pop_first() else { break };
            let Some(entry) = self.topics.get_mut(&topic) else { continue };
            entry.attention = None;
            let next = entry.work.on_attention(&topic);
            events.extend(next.events);
            self.set_attention(&topic, next.attention_after, now);
        }
        events
    }

    fn on_response(&mut self, topic: &Arc<Topic>, response: Answer, store: &OfflineStore) -> NextStep {
        self.topics.get_mut(topic).map(|entry| entry.work.on_response(topic, response, store)).unwrap_or_default()
    }

    /// The request of a topic has ended, and its events are sent.
    fn ended(&mut self, topic: &Arc<Topic>, next: &NextStep, now: Instant) {
        let Some(entry) = self.topics.get_mut(topic) else { return };
        entry.opening = next.opening_after.map(|after| now + after);
        entry.stage = match next.request_after {
            Some(after) if entry.work.may_be_early() => {
                Stage::Waiting(self.queue.insert_with_others(&entry.pod, Arc::clone(topic), now, after))
            }
            Some(after) => {
                self.queue.insert(&entry.pod, Arc::clone(topic), now + after);
                Stage::Waiting(now + after)
            }
            None => Stage::Done,
        };
        self.queue.ended(&entry.pod);
        self.set_attention(topic, next.attention_after, now);
    }

    /// Moves the topic's attention, if `after` says when it is.
    fn set_attention(&mut self, topic: &Arc<Topic>, after: Option<Duration>, now: Instant) {
        let (Some(entry), Some(after)) = (self.topics.get_mut(topic), after) else { return };
        if let Some(time) = entry.attention.replace(now + after) {
            self.attention.remove(&(time, Arc::clone(topic)));
        }
        self.attention.insert((now + after, Arc::clone(topic)));
    }
}

async fn request(
    shared: Weak<Shared>,
    client: Client,
    gates: FeatureGates,
    topic: Arc<Topic>,
    sent: Option<SentRequest>,
) {
    let response = match &*topic {
        Topic::PodCertificate(key) => Answer::Certificate(request_certificate(&client, &gates, key, sent).await),
        topic => ask(&client, &gates, topic).await,
    };
    let Some(shared) = shared.upgrade() else { return };
    let store = &shared.context.store;
    let response = match response {
        // Objects that another cluster lacks may exist in this one.
        Answer::Collection(Ok(_)) if !store.is_same_cluster(&client.authorities()) => {
            Answer::Collection(Err("the server is of another cluster".to_owned()))
        }
        answer => answer,
    };
    let mut next = shared.state.borrow_mut().on_response(&topic, response, store);
    if shared.send(std::mem::take(&mut next.events)).await {
        shared.state.borrow_mut().ended(&topic, &next, rt::now());
        shared.changed.notify();
    }
}

async fn ask(client: &Client, gates: &FeatureGates, topic: &Topic) -> Answer {
    let why = |error: ApiError| error.to_string();
    match topic {
        Topic::Token(key) => Answer::Token(request_token(client, key).await.map_err(why)),
        Topic::Attachment(_) | Topic::Claim { .. } | Topic::ResourceClaim(_) => {
            Answer::Object(look_up(client, topic).await.map_err(|error| error.to_string()))
        }
        Topic::Object(key) => Answer::Collection(read_object(client, key).await.map_err(why)),
        Topic::TrustBundles(key) => Answer::Collection(match bundles(client, gates, key).await {
            Ok(collection) => list(client, &collection).await.map_err(why),
            Err(why) => Err(why),
        }),
        Topic::ApiServerService
        | Topic::CsiDriver(_)
        | Topic::PodCertificate(_)
        | Topic::RuntimeClass(_)
        | Topic::Services(_) => Answer::Collection(match collection(topic) {
            Some(collection) => list(client, &collection).await.map_err(why),
            None => Ok(Vec::new()),
        }),
    }
}

/// The object, or nothing if it does not exist.
async fn read_object(client: &Client, key: &ObjectKey) -> Result<Vec<ObjectText>, ApiError> {
    let ObjectKey { kind, namespace, name } = key;
    let path = format!("/api/v1/namespaces/{namespace}/{}s/{name}", kind.resource());
    match client.send(&Request::get(path).requested_by(Requester::Tenant)).await {
        Ok(response) => Ok(vec![response.object()?]),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn list(client: &Client, collection: &Collection) -> Result<Vec<ObjectText>, ApiError> {
    let mut request = Request::get(collection.path.as_str()).accepting_gzip().requested_by(collection.requester);
    if !collection.field_selector.is_empty() {
        request = request.with_query("fieldSelector", &collection.field_selector);
    }
    let malformed = |error: DecodeError| ApiError::Malformed(error.to_string().into());
    let [items] = client.send(&request).await?.object()?.parts(["items"]).map_err(malformed)?;
    match items.filter(|items| items.as_str() != "null") {
        Some(items) => items.elements().map_err(malformed),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::objects::TokenKey;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn token_is_requested_earlier_by_the_time_that_the_machine_was_suspended() {
        let (pod, now) = (PodUid::from("u"), Instant::now());
        let token = TokenKey {
            pod: pod.clone(),
            pod_name: "web".to_owned(),
            namespace: "default".to_owned(),
            service_account: "default".to_owned(),
            audience: String::new(),
            seconds: 3607,
        };
        let topic = Arc::new(Topic::Token(token));
        let entry = Entry {
            pod: pod.clone(),
            work: TopicWork::new(&topic, None),
            stage: Stage::Waiting(now + HOUR),
            attention: Some(now + 3 * HOUR),
            opening: None,
        };
        let mut state = State {
            topics: BTreeMap::from([(Arc::clone(&topic), entry)]),
            queue: TopicQueue::default(),
            attention: BTreeSet::from([(now + 3 * HOUR, Arc::clone(&topic))]),
            pace: TokenBucket::each(TOPIC_REQUEST_INTERVAL, TOPIC_REQUEST_BURST, now),
        };
        state.queue.insert(&pod, topic, now + HOUR);
        state.on_resume(HOUR / 2, now);
        assert_eq!(state.due(now), (Some(now + HOUR / 2), Some(now + 5 * HOUR / 2)));
        state.on_resume(HOUR, now);
        assert_eq!(state.queue.due(), Some(now));
    }
}
