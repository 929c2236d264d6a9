//! Certificates of `podCertificate` projections: requested, renewed before they expire, and used on if that fails.
//!
//! As upstream, keys and certificates are in memory and in the pods' volumes only: after a restart of the agent each is
//! requested again, and a volume keeps its files until then.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::next_step::NextStep;
use super::pod_certificate_status::{IssuedCertificate, Refusal, RequestState};
use crate::kubelet::certificates::pod_key;
use crate::platform::apiserver::{ApiError, Client, Request, Requester};
use crate::platform::config::{FeatureGates, Gate};
use crate::platform::host::clock;
use crate::platform::rt;
use crate::state::objects::{Content, ObjectEvent, PodCertificateKey, Topic};
use crate::state::pods::{PodEvent, SyncEvent};
use crate::types::api::{Bytes, EventKind, Reason};
use crate::types::time::{Backoff, jitter};

/// A request that the API server has, and the key that belongs to it.
#[derive(Clone)]
pub(super) struct SentRequest {
    /// Its path at the API server.
    path: String,
    /// `NAMESPACE/NAME`.
    name: String,
    key: Arc<str>,
}

/// What one request to the API server has led to.
pub(super) enum CertificateStep {
    Sent(SentRequest),
    State(RequestState),
    /// The request does not exist any more.
    Gone,
    /// The node makes no such keys.
    NoSuchKey(String),
}

/// A certificate that stays in use even after it expires.
pub(super) struct CertificateWork {
    sent: Option<SentRequest>,
    /// How long the certificate in use lasts beyond its refresh; `None` without a certificate.
    spare: Option<Duration>,
    warnings: Warnings,
    polls: Backoff,
    failures: Backoff,
}

/// The events that a certificate has caused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Warnings {
    None,
    Overdue,
    Expired,
}

/// Pauses before a request is read again.
const FIRST_POLL: Duration = Duration::from_secs(1);
const MAX_CERTIFICATE_POLL: Duration = Duration::from_secs(60);
/// Back-off after failures.
const MIN_CERTIFICATE_RETRY: Duration = Duration::from_secs(2);
const MAX_CERTIFICATE_RETRY: Duration = Duration::from_secs(300);
/// Upstream's longest delay of a refresh, so that the pods of a node do not request at the same time.
const MAX_REFRESH_DELAY: Duration = Duration::from_secs(300);
/// How late a refresh is overdue (pkg/kubelet/podcertificate: `refreshOverdueDuration`).
const REFRESH_OVERDUE_TIME: Duration = Duration::from_secs(600);

impl CertificateWork {
    pub(super) fn new() -> Self {
        Self {
            sent: None,
            spare: None,
            warnings: Warnings::None,
            polls: Backoff::new(FIRST_POLL, MAX_CERTIFICATE_POLL),
            failures: Backoff::new(MIN_CERTIFICATE_RETRY, MAX_CERTIFICATE_RETRY),
        }
    }

    pub(super) fn sent(&self) -> Option<SentRequest> {
        self.sent.clone()
    }

    pub(super) fn on_response(&mut self, topic: &Topic, step: Result<CertificateStep, String>) -> NextStep {
        match step {
            Ok(CertificateStep::Sent(sent)) => {
                self.sent = Some(sent);
                self.polls.reset();
                self.failures.reset();
                self.waiting(topic, "credential bundle is not issued yet".to_owned(), Some(FIRST_POLL))
            }
            Ok(CertificateStep::State(RequestState::Pending)) => {
                let wait = jitter(self.polls.next_wait(), 0.5, rt::random());
                NextStep { request_after: Some(wait), ..NextStep::default() }
            }
            Ok(CertificateStep::State(RequestState::Issued(issued))) => self.issued(topic, issued),
            Ok(CertificateStep::State(RequestState::Refused(refusal))) => self.refused(topic, &refusal),
            Ok(CertificateStep::Gone) => {
                self.sent = None;
                let wait = jitter(self.failures.next_wait(), 0.5, rt::random());
                NextStep { request_after: Some(wait), ..NextStep::default() }
            }
            Ok(CertificateStep::NoSuchKey(why)) => self.waiting(topic, why, None),
            Err(why) => {
                let wait = jitter(self.failures.next_wait(), 0.5, rt::random());
                self.waiting(topic, why, Some(wait))
            }
        }
    }

    /// A refresh is overdue, or the certificate has expired.
    pub(super) fn on_attention(&mut self, topic: &Topic) -> NextStep {
        let (next, reason, message) = match self.warnings {
            Warnings::None => {
                (Warnings::Overdue, Reason::CERTIFICATE_OVERDUE_FOR_REFRESH, "PodCertificate refresh overdue")
            }
            Warnings::Overdue => (Warnings::Expired, Reason::CERTIFICATE_EXPIRED, "PodCertificate expired"),
            Warnings::Expired => return NextStep::default(),
        };
        self.warnings = next;
        NextStep {
            events: warning(topic, reason, message.to_owned()).into_iter().collect(),
            attention_after: self
                .spare
                .filter(|_| next == Warnings::Overdue)
                .map(|spare| spare.saturating_sub(REFRESH_OVERDUE_TIME)),
            ..NextStep::default()
        }
    }

