//! Image pull secrets of a pod. Pure.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;

use super::docker_config::{ConfigFormat, for_each, last_of_each};
use super::keyring::{Credential, Keyring, Login, Owner};
use crate::state::objects::{ConfigObject, FileContent, Lookup, ObjectKind, Objects};
use crate::types::api::Pod;
use crate::types::sorted::SortOnce;

/// The pod's `imagePullSecrets`. Clones share what was parsed.
#[derive(Clone, Debug, Default)]
pub(crate) struct PullSecrets {
    pub(crate) unparsed: UnparsedSecrets,
    parsed: Rc<RefCell<ParsedSecrets>>,
}

/// By repository, the newest one first.
type ParsedSecrets = Vec<(String, Rc<RepositorySecrets>)>;

/// Secrets that are not parsed yet: one may have tens of thousands of registries.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnparsedSecrets {
    files: Vec<SecretFile>,
    /// Secrets that do not exist, with the reason if known.
    failed: Vec<(String, Option<String>)>,
}

#[derive(Clone, Debug)]
struct SecretFile {
    key: &'static str,
    shape: ConfigFormat,
    owner: Owner,
    name: String,
    text: FileContent,
}

/// What the `imagePullSecrets` have for one repository.
#[derive(Debug, Default)]
pub(crate) struct RepositorySecrets {
    keyring: Keyring,
    /// A fingerprint of the Secrets.
    mark: u64,
    /// Secrets that do not exist or are invalid, with the reason if known.
    pub(crate) failed: Vec<(String, Option<String>)>,
}

/// Credentials that are tried for one image, the most specific ones.
const MAX_IMAGE_CREDENTIALS: usize = 100;
/// Repositories whose credentials are kept, as many as may have this size together.
const MAX_KEPT_CREDENTIAL_REPOSITORIES: usize = 16;
const MAX_KEPT_CREDENTIAL_BYTES: usize = 32 << 20;

impl PullSecrets {
    /// A Secret that is named several times counts once.
    pub(crate) fn of(pod: &Pod, objects: &Objects) -> Self {
        let mut secrets = UnparsedSecrets::default();
        let mut secret_names = Vec::with_capacity(pod.spec.image_pull_secrets.len());
        // The API allows references without a name; they are ignored.
        let names = pod.spec.image_pull_secrets.iter().map(|secret| secret.name.as_str());
        secret_names.extend(names.enumerate().filter(|(_, name)| !name.is_empty()));
        secret_names.sort_once_by_key(|(index, name)| (*name, *index));
        secret_names.dedup_by_key(|(_, name)| *name);
        secret_names.sort_once();
        for (_, name) in secret_names {
            match objects.get(pod, ObjectKind::Secret, name) {
                Lookup::Found(secret) => secrets.add(secret),
                Lookup::Missing => secrets.failed.push((name.to_owned(), None)),
                Lookup::Unknown(why) => secrets.failed.push((name.to_owned(), Some(why))),
            }
        }
        Self { unparsed: secrets, ..Self::default() }
    }

    /// What was parsed for `repository` before.
    pub(crate) fn parsed(&self, repository: &str) -> Option<Rc<RepositorySecrets>> {
        let parsed = self.parsed.borrow();
        parsed.iter().find(|(of, _)| of == repository).map(|(_, secrets)| Rc::clone(secrets))
    }

    /// Keeps what was parsed for `repository`, instead of the oldest one if there is no room.
    pub(crate) fn keep(&self, repository: &str, secrets: RepositorySecrets) -> Rc<RepositorySecrets> {
        let secrets = Rc::new(secrets);
        let mut parsed = self.parsed.borrow_mut();
        // Each may have all that was parsed.
        let most = MAX_KEPT_CREDENTIAL_BYTES / self.unparsed.bytes().max(1);
        parsed.truncate(most.clamp(1, MAX_KEPT_CREDENTIAL_REPOSITORIES) - 1);
        parsed.insert(0, (repository.to_owned(), Rc::clone(&secrets)));
        secrets
    }
}

impl UnparsedSecrets {
    /// Bytes to parse.
    pub(crate) fn bytes(&self) -> usize {
        self.files.iter().map(|file| file.text.len()).sum()
    }

