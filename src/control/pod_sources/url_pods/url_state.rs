//! The last accepted response of a URL, and the judgement of new ones. Pure: the moment is an argument.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::bundle;
use super::error::ResponseError;
use super::signature::{HighestSerial, Trust};
use crate::control::pod_sources::static_pod::ManifestNode;
use crate::control::pod_sources::whole_manifest::WholeManifest;
use crate::state::pods::{SourceName, SourcePod, SourceProblem, SourceUpdate};
use crate::types::api::{AgentSpec, Bytes, Pod, Time};
use crate::types::text::without_credentials;

/// A manifest as received, with its signature if one is required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignedManifest {
    pub(super) manifest: Vec<u8>,
    pub(super) signature: Option<Vec<u8>>,
}

/// The last accepted response.
#[derive(Debug)]
pub(super) struct UrlState {
    /// The URL as hashed into pod uids.
    url: String,
    /// The URL as shown to users, without credentials.
    shown: Arc<str>,
    node: ManifestNode,
    trust: Option<Trust>,
    /// The highest serial number of an accepted signature.
    highest: Option<HighestSerial>,
    manifest: WholeManifest,
    /// The digest of the accepted manifest; `None` before the first.
    accepted: Option<[u8; 32]>,
    problem: Option<SourceProblem>,
}

/// The result of judging a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseVerdict {
    /// The manifest is already the accepted one.
    Same,
    New,
}

impl UrlState {
    pub(super) fn new(url: &str, node: ManifestNode, trust: Option<Trust>) -> Self {
        Self {
            url: url.to_owned(),
            shown: Arc::from(without_credentials(url)),
            node,
            trust,
            highest: None,
            manifest: WholeManifest::default(),
            accepted: None,
            problem: None,
        }
    }

    /// Takes over the stored serial number.
    pub(super) fn remember(&mut self, stored: &[u8]) {
        self.highest = self.trust.as_ref().and_then(|trust| HighestSerial::decode(stored, &trust.key));
    }

    /// The serial number to store.
    pub(super) fn highest(&self) -> Option<Vec<u8>> {
        Some(self.highest?.encode(&self.trust.as_ref()?.key))
    }

    /// A manifest has been accepted.
    pub(super) fn has_accepted(&self) -> bool {
        self.accepted.is_some()
    }

    /// The version of the agent that the accepted manifest asks for.
    pub(super) fn agent(&self) -> Option<Arc<AgentSpec>> {
        self.manifest.agent.clone()
    }

    /// Accepts or rejects a response as a whole.
    pub(super) fn take(
        &mut self,
        response: &SignedManifest,
        config_seen: &str,
        now: Time,
    ) -> Result<ResponseVerdict, ResponseError> {
        let SignedManifest { manifest, signature } = response;
        let digest = mark(manifest);
        let mut highest = self.highest;
        if let Some(trust) = &self.trust {
            let serial = trust.verify(manifest, signature.as_deref()).map_err(ResponseError::Signature)?;
            highest.map_or(Ok(()), |highest| highest.allows(serial, digest)).map_err(ResponseError::Signature)?;
            highest = serial.map(|serial| HighestSerial { serial, digest });
        }
        if self.accepted == Some(digest) {
            self.highest = highest;
            return Ok(ResponseVerdict::Same);
        }
        if manifest.iter().all(u8::is_ascii_whitespace) {
            return Err(ResponseError::Empty);
        }
        let origin = self.node.origin(SourceName::Http, &self.url, config_seen);
        let text = bundle::text(manifest).map_err(ResponseError::Manifest)?;
        let manifest = WholeManifest::read(&text, &origin, &self.shown, now).map_err(ResponseError::Manifest)?;
        if manifest.agent.is_some() && self.trust.is_none() {
            return Err(ResponseError::UnsignedAgent);
        }
        self.manifest = manifest.keeping(&self.manifest);
        self.highest = highest;
        self.accepted = Some(digest);
        Ok(ResponseVerdict::New)
    }

