//! The names by which pods of a node without a cluster find each other, as lines for `/etc/hosts`. Pure.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::state::objects::ConfigObject;
use crate::types::api::{Pod, PodPhase, PodStatus};
use crate::types::sorted::SortOnce;

/// The names and their addresses.
#[derive(Debug, Default)]
pub(crate) struct HostNames {
    /// Sorted, without duplicates.
    entries: Vec<HostName>,
    /// Counts the changes.
    version: u64,
    cluster_domain: String,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HostName {
    namespace: String,
    name: String,
    address: IpAddr,
    is_service: bool,
}

/// A pod of a manifest, with its status.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedPod<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) status: &'a PodStatus,
}

impl HostNames {
    pub(crate) fn new(cluster_domain: &str) -> Self {
        Self { cluster_domain: cluster_domain.to_owned(), ..Self::default() }
    }

    /// Replaces the names. True if one changed.
    pub(crate) fn replace(&mut self, entries: Vec<HostName>) -> bool {
        let changed = entries != self.entries;
        if changed {
            self.entries = entries;
            self.version = self.version.wrapping_add(1);
        }
        changed
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The lines for a pod of `namespace`: there, a name is also known without its namespace.
    pub(crate) fn lines(&self, namespace: &str) -> String {
        let mut text = String::new();
        for HostName { namespace: of, name, address, is_service } in &self.entries {
            // Writing to a String cannot fail.
            let _ = write!(text, "{address}");
            if of == namespace {
                let _ = write!(text, "\t{name}");
            }
            let _ = write!(text, "\t{name}.{of}");
            if *is_service {
                let _ = write!(text, "\t{name}.{of}.svc");
                if !self.cluster_domain.is_empty() {
                    let _ = write!(text, "\t{name}.{of}.svc.{}", self.cluster_domain);
                }
            }
            text.push('\n');
        }
        text
    }
}

/// The names of `pods` and `services`. A Service leads to its ready pods, to all of its pods if none is ready: on one node
/// there is no better one, and names that come and go would be written to the disk each time. A pod whose subdomain is the
/// Service has the name `HOSTNAME.SERVICE` too, by which members of a StatefulSet know each other. A pod has the name of
/// its manifest, unless a Service has it.
pub(crate) fn host_names<'a>(pods: &[NamedPod<'_>], services: impl Iterator<Item = &'a ConfigObject>) -> Vec<HostName> {
    let mut entries = Vec::new();
    let mut add = |namespace: &str, name: &str, pod: &NamedPod<'_>, is_service: bool| {
        let addresses = pod.status.pod_ips.iter().filter_map(|ip| ip.ip.parse().ok());
        let entry = |address| HostName { namespace: namespace.to_owned(), name: name.to_owned(), address, is_service };
        entries.extend(addresses.map(entry));
    };
    let services: Vec<_> = services.collect();
    let runs = |pod: &&NamedPod<'_>| matches!(pod.status.phase, PodPhase::Pending | PodPhase::Running);
    for service in &services {
        let members = || pods.iter().filter(runs).filter(|pod| service.leads_to(&pod.pod.metadata));
        let publishes_all = service.service.as_ref().is_some_and(|service| service.publish_not_ready_addresses);
        let shows_all = publishes_all || !members().any(|pod| pod.status.is_ready());
        let (namespace, name) = (&service.key.namespace, &service.key.name);
        for pod in members().filter(|pod| shows_all || pod.status.is_ready()) {
            add(namespace, name, pod, true);
            let spec = &pod.pod.spec;
            if spec.subdomain == *name && !spec.hostname.is_empty() {
                add(namespace, &[&*spec.hostname, ".", name].concat(), pod, true);
            }
        }
    }
    for pod in pods.iter().filter(runs) {
        let (namespace, name) = (&pod.pod.metadata.namespace, manifest_name(pod.pod));
        let is_taken = services.iter().any(|service| service.key.namespace == *namespace && service.key.name == name);
        if !is_taken {
            add(namespace, name, pod, false);
        }
    }
    entries.sort_once();
    entries.dedup();
    entries
}

