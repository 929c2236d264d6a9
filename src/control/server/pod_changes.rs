//! Requests that put, delete and change pods on this node, over the local socket or the kubelet API. Pure.
//!
//! ```text
//! PUT    /pods/{namespace}/{name}    a manifest -> 201, 200
//!                                    409: another source has the pod; 422: invalid, with the reason
//! GET    /pods/{namespace}/{name}    the manifest as it was put
//! DELETE /pods/{namespace}/{name}    the pod ends
//!
//! only on the local socket:
//! POST   /pods/{namespace}/{name}/restart?container=NAME
//! POST   /pods/{namespace}/{name}/rerun, stop, start, rollback?to=NUMBER, hold, confirm
//! ```

use serde_json::json;

use super::http::{Response, Status};
use crate::protocol::http1::Request;
use crate::state::pods::{ApplyOutcome, PodAnswer, PodChange, PodChangeKind, StopAction, VersionAction};

/// Longest manifest, about the same as for an API object.
const MAX_POSTED_MANIFEST_BYTES: u64 = 1 << 20;

/// Namespace, name and the rest of the path, if it is the path of a pod.
fn parts(path: &str) -> Option<(&str, &str, &str)> {
    let (namespace, rest) = path.strip_prefix("/pods/")?.split_once('/')?;
    let (name, more) = rest.split_once('/').unwrap_or((rest, ""));
    (!namespace.is_empty() && !name.is_empty()).then_some((namespace, name, more))
}

pub(super) fn is_of_pod(path: &str) -> bool {
    parts(path).is_some()
}

/// The longest body of this request, if it is a manifest.
pub(super) fn body_limit(request: &Request) -> Option<u64> {
    (request.method == "PUT" && is_of_pod(&request.path)).then_some(MAX_POSTED_MANIFEST_BYTES)
}

/// Parses a request about a pod. The error is the response to an invalid one. `None` for any other path.
pub(super) fn change(request: &Request, is_local: bool) -> Option<Result<PodChange, Response>> {
    let (namespace, name, more) = parts(&request.path)?;
    let kind = match (&*request.method, more) {
        ("GET", "") => PodChangeKind::Get,
        ("PUT", "") => PodChangeKind::Put(request.content.clone()),
        ("DELETE", "") => PodChangeKind::Delete,
        ("POST", "restart") if is_local => PodChangeKind::Restart(request.query_value("container")),
        ("POST", "rerun") if is_local => PodChangeKind::Rerun,
        ("POST", "stop") if is_local => PodChangeKind::Stop(StopAction::Stop),
        ("POST", "start") if is_local => PodChangeKind::Stop(StopAction::Start),
        ("POST", "rollback") if is_local => {
            let back = request.query_value("to").map_or(Some(1), |to| to.parse().ok());
            let Some(back) = back else {
                return Some(Err(Response::text(Status::BadRequest, "expected ?to=NUMBER\n")));
            };
            PodChangeKind::Versions(VersionAction::Rollback(back))
        }
        ("POST", "hold") if is_local => PodChangeKind::Versions(VersionAction::Hold),
        ("POST", "confirm") if is_local => PodChangeKind::Versions(VersionAction::Confirm),
        (_, "") => return Some(Err(Response::not_allowed())),
        (_, "restart" | "rerun" | "stop" | "start" | "rollback" | "hold" | "confirm") if is_local => {
            return Some(Err(Response::not_allowed()));
        }
        _ => return Some(Err(Response::not_found())),
    };
    Some(Ok(PodChange { namespace: namespace.to_owned(), name: name.to_owned(), kind }))
}

/// The response to a request. Errors are one line.
pub(super) fn response(outcome: PodAnswer) -> Response {
    let line = |status, line: String| Response::text(status, line + "\n");
    match outcome {
        PodAnswer::Applied { how, warnings } => {
            let status = if how == ApplyOutcome::Created { Status::Created } else { Status::Ok };
            Response { status, ..result(&json!({ "result": how.as_str(), "warnings": warnings })) }
        }
        PodAnswer::Manifest(body) => Response { status: Status::Ok, content_type: "application/yaml", body },
        PodAnswer::Done(done) => result(&json!({ "result": done })),
        PodAnswer::Deleted => result(&json!({ "result": "deleted" })),
        PodAnswer::Restarts(containers) => {
            let body = json!({ "result": "restarting", "containers": containers });
            Response { status: Status::Accepted, ..result(&body) }
        }
        PodAnswer::Refused(why) => line(Status::UnprocessableContent, why),
        PodAnswer::Conflict(why) => line(Status::Conflict, why),
        PodAnswer::Missing(why) => line(Status::NotFound, why),
        PodAnswer::Failed(why) => line(Status::InternalServerError, why),
    }
}

