//! Image pull secrets of a pod. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::docker_config::{ConfigFormat, parse};
use super::keyring::{Credential, Keyring, Owner};
use crate::state::objects::{ConfigObject, Lookup, ObjectKind, Objects};
use crate::types::api::Pod;

/// The credentials in the pod's `imagePullSecrets`.
#[derive(Debug, Default)]
pub(crate) struct PullSecrets {
    keyring: Keyring,
    /// Secrets that do not exist or are invalid, with the reason if known.
    pub(crate) failed: Vec<(String, Option<String>)>,
}

impl PullSecrets {
    pub(crate) fn of(pod: &Pod, objects: &Objects) -> Self {
        let mut secrets = Self::default();
        // The API allows references without a name; they are ignored.
        for name in pod.spec.image_pull_secrets.iter().map(|secret| &secret.name).filter(|name| !name.is_empty()) {
            match objects.get(pod, ObjectKind::Secret, name) {
                Lookup::Found(secret) => secrets.add(secret),
                Lookup::Missing => secrets.failed.push((name.clone(), None)),
                Lookup::Unknown(why) => secrets.failed.push((name.clone(), Some(why))),
            }
        }
        secrets
    }

    pub(crate) fn find(&self, repository: &str) -> Vec<&Credential> {
        self.keyring.find(repository)
    }

    /// A fingerprint of the credentials.
    pub(crate) fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.keyring.hash(&mut hasher);
        hasher.finish()
    }

    /// A Secret of another type has no credentials, which is not an error.
    fn add(&mut self, secret: &ConfigObject) {
        let (key, shape) = match secret.secret_type.as_str() {
            "kubernetes.io/dockerconfigjson" => (".dockerconfigjson", ConfigFormat::ConfigJson),
            "kubernetes.io/dockercfg" => (".dockercfg", ConfigFormat::Dockercfg),
            _ => return,
        };
        let Some(text) = secret.file(key).filter(|text| !text.is_empty()) else { return };
        let name = &secret.key.name;
        let (namespace, uid) = (secret.key.namespace.clone(), secret.uid.clone());
        let owner = Owner::Secret { namespace, name: name.clone(), uid };
        match parse(text, shape) {
            Ok(registries) => {
                for registry in self.keyring.add(registries, &owner) {
                    self.failed.push((name.clone(), Some(format!("{key}: {registry:?} is no registry"))));
                }
            }
            Err(problem) => self.failed.push((name.clone(), Some(format!("{key}: {problem}")))),
        }
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
                SourceObject { object: std::sync::Arc::new(secret.into()), origin: "m".into(), since }
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
        let secrets = PullSecrets::of(&pod(&["new", "old", "other", ""]), &objects);
        let owners: Vec<_> = secrets.find("r.io/a/b").iter().map(|found| found.owner.clone()).collect();
        let owner = |name: &str| Owner::Secret {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            uid: format!("uid-{name}"),
        };
        assert_eq!(owners, [owner("old"), owner("new")]);
        assert!(secrets.failed.is_empty());
        assert!(PullSecrets::of(&pod(&[]), &objects).find("r.io/a").is_empty());
        assert_eq!(secrets.mark(), PullSecrets::of(&pod(&["new", "old"]), &objects).mark());
        assert_ne!(secrets.mark(), PullSecrets::of(&pod(&["new"]), &objects).mark());
    }

    #[test]
    fn missing_or_invalid_secret_is_reported_and_others_used() {
        let good = format!(r#"{{"auths":{{"r.io":{LOGIN},"no registry":{LOGIN}}}}}"#);
        let objects = objects(&[
            ("good", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", &good),
            ("bad", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", r#"{"auths":[]}"#),
        ]);
        let secrets = PullSecrets::of(&pod(&["missing", "bad", "good"]), &objects);
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
}
