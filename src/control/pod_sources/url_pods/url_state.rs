//! The last accepted response of a URL, and the judgement of new ones. Pure: the moment is an argument.

use std::sync::Arc;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::signature::{self, PublicKey};
use crate::control::pod_sources::static_pod::Origin;
use crate::control::pod_sources::whole_manifest::WholeManifest;
use crate::state::pods::{SourceName, SourcePod, SourceProblem, SourceUpdate};
use crate::types::api::{Bytes, Pod, Time};

/// A manifest as received, with its signature if one is required.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignedManifest {
    pub(super) manifest: Vec<u8>,
    pub(super) signature: Option<Vec<u8>>,
}

/// The last accepted response.
#[derive(Debug)]
pub(super) struct UrlState {
    /// The URL as shown to users and hashed into pod uids.
    url: Arc<str>,
    node_name: String,
    key: Option<PublicKey>,
    manifest: WholeManifest,
    /// The digest of the accepted manifest; `None` before the first.
    known: Option<[u8; 32]>,
    problem: Option<SourceProblem>,
}

/// The result of judging a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The manifest is already the accepted one.
    Same,
    New,
}

impl UrlState {
    pub(super) fn new(url: &str, node_name: String, key: Option<PublicKey>) -> Self {
        Self { url: Arc::from(url), node_name, key, manifest: WholeManifest::default(), known: None, problem: None }
    }

    /// A manifest has been accepted.
    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Accepts or rejects a response as a whole. The error is one line.
    pub(super) fn take(&mut self, given: &SignedManifest, seen: &str, now: Time) -> Result<Taken, String> {
        if let Some(key) = &self.key {
            let signature = given.signature.as_deref().and_then(signature::read);
            let signature = signature.ok_or("the signature is none: expected 64 bytes, as they are or in base64")?;
            if !key.has_signed(&given.manifest, &signature) {
                return Err("the signature is not that of this manifest by this key".to_owned());
            }
        }
        let found = Some(mark(&given.manifest));
        if self.known == found {
            return Ok(Taken::Same);
        }
        if given.manifest.iter().all(u8::is_ascii_whitespace) {
            return Err("there is nothing in it; to remove its pods, give a PodList without items".to_owned());
        }
        let origin = Origin { source: SourceName::Http, path: &self.url, node_name: &self.node_name, seen };
        let manifest = WholeManifest::read(&given.manifest, &origin, &self.url, now)?;
        self.manifest = manifest.keeping(&self.manifest);
        self.known = found;
        Ok(Taken::New)
    }

