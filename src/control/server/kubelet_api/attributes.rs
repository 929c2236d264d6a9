//! The authorization attributes of a request. Pure.

use crate::control::server::pod_changes::is_of_pod;

/// The attributes of a request: the verb, and subresources of this node's Node object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) verb: &'static str,
    /// Access to any of these subresources is sufficient; the narrowest first.
    pub(super) parts: Vec<&'static str>,
}

impl Attributes {
    /// As upstream (`GetRequestAttributes` in pkg/kubelet/server/auth.go). `path` is unescaped. Putting a pod on the
    /// node, which upstream does not have, requires the same right as running a command in a pod. So does opening a
    /// stream with GET, as WebSocket clients do; upstream asks for `get`.
    pub(super) fn of(method: &str, path: &str) -> Self {
        let under =
            |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let is_stream = ["/exec", "/attach", "/portForward"].into_iter().any(under);
        let verb = match method {
            "GET" if is_stream => "create",
            "POST" => "create",
            "GET" => "get",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "",
        };
        let find =
            |table: &[(&str, &'static str)]| table.iter().find(|(folder, _)| under(folder)).map(|(_, part)| *part);
        let fine =
            find(&[("/pods", "pods"), ("/healthz", "healthz"), ("/configz", "configz"), ("/runningpods", "pods")]);
        let coarse = find(&[
            ("/stats", "stats"),
            ("/metrics", "metrics"),
            ("/logs", "log"),
            ("/checkpoint", "checkpoint"),
            ("/statusz", "statusz"),
            ("/flagz", "configz"),
        ]);
        let fine = fine.filter(|_| !is_of_pod(path));
        Self { verb, parts: fine.into_iter().chain([coarse.unwrap_or("proxy")]).collect() }
    }

    /// Upstream's message.
    pub(super) fn forbidden(&self, user: &str) -> String {
        let parts = self.parts.join(" ");
        format!("Forbidden (user={user}, verb={}, resource=nodes, subresource(s)=[{parts}])", self.verb)
    }

    /// Upstream's message when authorization for `part` failed with an error.
    pub(super) fn undecided(&self, user: &str, part: &str) -> String {
        format!("Authorization error (user={user}, verb={}, resource=nodes, subresource={part})", self.verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_maps_to_subresources_of_the_node() {
        for (path, parts) in [
            ("/", &["proxy"][..]),
            ("/pods", &["pods", "proxy"]),
            ("/pods/", &["pods", "proxy"]),
            ("/pods/default/web", &["proxy"]),
            ("/pods/default", &["pods", "proxy"]),
            ("/podsx", &["proxy"]),
            ("/runningpods/", &["pods", "proxy"]),
            ("/healthz", &["healthz", "proxy"]),
            ("/healthz/syncloop", &["healthz", "proxy"]),
            ("/configz", &["configz", "proxy"]),
            ("/statusz", &["statusz"]),
            ("/flagz", &["configz"]),
            ("/metrics/slis", &["metrics"]),
            ("/debug/pprof/heap", &["proxy"]),
            ("/stats/summary", &["stats"]),
            ("/metrics", &["metrics"]),
            ("/metrics/cadvisor", &["metrics"]),
            ("/logs/", &["log"]),
            ("/checkpoint/a/b/c", &["checkpoint"]),
            ("/exec/a/b/c", &["proxy"]),
            ("/containerLogs/a/b/c", &["proxy"]),
            ("/x/../pods", &["proxy"]),
            ("//pods", &["proxy"]),
        ] {
            assert_eq!(Attributes::of("GET", path).parts, parts, "{path}");
        }
    }

    #[test]
    fn method_maps_to_a_verb() {
        for (method, verb) in [
            ("GET", "get"),
            ("POST", "create"),
            ("PUT", "update"),
            ("PATCH", "patch"),
            ("DELETE", "delete"),
            ("HEAD", ""),
        ] {
            assert_eq!(Attributes::of(method, "/").verb, verb);
        }
    }

    #[test]
    fn stream_opened_with_get_takes_the_right_to_create() {
        for path in ["/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/exec"] {
            assert_eq!(Attributes::of("GET", path).verb, "create", "{path}");
        }
        for path in ["/executable", "/containerLogs/a/b/c", "/pods"] {
            assert_eq!(Attributes::of("GET", path).verb, "get", "{path}");
        }
    }

    #[test]
    fn refusals_read_as_upstreams() {
        let attributes = Attributes::of("GET", "/pods");
        let text = "Forbidden (user=a, verb=get, resource=nodes, subresource(s)=[pods proxy])";
        assert_eq!(attributes.forbidden("a"), text);
        let text = "Authorization error (user=a, verb=get, resource=nodes, subresource=pods)";
        assert_eq!(attributes.undecided("a", "pods"), text);
    }
}
