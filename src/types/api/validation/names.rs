//! The syntax of names: DNS labels and subdomains, qualified names, ports, variables. Pure.

use super::faults::Faults;
use crate::types::api::decode::Path;

/// An RFC 1123 label, as for container and volume names.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_label(text)
}

/// An RFC 1123 subdomain, as for pod and node names.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

/// A subdomain whose labels may begin with an underscore, as in search domains.
pub fn is_search_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let label = label.strip_prefix('_').unwrap_or(label);
        is_framed(label, |byte| lower_or_digit(byte) || byte == b'-' || byte == b'_', lower_or_digit)
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

/// A `generateName`, which may end in a dash because a suffix follows.
pub fn is_name_prefix(text: &str) -> bool {
    match text.strip_suffix('-').filter(|head| !head.is_empty()) {
        Some(head) => text.len() <= 253 && is_dns_subdomain(&[head, "a"].concat()),
        None => is_dns_subdomain(text),
    }
}

/// A label key: a name of at most 63 characters, optionally after a subdomain and a slash.
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_plain_name(name),
        None => is_plain_name(text),
    }
}

/// As [`is_qualified_name`], but upper case letters may stand anywhere.
pub fn is_annotation_key(text: &str) -> bool {
    text.len() <= 512 && is_qualified_name(&text.to_ascii_lowercase())
}

pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_plain_name(text)
}

/// An RFC 6335 service name in lower case.
pub fn is_port_name(text: &str) -> bool {
    text.len() <= 15
        && is_framed(text, |byte| lower_or_digit(byte) || byte == b'-', lower_or_digit)
        && text.bytes().any(|byte| byte.is_ascii_lowercase())
        && !text.contains("--")
}

/// Printable ASCII except `=`.
pub fn is_variable_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

/// A key of a ConfigMap or a Secret, which becomes a file name.
pub fn is_config_key(text: &str) -> bool {
    text.len() <= 253 && !text.is_empty() && text.bytes().all(is_name_byte) && text != "." && !text.starts_with("..")
}

/// A uid of a manifest, which becomes part of the names of directories and cgroups.
pub fn is_uid(text: &str) -> bool {
    text.len() <= MAX_MANIFEST_UID_BYTES && is_framed(text, is_name_byte, |byte| byte.is_ascii_alphanumeric())
}

/// As part of a file name, which may have 255 bytes.
pub(super) const MAX_MANIFEST_UID_BYTES: usize = 200;

pub fn is_header_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Segments of lower case letters, digits, dashes and underscores, separated by dots or slashes.
pub fn is_sysctl_name(text: &str) -> bool {
    let inner = |byte| lower_or_digit(byte) || byte == b'-' || byte == b'_';
    text.len() <= 253 && text.split(['.', '/']).all(|segment| is_framed(segment, inner, lower_or_digit))
}

fn is_label(text: &str) -> bool {
    is_framed(text, |byte| lower_or_digit(byte) || byte == b'-', lower_or_digit)
}

fn is_plain_name(text: &str) -> bool {
    text.len() <= 63 && is_framed(text, is_name_byte, |byte| byte.is_ascii_alphanumeric())
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || [b'-', b'_', b'.'].contains(&byte)
}

/// Whether all bytes satisfy `inner`, and the first and the last also `outer`.
fn is_framed(text: &str, inner: impl Fn(u8) -> bool, outer: impl Fn(u8) -> bool) -> bool {
    let (first, last) = (text.bytes().next(), text.bytes().next_back());
    first.is_some_and(&outer) && last.is_some_and(outer) && text.bytes().all(inner)
}

fn lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// The rule for a name, and its description for messages.
pub(super) struct NameRule {
    holds: fn(&str) -> bool,
    wanted: &'static str,
}

pub(super) const ANNOTATION_KEY: NameRule = NameRule {
    holds: is_annotation_key,
    wanted: "must be an annotation key such as example.com/MyName: at most 63 letters, digits, '-', '_' or '.', \
             beginning and ending with a letter or digit, and before it perhaps a DNS subdomain and '/'",
};
pub(super) const CONFIG_KEY: NameRule = NameRule {
    holds: is_config_key,
    wanted: "must be a key of at most 253 letters, digits, '-', '_' or '.', and must not begin with '..'",
};
pub(super) const DNS_LABEL: NameRule = NameRule {
    holds: is_dns_label,
    wanted: "must be a DNS label (RFC 1123): at most 63 lower case letters, digits or '-', \
             beginning and ending with a letter or digit",
};
pub(super) const DNS_SUBDOMAIN: NameRule = NameRule {
    holds: is_dns_subdomain,
    wanted: "must be a DNS subdomain (RFC 1123): at most 253 lower case letters, digits, '-' or '.', \
             every part beginning and ending with a letter or digit",
};
pub(super) const HEADER_NAME: NameRule =
    NameRule { holds: is_header_name, wanted: "must be an HTTP header name of letters, digits and '-'" };
pub(super) const LABEL_KEY: NameRule = NameRule {
    holds: is_qualified_name,
    wanted: "must be a qualified name such as example.com/MyName: at most 63 letters, digits, '-', '_' or '.', \
             beginning and ending with a letter or digit, and before it perhaps a DNS subdomain and '/'",
};
pub(super) const LABEL_VALUE: NameRule = NameRule {
    holds: is_label_value,
    wanted: "must be empty or at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit",
};
pub(super) const NAME_PREFIX: NameRule =
    NameRule { holds: is_name_prefix, wanted: "must be a DNS subdomain (RFC 1123), but may end in '-'" };
pub(super) const PORT_NAME: NameRule = NameRule {
    holds: is_port_name,
    wanted: "must be a port name (RFC 6335): at most 15 lower case letters, digits or single '-', \
             at least one letter, beginning and ending with a letter or digit",
};
pub(super) const SEARCH_DOMAIN: NameRule = NameRule {
    holds: is_search_domain,
    wanted: "must be a domain: at most 253 lower case letters, digits, '-', '_' or '.', \
             every part beginning (but for one '_') and ending with a letter or digit",
};
pub(super) const SYSCTL_NAME: NameRule = NameRule {
    holds: is_sysctl_name,
    wanted: "must be a sysctl such as net.ipv4.ip_forward: at most 253 lower case letters, digits, '-' or '_', \
             in parts between '.' or '/'",
};
pub(super) const UID: NameRule = NameRule {
    holds: is_uid,
    wanted: "must be at most 200 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit",
};
pub(super) const VARIABLE_NAME: NameRule =
    NameRule { holds: is_variable_name, wanted: "must be printable ASCII characters other than '='" };

impl Faults {
    /// Reports `name` if it breaks the rule.
    pub(super) fn name(&mut self, path: &Path<'_>, name: &str, rule: &NameRule) {
        if !(rule.holds)(name) {
            self.invalid(path, name, rule.wanted);
        }
    }

    /// As [`Self::name`]; an empty name is missing.
    pub(super) fn required_name(&mut self, path: &Path<'_>, name: &str, rule: &NameRule) {
        if name.is_empty() {
            self.required(path);
        } else {
            self.name(path, name, rule);
        }
    }

    /// As [`Self::name`]; an empty name is valid.
    pub(super) fn optional_name(&mut self, path: &Path<'_>, name: &str, rule: &NameRule) {
        if !name.is_empty() {
            self.name(path, name, rule);
        }
    }
}
