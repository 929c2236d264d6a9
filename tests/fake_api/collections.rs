//! LIST and the start of WATCH: which objects and versions of a collection they return.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::api_error::ApiError;
use super::resources::{Key, Target};
use super::selectors::Selector;
use super::store::{Change, Object};
use super::verbs::shown;
use super::world::{World, text};

/// The query of a LIST or a WATCH.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListOptions {
    pub selector: Selector,
    pub watch: bool,
    pub bookmarks: bool,
    pub timeout: Option<u64>,
    pub initial_events: bool,
    limit: usize,
    next: Option<String>,
    version: Option<u64>,
    exact: bool,
}

impl ListOptions {
    pub(crate) fn parse(query: &[(String, String)]) -> Result<Self, ApiError> {
        let parameter = |name: &str| query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let flag = |name: &str| parameter(name).is_some_and(|value| ["true", "1", ""].contains(&value));
        let number = |name: &str| {
            let parse = |text: &str| {
                text.parse::<u64>().map_err(|_| {
                    let why = format!("Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
                    ApiError::bad_request(format!("invalid resource version: {name}: {why}"))
                })
            };
            parameter(name).filter(|text| !text.is_empty()).map(parse).transpose()
        };
        let text = |name: &str| parameter(name).unwrap_or_default();
        let selector = Selector::parse(text("fieldSelector"), text("labelSelector"))?;
        let version = number("resourceVersion")?;
        let options = Self {
            selector,
            watch: flag("watch"),
            bookmarks: flag("allowWatchBookmarks"),
            timeout: number("timeoutSeconds")?,
            initial_events: flag("sendInitialEvents"),
            limit: usize::try_from(number("limit")?.unwrap_or_default()).unwrap_or_default(),
            next: parameter("continue").filter(|text| !text.is_empty()).map(str::to_owned),
            version,
            exact: parameter("resourceVersionMatch") == Some("Exact"),
        };
        let forbidden = |field: &str, why: &str| {
            let why = format!("Forbidden: {why}");
            Err(ApiError::invalid_kind("meta.k8s.io", "ListOptions", field, "FieldValueForbidden", &why))
        };
        let matching = parameter("resourceVersionMatch").unwrap_or_default();
        match (options.watch, parameter("sendInitialEvents"), matching) {
            (false, Some(_), _) => forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"),
            (true, Some(_), found) if found != "NotOlderThan" => forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            (true, None, found) if !found.is_empty() => forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ),
            (false, _, found) if !found.is_empty() && version.is_none() => forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (false, _, "Exact") if version == Some(0) => forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
            _ => Ok(options),
        }
    }
}

/// The position in a paginated list.
struct Continue {
    /// `None`: the current version at that time.
    version: Option<u64>,
    after: String,
}

impl Continue {
    fn parse(token: &str) -> Result<Self, ApiError> {
        let bad =
            || ApiError::bad_request("invalid continue token: continue key is not valid: illegal base64 data or JSON");
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| bad())?;
        let fields: Value = serde_json::from_slice(&bytes).map_err(|_| bad())?;
        let version = fields["rv"].as_i64().ok_or_else(bad)?;
        Ok(Self { version: u64::try_from(version).ok(), after: text(&fields, "/start").to_owned() })
    }

    fn token(&self) -> String {
        let version = self.version.map_or(json!(-1), |version| json!(version));
        let fields = json!({ "v": "meta.k8s.io/v1", "rv": version, "start": self.after });
        URL_SAFE_NO_PAD.encode(fields.to_string())
    }
}

fn place(key: &Key) -> String {
    format!("{}/{}", key.namespace, key.name)
}

impl World {
    pub(crate) fn list_objects(&self, target: &Target, options: &ListOptions) -> Result<Value, ApiError> {
        let from = options.next.as_deref().map(Continue::parse).transpose()?;
        let (version, objects) = self.list_version(target, options, from.as_ref())?;
        let after = from.map(|from| from.after).unwrap_or_default();
        let mut found = objects
            .into_iter()
            .filter(|(key, object)| (after.is_empty() || place(key) > after) && options.selector.matches(object));
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let page: Vec<(Key, Object)> = found.by_ref().take(limit).collect();
        let left = found.count();
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if let Some((key, _)) = page.last().filter(|_| left > 0) {
            metadata["continue"] = json!(Continue { version: Some(version), after: place(key) }.token());
            if options.selector.is_everything() {
                metadata["remainingItemCount"] = json!(left);
            }
        }
        let items = page.iter().map(|(_, object)| {
            let mut item = shown(target, object);
            if let Value::Object(fields) = &mut item {
                // The kind of a list implies that of its items.
                fields.remove("kind");
                fields.remove("apiVersion");
            }
            item
        });
        Ok(json!({
            "kind": format!("{}List", target.resource.kind),
            "apiVersion": target.api_version(),
            "metadata": metadata,
            "items": items.collect::<Vec<_>>(),
        }))
    }

