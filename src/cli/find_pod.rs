//! The pod that a command is about.

use std::path::Path;

use serde::Deserialize;

use super::ask::ask;
use super::pod_name::PodName;
use crate::api::{Pod, decode};
use crate::error::ErrorChain;
use crate::server::PodEntry;

/// The answer of `/pods`.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) pods: Vec<PodEntry>,
}

/// The one pod of this name, and where it comes from; else one line about why not.
pub(super) fn find_pod(socket: &Path, name: &str, namespace: Option<&str>) -> Result<(Pod, String), String> {
    let answer = ask::<Answer>(socket, "/pods").map_err(|error| ErrorChain(&error).to_string())?;
    // They were written by the same binary.
    let read = answer.pods.into_iter().filter_map(|entry| Some((decode::<Pod>(entry.pod).ok()?.value, entry.source)));
    choose(read.collect(), name, namespace)
}

/// The name that a pod's manifest has; that of a pod of the cluster is its own.
pub(super) fn name_in_manifest(pod: &Pod) -> &str {
    let name = &pod.metadata.name;
    let own = name.strip_suffix(&pod.spec.node_name.to_lowercase()).and_then(|name| name.strip_suffix('-'));
    own.filter(|_| pod.is_static()).unwrap_or(name)
}

fn choose(pods: Vec<(Pod, String)>, name: &str, namespace: Option<&str>) -> Result<(Pod, String), String> {
    let wanted = PodName::new(name, namespace);
    let is_it = |pod: &Pod| wanted.is(&pod.metadata.namespace, &pod.metadata.name, &pod.spec.node_name);
    let mut found: Vec<(Pod, String)> = pods.into_iter().filter(|(pod, _)| is_it(pod)).collect();
    let mut namespaces: Vec<&str> = found.iter().map(|(pod, _)| pod.metadata.namespace.as_str()).collect();
    namespaces.dedup();
    if namespaces.len() > 1 {
        let namespaces = namespaces.join(", ");
        return Err(format!("there is a pod {name} in several namespaces: {namespaces}; say which with -n"));
    }
    // One that ends may have a namesake that waits for it: what runs is shown.
    found.sort_by_key(|(pod, _)| pod.status.container_statuses.is_empty());
    found.into_iter().next().ok_or_else(|| format!("there is no pod {name}; coracle pods shows those that there are"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str) -> (Pod, String) {
        let mut pod = Pod::default();
        pod.metadata.namespace = namespace.to_owned();
        pod.metadata.name = name.to_owned();
        pod.spec.node_name = "n1".to_owned();
        (pod, String::new())
    }

    #[test]
    fn a_name_that_is_in_several_namespaces_needs_one() {
        let pods = || vec![pod("a", "web-n1"), pod("b", "web-n1"), pod("b", "db-n1")];
        let name = |name: &str, namespace| {
            choose(pods(), name, namespace).map(|(pod, _)| format!("{}/{}", pod.metadata.namespace, pod.metadata.name))
        };
        assert_eq!(name("db", None).as_deref(), Ok("b/db-n1"));
        assert_eq!(name("b/web", None).as_deref(), Ok("b/web-n1"));
        assert_eq!(name("web", Some("a")).as_deref(), Ok("a/web-n1"));
        let several = "there is a pod web in several namespaces: a, b; say which with -n";
        assert_eq!(name("web", None), Err(several.to_owned()));
        let none = "there is no pod x; coracle pods shows those that there are";
        assert_eq!(name("x", None), Err(none.to_owned()));
    }
}