    /// Records a failed or rejected request. True if the failure is new.
    pub(super) fn fail(&mut self, message: String, now: Time) -> bool {
        let is_new = self.problem.as_ref().is_none_or(|old| old.message != message);
        if is_new {
            let since = self.problem.as_ref().map_or(now, |old| old.since);
            let keeps_last_good = self.has_accepted();
            self.problem = Some(SourceProblem { origin: Arc::clone(&self.shown), message, keeps_last_good, since });
        }
        is_new
    }

    /// The last request failed or its response was rejected.
    pub(super) fn has_failed(&self) -> bool {
        self.problem.is_some()
    }

    /// Records a successful request. True if the one before failed.
    pub(super) fn succeed(&mut self) -> bool {
        self.problem.take().is_some()
    }

    pub(super) fn update(&self) -> SourceUpdate {
        let origin = &self.shown;
        let pod = |pod: &Arc<Pod>| SourcePod { pod: Arc::clone(pod), origin: Arc::clone(origin) };
        let warning = |line: &String| SourceProblem {
            origin: Arc::clone(origin),
            message: format!("warning: {line}"),
            keeps_last_good: false,
            since: Time::from_unix_nanos(0),
        };
        SourceUpdate {
            source: SourceName::Http,
            pods: self.manifest.pods.iter().map(pod).collect(),
            objects: self.manifest.objects.clone(),
            mirrors: Vec::new(),
            problems: self.problem.iter().cloned().chain(self.manifest.warnings.iter().map(warning)).collect(),
            unread: Vec::new(),
            complete: self.has_accepted(),
            relisted: false,
        }
    }
}

fn mark(manifest: &[u8]) -> [u8; 32] {
    digest(&SHA256, manifest).as_ref().try_into().unwrap_or_default()
}

/// Encodes a response for a start without the server: a header line, and the manifest.
pub(super) fn encode(url: &str, response: &SignedManifest) -> Vec<u8> {
    let signature = response.signature.clone().map(|bytes| Bytes(bytes).to_base64());
    let mut kept = json!({ "url": url, "signature": signature }).to_string().into_bytes();
    kept.push(b'\n');
    kept.extend_from_slice(&response.manifest);
    kept
}

