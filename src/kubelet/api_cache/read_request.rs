//! What a request reads: the key of the answer, and the representations that the client accepts. Pure.

use std::time::Duration;

use super::correction::corrected_version;
use crate::protocol::http1::Request;
use crate::types::sorted::SortOnce;

/// A GET of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadRequest {
    /// The path, and the parts of the query that select objects.
    pub(super) key: String,
    pub(crate) kind: ReadKind,
    /// In the client's order.
    pub(super) accepted: Vec<String>,
    /// Whether the path is that of objects, not of discovery.
    pub(crate) is_of_objects: bool,
    /// Whether the node may know some of the fields better when the server is away.
    pub(crate) is_correctable: bool,
    /// The version of the corrected list that the client has.
    pub(crate) corrected_version: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadKind {
    /// An object, a list or discovery.
    Once,
    Watch {
        version: String,
        /// The watch begins with all objects (`sendInitialEvents`).
        has_initial_events: bool,
        /// `timeoutSeconds`
        limit: Option<Duration>,
    },
}

/// Parameters that change how an answer is sent, not which objects it has.
const NOT_SELECTING: [&str; 9] = [
    "allowWatchBookmarks",
    "limit",
    "pretty",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeout",
    "timeoutSeconds",
    "watch",
];

impl ReadRequest {
    /// `None` if it is not a read, is one page of many, or is made in the name of another user.
    pub(crate) fn of(request: &Request) -> Option<Self> {
        let value = |name: &str| request.query_value(name).unwrap_or_default();
        let is_set = |name: &str| matches!(&*value(name), "1" | "t" | "T" | "true" | "TRUE" | "True");
        if request.method != "GET" || !value("continue").is_empty() || request.header("impersonate-user").is_some() {
            return None;
        }
        let kind = match is_set("watch") {
            false => ReadKind::Once,
            true => ReadKind::Watch {
                version: value("resourceVersion"),
                has_initial_events: is_set("sendInitialEvents"),
                limit: value("timeoutSeconds").parse().ok().map(Duration::from_secs),
            },
        };
        Some(Self {
            key: key(request),
            kind,
            accepted: accepted(request),
            is_of_objects: is_of_objects(&request.path),
            is_correctable: is_correctable(&request.path),
            corrected_version: corrected_version(&value("resourceVersion")),
        })
    }
}

/// The keys of the lists that the object with this key is in: of its namespace, and of all of them.
pub(super) fn list_keys(key: &str) -> Vec<String> {
    let Some((list, _)) = key.strip_suffix('?').and_then(|path| path.rsplit_once('/')) else { return Vec::new() };
    let everywhere = list.split_once("/namespaces/").and_then(|(version, namespaced)| {
        let (_, resource) = namespaced.split_once('/')?;
        Some([version, "/", resource, "?"].concat())
    });
    [Some([list, "?"].concat()), everywhere].into_iter().flatten().collect()
}

fn key(request: &Request) -> String {
    let selects = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        !name.is_empty() && !NOT_SELECTING.contains(&name)
    };
    let mut selecting: Vec<&str> = request.query.split('&').filter(selects).collect();
    selecting.sort_once();
    format!("{}?{}", request.path, selecting.join("&"))
}

fn is_of_objects(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.first() {
        Some(&"api") => parts.len() > 2,
        Some(&"apis") => parts.len() > 3,
        _ => false,
    }
}

fn is_correctable(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match *parts {
        ["api", "v1", "nodes"] | ["api", "v1", "nodes", _] => true,
        ["apis", "discovery.k8s.io", "v1", ..] => parts.contains(&"endpointslices"),
        _ => false,
    }
}

fn accepted(request: &Request) -> Vec<String> {
    let mut accepted: Vec<String> = request.words("accept").filter_map(representation).collect();
    if request.header("accept").is_none() || request.words("accept").any(|word| word.starts_with("*/*")) {
        accepted.push(JSON_NAME.to_owned());
    }
    accepted
}

