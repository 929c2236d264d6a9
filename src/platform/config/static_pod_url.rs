//! Settings of static pods from a URL. Pure.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::check::{Problem, conflict};
use super::fields::Fields;
use super::flag_values::FlagValues;
use crate::types::text::without_credentials;

/// A URL with manifests, and how to authenticate them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodUrl {
    /// An http or https URL with a host.
    pub(crate) url: String,
    /// Names and values in the order sent.
    pub(crate) headers: Vec<(String, String)>,
    /// The polling interval.
    pub(crate) every: Duration,
    /// The CAs that the server's certificate must come from; `None`: the system's.
    pub(crate) authorities: Option<PathBuf>,
    /// The key that must have signed every manifest; `None`: no signature needed.
    pub(crate) public_key: Option<PathBuf>,
    /// Signatures without audience and serial number are accepted, too.
    pub(crate) plain_signatures: bool,
}

const URL: &str = "staticPodURL";
const STATIC_POD_URL_HEADER_FIELD: &str = "staticPodURLHeader";
/// Upstream's default of `httpCheckFrequency`.
const DEFAULT_URL_CHECK_INTERVAL: Duration = Duration::from_secs(20);

pub(super) fn read(fields: &Fields<'_>, flags: &FlagValues) -> Result<Option<PodUrl>, Problem> {
    let Some(url) = fields.text(URL) else {
        let alone = [
            ("--manifest-url-ca-file", &flags.manifest_url_ca_file),
            ("--manifest-public-key", &flags.manifest_public_key),
        ];
        // An empty URL disables one from another source, together with its other settings.
        let is_taken_away = fields.at(URL).is_some();
        return match alone.iter().find(|(_, path)| path.is_some() && !is_taken_away) {
            Some((flag, _)) => Err(conflict(flag, format!("requires {URL} or --manifest-url"))),
            None => Ok(None),
        };
    };
    let lower = url.to_ascii_lowercase();
    let is_in_registry = lower.starts_with("oci://");
    let schemes = ["https://", "http://", "oci://"];
    let rest = schemes.iter().find_map(|scheme| lower.strip_prefix(scheme));
    let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
    if host.is_empty() || host.contains('@') {
        let shown = without_credentials(url);
        let fault = format!(
            "expected http://HOST/PATH, https://HOST/PATH or oci://REGISTRY/NAME:TAG, without a user, found {shown:?}"
        );
        return Err(conflict(URL, fault));
    }
    let mut headers = Vec::new();
    for (name, values) in fields.at(STATIC_POD_URL_HEADER_FIELD).and_then(Value::as_object).into_iter().flatten() {
        let values = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        headers.extend(values.map(|value| (name.clone(), value.to_owned())));
    }
    if is_in_registry && (!headers.is_empty() || flags.manifest_url_ca_file.is_some()) {
        let fault = "headers and --manifest-url-ca-file are for http and https: for oci use hosts.toml";
        return Err(conflict(URL, fault.to_owned()));
    }
    if let Some((name, _)) = headers.iter().find(|(name, value)| !is_header(name, value)) {
        return Err(conflict(
            &format!("{STATIC_POD_URL_HEADER_FIELD}.{name}"),
            "expected the name and the value of a header".to_owned(),
        ));
    }
    let mut every = DEFAULT_URL_CHECK_INTERVAL;
    fields.replace("httpCheckFrequency", Fields::period, &mut every);
    Ok(Some(PodUrl {
        url: url.to_owned(),
        headers,
        every: every.max(MIN_URL_POLL_INTERVAL),
        authorities: flags.manifest_url_ca_file.clone(),
        public_key: flags.manifest_public_key.clone(),
        plain_signatures: flags.manifest_plain_signatures,
    }))
}

/// The minimum polling interval.
const MIN_URL_POLL_INTERVAL: Duration = Duration::from_secs(1);

fn is_header(name: &str, value: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token) && !value.chars().any(char::is_control)
}

/// Adds the headers of `--manifest-url-header`: `name:value`, separated by commas.
pub(super) fn add_headers(fields: &mut Map<String, Value>, text: &str) -> Result<(), String> {
    let headers = fields.entry(STATIC_POD_URL_HEADER_FIELD).or_insert_with(|| json!({}));
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let Some((name, value)) = part.split_once(':') else {
            return Err(format!("expected NAME:VALUE,..., found {part:?}"));
        };
        if let Some(headers) = headers.as_object_mut() {
            let values = headers.entry(name.trim()).or_insert_with(|| json!([]));
            if let Some(values) = values.as_array_mut() {
                values.push(Value::from(value.trim()));
            }
        }
    }
    Ok(())
}
