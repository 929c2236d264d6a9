//! `/healthz` and its checks, with upstream's output (k8s.io/apiserver/pkg/server/healthz). Pure.

use crate::control::server::http::{Response, Status};
use crate::protocol::http1::Request;

/// A check: its name, and why it fails.
pub(super) type Check = (&'static str, Option<&'static str>);

/// The checks of a kubelet. `ping` always passes, and so does `log`.
pub(super) const fn checks(is_stalled: bool) -> [Check; 3] {
    let moves = if is_stalled { Some("sync Loop took longer than expected") } else { None };
    [("ping", None), ("log", None), ("syncloop", moves)]
}

/// The response to a path of `/healthz`; `None` for any other path.
pub(super) fn respond(request: &Request, checks: &[Check]) -> Option<Response> {
    let rest = request.path.strip_prefix("/healthz")?;
    if rest.is_empty() || rest == "/" {
        return Some(all_checks(request, checks));
    }
    let (_, fault) = checks.iter().find(|(name, _)| rest.strip_prefix('/') == Some(name))?;
    Some(match fault {
        None => Response::text(Status::Ok, "ok"),
        Some(fault) => Response::text(Status::InternalServerError, format!("internal server error: {fault}\n")),
    })
}

fn all_checks(request: &Request, checks: &[Check]) -> Response {
    let excluded: Vec<String> = request.query_values("exclude");
    let mut lines = String::new();
    let mut failed = false;
    for (name, fault) in checks {
        let line = match fault {
            _ if excluded.iter().any(|excluded| excluded == name) => format!("[+]{name} excluded: ok\n"),
            None => format!("[+]{name} ok\n"),
            Some(_) => {
                failed = true;
                format!("[-]{name} failed: reason withheld\n")
            }
        };
        lines.push_str(&line);
    }
    let unknown = excluded.iter().filter(|name| !checks.iter().any(|(check, _)| check == name));
    let unknown: Vec<String> = unknown.map(|name| format!("{name:?}")).collect();
    if !unknown.is_empty() {
        let names = unknown.join(", ");
        lines.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    match (failed, request.query_value("verbose")) {
        (true, _) => Response::text(Status::InternalServerError, lines + "healthz check failed\n"),
        (false, None) => Response::text(Status::Ok, "ok"),
        (false, Some(_)) => Response::text(Status::Ok, lines + "healthz check passed\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(target: &str, is_stalled: bool, status: Status, text: &str) {
        let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let (request, _) = Request::take(head.as_bytes()).unwrap().unwrap();
        let expected = Response::text(status, text);
        assert_eq!(respond(&request, &checks(is_stalled)), Some(expected), "{target}");
    }

    #[test]
    fn healthy_kubelet_reports_ok() {
        for target in ["/healthz", "/healthz/", "/healthz/ping", "/healthz/log", "/healthz/syncloop"] {
            check(target, false, Status::Ok, "ok");
        }
        let lines = "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n";
        check("/healthz?verbose", false, Status::Ok, lines);
        let lines = "[+]ping excluded: ok\n[+]log ok\n[+]syncloop ok\n\
                     warn: some health checks cannot be excluded: no matches for \"x\"\nhealthz check passed\n";
        check("/healthz?verbose=true&exclude=ping&exclude=x", false, Status::Ok, lines);
    }

    #[test]
    fn stalled_sync_loop_fails_the_check() {
        let lines = "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n";
        check("/healthz", true, Status::InternalServerError, lines);
        let text = "internal server error: sync Loop took longer than expected\n";
        check("/healthz/syncloop", true, Status::InternalServerError, text);
        check("/healthz/ping", true, Status::Ok, "ok");
        check("/healthz?exclude=syncloop", true, Status::Ok, "ok");
    }

    #[test]
    fn other_paths_are_no_checks() {
        for target in ["/healthzx", "/healthz/x", "/healthz/ping/x", "/"] {
            let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            let (request, _) = Request::take(head.as_bytes()).unwrap().unwrap();
            assert_eq!(respond(&request, &checks(false)), None, "{target}");
        }
    }
}