    fn issued(&mut self, topic: &Topic, issued: IssuedCertificate) -> NextStep {
        let Some(sent) = self.sent.take() else { return NextStep::default() };
        let refresh = issued.refresh_after(clock::timestamp().as_second());
        self.failures.reset();
        self.spare = Some(issued.spare());
        self.warnings = Warnings::None;
        let share = f64::from(rt::random()) / f64::from(u32::MAX);
        let delay = MAX_REFRESH_DELAY.min(issued.spare() / 2).mul_f64(share);
        let certificate = Content::Certificate { key: sent.key, chain: issued.chain.into() };
        NextStep {
            events: vec![SyncEvent::Object(ObjectEvent::Received(topic.clone(), Some(certificate)))],
            request_after: Some(refresh + delay),
            attention_after: Some(refresh + REFRESH_OVERDUE_TIME),
            opening_after: Some(refresh / 2),
        }
    }

    fn refused(&mut self, topic: &Topic, refusal: &Refusal) -> NextStep {
        let name = self.sent.take().map(|sent| sent.name).unwrap_or_default();
        let reason = if refusal.kind == "Denied" { Reason::DENIED } else { Reason::FAILED };
        let mut next = self.waiting(topic, refusal.why(), None);
        next.events.extend(warning(topic, reason, refusal.event_message(&name)));
        next
    }

    /// Without a certificate in use, says why.
    fn waiting(&self, topic: &Topic, why: String, request_after: Option<Duration>) -> NextStep {
        let event = SyncEvent::Object(ObjectEvent::Failed(topic.clone(), why));
        NextStep { events: vec![event], request_after, ..NextStep::default() }
    }
}

fn warning(topic: &Topic, reason: Reason, message: String) -> Option<SyncEvent> {
    let Topic::PodCertificate(key) = topic else { return None };
    Some(SyncEvent::PodEvent(PodEvent::of_pod(&key.pod, EventKind::Warning, reason, message)))
}

/// Sends a request with a new key, or reads the one that was sent.
pub(super) async fn request_certificate(
    client: &Client,
    gates: &FeatureGates,
    key: &PodCertificateKey,
    sent: Option<SentRequest>,
) -> Result<CertificateStep, String> {
    gates.require(Gate::PodCertificateRequest)?;
    let Some(SentRequest { path, .. }) = sent else { return send(client, key).await };
    match client.send(&Request::get(path).requested_by(Requester::Tenant)).await {
        Ok(response) => {
            let object = response.json().map_err(|error: ApiError| error.to_string())?;
            RequestState::of(&object).map(CertificateStep::State).map_err(|why| format!("PodCertificateRequest: {why}"))
        }
        Err(error) if error.is_not_found() => Ok(CertificateStep::Gone),
        Err(error) => Err(error.to_string()),
    }
}

async fn send(client: &Client, key: &PodCertificateKey) -> Result<CertificateStep, String> {
    let (private, proof) = match pod_key(&key.key_type) {
        Ok(made) => made,
        Err(why) => return Ok(CertificateStep::NoSuchKey(why)),
    };
    let mut spec: Value = serde_json::from_str(&key.spec).map_err(|error| error.to_string())?;
    let named = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default();
    let uid = async |path: String| -> Result<String, String> {
        let request = Request::get(path.as_str()).for_metadata().requested_by(Requester::Tenant);
        let object =
            client.send(&request).await.and_then(|response| response.json()).map_err(|error| error.to_string())?;
        let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
        uid.map(str::to_owned).ok_or_else(|| format!("{path} has no uid"))
    };
    let namespace = &key.namespace;
    let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{}", named("serviceAccountName"));
    let account = uid(account).await.map_err(|why| format!("while fetching service account: {why}"))?;
    let node = uid(format!("/api/v1/nodes/{}", named("nodeName"))).await?;
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": named("podName"), "uid": key.pod.as_str()});
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("serviceAccountUID".to_owned(), account.into());
        spec.insert("nodeUID".to_owned(), node.into());
        spec.insert("stubPKCS10Request".to_owned(), Bytes(proof).to_base64().into());
    }
    for version in ["v1", "v1beta1"] {
        let object = json!({
            "apiVersion": format!("certificates.k8s.io/{version}"),
            "kind": "PodCertificateRequest",
            "metadata": {"generateName": "req-", "ownerReferences": [owner]},
            "spec": spec,
        });
        let path = format!("/apis/certificates.k8s.io/{version}/namespaces/{namespace}/podcertificaterequests");
        let made = client.send(&Request::post(path.as_str(), &object).requested_by(Requester::Tenant)).await;
        match made.and_then(|response| response.json()) {
            Ok(made) => {
                let name = made.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                let (path, name) = (format!("{path}/{name}"), format!("{namespace}/{name}"));
                return Ok(CertificateStep::Sent(SentRequest { path, name, key: private.into() }));
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(format!("while creating PodCertificateRequest: {error}")),
        }
    }
    Err("the server has no PodCertificateRequests".to_owned())
}