    /// Parses the Secrets and keeps what is for `repository`.
    pub(crate) fn for_repository(self, repository: &str) -> RepositorySecrets {
        let mut hasher = DefaultHasher::new();
        let mut repository_secrets = RepositorySecrets { failed: self.failed, ..RepositorySecrets::default() };
        for SecretFile { key, shape, owner, name, text } in self.files {
            (&owner, text.as_slice()).hash(&mut hasher);
            let (mut file_keyring, mut matching_logins) = (Keyring::default(), Vec::new());
            let mut invalid = None;
            let mut take = |registry: String, login: Login| match Keyring::may_find(&registry, repository) {
                Some(true) => {
                    matching_logins.push((registry, login));
                    if matching_logins.len() > MAX_IMAGE_CREDENTIALS {
                        file_keyring.add(last_of_each(mem::take(&mut matching_logins)), &owner);
                        file_keyring.truncate(MAX_IMAGE_CREDENTIALS);
                    }
                }
                Some(false) => {}
                None => drop(invalid.get_or_insert(registry)),
            };
            match for_each(&text, shape, &mut take) {
                Ok(()) => {
                    file_keyring.add(last_of_each(matching_logins), &owner);
                    repository_secrets.keyring.merge(file_keyring);
                    repository_secrets.keyring.truncate(MAX_IMAGE_CREDENTIALS);
                    let problem = invalid.map(|registry| format!("{key}: {registry:?} is no registry"));
                    repository_secrets.failed.extend(problem.map(|problem| (name, Some(problem))));
                }
                Err(problem) => repository_secrets.failed.push((name, Some(format!("{key}: {problem}")))),
            }
        }
        repository_secrets.mark = hasher.finish();
        repository_secrets
    }

    /// A Secret of another type has no credentials, which is not an error.
    fn add(&mut self, secret: &ConfigObject) {
        let (key, shape) = match secret.secret_type.as_str() {
            "kubernetes.io/dockerconfigjson" => (".dockerconfigjson", ConfigFormat::ConfigJson),
            "kubernetes.io/dockercfg" => (".dockercfg", ConfigFormat::Dockercfg),
            _ => return,
        };
        let Some(text) = secret.file(key).filter(|text| !text.is_empty()) else { return };
        let name = secret.key.name.clone();
        let (namespace, uid) = (secret.key.namespace.clone(), secret.uid.clone());
        let owner = Owner::Secret { namespace, name: name.clone(), uid };
        self.files.push(SecretFile { key, shape, owner, name, text: Arc::clone(text) });
    }
}

impl RepositorySecrets {
    /// The credentials for the repository, most specific location first.
    pub(crate) fn find(&self, repository: &str) -> Vec<&Credential> {
        self.keyring.find(repository)
    }

    /// A fingerprint of the credentials.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::objects::SourceObject;
    use crate::types::api::{Secret, Time, decode};

    fn objects(secrets: &[(&str, &str, &str, &str)]) -> Objects {
        let mut objects = Objects::default();
        let secrets: Vec<SourceObject> = secrets
            .iter()
            .map(|(name, secret_type, key, text)| {
                let metadata = json!({"namespace": "ns", "name": name, "uid": format!("uid-{name}")});
                let secret = json!({"metadata": metadata, "type": secret_type, "stringData": {*key: text}});
                let mut secret = decode::<Secret>(secret).unwrap().value;
                secret.merge_string_data();
                let since = Time::from_timestamp(crate::types::timestamp::Timestamp::UNIX_EPOCH);
                SourceObject { object: Arc::new(secret.into()), origin: "m".into(), since }
            })
            .collect();
        objects.replace(&secrets);
        objects
    }

    fn pod(names: &[&str]) -> Pod {
        let names: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        decode(json!({"metadata": {"namespace": "ns"}, "spec": {"imagePullSecrets": names}})).unwrap().value
    }

    const LOGIN: &str = r#"{"username":"u","password":"p"}"#;