/// Decodes a stored response; `None` if it is of another URL or malformed.
pub(super) fn decode(url: &str, kept: &[u8]) -> Option<SignedManifest> {
    let end = kept.iter().position(|byte| *byte == b'\n')?;
    let (head, rest) = kept.split_at_checked(end)?;
    let head: Value = serde_json::from_slice(head).ok()?;
    if head.get("url").and_then(Value::as_str) != Some(url) {
        return None;
    }
    let signature = match head.get("signature").and_then(Value::as_str) {
        Some(text) => Some(Bytes::from_base64(text)?.0),
        None => None,
    };
    Some(SignedManifest { manifest: rest.get(1..)?.to_vec(), signature })
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;
    use crate::protocol::ed25519::PublicKey;

    const URL: &str = "https://fleet.example/board.yaml";
    const NONE: &str = "invalid signature: expected 64 bytes, raw or in base64";
    const NOT_THIS: &str = "the signature is not that of this manifest by this key";
    const WEB: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: busybox}]}\n";

    fn now() -> Time {
        Time::from_unix_nanos(1)
    }

    fn response(text: &str) -> SignedManifest {
        SignedManifest { manifest: text.as_bytes().to_vec(), signature: None }
    }

    fn url_state(key: Option<PublicKey>) -> UrlState {
        let trust = |key| Trust { key, audiences: vec!["node/node1".to_owned()], takes_plain: true };
        UrlState::new(URL, ManifestNode::named("node1"), key.map(trust))
    }

    fn take(url_state: &mut UrlState, response: &SignedManifest) -> Result<ResponseVerdict, String> {
        url_state.take(response, "2026-11-20T20:03:54Z", now()).map_err(|error| error.to_string())
    }

    fn names(url_state: &UrlState) -> Vec<String> {
        url_state.update().pods.iter().map(|pod| pod.pod.metadata.name.clone()).collect()
    }

    #[test]
    fn pod_list_and_documents_are_all_read() {
        let mut url_state = url_state(None);
        assert!(!url_state.update().complete, "nothing was heard yet");
        assert_eq!(take(&mut url_state, &response(WEB)), Ok(ResponseVerdict::New));
        assert_eq!(take(&mut url_state, &response(WEB)), Ok(ResponseVerdict::Same));
        let update = url_state.update();
        assert!(update.complete);
        let pod = &update.pods[0];
        assert_eq!((&*pod.origin, pod.pod.annotation("kubernetes.io/config.source")), (URL, Some("http")));
        let list = r#"{"apiVersion": "v1", "kind": "PodList", "items": [
            {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}]}"#;
        assert_eq!(take(&mut url_state, &response(list)), Ok(ResponseVerdict::New));
        assert_eq!(names(&url_state), ["a-node1", "b-node1"]);
        assert_eq!(
            take(&mut url_state, &response(&format!("{WEB}---\n{}", WEB.replace("web", "two")))),
            Ok(ResponseVerdict::New)
        );
        assert_eq!(names(&url_state), ["web-node1", "two-node1"]);
        assert_eq!(
            take(&mut url_state, &response("apiVersion: v1\nkind: PodList\nitems: []\n")),
            Ok(ResponseVerdict::New)
        );
        assert!(names(&url_state).is_empty() && url_state.update().complete);
    }

    #[test]
    fn invalid_manifest_changes_nothing() {
        let mut url_state = url_state(None);
        take(&mut url_state, &response(WEB)).unwrap();
        let before = url_state.update();
        for wrong in [
            "",
            " \n",
            "<html><body>Sign in</body></html>",
            "{\"kind\": \"Pod\", \"apiVers",
            &format!("{WEB}---\nkind: Pod\n"),
            &WEB.replace("image: busybox", "image: ''"),
        ] {
            let why = take(&mut url_state, &response(wrong)).unwrap_err();
            url_state.fail(why, now());
            let update = url_state.update();
            assert!(Arc::ptr_eq(&update.pods[0].pod, &before.pods[0].pod), "{wrong}");
            assert!(update.complete && update.problems[0].keeps_last_good, "{wrong}");
        }
        assert!(url_state.succeed() && !url_state.succeed());
        assert!(url_state.update().problems.is_empty());
    }

    #[test]
    fn failure_is_news_once_and_keeps_its_start_time() {
        let mut url_state = url_state(None);
        assert!(url_state.fail("a".to_owned(), now()));
        assert!(!url_state.fail("a".to_owned(), Time::from_unix_nanos(5)));
        assert!(url_state.fail("b".to_owned(), Time::from_unix_nanos(6)));
        assert_eq!(url_state.update().problems[0].since, now());
    }

    #[test]
    fn with_a_key_only_signed_manifests_count_also_when_stored() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = PublicKey::parse(Bytes(pair.public_key().as_ref().to_vec()).to_base64().as_bytes());
        let mut url_state = url_state(key);
        let signed = |text: &str| SignedManifest {
            manifest: text.as_bytes().to_vec(),
            signature: Some(pair.sign(text.as_bytes()).as_ref().to_vec()),
        };
        let other = WEB.replace("busybox", "nginx");
        assert_eq!(take(&mut url_state, &response(WEB)), Err(NONE.to_owned()));
        let wrong = SignedManifest { signature: signed(&other).signature, ..response(WEB) };
        assert_eq!(take(&mut url_state, &wrong), Err(NOT_THIS.to_owned()));
        assert!(!url_state.has_accepted());
        assert_eq!(take(&mut url_state, &signed(WEB)), Ok(ResponseVerdict::New));
        // The same text with a wrong signature is still refused.
        assert_eq!(take(&mut url_state, &wrong), Err(NOT_THIS.to_owned()));
        let kept = decode(URL, &encode(URL, &signed(WEB))).unwrap();
        assert_eq!(kept, signed(WEB));
        let mut forged = encode(URL, &signed(WEB));
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(take(&mut url_state, &decode(URL, &forged).unwrap()), Err(NOT_THIS.to_owned()));
    }

    #[test]
    fn version_of_the_agent_is_taken_from_signed_manifests_only_and_once() {
        let agent = "apiVersion: coracle.dev/v1\nkind: Agent\nspec: {version: 0.9.1, url: 'https://f/c'}\n";
        let with_agent = format!("{WEB}---\n{agent}");
        let why = take(&mut url_state(None), &response(&with_agent)).unwrap_err();
        assert!(why.starts_with("kind Agent: only from signed manifests"), "{why}");
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let mut url_state =
            url_state(PublicKey::parse(Bytes(pair.public_key().as_ref().to_vec()).to_base64().as_bytes()));
        let mut take_signed = |text: &str| {
            let signature = Some(pair.sign(text.as_bytes()).as_ref().to_vec());
            let taken = take(&mut url_state, &SignedManifest { signature, ..response(text) });
            (taken, url_state.agent().map(|agent| agent.version.clone()))
        };
        let version = Some("0.9.1".to_owned());
        assert_eq!(take_signed(&with_agent), (Ok(ResponseVerdict::New), version.clone()));
        let twice = format!("{with_agent}---\n{agent}");
        assert_eq!(take_signed(&twice), (Err("kind Agent: more than one".to_owned()), version));
        assert_eq!(take_signed(WEB), (Ok(ResponseVerdict::New), None));
    }

    #[test]
    fn older_manifest_is_refused_also_after_a_restart() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = PublicKey::parse(Bytes(pair.public_key().as_ref().to_vec()).to_base64().as_bytes());
        let signed = |serial: u32, text: &str| {
            let head = format!("coracle-manifest-v1\naudience: node/node1\nserial: {serial}\n");
            let signature = Bytes(pair.sign([&head, text].concat().as_bytes()).as_ref().to_vec()).to_base64();
            let signature = Some([head, signature].concat().into_bytes());
            SignedManifest { manifest: text.as_bytes().to_vec(), signature }
        };
        let (old, new) = (WEB.replace("busybox", "vulnerable"), WEB);
        let mut before = url_state(key.clone());
        assert_eq!(take(&mut before, &signed(4, &old)), Ok(ResponseVerdict::New));
        assert_eq!(take(&mut before, &signed(5, new)), Ok(ResponseVerdict::New));
        assert_eq!(take(&mut before, &signed(5, new)), Ok(ResponseVerdict::Same));
        // The same manifest may get a new number.
        assert_eq!(take(&mut before, &signed(6, new)), Ok(ResponseVerdict::Same));
        let mut restarted = url_state(key);
        restarted.remember(&before.highest().unwrap());
        for mut url_state in [before, restarted] {
            let refused = take(&mut url_state, &signed(4, &old)).unwrap_err();
            assert_eq!(refused, "the serial number 4 is lower than 6 of an earlier manifest");
            assert!(take(&mut url_state, &signed(6, &old)).unwrap_err().contains("different manifest"));
            let plain = Some(pair.sign(old.as_bytes()).as_ref().to_vec());
            let plain = SignedManifest { manifest: old.as_bytes().to_vec(), signature: plain };
            assert!(take(&mut url_state, &plain).unwrap_err().contains("no serial number"));
            assert!(take(&mut url_state, &signed(7, &old)).is_ok());
        }
    }

    #[test]
    fn credentials_in_the_url_are_not_shown_and_count_for_the_uid() {
        let url = "https://fleet.example/board.yaml?token=secret";
        let mut url_state = UrlState::new(url, ManifestNode::named("node1"), None);
        take(&mut url_state, &response(WEB)).unwrap();
        url_state.fail("x".to_owned(), now());
        let (update, other) = (url_state.update(), {
            let mut other =
                UrlState::new("https://fleet.example/board.yaml?token=2", ManifestNode::named("node1"), None);
            take(&mut other, &response(WEB)).unwrap();
            other.update()
        });
        assert_eq!(&*update.pods[0].origin, "https://fleet.example/board.yaml?...");
        assert_eq!(&*update.problems[0].origin, "https://fleet.example/board.yaml?...");
        assert_ne!(update.pods[0].pod.metadata.uid, other.pods[0].pod.metadata.uid);
    }

    #[test]
    fn stored_response_of_another_url_or_format_is_not_used() {
        let kept = encode(URL, &response(WEB));
        assert_eq!(decode(URL, &kept), Some(response(WEB)));
        assert_eq!(decode("http://other/", &kept), None);
        for cut in 0..kept.iter().position(|byte| *byte == b'\n').unwrap() {
            assert_eq!(decode(URL, &kept[..cut]), None);
        }
    }
}