    /// Records a failed or rejected request. True if the failure is new.
    pub(super) fn fail(&mut self, what: String, now: Time) -> bool {
        let is_new = self.problem.as_ref().is_none_or(|old| old.what != what);
        if is_new {
            let since = self.problem.as_ref().map_or(now, |old| old.since);
            let keeps_last_good = self.is_known();
            self.problem = Some(SourceProblem { origin: Arc::clone(&self.url), what, keeps_last_good, since });
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
        let origin = &self.url;
        let pod = |pod: &Arc<Pod>| SourcePod { pod: Arc::clone(pod), origin: Arc::clone(origin) };
        let warning = |line: &String| SourceProblem {
            origin: Arc::clone(origin),
            what: format!("warning: {line}"),
            keeps_last_good: false,
            since: Time::from_unix_nanos(0),
        };
        SourceUpdate {
            source: SourceName::Http,
            pods: self.manifest.pods.iter().map(pod).collect(),
            objects: self.manifest.objects.clone(),
            mirrors: Vec::new(),
            problems: self.problem.iter().cloned().chain(self.manifest.warnings.iter().map(warning)).collect(),
            complete: self.is_known(),
            relisted: false,
        }
    }
}

fn mark(manifest: &[u8]) -> [u8; 32] {
    digest(&SHA256, manifest).as_ref().try_into().unwrap_or_default()
}

/// Encodes a response for a start without the server: a header line, and the manifest.
pub(super) fn encode(url: &str, given: &SignedManifest) -> Vec<u8> {
    let signature = given.signature.clone().map(|bytes| Bytes(bytes).to_base64());
    let mut kept = json!({ "url": url, "signature": signature }).to_string().into_bytes();
    kept.push(b'\n');
    kept.extend_from_slice(&given.manifest);
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

    const URL: &str = "https://fleet.example/board.yaml";
    const WEB: &str =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: busybox}]}\n";

    fn now() -> Time {
        Time::from_unix_nanos(1)
    }

    fn given(text: &str) -> SignedManifest {
        SignedManifest { manifest: text.as_bytes().to_vec(), signature: None }
    }

    fn book(key: Option<PublicKey>) -> UrlState {
        UrlState::new(URL, "node1".to_owned(), key)
    }

    fn take(book: &mut UrlState, given: &SignedManifest) -> Result<Taken, String> {
        book.take(given, "2026-11-20T20:03:54Z", now())
    }

    fn names(book: &UrlState) -> Vec<String> {
        book.update().pods.iter().map(|pod| pod.pod.metadata.name.clone()).collect()
    }

    #[test]
    fn pod_list_and_documents_are_all_read() {
        let mut book = book(None);
        assert!(!book.update().complete, "nothing was heard yet");
        assert_eq!(take(&mut book, &given(WEB)), Ok(Taken::New));
        assert_eq!(take(&mut book, &given(WEB)), Ok(Taken::Same));
        let update = book.update();
        assert!(update.complete);
        let pod = &update.pods[0];
        assert_eq!((&*pod.origin, pod.pod.annotation("kubernetes.io/config.source")), (URL, Some("http")));
        let list = r#"{"apiVersion": "v1", "kind": "PodList", "items": [
            {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}]}"#;
        assert_eq!(take(&mut book, &given(list)), Ok(Taken::New));
        assert_eq!(names(&book), ["a-node1", "b-node1"]);
        assert_eq!(take(&mut book, &given(&format!("{WEB}---\n{}", WEB.replace("web", "two")))), Ok(Taken::New));
        assert_eq!(names(&book), ["web-node1", "two-node1"]);
        assert_eq!(take(&mut book, &given("apiVersion: v1\nkind: PodList\nitems: []\n")), Ok(Taken::New));
        assert!(names(&book).is_empty() && book.update().complete);
    }

    #[test]
    fn invalid_manifest_changes_nothing() {
        let mut book = book(None);
        take(&mut book, &given(WEB)).unwrap();
        let before = book.update();
        for wrong in [
            "",
            " \n",
            "<html><body>Sign in</body></html>",
            "{\"kind\": \"Pod\", \"apiVers",
            &format!("{WEB}---\nkind: Pod\n"),
            &WEB.replace("image: busybox", "image: ''"),
        ] {
            let why = take(&mut book, &given(wrong)).unwrap_err();
            book.fail(why, now());
            let update = book.update();
            assert!(Arc::ptr_eq(&update.pods[0].pod, &before.pods[0].pod), "{wrong}");
            assert!(update.complete && update.problems[0].keeps_last_good, "{wrong}");
        }
        assert!(book.succeed() && !book.succeed());
        assert!(book.update().problems.is_empty());
    }

    #[test]
    fn failure_is_news_once_and_keeps_its_start_time() {
        let mut book = book(None);
        assert!(book.fail("a".to_owned(), now()));
        assert!(!book.fail("a".to_owned(), Time::from_unix_nanos(5)));
        assert!(book.fail("b".to_owned(), Time::from_unix_nanos(6)));
        assert_eq!(book.update().problems[0].since, now());
    }

    #[test]
    fn with_a_key_only_signed_manifests_count_also_when_stored() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = PublicKey::parse(Bytes(pair.public_key().as_ref().to_vec()).to_base64().as_bytes());
        let mut book = book(key);
        let signed = |text: &str| SignedManifest {
            manifest: text.as_bytes().to_vec(),
            signature: Some(pair.sign(text.as_bytes()).as_ref().to_vec()),
        };
        let other = WEB.replace("busybox", "nginx");
        let none = "the signature is none: expected 64 bytes, as they are or in base64";
        assert_eq!(take(&mut book, &given(WEB)), Err(none.to_owned()));
        let wrong = SignedManifest { signature: signed(&other).signature, ..given(WEB) };
        let not_this = "the signature is not that of this manifest by this key";
        assert_eq!(take(&mut book, &wrong), Err(not_this.to_owned()));
        assert!(!book.is_known());
        assert_eq!(take(&mut book, &signed(WEB)), Ok(Taken::New));
        // The same text with a wrong signature is still refused.
        assert_eq!(take(&mut book, &wrong), Err(not_this.to_owned()));
        let kept = decode(URL, &encode(URL, &signed(WEB))).unwrap();
        assert_eq!(kept, signed(WEB));
        let mut forged = encode(URL, &signed(WEB));
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(take(&mut book, &decode(URL, &forged).unwrap()), Err(not_this.to_owned()));
    }

    #[test]
    fn stored_response_of_another_url_or_format_is_not_used() {
        let kept = encode(URL, &given(WEB));
        assert_eq!(decode(URL, &kept), Some(given(WEB)));
        assert_eq!(decode("http://other/", &kept), None);
        for cut in 0..kept.iter().position(|byte| *byte == b'\n').unwrap() {
            assert_eq!(decode(URL, &kept[..cut]), None);
        }
    }
}