fn result(body: &serde_json::Value) -> Response {
    Response::json(body.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        let text = format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
        Request::take(text.as_bytes()).unwrap().unwrap().0
    }

    #[track_caller]
    fn requested_change(line: &str, is_local: bool) -> Option<Result<PodChange, Status>> {
        change(&request(line), is_local).map(|asked| asked.map_err(|response| response.status))
    }

    fn of(kind: PodChangeKind) -> Option<Result<PodChange, Status>> {
        Some(Ok(PodChange { namespace: "default".to_owned(), name: "web".to_owned(), kind }))
    }

    #[test]
    fn method_and_path_select_the_change() {
        for is_local in [true, false] {
            assert_eq!(requested_change("GET /pods/default/web", is_local), of(PodChangeKind::Get));
            assert_eq!(requested_change("PUT /pods/default/web", is_local), of(PodChangeKind::Put(Vec::new())));
            assert_eq!(requested_change("DELETE /pods/default/web", is_local), of(PodChangeKind::Delete));
            assert_eq!(requested_change("PATCH /pods/default/web", is_local), Some(Err(Status::MethodNotAllowed)));
            assert_eq!(requested_change("GET /pods/default/web/x", is_local), Some(Err(Status::NotFound)));
            for other in ["/pods", "/pods/", "/pods/default", "/pods/default/", "/pods//web", "/podsx/default/web"] {
                assert_eq!(requested_change(&format!("PUT {other}"), is_local), None, "{other}");
            }
        }
    }

    #[test]
    fn containers_can_be_restarted_only_over_the_local_socket() {
        let restart = |container: Option<&str>| of(PodChangeKind::Restart(container.map(str::to_owned)));
        assert_eq!(requested_change("POST /pods/default/web/restart", true), restart(None));
        assert_eq!(requested_change("POST /pods/default/web/restart?container=main", true), restart(Some("main")));
        assert_eq!(requested_change("GET /pods/default/web/restart", true), Some(Err(Status::MethodNotAllowed)));
        assert_eq!(requested_change("POST /pods/default/web/restart", false), Some(Err(Status::NotFound)));
    }

    #[test]
    fn versions_can_be_changed_only_over_the_local_socket() {
        for (line, kind) in [
            ("rollback", VersionAction::Rollback(1)),
            ("rollback?to=2", VersionAction::Rollback(2)),
            ("hold", VersionAction::Hold),
            ("confirm", VersionAction::Confirm),
        ] {
            let line = format!("/pods/default/web/{line}");
            assert_eq!(requested_change(&format!("POST {line}"), true), of(PodChangeKind::Versions(kind)));
            assert_eq!(requested_change(&format!("GET {line}"), true), Some(Err(Status::MethodNotAllowed)));
            assert_eq!(requested_change(&format!("POST {line}"), false), Some(Err(Status::NotFound)));
        }
        assert_eq!(requested_change("POST /pods/default/web/rollback?to=x", true), Some(Err(Status::BadRequest)));
    }

    #[test]
    fn pods_can_be_stopped_only_over_the_local_socket() {
        for (line, kind) in [("stop", StopAction::Stop), ("start", StopAction::Start)] {
            let line = format!("/pods/default/web/{line}");
            assert_eq!(requested_change(&format!("POST {line}"), true), of(PodChangeKind::Stop(kind)));
            assert_eq!(requested_change(&format!("GET {line}"), true), Some(Err(Status::MethodNotAllowed)));
            assert_eq!(requested_change(&format!("POST {line}"), false), Some(Err(Status::NotFound)));
        }
    }

    #[test]
    fn only_put_requests_have_a_body() {
        assert_eq!(body_limit(&request("PUT /pods/default/web")), Some(MAX_POSTED_MANIFEST_BYTES));
        for line in ["PUT /pods", "GET /pods/default/web", "POST /pods/default/web/restart", "PUT /x/default/web"] {
            assert_eq!(body_limit(&request(line)), None, "{line}");
        }
    }

    #[test]
    fn response_tells_the_result_of_the_change() {
        let replied = |outcome| {
            let Response { status, body, .. } = response(outcome);
            (status, String::from_utf8(body).unwrap())
        };
        let put = |how| replied(PodAnswer::Applied { how, warnings: vec!["w".to_owned()] });
        assert_eq!(
            put(ApplyOutcome::Created),
            (Status::Created, r#"{"result":"created","warnings":["w"]}"#.to_owned())
        );
        assert_eq!(put(ApplyOutcome::Unchanged), (Status::Ok, r#"{"result":"unchanged","warnings":["w"]}"#.to_owned()));
        let why = || "why".to_owned();
        assert_eq!(replied(PodAnswer::Refused(why())), (Status::UnprocessableContent, "why\n".to_owned()));
        assert_eq!(replied(PodAnswer::Conflict(why())).0, Status::Conflict);
        assert_eq!(replied(PodAnswer::Missing(why())).0, Status::NotFound);
        assert_eq!(replied(PodAnswer::Failed(why())).0, Status::InternalServerError);
    }
}
