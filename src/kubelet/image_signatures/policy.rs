//! Parses `policy.json` (containers-policy.json(5)). What cannot be honoured is refused, never left out. Pure.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::identity::{SignedIdentity, is_identity_prefix};
use super::public_key::{EXPECTED_KEY, PublicKey};
use crate::kubelet::image_archives::image_name::{reference, repository};
use crate::types::api::{Bytes, yaml};
use crate::types::sorted::SortedMap;

#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(super) default: Vec<Requirement>,
    /// By transport and scope.
    pub(super) transports: SortedMap<String, SortedMap<String, Vec<Requirement>>>,
}

/// An image has to satisfy each of its requirements.
#[derive(Clone, Debug)]
pub(crate) enum Requirement {
    InsecureAcceptAnything,
    Reject {
        /// Its place in the policy.
        field_path: String,
    },
    SigstoreSigned(SigstoreSigned),
}

#[derive(Clone, Debug)]
pub(crate) struct SigstoreSigned {
    pub(super) field_path: String,
    /// One of them has to have signed.
    pub(super) keys: Vec<PublicKey>,
    pub(super) identity: SignedIdentity,
}

/// Reads the file of a key; the error is one line.
pub(super) type KeyReader<'a> = &'a dyn Fn(&Path) -> Result<Vec<u8>, String>;

/// Why a policy cannot be honoured.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PolicyError {
    /// The place in the file; empty for the file itself.
    field_path: String,
    problem: String,
}

const MAX_POLICY_KEYS: usize = 64;
/// Transports of files, whose images a pod names as those of a registry.
const ARCHIVES: [&str; 2] = ["docker-archive", "oci-archive"];
const KEY_SOURCES: [&str; 4] = ["keyPath", "keyPaths", "keyData", "keyDatas"];
/// What only a signer's certificate or a transparency log can satisfy.
const KEYLESS: [&str; 6] =
    ["fulcio", "pki", "rekorPublicKeyPath", "rekorPublicKeyPaths", "rekorPublicKeyData", "rekorPublicKeyDatas"];

impl Policy {
    pub(super) fn parse(text: &[u8], read_key: KeyReader<'_>) -> Result<Self, PolicyError> {
        let whole = |problem: String| error("", problem);
        // YAML is a superset, which other readers of the file do not take.
        if text.trim_ascii_start().first() != Some(&b'{') {
            return Err(whole("expected a JSON object".to_owned()));
        }
        let documents = yaml::parse(text).map_err(|error| whole(error.to_string()))?;
        let mut documents = documents.into_iter();
        let (Some(document), None) = (documents.next(), documents.next()) else {
            return Err(whole("expected one JSON object".to_owned()));
        };
        let document = document.strict().map_err(|error| whole(error.to_string()))?;
        let fields = object(&document, "", &["default", "transports"])?;
        let default = fields.get("default").ok_or_else(|| whole("expected a field default".to_owned()))?;
        let default = requirements(default, "default", read_key)?;
        let mut transports = SortedMap::new();
        if let Some(value) = fields.get("transports") {
            for (transport, scopes) in all(value, "transports")? {
                let field_path = format!("transports.{transport}");
                let mut scopes_of_transport = SortedMap::new();
                for (scope, list) in all(scopes, &field_path)? {
                    let field_path = format!("{field_path}[{scope:?}]");
                    let list = requirements(list, &field_path, read_key)?;
                    if ARCHIVES.contains(&transport.as_str()) && list.iter().any(Requirement::is_judged) {
                        let problem = "images of archives are judged under docker: expected insecureAcceptAnything";
                        return Err(error(&field_path, problem));
                    }
                    scopes_of_transport.insert(scope.clone(), list);
                }
                transports.insert(transport.clone(), scopes_of_transport);
            }
        }
        Ok(Self { default, transports })
    }
}

fn requirements(value: &Value, field_path: &str, read_key: KeyReader<'_>) -> Result<Vec<Requirement>, PolicyError> {
    let list = value.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| error(field_path, "expected a list of at least one requirement"))?;
    let each = list.iter().enumerate();
    each.map(|(index, value)| requirement(value, format!("{field_path}[{index}]"), read_key)).collect()
}

fn requirement(value: &Value, field_path: String, read_key: KeyReader<'_>) -> Result<Requirement, PolicyError> {
    let kind = all(value, &field_path)?.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "insecureAcceptAnything" => object(value, &field_path, &["type"]).map(|_| Requirement::InsecureAcceptAnything),
        "reject" => {
            object(value, &field_path, &["type"]).map(|_| Requirement::Reject { field_path: field_path.clone() })
        }
        "sigstoreSigned" => signed(value, field_path, read_key).map(Requirement::SigstoreSigned),
        "signedBy" | "signedBaseLayer" => {
            Err(error(&field_path, format!("{kind} is not supported: expected sigstoreSigned with a key")))
        }
        _ => Err(error(&field_path, "expected the type insecureAcceptAnything, reject or sigstoreSigned")),
    }
}

