//! The program and the configuration that the cluster or the manifests of a URL ask for. Pure.

use std::time::Duration;

use super::record::Record;
use crate::protocol::sha256::sha256;
use crate::types::api::AgentSpec;
use crate::types::architecture::ARCHITECTURE;
use crate::types::text::without_credentials;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// For this architecture.
    pub(crate) url: String,
    /// What the program has to say of itself.
    pub(crate) version: Option<String>,
    /// SHA-256, which the signature of the manifests covers; otherwise the program has a signature of its own.
    pub(crate) digest: Option<String>,
    /// A signature covers the URL.
    pub(crate) is_signed: bool,
    pub(crate) within: Duration,
    pub(crate) allow_downgrade: bool,
    /// Identifies the wish in the record: each is tried once.
    pub(crate) key: String,
}

/// The limit of a trial that the cluster or the manifests ask for without one.
const DEFAULT_WISH_LIMIT: Duration = Duration::from_secs(300);

impl Wish {
    /// Of `coracle upgrade URL`, and of the node's annotation.
    pub(crate) fn of_url(url: &str) -> Self {
        Self {
            url: url.replace("{arch}", ARCHITECTURE),
            version: None,
            digest: None,
            is_signed: false,
            within: DEFAULT_WISH_LIMIT,
            allow_downgrade: false,
            key: url.to_owned(),
        }
    }

    /// Of the document in signed manifests, if it names a program. The error is one line.
    pub(crate) fn of_document(spec: &AgentSpec) -> Result<Option<Self>, String> {
        if spec.url.is_empty() {
            return Ok(None);
        }
        let digest = spec.sha256.get(ARCHITECTURE).cloned();
        if digest.is_none() && !spec.sha256.is_empty() {
            return Err(format!("version {} has no sha256 for {ARCHITECTURE}", spec.version));
        }
        let mut key = format!("{} {} {}", spec.version, spec.url, digest.as_deref().unwrap_or_default());
        if spec.allow_downgrade {
            key.push_str(" downgrade");
        }
        Ok(Some(Self {
            version: Some(spec.version.clone()),
            digest,
            is_signed: true,
            within: limit(spec),
            allow_downgrade: spec.allow_downgrade,
            key,
            ..Self::of_url(&spec.url)
        }))
    }

    /// Such as `version 0.9.1`, or the URL.
    pub(crate) fn name(&self) -> String {
        match &self.version {
            Some(version) => format!("version {version}"),
            None => without_credentials(&self.url),
        }
    }

    /// Whether this has not been tried, and nothing else is on trial.
    pub(crate) fn is_open(&self, record: &Record) -> bool {
        record.trial.is_none() && record.requested_key != self.key
    }

    /// Whether the program with this version and digest is the wanted one. The digest of the installed program is known
    /// only when it matters.
    pub(crate) fn is_met_by(&self, version: &str, digest: impl FnOnce() -> Option<String>) -> bool {
        match (&self.version, &self.digest) {
            (_, Some(wanted)) => digest().as_ref() == Some(wanted),
            (Some(wanted), None) => wanted == version,
            (None, None) => false,
        }
    }

    /// Why a program that says that it has this version is not the wanted one.
    pub(crate) fn refusal(&self, version: &str, running: &str) -> Option<String> {
        match &self.version {
            Some(wanted) if wanted != version => Some(format!("it says that it is version {version}")),
            _ if super::is_newer(running, version) && !self.allow_downgrade => {
                Some(format!("version {version} is older than {running}, which runs"))
            }
            _ => None,
        }
    }
}

/// A configuration that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigWish {
    /// In signed manifests.
    Text(String, Duration),
    /// With a signature beside it.
    Url(String),
}

impl ConfigWish {
    /// Of the document in signed manifests, if it has a configuration.
    pub(crate) fn of_document(spec: &AgentSpec) -> Option<Self> {
        (!spec.config.is_empty()).then(|| Self::Text(spec.config.clone(), limit(spec)))
    }

    /// Identifies the wish in the record.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Text(text, _) => sha256(text.as_bytes()),
            Self::Url(url) => url.clone(),
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::Text(..) => "configuration of the manifests".to_owned(),
            Self::Url(url) => without_credentials(url),
        }
    }

    pub(crate) fn within(&self) -> Duration {
        match self {
            Self::Text(_, within) => *within,
            Self::Url(_) => DEFAULT_WISH_LIMIT,
        }
    }

    pub(crate) fn is_open(&self, record: &Record) -> bool {
        record.trial.is_none() && record.requested_config_key != self.key()
    }
}