    #[test]
    fn both_secret_types_give_credentials_with_their_owner() {
        let config_json = format!(r#"{{"auths":{{"r.io":{LOGIN}}}}}"#);
        let dockercfg = format!(r#"{{"r.io/a":{LOGIN}}}"#);
        let objects = objects(&[
            ("new", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", &config_json),
            ("old", "kubernetes.io/dockercfg", ".dockercfg", &dockercfg),
            ("other", "Opaque", ".dockerconfigjson", &config_json),
        ]);
        let secrets = |names: &[&str]| PullSecrets::of(&pod(names), &objects).unparsed.for_repository("r.io/a/b");
        let all = secrets(&["new", "old", "other", "", "new"]);
        let owners: Vec<_> = all.find("r.io/a/b").iter().map(|found| found.owner.clone()).collect();
        let owner = |name: &str| Owner::Secret {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        };
        assert_eq!(owners, [owner("old"), owner("new")]);
        assert!(all.failed.is_empty());
        assert!(secrets(&[]).find("r.io/a/b").is_empty());
        assert_eq!(all.mark(), secrets(&["new", "old"]).mark());
        assert_ne!(all.mark(), secrets(&["new"]).mark());
    }

    #[test]
    fn only_credentials_of_the_repository_are_kept_and_the_most_specific_hundred() {
        let registries: Vec<String> = (0..500).map(|n| format!("\"r.io/{}\":{LOGIN}", "a".repeat(n))).collect();
        let many = format!("{{{}}}", registries.join(","));
        let other = format!(r#"{{"q.io":{LOGIN},"index.docker.io":{LOGIN}}}"#);
        let objects = objects(&[
            ("many", "kubernetes.io/dockercfg", ".dockercfg", &many),
            ("other", "kubernetes.io/dockercfg", ".dockercfg", &other),
        ]);
        let secrets =
            |repository: &str| PullSecrets::of(&pod(&["many", "other"]), &objects).unparsed.for_repository(repository);
        assert_eq!(secrets("p.io/a").keyring.len(), 0);
        assert_eq!(secrets("busybox").find("busybox").len(), 1);
        let long = format!("r.io/{}", "a".repeat(600));
        assert_eq!(secrets(&long).find(&long).len(), 100);
        assert_eq!(secrets("r.io/aaa").find("r.io/aaa").len(), 4);
    }

    #[test]
    fn missing_or_invalid_secret_is_reported_and_others_used() {
        let good = format!(r#"{{"auths":{{"r.io":{LOGIN},"no registry":{LOGIN}}}}}"#);
        let objects = objects(&[
            ("good", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", &good),
            ("bad", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", r#"{"auths":[]}"#),
        ]);
        let secrets = PullSecrets::of(&pod(&["missing", "bad", "good"]), &objects).unparsed.for_repository("r.io/a");
        assert_eq!(secrets.find("r.io/a").len(), 1);
        let told = |why: &str| Some(format!(".dockerconfigjson: {why}"));
        assert_eq!(
            secrets.failed,
            [
                ("missing".to_owned(), None),
                ("bad".to_owned(), told("expected a mapping under auths")),
                ("good".to_owned(), told("\"no registry\" is no registry")),
            ]
        );
    }

    #[test]
    fn parsed_secrets_are_kept_for_sixteen_repositories_or_one_of_large_secrets() {
        let kept = |padding: usize| {
            let text = format!(r#"{{"r.io":{LOGIN},"pad":{{"email":"{}"}}}}"#, "x".repeat(padding));
            let objects = objects(&[("s", "kubernetes.io/dockercfg", ".dockercfg", &text)]);
            let secrets = PullSecrets::of(&pod(&["s"]), &objects);
            let names: Vec<String> = (0..40).map(|number| format!("r.io/{number}")).collect();
            for name in &names {
                assert!(secrets.parsed(name).is_none());
                let kept = secrets.keep(name, secrets.unparsed.clone().for_repository(name));
                assert!(Rc::ptr_eq(&kept, &secrets.clone().parsed(name).unwrap()));
                assert_eq!(kept.find(name).len(), 1);
            }
            names.iter().filter(|name| secrets.parsed(name).is_some()).count()
        };
        assert_eq!(kept(0), 16);
        assert_eq!(kept(20 << 20), 1);
    }
}
