//! The node's own pods that a user has stopped. Pure.

use serde_json::{Map, Value};

use crate::types::api::{Pod, Time};
use crate::types::sorted::SortedMap;

/// The stopped pods by full name, each with the time when it was stopped. They do not run until a user starts them, also
/// after a reboot. Pods of the cluster are never among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoppedPods(SortedMap<String, Time>);

impl StoppedPods {
    /// `None` if this is not what [`Self::to_json`] returns.
    pub(crate) fn from_json(text: &[u8]) -> Option<Self> {
        let pods: Map<String, Value> = serde_json::from_slice(text).ok()?;
        let pods =
            pods.into_iter().map(|(pod, since)| Some((pod, Time::from_timestamp(since.as_str()?.parse().ok()?))));
        Some(Self(pods.collect::<Option<_>>()?))
    }

    pub(crate) fn to_json(&self) -> String {
        let pods = self.0.iter().map(|(pod, since)| (pod.clone(), Value::String(since.to_string())));
        Value::Object(pods.collect()).to_string()
    }

    /// Since when the pod is stopped; `None` if it is not.
    pub(crate) fn since(&self, pod: &Pod) -> Option<Time> {
        if pod.is_of_cluster() { None } else { self.0.get(&pod.full_name()).copied() }
    }

    /// A pod that is stopped already keeps its time.
    pub(crate) fn stop(&mut self, full_name: &str, now: Time) {
        if !self.0.contains_key(full_name) {
            self.0.insert(full_name.to_owned(), now);
        }
    }

    pub(crate) fn start(&mut self, full_name: &str) {
        self.0.remove(full_name);
    }

    pub(crate) fn full_names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_pods_round_trip_and_keep_their_first_time() {
        let mut stopped = StoppedPods::default();
        stopped.stop("web-n_default", Time::from_unix_seconds(100));
        stopped.stop("web-n_default", Time::from_unix_seconds(200));
        let text = stopped.to_json();
        assert_eq!(text, r#"{"web-n_default":"1970-01-01T00:01:40Z"}"#);
        assert_eq!(StoppedPods::from_json(text.as_bytes()), Some(stopped.clone()));
        stopped.start("web-n_default");
        assert_eq!(stopped, StoppedPods::default());
        for wrong in ["", "[]", r#"{"a":1}"#, r#"{"a":"soon"}"#] {
            assert_eq!(StoppedPods::from_json(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
