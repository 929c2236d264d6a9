//! Whether a pod may use a present image without asking its registry, based on records of earlier pulls. Pure.
//!
//! Records have the format of upstream's `ImagePulledRecord` and are kept as JSON, so that fields of other kubelets
//! are preserved.

use serde_json::{Map, Value, json};

use crate::kubelet::image_credentials::{Credential, Owner, ServiceAccount};
use crate::platform::config::CredentialsVerification;

/// The pull records of an image.
#[derive(Clone, Copy, Debug)]
pub(super) enum PullOrigin<'a> {
    /// No kubelet has pulled the image.
    Preloaded,
    /// A kubelet intended to pull it; the result is unknown.
    Intended,
    Recorded(&'a Value),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CredentialCheck<'a> {
    /// The policy asks for no credentials.
    Allowed,
    /// A record has the pod's credentials, or lets every pod use the image.
    Recorded,
    /// This Secret has the credentials of a recorded one; record it as well.
    RecordedFor(&'a Credential),
    /// The registry must be asked.
    Ask,
}

impl CredentialCheck<'_> {
    /// As the label of upstream's metric.
    pub(super) const fn result(&self) -> &'static str {
        match self {
            Self::Allowed => "credentialPolicyAllowed",
            Self::Recorded | Self::RecordedFor(_) => "credentialRecordFound",
            Self::Ask => "mustAuthenticate",
        }
    }
}

/// Limit of secrets added because they match (kubelet: `writeRecordWhileMatchingLimit`).
const MAX_MATCHING_SECRETS: usize = 100;

/// `is_named`: the runtime has the image under a name in this repository. `secrets`: the credentials for it in the
/// pod's pull secrets.
pub(super) fn verdict<'a>(
    policy: &CredentialsVerification,
    repository: &str,
    is_named: bool,
    pulled: PullOrigin<'_>,
    secrets: &[&'a Credential],
    account: Option<&ServiceAccount>,
) -> CredentialCheck<'a> {
    let verifies = match policy {
        CredentialsVerification::Never => false,
        CredentialsVerification::NeverForPreloaded => !matches!(pulled, PullOrigin::Preloaded),
        CredentialsVerification::NeverFor(patterns) => !patterns.iter().any(|pattern| fits(pattern, repository)),
        CredentialsVerification::Always => true,
    };
    if !verifies {
        return CredentialCheck::Allowed;
    }
    let PullOrigin::Recorded(record) = pulled else { return CredentialCheck::Ask };
    let Some(credentials) = credentials_of(record, repository) else {
        // No kubelet has pulled it under this name, so an image with the name was preloaded.
        let was_put_here = is_named && *policy == CredentialsVerification::NeverForPreloaded;
        return if was_put_here { CredentialCheck::Allowed } else { CredentialCheck::Ask };
    };
    if is_open(credentials) {
        return CredentialCheck::Recorded;
    }
    if account.is_some_and(|account| accounts_of(credentials).any(|puller| account.is(puller))) {
        return CredentialCheck::Recorded;
    }
    let pullers = credentials.get(SECRETS).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for credential in secrets {
        let Some(mark) = mark(credential) else { continue };
        for puller in pullers {
            let (same_login, same_secret) =
                (puller.get(CREDENTIAL_HASH_KEY) == mark.get(CREDENTIAL_HASH_KEY), is_same_secret(puller, &mark));
            match (same_login, same_secret) {
                (true, true) => return CredentialCheck::Recorded,
                // As upstream, a Secret whose login has changed was rotated, and is still the one that pulled it.
                (true, false) | (false, true) if kept(secret_count(record, repository)) => {
                    return CredentialCheck::RecordedFor(credential);
                }
                (true, false) => return CredentialCheck::Recorded,
                (false, _) => {}
            }
        }
    }
    CredentialCheck::Ask
}

/// The credentials that pulled the image from this repository; `None` if no kubelet has.
pub(super) fn credentials_of<'a>(record: &'a Value, repository: &str) -> Option<&'a Value> {
    record.get(MAPPING)?.get(repository)
}

fn accounts_of(credentials: &Value) -> impl Iterator<Item = &Value> {
    credentials.get(ACCOUNTS).and_then(Value::as_array).into_iter().flatten()
}

/// Whether a service account has pulled an image of this repository.
pub(super) fn has_accounts(record: &Value, repository: &str) -> bool {
    credentials_of(record, repository).is_some_and(|credentials| accounts_of(credentials).next().is_some())
}

impl ServiceAccount {
    /// Without a uid the name decides: the pod's own API server has admitted it.
    fn is(&self, puller: &Value) -> bool {
        let text = |field: &str| puller.get(field).and_then(Value::as_str).unwrap_or_default();
        let is_named = (text("namespace"), text("name")) == (self.namespace.as_str(), self.name.as_str());
        is_named && self.uid.as_ref().is_none_or(|uid| uid == text("uid"))
    }
}