fn signed(value: &Value, field_path: String, read_key: KeyReader<'_>) -> Result<SigstoreSigned, PolicyError> {
    if let Some(name) = KEYLESS.iter().find(|name| value.get(name).is_some()) {
        return Err(error(&field_path, format!("{name} is not supported: expected sigstoreSigned with a key only")));
    }
    let fields = object(value, &field_path, &["type", "signedIdentity", "keyPath", "keyPaths", "keyData", "keyDatas"])?;
    let mut sources = KEY_SOURCES.iter().filter_map(|name| Some((*name, fields.get(*name)?)));
    let (Some((name, source)), None) = (sources.next(), sources.next()) else {
        return Err(error(&field_path, "expected one of keyPath, keyPaths, keyData and keyDatas"));
    };
    let expected = |what: &str| error(&field_path, format!("{name}: expected {what}"));
    let texts: Option<Vec<&str>> = match source {
        Value::String(text) if !name.ends_with('s') => Some(vec![text]),
        Value::Array(texts) if name.ends_with('s') => texts.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let texts = texts.filter(|texts| (1..=MAX_POLICY_KEYS).contains(&texts.len()));
    let texts = texts.ok_or_else(|| {
        expected(&if name.ends_with('s') {
            format!("a list of 1 to {MAX_POLICY_KEYS} texts")
        } else {
            "a text".to_owned()
        })
    })?;
    let key = |text: &str| {
        let bytes = match name.starts_with("keyPath") {
            true => read_key(&PathBuf::from(text))
                .map_err(|problem| error(&field_path, format!("{name} {text}: {problem}")))?,
            false => Bytes::from_base64(text).ok_or_else(|| expected("base64"))?.0,
        };
        let shown = if name.starts_with("keyPath") { format!(" {text}") } else { String::new() };
        PublicKey::from_pem(&bytes).ok_or_else(|| error(&field_path, format!("{name}{shown}: {EXPECTED_KEY}")))
    };
    let keys = texts.into_iter().map(key).collect::<Result<_, _>>()?;
    let identity = match fields.get("signedIdentity") {
        Some(value) => identity(value, &format!("{field_path}.signedIdentity"))?,
        None => SignedIdentity::MatchRepoDigestOrExact,
    };
    Ok(SigstoreSigned { field_path, keys, identity })
}

fn identity(value: &Value, field_path: &str) -> Result<SignedIdentity, PolicyError> {
    let kind = all(value, field_path)?.get("type").and_then(Value::as_str).unwrap_or_default();
    let only = |names: &[&str]| object(value, field_path, names).map(drop);
    let text = |name: &str| {
        let text = value.get(name).and_then(Value::as_str);
        text.ok_or_else(|| error(field_path, format!("expected a text {name}")))
    };
    let prefix = |name: &str| {
        let prefix = text(name)?;
        let is_prefix = is_identity_prefix(prefix);
        let problem = || {
            error(
                field_path,
                format!("{name}: expected a registry, or one with the beginning of a path, found {prefix:?}"),
            )
        };
        is_prefix.then(|| prefix.to_owned()).ok_or_else(problem)
    };
    match kind {
        "matchExact" => only(&["type"]).map(|()| SignedIdentity::MatchExact),
        "matchRepoDigestOrExact" => only(&["type"]).map(|()| SignedIdentity::MatchRepoDigestOrExact),
        "matchRepository" => only(&["type"]).map(|()| SignedIdentity::MatchRepository),
        "exactReference" => {
            only(&["type", "dockerReference"])?;
            let name = text("dockerReference")?;
            let parsed = reference(name).ok().filter(|parsed| parsed.suffix().is_some());
            let problem = || {
                error(field_path, format!("dockerReference: expected an image with a tag or a digest, found {name:?}"))
            };
            parsed.map(SignedIdentity::ExactReference).ok_or_else(problem)
        }
        "exactRepository" => {
            only(&["type", "dockerRepository"])?;
            let name = text("dockerRepository")?;
            let problem = |_| error(field_path, format!("dockerRepository: expected a repository, found {name:?}"));
            repository(name).map(SignedIdentity::ExactRepository).map_err(problem)
        }
        "remapIdentity" => {
            only(&["type", "prefix", "signedPrefix"])?;
            Ok(SignedIdentity::RemapIdentity { prefix: prefix("prefix")?, signed_prefix: prefix("signedPrefix")? })
        }
        _ => Err(error(
            field_path,
            "expected the type matchExact, matchRepoDigestOrExact, matchRepository, exactReference, exactRepository or \
             remapIdentity",
        )),
    }
}

/// An object with these fields only.
fn object<'a>(value: &'a Value, field_path: &str, names: &[&str]) -> Result<&'a Map<String, Value>, PolicyError> {
    let fields = all(value, field_path)?;
    match fields.keys().find(|name| !names.contains(&name.as_str())) {
        Some(name) => Err(error(field_path, format!("unknown field {name:?}: expected {}", names.join(", ")))),
        None => Ok(fields),
    }
}

fn all<'a>(value: &'a Value, field_path: &str) -> Result<&'a Map<String, Value>, PolicyError> {
    value.as_object().ok_or_else(|| error(field_path, "expected an object"))
}

fn error(field_path: &str, problem: impl Into<String>) -> PolicyError {
    PolicyError { field_path: field_path.to_owned(), problem: problem.into() }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.field_path.is_empty() { "" } else { ": " };
        write!(f, "{}{separator}{}", self.field_path, self.problem)
    }
}

impl std::error::Error for PolicyError {}
