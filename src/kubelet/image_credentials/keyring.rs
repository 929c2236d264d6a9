//! Credentials by location, and the lookup for an image. Pure.

use std::cmp::Reverse;
use std::fmt;

use super::location::{Location, is_of_docker_hub};
use crate::platform::cri::v1::{AuthConfig, Secret};
use crate::protocol::sha256::sha256;
use crate::types::sorted::SortOnce;

/// Username and password. `Debug` does not print them.
#[derive(Clone, Hash, PartialEq, Eq)]
pub(crate) struct Login {
    pub(super) username: String,
    pub(super) password: String,
    /// Unused for authentication, but part of upstream's credential hash.
    pub(super) email: String,
}

/// A login and its owner.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) login: Login,
    pub(crate) owner: Owner,
}

/// The owner decides which pods may use the pulled image.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Available to every pod of the node.
    Node,
    /// Available to pods of this service account. One that is deleted and created again has another uid.
    ServiceAccount { namespace: String, name: String, uid: String },
    /// Available to pods that refer to this Secret. A Secret that is deleted and created again has another uid.
    Secret { namespace: String, name: String, uid: String },
}

#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Keyring {
    entries: Vec<(Location, Credential)>,
}

impl Keyring {
    /// Adds logins; returns the registries that are not valid locations, which are ignored.
    pub(super) fn add(&mut self, registries: Vec<(String, Login)>, owner: &Owner) -> Vec<String> {
        let mut left_out = Vec::new();
        for (registry, login) in registries {
            match Location::parse(&registry) {
                Some(location) => self.entries.push((location, Credential { login, owner: owner.clone() })),
                None => left_out.push(registry),
            }
        }
        self.sort();
        left_out
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.sort();
    }

    /// Longer prefixes first; equal ones in the order of insertion.
    fn sort(&mut self) {
        self.entries.sort_once_by(|(left, _), (right, _)| Reverse(left).cmp(&Reverse(right)));
    }

    /// Whether a login of `registry` may be for `repository`; `None` if the registry is no valid location.
    pub(super) fn may_find(registry: &str, repository: &str) -> Option<bool> {
        let location = Location::parse(registry)?;
        Some(location.covers(repository) || location.is_docker_hub() && is_of_docker_hub(repository))
    }

    /// Keeps the most specific locations.
    pub(super) fn truncate(&mut self, limit: usize) {
        self.entries.truncate(limit);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The credentials for `repository`, most specific location first.
    pub(crate) fn find(&self, repository: &str) -> Vec<&Credential> {
        let covering = self.entries.iter().filter(|(location, _)| location.covers(repository));
        let matching: Vec<_> = covering.map(|(_, credential)| credential).collect();
        if !matching.is_empty() || !is_of_docker_hub(repository) {
            return matching;
        }
        // Docker keeps logins to its hub under `index.docker.io` (`isDefaultRegistryMatch`).
        let of_hub = self.entries.iter().filter(|(location, _)| location.is_docker_hub());
        of_hub.map(|(_, credential)| credential).collect()
    }
}

impl Login {
    pub(crate) fn new(username: &str, password: &str, email: &str) -> Self {
        Self { username: username.to_owned(), password: password.to_owned(), email: email.to_owned() }
    }

    /// Upstream's credential hash: of its `AuthConfig` as encoded by Go.
    pub(crate) fn hash(&self) -> String {
        let fields = [("username", &self.username), ("password", &self.password), ("email", &self.email)];
        let fields = fields.iter().filter(|(_, text)| !text.is_empty());
        let fields: Vec<String> = fields.map(|(name, text)| format!("\"{name}\":{}", go_string(text))).collect();
        sha256(format!("{{{}}}", fields.join(",")).as_bytes())
    }

    /// As a CRI message.
    pub(crate) fn auth_config(&self) -> AuthConfig {
        AuthConfig { username: self.username.clone(), password: Secret(self.password.clone()), ..AuthConfig::default() }
    }
}

/// Go's JSON encoder also escapes HTML characters and the Unicode line separators.
fn go_string(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    let mut go = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' => go.push_str("\\u003c"),
            '>' => go.push_str("\\u003e"),
            '&' => go.push_str("\\u0026"),
            '\u{2028}' => go.push_str("\\u2028"),
            '\u{2029}' => go.push_str("\\u2029"),
            letter => go.push(letter),
        }
    }
    go
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring(registries: &[&str]) -> Keyring {
        let mut keyring = Keyring::default();
        let logins = registries.iter().map(|registry| ((*registry).to_owned(), Login::new(registry, "p", "")));
        assert!(keyring.add(logins.collect(), &Owner::Node).is_empty());
        keyring
    }

    #[track_caller]
    fn check(registries: &[&str], repository: &str, expected: &[&str]) {
        let keyring = keyring(registries);
        let found: Vec<_> = keyring.find(repository).iter().map(|found| found.login.username.as_str()).collect();
        assert_eq!(found, expected, "{repository}");
    }

    #[test]
    fn all_matching_credentials_are_found_most_specific_first() {
        check(&["r.io", "r.io/a/b", "q.io", "r.io/a", "*.io"], "r.io/a/b/c", &["r.io/a/b", "r.io/a", "r.io", "*.io"]);
        check(&["r.io/a", "r.io/b"], "r.io/c", &[]);
    }

    #[test]
    fn docker_hub_credentials_apply_to_images_without_registry() {
        let hub = "https://index.docker.io/v1/";
        for repository in ["docker.io/library/busybox", "busybox", "a/b"] {
            check(&[hub, "r.io"], repository, &[hub]);
        }
        check(&[hub, "docker.io"], "docker.io/library/busybox", &["docker.io"]);
        check(&[hub], "r.io/a", &[]);
    }

    #[test]
    fn equal_locations_keep_their_order() {
        let mut keyring = keyring(&["r.io"]);
        keyring.add(vec![("r.io".to_owned(), Login::new("second", "p", ""))], &Owner::Node);
        let found: Vec<_> = keyring.find("r.io/a").iter().map(|found| found.login.username.as_str()).collect();
        assert_eq!(found, ["r.io", "second"]);
    }

    #[test]
    fn invalid_registry_is_ignored_and_returned() {
        let mut keyring = Keyring::default();
        let logins = ["a b", "r.io"].map(|registry| (registry.to_owned(), Login::new("u", "p", "")));
        assert_eq!(keyring.add(logins.into(), &Owner::Node), ["a b"]);
        assert_eq!(keyring.find("r.io/a").len(), 1);
    }

    #[test]
    fn credential_hash_equals_upstreams() {
        let hash = |json: &str| sha256(json.as_bytes());
        assert_eq!(Login::new("u", "p", "").hash(), hash(r#"{"username":"u","password":"p"}"#));
        assert_eq!(
            Login::new("u", "<&>", "e").hash(),
            hash(r#"{"username":"u","password":"\u003c\u0026\u003e","email":"e"}"#)
        );
        assert_eq!(Login::new("", "\"\u{2028}", "").hash(), hash(r#"{"password":"\"\u2028"}"#));
    }

    #[test]
    fn password_is_not_printed() {
        let keyring = keyring(&["r.io"]);
        assert!(!format!("{keyring:?}").contains("\"p\""));
    }
}