fn kept(count: usize) -> bool {
    count < MAX_MATCHING_SECRETS
}

fn secret_count(record: &Value, repository: &str) -> usize {
    let secrets = credentials_of(record, repository).and_then(|credentials| credentials.get(SECRETS));
    secrets.and_then(Value::as_array).map_or(0, Vec::len)
}

/// `registry.example.com/team/app`, or a prefix followed by `/*`; Docker Hub may be left out.
fn fits(pattern: &str, repository: &str) -> bool {
    let short = repository.strip_prefix("docker.io/").map(|rest| rest.strip_prefix("library/").unwrap_or(rest));
    let names = [Some(repository), short];
    names.into_iter().flatten().any(|name| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    })
}

/// The record after a pull with this credential; `None` if it is unchanged.
pub(super) fn recorded(
    record: Option<&Value>,
    image_ref: &str,
    repository: &str,
    credential: Option<&Credential>,
    now: &str,
) -> Option<Value> {
    let mut next = record
        .cloned()
        .filter(Value::is_object)
        .unwrap_or_else(|| json!({"kind": "ImagePulledRecord", "apiVersion": API_VERSION, "imageRef": image_ref}));
    let fields = next.as_object_mut()?;
    let mapping = object(fields.entry(MAPPING).or_insert(Value::Null))?;
    let credentials = mapping.get(repository);
    if credentials.is_some_and(is_open) {
        return None;
    }
    let wanted = match credential.and_then(mark) {
        None => json!({NODE_PODS_ACCESSIBLE_KEY: true}),
        Some(mark) => {
            let list = if mark.get(CREDENTIAL_HASH_KEY).is_some() { SECRETS } else { ACCOUNTS };
            let mut wanted = credentials.cloned().filter(Value::is_object).unwrap_or_else(|| json!({}));
            let secrets = wanted.as_object_mut()?.entry(list).or_insert_with(|| json!([])).as_array_mut()?;
            match secrets.iter_mut().find(|puller| is_same_secret(puller, &mark)) {
                Some(puller) if *puller == mark => return None,
                Some(puller) => *puller = mark,
                None => secrets.push(mark),
            }
            wanted
        }
    };
    mapping.insert(repository.to_owned(), wanted);
    fields.insert("lastUpdatedTime".to_owned(), Value::from(now));
    Some(next)
}

fn object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// Available to every pod of the node.
fn is_open(credentials: &Value) -> bool {
    credentials.get(NODE_PODS_ACCESSIBLE_KEY) == Some(&Value::Bool(true))
}

/// The entry of a Secret or a service account in a record; `None` for node credentials.
fn mark(credential: &Credential) -> Option<Value> {
    match &credential.owner {
        Owner::Node => None,
        Owner::ServiceAccount { namespace, name, uid } => {
            Some(json!({"uid": uid, "namespace": namespace, "name": name}))
        }
        // Secrets from manifests have no uid.
        Owner::Secret { namespace, name, uid } => Some(
            json!({"uid": uid, "namespace": namespace, "name": name, CREDENTIAL_HASH_KEY: credential.login.hash()}),
        ),
    }
}

fn is_same_secret(puller: &Value, mark: &Value) -> bool {
    ["uid", "namespace", "name"].iter().all(|field| puller.get(field) == mark.get(field))
}

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const MAPPING: &str = "credentialMapping";
const SECRETS: &str = "kubernetesSecrets";
const ACCOUNTS: &str = "kubernetesServiceAccounts";
const NODE_PODS_ACCESSIBLE_KEY: &str = "nodePodsAccessible";
const CREDENTIAL_HASH_KEY: &str = "credentialHash";
/// Upstream has no such field, and asks the registry for the image of an intent that it cannot read.
const FORMER_IMAGE_REF_KEY: &str = "coracleFormerImageRef";

/// The record written before a pull with a pod's credentials. `former`: the id of the image that had this name before
/// any kubelet pulled it.
pub(super) fn intent(image: &str, former: Option<&str>) -> Value {
    let mut intent = json!({"kind": "ImagePullIntent", "apiVersion": API_VERSION, "image": image});
    if let (Some(former), Some(fields)) = (former, intent.as_object_mut()) {
        fields.insert(FORMER_IMAGE_REF_KEY.to_owned(), Value::from(former));
    }
    intent
}

