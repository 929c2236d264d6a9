//! `/pods` and `/runningpods/`: JSON lists of pods, encoded one pod at a time to limit memory.

use serde_json::Value;

use crate::control::server::http::Response;
use crate::control::server::local_api::LocalApi;

pub(super) fn is_list(path: &str) -> bool {
    matches!(path, "/pods" | "/pods/" | "/runningpods" | "/runningpods/")
}

/// The pods that the node is to run, with their statuses.
pub(super) fn pods(api: &dyn LocalApi) -> Response {
    let mut list = List::new();
    api.pods(&mut |entry| {
        // A pod without a source is ending and no longer wanted.
        if !entry.source.is_empty() && !entry.is_stopped {
            list.push(&entry.pod);
        }
    });
    list.end()
}

/// The pods that the runtime has, wanted or not.
pub(super) fn running(api: &dyn LocalApi) -> Response {
    let mut list = List::new();
    api.running_pods(&mut |pod| list.push(&pod));
    list.end()
}

struct List(Vec<u8>);

impl List {
    fn new() -> Self {
        Self(br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_vec())
    }

    fn push(&mut self, pod: &Value) {
        if self.0.last() != Some(&b'[') {
            self.0.push(b',');
        }
        self.0.extend_from_slice(pod.to_string().as_bytes());
    }

    fn end(mut self) -> Response {
        self.0.extend_from_slice(b"]}");
        Response::json(self.0)
    }
}
