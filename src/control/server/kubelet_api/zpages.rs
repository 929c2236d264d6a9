//! `/statusz` and `/flagz`: what this process is and which flags it has, as text or as objects. Pure.
//!
//! As k8s.io/apiserver/pkg/server/{statusz,flagz}. Objects are given to clients that ask for their version.

use serde_json::{Value, json};

use crate::control::server::http::{Response, Status};
use crate::protocol::http1::Request;
use crate::types::api::Time;
use crate::types::sorted::SortOnce;

/// The process, for `/statusz`.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) started: Time,
    pub(super) uptime_seconds: u64,
    /// The version of Kubernetes.
    pub(super) version: &'static str,
}

/// The first folders of all paths.
const PATHS: [&str; 16] = [
    "/attach",
    "/checkpoint",
    "/configz",
    "/containerLogs",
    "/debug",
    "/exec",
    "/flagz",
    "/healthz",
    "/logs",
    "/metrics",
    "/pods",
    "/portForward",
    "/run",
    "/runningpods",
    "/stats",
    "/statusz",
];

const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
    guarantees and is for debugging purposes only.";
const GROUP: &str = "config.k8s.io";
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

pub(super) fn statusz(request: &Request, process: &Process) -> Response {
    let Process { started, uptime_seconds: up, version } = process;
    match requested_format(request, "Statusz") {
        RequestedFormat::Text => {
            let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
            let text = format!(
                "\nkubelet statusz\n{WARNING}\n\nStarted: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\n\
                 Go version: none\nBinary version: {version}\n\nPaths: {}\n",
                PATHS.join(" ")
            );
            Response::text(Status::Ok, text)
        }
        RequestedFormat::Object(api) => object(
            "Statusz",
            api,
            json!({"startTime": started.to_string(), "uptimeSeconds": up, "goVersion": "none",
                "binaryVersion": version, "paths": PATHS}),
        ),
        RequestedFormat::Other => not_acceptable(),
    }
}

/// `flags`: those of the command line.
pub(super) fn flagz(request: &Request, flags: &[(String, String)]) -> Response {
    match requested_format(request, "Flagz") {
        RequestedFormat::Text => {
            let mut flags: Vec<String> = flags.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
            flags.sort_once();
            Response::text(Status::Ok, format!("\nkubelet flagz\n{WARNING}\n{}", flags.concat()))
        }
        RequestedFormat::Object(api) => {
            let flags: serde_json::Map<String, Value> =
                flags.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect();
            object("Flagz", api, json!({"flags": flags}))
        }
        RequestedFormat::Other => not_acceptable(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestedFormat {
    Text,
    /// In this version.
    Object(&'static str),
    Other,
}

/// From `Accept`: `application/json;as=Statusz;v=v1beta1;g=config.k8s.io`.
fn requested_format(request: &Request, kind: &str) -> RequestedFormat {
    let accept = request.header("accept").unwrap_or_default();
    if accept.trim().is_empty() {
        return RequestedFormat::Text;
    }
    let choices = accept.split(',').map(|choice| {
        let mut parts = choice.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        let has = |name: &str, value: &str| {
            parameters.iter().any(|parameter| {
                parameter.split_once('=').is_some_and(|(key, parameter_value)| (key, parameter_value) == (name, value))
            })
        };
        match media {
            "application/json" if has("as", kind) && has("g", GROUP) => VERSIONS
                .into_iter()
                .find(|version| has("v", version))
                .map_or(RequestedFormat::Other, RequestedFormat::Object),
            "text/plain" | "text/*" | "*/*" => RequestedFormat::Text,
            _ => RequestedFormat::Other,
        }
    });
    choices.into_iter().find(|choice| *choice != RequestedFormat::Other).unwrap_or(RequestedFormat::Other)
}

fn object(kind: &str, version: &str, fields: Value) -> Response {
    let mut object = json!({"kind": kind, "apiVersion": format!("{GROUP}/{version}"), "metadata": {"name": "kubelet"}});
    if let (Some(object), Value::Object(mut fields)) = (object.as_object_mut(), fields) {
        object.append(&mut fields);
    }
    Response::json(object.to_string().into_bytes())
}

fn not_acceptable() -> Response {
    let text = "only the following media types are accepted: text/plain, and application/json with as, v and g\n";
    Response::text(Status::NotAcceptable, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(accept: &str) -> Request {
        let accept = if accept.is_empty() { String::new() } else { format!("Accept: {accept}\r\n") };
        let head = format!("GET /statusz HTTP/1.1\r\nHost: a\r\n{accept}\r\n");
        Request::take(head.as_bytes()).unwrap().unwrap().0
    }

    fn process() -> Process {
        Process { started: Time::from_unix_nanos(0), uptime_seconds: 3_725, version: "1.36.2" }
    }

    fn text(response: Response) -> String {
        String::from_utf8(response.body).unwrap()
    }

    #[test]
    fn statusz_tells_start_version_and_paths() {
        for accept in ["", "text/plain", "*/*", "text/html, */*;q=0.8"] {
            let text = text(statusz(&request(accept), &process()));
            assert!(text.starts_with("\nkubelet statusz\nWarning: "), "{text}");
            assert!(
                text.contains("\nUp: 1 hr 02 min 05 sec\n") && text.contains("\nBinary version: 1.36.2\n"),
                "{text}"
            );
            assert!(text.contains(" /healthz /logs /metrics /pods "), "{text}");
        }
    }

    #[test]
    fn object_is_given_in_the_version_asked_for() {
        let accept = |version: &str| format!("application/json;as=Statusz;v={version};g=config.k8s.io");
        for version in VERSIONS {
            let shown: Value = serde_json::from_slice(&statusz(&request(&accept(version)), &process()).body).unwrap();
            assert_eq!(shown["apiVersion"], format!("config.k8s.io/{version}"));
            assert_eq!((&shown["kind"], &shown["uptimeSeconds"]), (&json!("Statusz"), &json!(3725)));
        }
        for accept in ["application/json", &accept("v1"), "application/json;as=Flagz;v=v1beta1;g=config.k8s.io"] {
            assert_eq!(statusz(&request(accept), &process()).status, Status::NotAcceptable, "{accept}");
        }
    }

    #[test]
    fn flagz_lists_the_flags_in_order() {
        let flags = [("v", "4"), ("config", "/etc/c.yaml")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert!(text(flagz(&request(""), &flags)).ends_with("only.\nconfig: /etc/c.yaml\nv: 4\n"));
        let accept = "application/json;as=Flagz;v=v1beta1;g=config.k8s.io";
        let shown: Value = serde_json::from_slice(&flagz(&request(accept), &flags).body).unwrap();
        assert_eq!(shown["flags"], json!({"v": "4", "config": "/etc/c.yaml"}));
    }
}