fn limit(spec: &AgentSpec) -> Duration {
    let within = spec.within_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    within.map_or(DEFAULT_WISH_LIMIT, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> AgentSpec {
        AgentSpec { version: "0.9.1".to_owned(), url: "https://f/coracle-{arch}".to_owned(), ..AgentSpec::default() }
    }

    fn with_digests(architectures: &[&str]) -> AgentSpec {
        let mut spec = spec();
        for architecture in architectures {
            spec.sha256.insert(architecture, "a".repeat(64));
        }
        spec
    }

    #[test]
    fn document_names_the_program_of_each_architecture() {
        let wish = Wish::of_document(&with_digests(&[ARCHITECTURE, "s390x"])).unwrap().unwrap();
        assert_eq!(wish.url, format!("https://f/coracle-{ARCHITECTURE}"));
        assert_eq!((wish.digest.as_deref(), wish.within), (Some(&*"a".repeat(64)), DEFAULT_WISH_LIMIT));
        let error = Wish::of_document(&with_digests(&["s390x"])).unwrap_err();
        assert_eq!(error, format!("version 0.9.1 has no sha256 for {ARCHITECTURE}"));
        assert_eq!(Wish::of_document(&spec()).unwrap().unwrap().digest, None);
    }

    #[test]
    fn every_change_that_may_change_the_verdict_is_another_wish() {
        let key = |spec: &AgentSpec| Wish::of_document(spec).unwrap().unwrap().key;
        let others = [
            AgentSpec { version: "0.9.2".to_owned(), ..spec() },
            AgentSpec { url: "https://g/c".to_owned(), ..spec() },
            AgentSpec { allow_downgrade: true, ..spec() },
            with_digests(&[ARCHITECTURE]),
        ];
        for other in &others {
            assert_ne!(key(other), key(&spec()), "{other:?}");
        }
        let wish = Wish::of_document(&spec()).unwrap().unwrap();
        assert!(wish.is_open(&Record::default()));
        assert!(!wish.is_open(&Record { requested_key: wish.key.clone(), ..Record::default() }));
    }

    #[test]
    fn wish_is_met_by_its_digest_or_without_one_by_its_version() {
        let plain = Wish::of_document(&spec()).unwrap().unwrap();
        assert!(plain.is_met_by("0.9.1", || None) && !plain.is_met_by("0.9.0", || None));
        let exact = Wish::of_document(&with_digests(&[ARCHITECTURE])).unwrap().unwrap();
        assert!(!exact.is_met_by("0.9.1", || None));
        assert!(exact.is_met_by("0.9.1", || Some("a".repeat(64))));
        assert!(!Wish::of_url("https://f/c").is_met_by("0.9.1", || None));
    }

    #[test]
    fn program_has_to_be_the_named_version_and_not_older_unless_that_is_allowed() {
        let wish = Wish::of_document(&spec()).unwrap().unwrap();
        assert_eq!(wish.refusal("0.9.1", "0.9.0"), None);
        assert_eq!(wish.refusal("0.9.2", "0.9.0").unwrap(), "it says that it is version 0.9.2");
        assert!(wish.refusal("0.9.1", "0.9.2").unwrap().contains("older than 0.9.2"));
        assert_eq!(Wish { allow_downgrade: true, ..wish }.refusal("0.9.1", "0.9.2"), None);
        assert!(Wish::of_url("https://f/c").refusal("0.1.0", "0.2.0").is_some());
    }

    #[test]
    fn document_may_have_a_configuration_alone() {
        let spec = AgentSpec { config: "kind: x".to_owned(), within_seconds: Some(7), ..AgentSpec::default() };
        assert_eq!(Wish::of_document(&spec), Ok(None));
        let wish = ConfigWish::of_document(&spec).unwrap();
        assert_eq!(wish.within(), Duration::from_secs(7));
        let other = ConfigWish::of_document(&AgentSpec { config: "kind: y".to_owned(), ..spec }).unwrap();
        assert!(wish.is_open(&Record::default()) && wish.key() != other.key());
        assert!(!wish.is_open(&Record { requested_config_key: wish.key(), ..Record::default() }));
        assert!(wish.is_open(&Record { requested_key: wish.key(), ..Record::default() }), "a program is another wish");
        assert_eq!(ConfigWish::of_document(&AgentSpec::default()), None);
    }
}