pub(super) const JSON_NAME: &str = "json";
pub(super) const PROTOBUF_NAME: &str = "protobuf";

/// The name of a media type: `json`, `protobuf`, or `json-APIGroupDiscoveryList` for another form of the objects.
/// `None` if it is not one of the API's.
pub(super) fn representation(media_type: &str) -> Option<String> {
    let mut parts = media_type.split(';').map(str::trim);
    let name = match parts.next()? {
        "application/json" => JSON_NAME,
        "application/vnd.kubernetes.protobuf" => PROTOBUF_NAME,
        _ => return None,
    };
    match parts.find_map(|parameter| parameter.strip_prefix("as=")) {
        Some(form) if form.bytes().all(|byte| byte.is_ascii_alphanumeric()) => Some([name, "-", form].concat()),
        Some(_) => None,
        None => Some(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(target: &str, headers: &str) -> Option<ReadRequest> {
        let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
        ReadRequest::of(&Request::take(text.as_bytes()).unwrap().unwrap().0)
    }

    #[test]
    fn list_and_its_watch_have_one_key() {
        let list = read("/api/v1/services?limit=500&resourceVersion=0&labelSelector=a%3Db", "").unwrap();
        let watch =
            "/api/v1/services?allowWatchBookmarks=true&labelSelector=a%3Db&resourceVersion=7&timeoutSeconds=9&watch=1";
        let watch = read(watch, "").unwrap();
        assert_eq!(
            (&*list.key, &list.key, list.is_of_objects),
            ("/api/v1/services?labelSelector=a%3Db", &watch.key, true)
        );
        let limit = Some(Duration::from_secs(9));
        assert_eq!(watch.kind, ReadKind::Watch { version: "7".to_owned(), has_initial_events: false, limit });
        assert_ne!(list.key, read("/api/v1/services", "").unwrap().key);
    }

    #[test]
    fn object_is_in_the_lists_of_its_namespace_and_of_all() {
        assert_eq!(list_keys("/api/v1/nodes/a?"), ["/api/v1/nodes?"]);
        assert_eq!(list_keys("/api/v1/namespaces/a?"), ["/api/v1/namespaces?"]);
        let pods = ["/api/v1/namespaces/a/pods?", "/api/v1/pods?"];
        assert_eq!(list_keys("/api/v1/namespaces/a/pods/b?"), pods);
        assert_eq!(list_keys("/api/v1/nodes/a?x=y"), [""; 0]);
    }

    #[test]
    fn pages_and_other_users_are_not_read() {
        assert_eq!(read("/api/v1/pods?continue=x", ""), None);
        assert_eq!(read("/api/v1/pods", "Impersonate-User: admin\r\n"), None);
    }

    #[test]
    fn accepted_representations_keep_their_order() {
        let accepted = |header: &str| read("/api", header).unwrap().accepted;
        assert_eq!(accepted("Accept: application/vnd.kubernetes.protobuf,application/json\r\n"), ["protobuf", "json"]);
        let kubectl = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json\r\n";
        assert_eq!(accepted(kubectl), ["json-Table", "json"]);
        assert_eq!((accepted(""), accepted("Accept: */*\r\n")), (vec!["json".to_owned()], vec!["json".to_owned()]));
        assert_eq!(accepted("Accept: text/html\r\n"), Vec::<String>::new());
    }

    #[test]
    fn discovery_has_no_objects() {
        for path in ["/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/version", "/openapi/v3/apis/apps/v1"]
        {
            assert!(!is_of_objects(path), "{path}");
        }
        assert!(is_of_objects("/api/v1/nodes") && is_of_objects("/apis/apps/v1/daemonsets"));
        let slices = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices";
        assert!(is_correctable("/api/v1/nodes/a") && is_correctable(slices));
        for path in ["/api/v1/pods", "/api/v1/nodes/a/status", "/apis/discovery.k8s.io/v1", ""] {
            assert!(!is_correctable(path), "{path}");
        }
    }
}
