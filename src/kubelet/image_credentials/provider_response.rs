//! Requests and responses of credential providers, and the response cache. Pure: time is an argument.

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::keyring::Login;
use super::service_account::AccountToken;
use crate::platform::config::parse_duration;
use crate::types::sorted::SortedMap;

/// The request in the given API version.
pub(super) fn question(api_version: &str, image: &str, account: &AccountToken) -> Vec<u8> {
    let mut question = json!({"kind": "CredentialProviderRequest", "apiVersion": api_version, "image": image});
    if let Some(fields) = question.as_object_mut().filter(|_| !account.token.is_empty()) {
        fields.insert("serviceAccountToken".to_owned(), json!(account.token));
        if !account.annotations.is_empty() {
            fields.insert("serviceAccountAnnotations".to_owned(), json!(account.annotations));
        }
    }
    question.to_string().into_bytes()
}

/// `cacheKeyType` of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Image,
    Registry,
    Global,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProviderResponse {
    pub(super) scope: Scope,
    /// `None`: the configured default. Zero: do not cache.
    pub(super) holds: Option<Duration>,
    pub(super) logins: Vec<(String, Login)>,
}

/// Why a response is invalid, without its secrets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InvalidResponse {
    /// `found` is set if it is not secret.
    Field {
        name: &'static str,
        expected: String,
        found: Option<String>,
    },
    NoJson,
}

impl InvalidResponse {
    fn hidden(name: &'static str, expected: &str) -> Self {
        Self::Field { name, expected: expected.to_owned(), found: None }
    }
}

impl fmt::Display for InvalidResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field { name, expected, found: Some(found) } => {
                write!(f, "{name} of its answer: expected {expected}, found {found:?}")
            }
            Self::Field { name, expected, found: None } => write!(f, "{name} of its answer: expected {expected}"),
            Self::NoJson => f.write_str("its answer is no JSON"),
        }
    }
}

impl std::error::Error for InvalidResponse {}

/// Parses a response. Errors do not show its content.
pub(super) fn parse_provider_response(text: &[u8], api_version: &str) -> Result<ProviderResponse, InvalidResponse> {
    let response: Value = serde_json::from_slice(text).map_err(|_| InvalidResponse::NoJson)?;
    let word = |name: &str| response.get(name).and_then(Value::as_str).unwrap_or_default();
    for (name, wanted) in [("apiVersion", api_version), ("kind", "CredentialProviderResponse")] {
        let found = word(name);
        if found != wanted {
            let (expected, found) = (wanted.to_owned(), Some(found.to_owned()));
            return Err(InvalidResponse::Field { name, expected, found });
        }
    }
    let scope = match word("cacheKeyType") {
        "Image" => Scope::Image,
        "Registry" => Scope::Registry,
        "Global" => Scope::Global,
        other => {
            let (expected, found) = ("Image, Registry or Global".to_owned(), Some(other.to_owned()));
            return Err(InvalidResponse::Field { name: "cacheKeyType", expected, found });
        }
    };
    let holds = match response.get("cacheDuration") {
        None | Some(Value::Null) => None,
        Some(duration) => match duration.as_str().and_then(parse_duration) {
            Some(duration) => Some(duration),
            None => return Err(InvalidResponse::hidden("cacheDuration", "a duration such as 10m")),
        },
    };
    let bad_auth = || InvalidResponse::hidden("auth", "username and password for each registry");
    let logins = match response.get("auth") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(auth)) => {
            let logins = auth.iter().map(|(registry, login)| Some((registry.clone(), read_login(login)?)));
            logins.collect::<Option<Vec<_>>>().ok_or_else(bad_auth)?
        }
        Some(_) => return Err(bad_auth()),
    };
    Ok(ProviderResponse { scope, holds, logins })
}

