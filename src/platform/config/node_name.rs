//! The node name: the lower-case host name, or `--hostname-override`. Pure.

/// The node name for `--hostname-override`; `None` if it is not a DNS subdomain.
pub(super) fn from_override(text: &str) -> Option<String> {
    let name = text.trim().to_lowercase();
    is_subdomain(&name).then_some(name)
}

/// The node name for a host name. Never fails, because the node's pods must run: removes or replaces invalid
/// characters.
pub(super) fn from_host(hostname: &str) -> String {
    let name = hostname.trim().to_lowercase();
    if is_subdomain(&name) {
        return name;
    }
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let labels: Vec<&str> =
        plain.split('.').map(|label| label.trim_matches('-')).filter(|label| !label.is_empty()).collect();
    let name = labels.join(".");
    if is_subdomain(&name) { name } else { "localhost".to_owned() }
}

/// An RFC 1123 subdomain, as required for node names.
pub(super) fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !label.is_empty() && label.chars().all(inner) && !label.starts_with('-') && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_name_yields_a_valid_node_name() {
        for (host, name) in [
            ("node1", "node1"),
            (" Board-7.Example.ORG\n", "board-7.example.org"),
            ("my_board", "my-board"),
            ("(none)", "none"),
            ("-x-.", "x"),
            ("", "localhost"),
            ("___", "localhost"),
            ("b\u{fc}ro", "b-ro"),
        ] {
            assert_eq!(from_host(host), name, "{host:?}");
            assert!(is_subdomain(&from_host(host)));
        }
        assert_eq!(from_host(&"x".repeat(300)), "localhost");
    }

    #[test]
    fn override_is_only_trimmed_and_lowered() {
        assert_eq!(from_override(" Node-1 "), Some("node-1".to_owned()));
        assert_eq!(from_override("my_node"), None);
        assert_eq!(from_override("a..b"), None);
    }
}
