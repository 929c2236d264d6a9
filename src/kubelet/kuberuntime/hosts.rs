//! Content of `/etc/hosts` for containers. Pure.

use core::net::IpAddr;
use std::fmt::Write as _;

use super::hostname::hostname;
use crate::types::api::{HostAlias, Pod};

/// The file of `pod`; a host-network pod gets the node's `host_file`. `names` are the lines of other pods.
pub(crate) fn hosts_file(pod: &Pod, pod_ips: &[IpAddr], cluster_domain: &str, host_file: &str, names: &str) -> String {
    let mut text = String::new();
    if pod.spec.host_network {
        text.push_str("# Kubernetes-managed hosts file (host network).\n");
        text.push_str(host_file);
    } else {
        text.push_str(MANAGED);
        let host = hostname(pod, cluster_domain);
        for ip in pod_ips {
            // Writing to a String cannot fail.
            let _ = match host.domain.as_str() {
                "" => writeln!(text, "{ip}\t{}", host.name),
                domain => writeln!(text, "{ip}\t{}.{domain}\t{}", host.name, host.name),
            };
        }
    }
    push_aliases(&mut text, &pod.spec.host_aliases);
    if !names.is_empty() {
        text.push_str("\n# Pods and Services of this node.\n");
        text.push_str(names);
    }
    text
}

fn push_aliases(text: &mut String, aliases: &[HostAlias]) {
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        text.push_str(&alias.ip);
        for name in alias.hostnames.iter() {
            text.push('\t');
            text.push_str(name);
        }
        text.push('\n');
    }
}

const MANAGED: &str = "# Kubernetes-managed hosts file.\n\
    127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = name.to_owned();
        pod.metadata.namespace = "golden".to_owned();
        pod
    }

    #[test]
    fn file_matches_the_recorded_one() {
        let recorded = include_str!("../../../tests/data/golden/inside/running-hosts.txt");
        let ips = ["10.88.1.87".parse().unwrap()];
        assert_eq!(hosts_file(&pod("running"), &ips, "cluster.local", "", ""), recorded);

        let recorded = include_str!("../../../tests/data/golden/inside/dns-hosts-hosts.txt");
        let mut pod = pod("dns-hosts");
        pod.spec.hostname = "little".to_owned();
        pod.spec.subdomain = "boat".to_owned();
        let hostnames = ["one", "two"].into_iter().collect();
        pod.spec.host_aliases = vec![HostAlias { ip: "127.0.0.9".to_owned(), hostnames }];
        let ips = ["10.88.1.95".parse().unwrap()];
        assert_eq!(hosts_file(&pod, &ips, "cluster.local", "", ""), recorded);
    }

    #[test]
    fn host_network_pod_has_the_nodes_file_and_its_aliases() {
        let mut pod = pod("web");
        pod.spec.host_network = true;
        let hostnames = ["one"].into_iter().collect();
        pod.spec.host_aliases = vec![HostAlias { ip: "::1".to_owned(), hostnames }];
        let expected = "# Kubernetes-managed hosts file (host network).\n1.2.3.4 board\n\n\
                        # Entries added by HostAliases.\n::1\tone\n";
        assert_eq!(hosts_file(&pod, &["10.0.0.1".parse().unwrap()], "", "1.2.3.4 board\n", ""), expected);
    }

    #[test]
    fn every_pod_ip_has_the_host_name_and_other_pods_follow() {
        let ips = ["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        let text = hosts_file(&pod("web"), &ips, "", "", "10.0.0.3\tdb\tdb.default\n");
        assert!(
            text.ends_with(
                "\n10.0.0.2\tweb\nfd00::2\tweb\n\n# Pods and Services of this node.\n10.0.0.3\tdb\tdb.default\n"
            ),
            "{text}"
        );
    }
}