fn read_login(login: &Value) -> Option<Login> {
    let text = |name: &str| match login.get(name) {
        None | Some(Value::Null) => Some(""),
        Some(value) => value.as_str(),
    };
    login.is_object().then_some(())?;
    Some(Login::new(text("username")?, text("password")?, ""))
}

/// Cached responses.
#[derive(Debug, Default)]
pub(super) struct ResponseCache {
    answers: SortedMap<String, (Vec<(String, Login)>, Instant)>,
}

impl ResponseCache {
    /// The cached logins for this image, and this service account if any: by image, by registry, or global.
    pub(super) fn find(&self, image: &str, account: &str, now: Instant) -> Option<&[(String, Login)]> {
        let holds = |key: &str| self.answers.get(&of_account(key, account)).filter(|(_, until)| now <= *until);
        let cached_logins = holds(image).or_else(|| holds(registry(image))).or_else(|| holds(GLOBAL_CACHE_KEY));
        cached_logins.map(|(logins, _)| logins.as_slice())
    }

    pub(super) fn insert(
        &mut self,
        image: &str,
        account: &str,
        response: &ProviderResponse,
        default: Duration,
        now: Instant,
    ) {
        self.answers.retain(|_, (_, until)| now <= *until);
        let holds = response.holds.unwrap_or(default);
        let Some(until) = now.checked_add(holds).filter(|_| !holds.is_zero()) else { return };
        let key = match response.scope {
            Scope::Image => image,
            Scope::Registry => registry(image),
            Scope::Global => GLOBAL_CACHE_KEY,
        };
        let key = of_account(key, account);
        if self.answers.len() >= MAX_CACHED_PROVIDER_RESPONSES && !self.answers.contains_key(&key) {
            let first = self.answers.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| key.clone());
            if let Some(first) = first {
                self.answers.remove(&first);
            }
        }
        self.answers.insert(key, (response.logins.clone(), until));
    }
}

/// `account` is empty, or a JSON array (`PodAccount::cache_key`).
fn of_account(key: &str, account: &str) -> String {
    [key, account].concat()
}

/// The names of a tenant's images are keys. The response that ends first gives way.
const MAX_CACHED_PROVIDER_RESPONSES: usize = 256;
/// Cannot collide with an image or registry, which contain a dot, colon or slash.
const GLOBAL_CACHE_KEY: &str = "global";

