//! The file of `--image-credential-provider-config`: exec plugins with registry credentials.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

use super::Error;
use super::check::{Problem, check_document_of};
use super::duration;
use super::file::{one, read_bytes};
use super::schema::{CREDENTIAL_PROVIDER_CONFIG, PROVIDER_VERSIONS};
use crate::types::api::yaml;
use crate::types::sorted::SortOnce;

/// A plugin, and the images that it has credentials for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CredentialProvider {
    /// The file name of the program in the plugin directory.
    pub(crate) name: String,
    /// Such as `*.example.com/team`.
    pub(crate) match_images: Vec<String>,
    /// For responses without a cache duration.
    pub(crate) default_cache_duration: Duration,
    /// The version of request and response.
    pub(crate) api_version: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// `tokenAttributes`: it gets a token of the pod's service account.
    pub(crate) token: Option<TokenAttributes>,
}

/// The service account tokens of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenAttributes {
    pub(crate) audience: String,
    pub(crate) cache: TokenCacheType,
    /// Whether to run it only for pods with a service account.
    pub(crate) is_required: bool,
    pub(crate) required_annotations: Vec<String>,
    pub(crate) optional_annotations: Vec<String>,
}

/// What answers are cached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenCacheType {
    ServiceAccount,
    Token,
}

/// Reads a file, or every `*.json`, `*.yaml` and `*.yml` in a directory, ordered by name.
pub(super) fn read(path: &Path) -> Result<Vec<CredentialProvider>, Error> {
    let unread = |source| Error::Read { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(unread)?.is_dir() {
        return read_one(path, &mut Vec::new());
    }
    let entries = std::fs::read_dir(path).map_err(unread)?;
    let mut files: Vec<PathBuf> =
        entries.collect::<Result<Vec<_>, _>>().map_err(unread)?.iter().map(std::fs::DirEntry::path).collect();
    let is_wanted = |file: &Path| {
        file.extension().is_some_and(|end| end == "json" || end == "yaml" || end == "yml") && !file.is_dir()
    };
    files.retain(|file| is_wanted(file));
    files.sort_once();
    if files.is_empty() {
        let problem = Problem { path: String::new(), fault: "no *.json, *.yaml or *.yml file in it".to_owned() };
        return Err(Error::Field { path: path.to_owned(), problem });
    }
    let (mut providers, mut names) = (Vec::new(), Vec::new());
    for file in files {
        providers.extend(read_one(&file, &mut names)?);
    }
    Ok(providers)
}

/// `names` are the providers of earlier files; names must be unique.
fn read_one(path: &Path, names: &mut Vec<String>) -> Result<Vec<CredentialProvider>, Error> {
    let unread = |source| Error::Read { path: path.to_owned(), source };
    let unparsed = |source| Error::Parse { path: path.to_owned(), source };
    let refused = |problem| Error::Field { path: path.to_owned(), problem };
    let first = yaml::parse_first(&read_bytes(path).map_err(unread)?).map_err(unparsed)?;
    let document = one(Vec::from_iter(first), "CredentialProviderConfig").map_err(refused)?;
    let document = document.strict().map_err(unparsed)?;
    providers(&document, names).map_err(refused)
}

fn providers(document: &Value, names: &mut Vec<String>) -> Result<Vec<CredentialProvider>, Problem> {
    check_document_of(document, "CredentialProviderConfig", CONFIG_VERSIONS, CREDENTIAL_PROVIDER_CONFIG)?;
    let list = document.get("providers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return Err(Problem { path: "providers".to_owned(), fault: "required: at least one".to_owned() });
    }
    let mut providers = Vec::new();
    for (index, fields) in list.iter().enumerate() {
        let Some(fields) = fields.as_object() else { continue };
        let read = provider(fields, names);
        providers.push(read.map_err(|(field, fault)| Problem { path: format!("providers[{index}].{field}"), fault })?);
    }
    Ok(providers)
}

/// The field, and the problem.
type Fault = (&'static str, String);

fn provider(fields: &Map<String, Value>, names: &mut Vec<String>) -> Result<CredentialProvider, Fault> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = text("name");
    if name.is_empty() || name.contains(['/', ' ']) || name == "." || name == ".." {
        return Err(("name", format!("expected the name of a file, without a slash and a blank, found {name:?}")));
    }
    if names.contains(&name) {
        return Err(("name", format!("there is another provider {name}")));
    }
    names.push(name.clone());
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(("apiVersion", format!("required: one of {}", PROVIDER_VERSIONS.join(", "))));
    }
    let match_images = texts(fields.get("matchImages"));
    if match_images.is_empty() {
        return Err(("matchImages", "required: at least one".to_owned()));
    }
    let duration = fields.get("defaultCacheDuration").and_then(Value::as_str).and_then(duration::parse);
    let duration = duration.ok_or_else(|| ("defaultCacheDuration", "required: a duration such as 10m".to_owned()))?;
    let token = fields.get("tokenAttributes").and_then(Value::as_object);
    Ok(CredentialProvider {
        name,
        match_images,
        default_cache_duration: duration.size,
        token: token.map(|token| token_attributes(token, &api_version)).transpose()?,
        api_version,
        args: texts(fields.get("args")),
        env: environment(fields.get("env")),
    })
}

