//! What a topic without a watch needs next: a request, the use of its stored copy, or a warning.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use serde_json::Value;

use super::lookups::lookup_event;
use super::next_step::NextStep;
use super::pod_certificates::{CertificateStep, CertificateWork, SentRequest};
use super::token_work::{IssuedToken, TokenWork};
use super::topic_content::{by_name, object_event, remember, stored_by_name};
use crate::kubelet::offline::OfflineStore;
use crate::platform::rt;
use crate::state::objects::{Content, ObjectEvent, Topic};
use crate::state::pods::SyncEvent;
use crate::types::api::ObjectText;
use crate::types::time::{Backoff, jitter};

/// The state of a followed topic.
pub(super) enum TopicWork {
    Certificate(Box<CertificateWork>),
    Token(Box<TokenWork>),
    Other(OtherWork),
}

/// A topic that is looked up until it is usable, or read again and again.
pub(super) struct OtherWork {
    /// From an earlier run, until there is an answer.
    stored: Option<Value>,
    backoff: Backoff,
    /// What was read last.
    last_digest: Option<u64>,
}

/// What the server has answered, or why there is no answer.
pub(super) enum Answer {
    Certificate(Result<CertificateStep, String>),
    Token(Result<IssuedToken, String>),
    /// A claim, an attachment or a ResourceClaim that is usable.
    Object(Result<Value, String>),
    /// All objects of a topic that could be watched.
    Collection(Result<Vec<ObjectText>, String>),
}

/// Back-off of requests for a topic that is not usable yet.
const FIRST_TOPIC_DELAY: Duration = Duration::from_secs(2);
const MAX_TOPIC_DELAY: Duration = Duration::from_secs(60);
/// How old an object without a watch becomes (pkg/kubelet/util/manager: `defaultTTL`).
const OBJECT_TTL: Duration = Duration::from_secs(60);

impl TopicWork {
    pub(super) fn new(topic: &Topic, stored: Option<Value>) -> Self {
        match topic {
            Topic::PodCertificate(_) => Self::Certificate(Box::new(CertificateWork::new())),
            Topic::Token(_) => Self::Token(Box::new(TokenWork::new(stored))),
            _ => Self::Other(OtherWork {
                stored,
                backoff: Backoff::new(FIRST_TOPIC_DELAY, MAX_TOPIC_DELAY),
                last_digest: None,
            }),
        }
    }

    pub(super) fn has_stored_copy(&self) -> bool {
        match self {
            Self::Certificate(_) => false,
            Self::Token(token) => token.has_stored_copy(),
            Self::Other(object) => object.stored.is_some(),
        }
    }

    /// The request for a certificate that waits for its signer.
    pub(super) fn sent_request(&self) -> Option<SentRequest> {
        match self {
            Self::Certificate(certificate) => certificate.sent(),
            Self::Other(_) | Self::Token(_) => None,
        }
    }

    /// Whether it may be requested earlier than necessary. Nothing is issued more often than it must be.
    pub(super) fn may_be_early(&self) -> bool {
        matches!(self, Self::Other(_))
    }

    pub(super) fn on_response(&mut self, topic: &Topic, response: Answer, store: &OfflineStore) -> NextStep {
        match (self, response) {
            (Self::Certificate(certificate), Answer::Certificate(answer)) => certificate.on_response(topic, answer),
            (Self::Token(token), Answer::Token(answer)) => token.on_response(topic, answer, store),
            (Self::Other(object), Answer::Object(answer)) => object.on_lookup(topic, answer, store),
            (Self::Other(object), Answer::Collection(answer)) => object.on_read(topic, answer, store),
            (Self::Certificate(_), _)
            | (Self::Token(_), Answer::Certificate(_) | Answer::Object(_) | Answer::Collection(_))
            | (Self::Other(_), Answer::Certificate(_) | Answer::Token(_)) => NextStep::default(),
        }
    }

    /// Without an answer: uses the stored copy, or warns that a token or certificate has expired.
    pub(super) fn on_attention(&mut self, topic: &Topic) -> NextStep {
        match self {
            Self::Certificate(certificate) => certificate.on_attention(topic),
            Self::Token(token) => token.on_attention(topic),
            Self::Other(other) => {
                NextStep { events: other.use_stored(topic).into_iter().collect(), ..NextStep::default() }
            }
        }
    }
}

impl OtherWork {
    fn on_lookup(&mut self, topic: &Topic, object: Result<Value, String>, store: &OfflineStore) -> NextStep {
        match object {
            // A bound claim stays bound, and an allocated claim stays reserved while the pod exists.
            Ok(object) => {
                self.stored = None;
                store.remember(topic, ObjectText::of(&object));
                NextStep { events: vec![SyncEvent::Object(lookup_event(topic, &object))], ..NextStep::default() }
            }
            Err(why) => self.failed(topic, why),
        }
    }

    fn on_read(
        &mut self,
        topic: &Topic,
        collection: Result<Vec<ObjectText>, String>,
        store: &OfflineStore,
    ) -> NextStep {
        let objects = match collection {
            Ok(objects) => objects,
            Err(why) => return self.failed(topic, why),
        };
        self.stored = None;
        self.backoff.reset();
        let request_after = Some(jitter(OBJECT_TTL, 0.2, rt::random()));
        let state = Some(fingerprint(&objects));
        if std::mem::replace(&mut self.last_digest, state) == state {
            return NextStep { request_after, ..NextStep::default() };
        }
        let objects = by_name(objects);
        let event = object_event(topic, &objects);
        remember(store, topic, &event, &objects);
        let is_immutable =
            matches!(&event, ObjectEvent::Received(_, Some(Content::Object(object))) if object.immutable);
        let request_after = request_after.filter(|_| !is_immutable);
        NextStep { events: vec![SyncEvent::Object(event)], request_after, ..NextStep::default() }
    }

    fn failed(&mut self, topic: &Topic, why: String) -> NextStep {
        let event = match self.use_stored(topic) {
            None if self.last_digest.is_none() => Some(SyncEvent::Object(ObjectEvent::Failed(topic.clone(), why))),
            event => event,
        };
        let wait = jitter(self.backoff.next_wait(), 0.5, rt::random());
        NextStep { events: event.into_iter().collect(), request_after: Some(wait), ..NextStep::default() }
    }

    fn use_stored(&mut self, topic: &Topic) -> Option<SyncEvent> {
        let stored = self.stored.take()?;
        Some(SyncEvent::Object(match topic {
            Topic::Attachment(_) | Topic::Claim { .. } | Topic::ResourceClaim(_) => lookup_event(topic, &stored),
            _ => object_event(topic, &stored_by_name(&stored)),
        }))
    }
}

/// Differs if any object was created, changed or deleted.
fn fingerprint(objects: &[ObjectText]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for object in objects {
        object.metadata(["uid", "resourceVersion"]).hash(&mut hasher);
    }
    hasher.finish()
}
