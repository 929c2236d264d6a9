//! The node labels of `--node-labels`. Pure.

use crate::types::api::Map;
use crate::types::api::validation::names::{is_label_value, is_qualified_name};

/// The Kubernetes labels that a node may set on itself; others could attract pods meant for other nodes.
const ALLOWED: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
const ALLOWED_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Parses `a=b,c=d`. As in the kubelet, a key alone has an empty value.
pub(super) fn parse(text: &str) -> Result<Map<String>, String> {
    let mut labels = Map::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (key, value) = (key.trim(), value.trim());
        if !is_qualified_name(key) || !is_label_value(value) {
            return Err(format!("expected the key and the value of a label, found {part:?}"));
        }
        if !may_be_given(key) {
            let domains = ALLOWED_DOMAINS.join(" and ");
            return Err(format!(
                "expected of kubernetes.io and k8s.io only labels of {domains}, or one of {}, found {key:?}",
                ALLOWED.join(", ")
            ));
        }
        labels.insert(key, value.to_owned());
    }
    Ok(labels)
}

/// A label as a part of the flag, which splits at commas and trims.
pub(super) fn flag_part(key: &str, value: &str) -> Result<String, String> {
    let part = format!("{key}={value}");
    if !is_qualified_name(key) || !is_label_value(value) {
        return Err(format!("expected the key and the value of a label, found {part:?}"));
    }
    parse(&part).map(|_| part)
}

fn may_be_given(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_in = |parent: &&str| domain.strip_suffix(*parent).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let is_of_kubernetes = ["kubernetes.io", "k8s.io"].iter().any(is_in);
    !is_of_kubernetes || ALLOWED.contains(&key) || ALLOWED_DOMAINS.iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_of_duplicate_labels_wins() {
        let labels = parse("a=b, example.com/c=,a=d,node.kubernetes.io/e=f,topology.kubernetes.io/zone=g").unwrap();
        let labels: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (key, value.as_str())).collect();
        let expected =
            [("a", "d"), ("example.com/c", ""), ("node.kubernetes.io/e", "f"), ("topology.kubernetes.io/zone", "g")];
        assert_eq!(labels, expected);
        assert!(parse("").unwrap().is_empty());
        let labels = parse("example.com/edge,site=a,,").unwrap();
        let labels: Vec<(&str, &str)> = labels.iter().map(|(key, value)| (key, value.as_str())).collect();
        assert_eq!(labels, [("example.com/edge", ""), ("site", "a")]);
    }

    #[test]
    fn invalid_and_restricted_labels_are_refused() {
        for (text, fault) in [
            ("=b", "expected the key and the value of a label, found \"=b\""),
            ("a b=c", "expected the key and the value of a label, found \"a b=c\""),
            ("a=b/c", "expected the key and the value of a label, found \"a=b/c\""),
        ] {
            assert_eq!(parse(text), Err(fault.to_owned()));
        }
        for key in ["kubernetes.io/role", "node-role.kubernetes.io/master", "x.k8s.io/y"] {
            assert!(parse(&format!("{key}=z")).unwrap_err().ends_with(&format!("found {key:?}")));
        }
        for key in ["x.node.kubernetes.io/y", "notkubernetes.io/y", "kubelet.kubernetes.io/y"] {
            assert!(parse(&format!("{key}=z")).is_ok(), "{key}");
        }
    }
}