/// Whether the pull with this intent may have brought the image; one that was there before stays as open as it was.
pub(super) fn may_have_brought(intent: &Value, image_ref: &str) -> bool {
    intent.get(FORMER_IMAGE_REF_KEY).and_then(Value::as_str) != Some(image_ref)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::image_credentials::Login;

    const REPOSITORY: &str = "r.io/a";

    fn credential(name: &str, password: &str) -> Credential {
        credential_of(name, "1", password)
    }

    fn credential_of(name: &str, uid: &str, password: &str) -> Credential {
        let owner = Owner::Secret { namespace: "ns".to_owned(), name: name.to_owned(), uid: uid.to_owned() };
        Credential { login: Login::new("u", password, ""), owner }
    }

    fn record(credentials: &[Option<&Credential>]) -> Value {
        let mut record = None;
        for credential in credentials {
            record = recorded(record.as_ref(), "sha256:1", REPOSITORY, *credential, "now").or(record);
        }
        record.unwrap()
    }

    const DEFAULT: CredentialsVerification = CredentialsVerification::NeverForPreloaded;

    #[test]
    fn preloaded_image_is_open_unless_the_policy_forbids() {
        let list = CredentialsVerification::NeverFor(vec!["r.io/*".to_owned(), "busybox".to_owned()]);
        for (policy, repository, pulled, expected) in [
            (&CredentialsVerification::Never, REPOSITORY, PullOrigin::Intended, CredentialCheck::Allowed),
            (&DEFAULT, REPOSITORY, PullOrigin::Preloaded, CredentialCheck::Allowed),
            (&DEFAULT, REPOSITORY, PullOrigin::Intended, CredentialCheck::Ask),
            (&list, REPOSITORY, PullOrigin::Intended, CredentialCheck::Allowed),
            (&list, "docker.io/library/busybox", PullOrigin::Preloaded, CredentialCheck::Allowed),
            (&list, "q.io/a", PullOrigin::Preloaded, CredentialCheck::Ask),
            (&CredentialsVerification::Always, REPOSITORY, PullOrigin::Preloaded, CredentialCheck::Ask),
        ] {
            assert_eq!(
                verdict(policy, repository, true, pulled, &[], None),
                expected,
                "{policy:?} {repository} {pulled:?}"
            );
        }
    }

    #[test]
    fn image_pulled_with_a_secret_needs_it_or_its_credentials() {
        let (known, other) = (credential("known", "p"), credential("other", "q"));
        let record = record(&[Some(&known)]);
        let ask = |secrets: &[&Credential]| match verdict(
            &DEFAULT,
            REPOSITORY,
            true,
            PullOrigin::Recorded(&record),
            secrets,
            None,
        ) {
            CredentialCheck::Allowed => "allowed".to_owned(),
            CredentialCheck::Recorded => "use".to_owned(),
            CredentialCheck::RecordedFor(credential) => format!("use with {:?}", credential.owner),
            CredentialCheck::Ask => "ask".to_owned(),
        };
        assert_eq!(ask(&[]), "ask");
        assert_eq!(ask(&[&other]), "ask");
        assert_eq!(ask(&[&other, &known]), "use");
        let copy = credential("copy", "p");
        assert_eq!(ask(&[&copy]), format!("use with {:?}", copy.owner));
        let renewed = credential("known", "new");
        assert_eq!(ask(&[&renewed]), format!("use with {:?}", renewed.owner));
    }

    #[test]
    fn secret_created_again_with_another_login_does_not_unlock_the_image() {
        let record = record(&[Some(&credential_of("s", "1", "p"))]);
        let ask = |uid, password| {
            let credential = credential_of("s", uid, password);
            verdict(&DEFAULT, REPOSITORY, true, PullOrigin::Recorded(&record), &[&credential], None)
                == CredentialCheck::Ask
        };
        assert!(!ask("1", "new"), "the same Secret with a new login");
        assert!(ask("2", "new"), "a new Secret of the same name with another login");
        assert!(!ask("2", "p"), "a new Secret with the known login");
    }

    #[test]
    fn preloaded_name_stays_open_only_for_that_name() {
        let record = record(&[Some(&credential("known", "p"))]);
        let ask = |policy, is_named| verdict(policy, "r.io/b", is_named, PullOrigin::Recorded(&record), &[], None);
        assert_eq!(ask(&DEFAULT, true), CredentialCheck::Allowed);
        assert_eq!(ask(&DEFAULT, false), CredentialCheck::Ask, "known by its id only");
        assert_eq!(ask(&CredentialsVerification::Always, true), CredentialCheck::Ask);
    }

    #[test]
    fn image_pulled_without_a_secret_is_open() {
        let known = credential("known", "p");
        let node = Credential { owner: Owner::Node, ..credential("", "p") };
        for opened in [None, Some(&node)] {
            let record = record(&[Some(&known), opened]);
            assert_eq!(
                verdict(&DEFAULT, REPOSITORY, true, PullOrigin::Recorded(&record), &[], None),
                CredentialCheck::Recorded
            );
            assert_eq!(recorded(Some(&record), "sha256:1", REPOSITORY, Some(&known), "later"), None);
        }
    }

    #[test]
    fn record_has_upstreams_format_and_keeps_foreign_fields() {
        let known = credential("known", "p");
        let first = recorded(None, "sha256:1", REPOSITORY, Some(&known), "2026-11-21T20:00:00Z").unwrap();
        let hash = known.login.hash();
        let mark = json!({"uid": "1", "namespace": "ns", "name": "known", "credentialHash": hash});
        let expected = json!({
            "kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1beta1", "imageRef": "sha256:1",
            "lastUpdatedTime": "2026-11-21T20:00:00Z",
            "credentialMapping": {"r.io/a": {"kubernetesSecrets": [mark]}}
        });
        assert_eq!(first, expected);
        assert_eq!(recorded(Some(&first), "sha256:1", REPOSITORY, Some(&known), "later"), None);
        let renewed = recorded(Some(&first), "sha256:1", REPOSITORY, Some(&credential("known", "q")), "later").unwrap();
        assert_eq!(secret_count(&renewed, REPOSITORY), 1);
        let account = json!({"uid": "7", "namespace": "ns", "name": "robot"});
        let mut others = first.clone();
        others["credentialMapping"]["r.io/a"]["kubernetesServiceAccounts"] = json!([account]);
        let added = recorded(Some(&others), "sha256:1", REPOSITORY, Some(&credential("more", "q")), "later").unwrap();
        assert_eq!(secret_count(&added, REPOSITORY), 2);
        assert_eq!(added["credentialMapping"]["r.io/a"]["kubernetesServiceAccounts"], json!([account]));
    }

    #[test]
    fn intent_has_upstreams_format_unless_a_preloaded_image_has_the_name() {
        let expected =
            json!({"kind": "ImagePullIntent", "apiVersion": "kubelet.config.k8s.io/v1beta1", "image": "r.io/a:1"});
        assert_eq!(intent("r.io/a:1", None), expected);
        assert!(may_have_brought(&expected, "sha256:1"));
        let preloaded = intent("r.io/a:1", Some("sha256:1"));
        assert!(!may_have_brought(&preloaded, "sha256:1") && may_have_brought(&preloaded, "sha256:2"));
    }

    #[test]
    fn broken_record_asks_the_registry_and_is_repaired() {
        for broken in [json!({}), json!({"credentialMapping": 7}), json!({"credentialMapping": {"r.io/a": []}})] {
            let known = credential("known", "p");
            assert_eq!(
                verdict(&DEFAULT, REPOSITORY, false, PullOrigin::Recorded(&broken), &[&known], None),
                CredentialCheck::Ask
            );
            let whole = recorded(Some(&broken), "sha256:1", REPOSITORY, Some(&known), "now").unwrap();
            assert_eq!(
                verdict(&DEFAULT, REPOSITORY, true, PullOrigin::Recorded(&whole), &[&known], None),
                CredentialCheck::Recorded
            );
        }
    }

    #[test]
    fn image_of_a_service_account_is_for_the_pods_of_that_account() {
        let of = |uid: &str| {
            let (namespace, name, uid) = ("ns".to_owned(), "robot".to_owned(), uid.to_owned());
            Credential { owner: Owner::ServiceAccount { namespace, name, uid }, ..credential("", "p") }
        };
        let record = record(&[Some(&of("7"))]);
        let expected = json!([{"uid": "7", "namespace": "ns", "name": "robot"}]);
        assert_eq!(record["credentialMapping"][REPOSITORY]["kubernetesServiceAccounts"], expected);
        assert!(has_accounts(&record, REPOSITORY) && !has_accounts(&record, "r.io/other"));
        assert_eq!(recorded(Some(&record), "sha256:1", REPOSITORY, Some(&of("7")), "later"), None);
        let may = |account: Option<ServiceAccount>| {
            verdict(&DEFAULT, REPOSITORY, true, PullOrigin::Recorded(&record), &[], account.as_ref())
                == CredentialCheck::Recorded
        };
        let account = |name: &str, uid: Option<&str>| {
            let (namespace, uid) = ("ns".to_owned(), uid.map(str::to_owned));
            Some(ServiceAccount { namespace, name: name.to_owned(), uid })
        };
        assert!(may(account("robot", Some("7"))) && may(account("robot", None)));
        assert!(!may(account("robot", Some("8"))), "an account of the same name, created later");
        assert!(!may(account("other", None)) && !may(None));
    }
}