fn token_attributes(token: &Map<String, Value>, api_version: &str) -> Result<TokenAttributes, Fault> {
    let fault = |fault: &str| Err(("tokenAttributes", fault.to_owned()));
    if api_version != NEWEST_PROVIDER_VERSION {
        return fault("only for providers of credentialprovider.kubelet.k8s.io/v1");
    }
    let text = |name: &str| token.get(name).and_then(Value::as_str).unwrap_or_default();
    let audience = text("serviceAccountTokenAudience").to_owned();
    if audience.is_empty() {
        return fault("serviceAccountTokenAudience is required");
    }
    let cache = match text("cacheType") {
        "ServiceAccount" => TokenCacheType::ServiceAccount,
        "Token" => TokenCacheType::Token,
        _ => return fault("cacheType is required: ServiceAccount or Token"),
    };
    let Some(required) = token.get("requireServiceAccount").and_then(Value::as_bool) else {
        return fault("requireServiceAccount is required");
    };
    let keys = |name: &str| texts(token.get(name));
    let (must, may) = (keys("requiredServiceAccountAnnotationKeys"), keys("optionalServiceAccountAnnotationKeys"));
    if !required && !must.is_empty() {
        return fault("requiredServiceAccountAnnotationKeys needs requireServiceAccount: true");
    }
    if must.iter().any(|key| may.contains(key)) {
        return fault("an annotation key cannot be both required and optional");
    }
    Ok(TokenAttributes {
        audience,
        cache,
        is_required: required,
        required_annotations: must,
        optional_annotations: may,
    })
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

fn environment(list: Option<&Value>) -> Vec<(String, String)> {
    let text = |item: &Value, name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.map(|item| (text(item, "name"), text(item, "value"))).collect()
}

const CONFIG_VERSIONS: &[&str] =
    &["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
const NEWEST_PROVIDER_VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn provider_with(change: Value) -> Value {
        let mut provider = json!({
            "name": "login", "matchImages": ["*.example.com"], "defaultCacheDuration": "12h",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1"
        });
        provider.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        provider
    }

    fn read(list: &[Value]) -> Result<Vec<CredentialProvider>, String> {
        let document =
            json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": list});
        providers(&document, &mut Vec::new()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn providers_have_arguments_and_environment() {
        let attributes = json!({
            "serviceAccountTokenAudience": "x", "cacheType": "Token", "requireServiceAccount": true,
            "requiredServiceAccountAnnotationKeys": ["a"]
        });
        let all = provider_with(json!({
            "args": ["get", "--all"], "env": [{"name": "REGION", "value": "eu"}], "tokenAttributes": attributes
        }));
        let expected = CredentialProvider {
            name: "login".to_owned(),
            match_images: vec!["*.example.com".to_owned()],
            default_cache_duration: Duration::from_secs(12 * 3600),
            api_version: NEWEST_PROVIDER_VERSION.to_owned(),
            args: vec!["get".to_owned(), "--all".to_owned()],
            env: vec![("REGION".to_owned(), "eu".to_owned())],
            token: Some(TokenAttributes {
                audience: "x".to_owned(),
                cache: TokenCacheType::Token,
                is_required: true,
                required_annotations: vec!["a".to_owned()],
                optional_annotations: Vec::new(),
            }),
        };
        assert_eq!(read(&[all]), Ok(vec![expected]));
    }

    #[test]
    fn errors_name_the_path() {
        let name = "providers[0].name: expected the name of a file, without a slash and a blank, found";
        for (change, problem) in [
            (json!({"name": ""}), format!("{name} \"\"")),
            (json!({"name": "../a"}), format!("{name} \"../a\"")),
            (json!({"name": ".."}), format!("{name} \"..\"")),
            (json!({"matchImages": []}), "providers[0].matchImages: required: at least one".to_owned()),
            (json!({"matchImages": "*"}), "providers[0].matchImages: expected a list, found \"*\"".to_owned()),
            (
                json!({"defaultCacheDuration": null}),
                "providers[0].defaultCacheDuration: required: a duration such as 10m".to_owned(),
            ),
            (
                json!({"defaultCacheDuration": "-1s"}),
                "providers[0].defaultCacheDuration: expected a duration such as 1m30s, found \"-1s\"".to_owned(),
            ),
            (
                json!({"apiVersion": ""}),
                "providers[0].apiVersion: required: one of credentialprovider.kubelet.k8s.io/v1, \
                 credentialprovider.kubelet.k8s.io/v1beta1, credentialprovider.kubelet.k8s.io/v1alpha1"
                    .to_owned(),
            ),
            (
                json!({"matchImage": []}),
                "providers[0].matchImage: unknown field (did you mean matchImages?)".to_owned(),
            ),
            (
                json!({"tokenAttributes": {}}),
                "providers[0].tokenAttributes: serviceAccountTokenAudience is required".to_owned(),
            ),
        ] {
            assert_eq!(read(&[provider_with(change.clone())]), Err(problem), "{change}");
        }
        assert_eq!(read(&[]), Err("providers: required: at least one".to_owned()));
        let twice = [provider_with(json!({})), provider_with(json!({}))];
        assert_eq!(read(&twice), Err("providers[1].name: there is another provider login".to_owned()));
    }
}