    /// The version of a list, and the objects at that version.
    fn list_version(
        &self,
        target: &Target,
        options: &ListOptions,
        from: Option<&Continue>,
    ) -> Result<(u64, Vec<(Key, Object)>), ApiError> {
        let now = self.store.version();
        if let Some(from) = from {
            let version = from.version.unwrap_or(now);
            return match self.store.list_at(target, version) {
                Ok(objects) => Ok((version, objects)),
                Err(_) => Err(continue_is_too_old(from)),
            };
        }
        let wanted = options.version.unwrap_or_default();
        if wanted > now {
            return Err(ApiError::version_too_large(wanted, now));
        }
        let version = if options.exact && wanted > 0 { wanted } else { now };
        let objects = self.store.list_at(target, version);
        let too_old = |_| ApiError::expired("The resourceVersion for the provided list is too old.");
        Ok((version, objects.map_err(too_old)?))
    }

    /// The initial events of a watch, and the version from which it continues.
    pub(crate) fn begin_watch(&self, target: &Target, options: &ListOptions) -> Result<(Vec<Value>, u64), ApiError> {
        let now = self.store.version();
        let from = options.version.unwrap_or_default();
        if options.initial_events && from > now {
            return Err(ApiError::version_too_large(from, now));
        }
        if from == 0 || options.initial_events {
            let found = self.store.list(target).filter(|(_, object)| options.selector.matches(object));
            let mut events: Vec<Value> =
                found.map(|(_, object)| json!({ "type": "ADDED", "object": shown(target, object) })).collect();
            if options.initial_events && options.bookmarks {
                events.push(bookmark(target, now, true));
            }
            return Ok((events, now));
        }
        match self.store.since(from) {
            // A newer version than this server's: the watch has no events until the server reaches it.
            Ok(_) => Ok((Vec::new(), from)),
            Err(compacted) => {
                let why = format!("too old resource version: {from} ({})", compacted.oldest);
                let status = ApiError::expired(why).status();
                Ok((vec![json!({ "type": "ERROR", "object": status })], now))
            }
        }
    }
}

fn continue_is_too_old(from: &Continue) -> ApiError {
    let mut error = ApiError::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    error.next = Some(Continue { version: None, after: from.after.clone() }.token());
    error
}

/// A bookmark event, which only carries a version.
pub(crate) fn bookmark(target: &Target, version: u64, ends_initial_events: bool) -> Value {
    let mut object = json!({
        "kind": target.resource.kind,
        "apiVersion": target.api_version(),
        "metadata": { "resourceVersion": version.to_string() },
    });
    if ends_initial_events {
        object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    // Required fields of the type.
    match target.resource.kind {
        "Pod" => (object["spec"], object["status"]) = (json!({ "containers": null }), json!({})),
        "Node" => {
            object["spec"] = json!({});
            object["status"] = json!({
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 0 } },
                "nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "",
                    "osImage": "", "systemUUID": ""
                },
            });
        }
        "CertificateSigningRequest" => {
            (object["spec"], object["status"]) = (json!({ "request": null, "signerName": "" }), json!({}));
        }
        "Lease" => object["spec"] = json!({}),
        "RuntimeClass" => object["handler"] = json!(""),
        "Service" => (object["spec"], object["status"]) = (json!({}), json!({ "loadBalancer": {} })),
        _ => {}
    }
    json!({ "type": "BOOKMARK", "object": object })
}

/// The watch event for a change, if the selector matches the object before or after it.
pub(crate) fn event(target: &Target, selector: &Selector, change: &Change) -> Option<Value> {
    if !target.covers(&change.key) {
        return None;
    }
    let seen = |object: &Option<Object>| object.clone().filter(|object| selector.matches(object));
    let (kind, object) = match (seen(&change.before), seen(&change.after)) {
        (None, Some(after)) => ("ADDED", shown(target, &after)),
        (Some(_), Some(after)) => ("MODIFIED", shown(target, &after)),
        (Some(before), None) => {
            let mut last = shown(target, &before);
            last["metadata"]["resourceVersion"] = json!(change.version.to_string());
            ("DELETED", last)
        }
        (None, None) => return None,
    };
    Some(json!({ "type": kind, "object": object }))
}
