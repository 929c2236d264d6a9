//! `/pods` and `/runningpods/`: lists of pods as JSON, one pod at a time so that the whole is held only once.

use serde_json::Value;

use crate::control::server::http::Response;
use crate::control::server::local_api::LocalApi;

/// The pods that the node is to run, with what has become of them.
pub(super) fn pods(api: &dyn LocalApi) -> Response {
    let mut list = List::new();
    api.pods(&mut |entry| {
        // Without a source it is on its way out, and nobody's any more.
        if !entry.source.is_empty() {
            list.push(&entry.pod);
        }
    });
    list.end()
}

/// The pods that the runtime has, whoever wants them.
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