/// The name without the name of the node, which a static pod has at its end.
fn manifest_name(pod: &Pod) -> &str {
    let name = pod.metadata.name.as_str();
    let own = name.strip_suffix(pod.spec.node_name.to_lowercase().as_str());
    own.and_then(|own| own.strip_suffix('-')).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::types::api::{Service, decode};

    fn pod(name: &str, namespace: &str, ip: &str, ready: bool, phase: &str) -> (Pod, PodStatus) {
        let metadata = json!({"name": format!("{name}-node-a"), "namespace": namespace, "labels": {"app": name}});
        let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
        let status = json!({"phase": phase, "conditions": [condition], "podIPs": [{"ip": ip}]});
        let spec = json!({"nodeName": "Node-A", "containers": []});
        let decoded = |value: Value| decode::<Pod>(value).unwrap().value;
        let pod = decoded(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}));
        (pod, decode(status).unwrap().value)
    }

    fn service(name: &str, app: &str) -> ConfigObject {
        let metadata = json!({"name": name, "namespace": "default"});
        let spec = json!({"selector": {"app": app}});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        decode::<Service>(service).unwrap().value.into()
    }

    #[track_caller]
    fn check(pods: &[(Pod, PodStatus)], services: &[ConfigObject], namespace: &str, expected: &str) {
        let pods: Vec<NamedPod<'_>> = pods.iter().map(|(pod, status)| NamedPod { pod, status }).collect();
        let mut names = HostNames::new("");
        names.replace(host_names(&pods, services.iter()));
        assert_eq!(names.lines(namespace), expected);
    }

    #[test]
    fn pod_has_the_name_of_its_manifest() {
        let pods =
            [pod("web", "default", "10.0.0.2", true, "Running"), pod("db", "data", "10.0.0.3", false, "Running")];
        check(&pods, &[], "default", "10.0.0.3\tdb.data\n10.0.0.2\tweb\tweb.default\n");
        check(&pods, &[], "data", "10.0.0.3\tdb\tdb.data\n10.0.0.2\tweb.default\n");
    }

    #[test]
    fn pods_that_have_ended_have_no_name() {
        let pods =
            [pod("a", "default", "10.0.0.2", true, "Succeeded"), pod("b", "default", "10.0.0.3", true, "Failed")];
        check(&pods, &[service("a", "a")], "default", "");
    }

    #[test]
    fn service_leads_to_its_ready_pods_and_to_all_if_none_is_ready() {
        let named = |name: &str, ip: &str, ready: bool| {
            let mut one = pod(name, "default", ip, ready, "Running");
            one.0.metadata.labels.insert("app", "web".to_owned());
            one
        };
        let service = [service("web", "web")];
        let line = |ip: &str| format!("{ip}\tweb\tweb.default\tweb.default.svc\n");
        let pods = |first, second| [named("w1", "10.0.0.2", first), named("w2", "10.0.0.3", second)];
        let own = "10.0.0.2\tw1\tw1.default\n10.0.0.3\tw2\tw2.default\n";
        check(&pods(true, false), &service, "default", &[own, &line("10.0.0.2")].concat());
        check(&pods(false, false), &service, "default", &[own, &line("10.0.0.2"), &line("10.0.0.3")].concat());
    }

    #[test]
    fn pod_whose_subdomain_is_its_service_has_a_name_below_that_of_the_service() {
        let mut pods = [
            pod("db-0", "default", "10.0.0.2", true, "Running"),
            pod("db-1", "default", "10.0.0.3", true, "Running"),
            pod("other", "default", "10.0.0.4", true, "Running"),
        ];
        for ((pod, _), subdomain) in pods.iter_mut().zip(["db", "elsewhere", "db"]) {
            pod.metadata.labels.insert("app", "db".to_owned());
            pod.spec.subdomain = subdomain.to_owned();
        }
        pods[0].0.spec.hostname = "db-0".to_owned();
        pods[1].0.spec.hostname = "db-1".to_owned();
        let expected = "10.0.0.2\tdb\tdb.default\tdb.default.svc\n\
                        10.0.0.3\tdb\tdb.default\tdb.default.svc\n\
                        10.0.0.4\tdb\tdb.default\tdb.default.svc\n\
                        10.0.0.2\tdb-0\tdb-0.default\n\
                        10.0.0.2\tdb-0.db\tdb-0.db.default\tdb-0.db.default.svc\n\
                        10.0.0.3\tdb-1\tdb-1.default\n\
                        10.0.0.4\tother\tother.default\n";
        check(&pods, &[service("db", "db")], "default", expected);
    }

    #[test]
    fn name_of_a_service_is_not_that_of_a_pod_too() {
        let pods =
            [pod("web", "default", "10.0.0.2", true, "Running"), pod("db", "default", "10.0.0.3", true, "Running")];
        let expected = "10.0.0.3\tdb\tdb.default\n10.0.0.3\tweb\tweb.default\tweb.default.svc\n";
        check(&pods, &[service("web", "db")], "default", expected);
    }

    #[test]
    fn change_is_noticed_once() {
        let mut names = HostNames::new("cluster.local");
        let pods = [pod("web", "default", "fd00::2", true, "Running")];
        let pods: Vec<NamedPod<'_>> = pods.iter().map(|(pod, status)| NamedPod { pod, status }).collect();
        let services = [service("s", "web")];
        let of = || host_names(&pods, services.iter());
        assert_eq!((names.replace(of()), names.replace(of()), names.version()), (true, false, 1));
        let expected = "fd00::2\ts\ts.default\ts.default.svc\ts.default.svc.cluster.local\nfd00::2\tweb\tweb.default\n";
        assert_eq!(names.lines("default"), expected);
    }
}