/// The registry with its port.
fn registry(image: &str) -> &str {
    image.split('/').next().unwrap_or(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

    fn text(scope: &str, more: &str) -> String {
        format!(
            r#"{{"kind":"CredentialProviderResponse","apiVersion":"{VERSION}","cacheKeyType":"{scope}"{more},
                "auth":{{"r.io":{{"username":"u","password":"p"}}}}}}"#
        )
    }

    fn read(text: &str) -> Result<ProviderResponse, InvalidResponse> {
        parse_provider_response(text.as_bytes(), VERSION)
    }

    #[test]
    fn request_has_the_image() {
        let question = question(VERSION, "r.io/a", &AccountToken::default());
        let expected = json!({"kind": "CredentialProviderRequest", "apiVersion": VERSION, "image": "r.io/a"});
        assert_eq!(serde_json::from_slice::<Value>(&question).unwrap(), expected);
    }

    #[test]
    fn request_has_the_token_and_annotations_of_the_service_account() {
        let annotations = serde_json::Map::from_iter([("a/role".to_owned(), json!("reader"))]);
        let account = AccountToken { token: "t".to_owned(), annotations };
        let question: Value = serde_json::from_slice(&question(VERSION, "r.io/a", &account)).unwrap();
        assert_eq!(question["serviceAccountToken"], "t");
        assert_eq!(question["serviceAccountAnnotations"], json!({"a/role": "reader"}));
    }

    #[test]
    fn answers_are_cached_for_their_service_account_only() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let mut cache = ResponseCache::default();
        cache.insert("r.io/a", "[1]", &read(&text("Global", "")).unwrap(), hour, now);
        assert!(cache.find("r.io/b", "[1]", now).is_some());
        assert!(cache.find("r.io/a", "[2]", now).is_none() && cache.find("r.io/a", "", now).is_none());
    }

    #[test]
    fn responses_that_end_first_give_way_to_those_of_many_images() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let mut cache = ResponseCache::default();
        let image = |number: u32| format!("r.io/{number}");
        for number in 0..1000 {
            let response = read(&text("Image", "")).unwrap();
            cache.insert(&image(number), "", &response, hour + Duration::from_secs(number.into()), now);
        }
        let is_cached = |number: &u32| cache.find(&image(*number), "", now).is_some();
        assert!((0..1000).filter(is_cached).eq(744..1000));
    }

    #[test]
    fn response_has_logins_scope_and_duration() {
        let logins = vec![("r.io".to_owned(), Login::new("u", "p", ""))];
        let expected = |scope, holds| Ok(ProviderResponse { scope, holds, logins: logins.clone() });
        assert_eq!(read(&text("Image", "")), expected(Scope::Image, None));
        let minutes = Some(Duration::from_secs(300));
        assert_eq!(read(&text("Registry", r#","cacheDuration":"5m0s""#)), expected(Scope::Registry, minutes));
        assert_eq!(read(&text("Global", r#","cacheDuration":"0s""#)), expected(Scope::Global, Some(Duration::ZERO)));
    }

    #[test]
    fn invalid_response_is_described_without_secrets() {
        let version = text("Image", "").replace("/v1\"", "/v1beta1\"");
        for (text, problem) in [
            ("secret", "its answer is no JSON"),
            (
                version.as_str(),
                "apiVersion of its answer: expected credentialprovider.kubelet.k8s.io/v1, found \
                 \"credentialprovider.kubelet.k8s.io/v1beta1\"",
            ),
            (
                &text("Image", "").replace("Response", "Request"),
                "kind of its answer: expected CredentialProviderResponse, found \"CredentialProviderRequest\"",
            ),
            (&text("Pod", ""), "cacheKeyType of its answer: expected Image, Registry or Global, found \"Pod\""),
            (
                &text("Image", r#","cacheDuration":"soon""#),
                "cacheDuration of its answer: expected a duration such as 10m",
            ),
            (
                &text("Image", "").replace("\"p\"", "[\"secret\"]"),
                "auth of its answer: expected username and password for each registry",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), problem);
        }
    }

    #[test]
    fn response_is_cached_by_scope_and_duration() {
        let now = Instant::now();
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        for (scope, holds_for) in [
            ("Image", &["r.io/a"][..]),
            ("Registry", &["r.io/a", "r.io/b"]),
            ("Global", &["r.io/a", "r.io/b", "q.io/c"]),
        ] {
            let mut cache = ResponseCache::default();
            cache.insert("r.io/a", "", &read(&text(scope, r#","cacheDuration":"1m""#)).unwrap(), hour, now);
            for image in ["r.io/a", "r.io/b", "q.io/c"] {
                assert_eq!(
                    cache.find(image, "", now + minute).is_some(),
                    holds_for.contains(&image),
                    "{scope} {image}"
                );
                assert!(cache.find(image, "", now + minute * 2).is_none());
            }
        }
        let mut cache = ResponseCache::default();
        cache.insert("r.io/a", "", &read(&text("Image", "")).unwrap(), hour, now);
        assert!(cache.find("r.io/a", "", now + hour).is_some());
        for unkept in [r#","cacheDuration":"0s""#, r#","cacheDuration":"2562047h""#] {
            let mut cache = ResponseCache::default();
            cache.insert("r.io/a", "", &read(&text("Image", unkept)).unwrap(), hour, now);
            // An endless duration may or may not fit the clock; neither is an error.
            assert!(cache.find("r.io/a", "", now).is_none() || unkept.contains("2562047h"));
        }
    }
}
