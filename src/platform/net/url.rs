//! URLs of probes and hooks, and of redirects. Pure.

use std::fmt;
use std::net::Ipv6Addr;

use crate::types::api::UriScheme;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) scheme: UriScheme,
    /// A name or an address, without brackets.
    pub(crate) host: String,
    /// `None` for the scheme's default.
    port: Option<u16>,
    /// Path and query in the form in which they are sent.
    pub(crate) target: String,
}

impl Url {
    /// `path` may have a query; characters that cannot be sent are escaped. Of a whole URL, path and query count, as with
    /// the kubelet.
    pub(crate) fn new(scheme: UriScheme, host: &str, port: u16, path: &str) -> Self {
        Self { scheme, host: host.to_owned(), port: Some(port), target: target(without_origin(path)) }
    }

    /// Parses an absolute URL; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let nowhere = Self { scheme: UriScheme::Http, host: String::new(), port: None, target: "/".to_owned() };
        nowhere.join(text).filter(|url| !url.host.is_empty())
    }

    /// `None` for the scheme's default.
    pub(super) fn given_port(&self) -> Option<u16> {
        self.port
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(match self.scheme {
            UriScheme::Http => 80,
            UriScheme::Https => 443,
        })
    }

    /// Whether both have the same scheme, host and port.
    pub(super) fn is_same_origin(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.port() == other.port() && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// Host and port, as in the `Host` header.
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.parse::<Ipv6Addr>() {
            Ok(_) => format!("[{}]", self.host),
            Err(_) => self.host.clone(),
        };
        match self.port {
            Some(port) => format!("{host}:{port}"),
            None => host,
        }
    }

    /// Resolves a redirect's location; `None` if it cannot be followed.
    pub(crate) fn join(&self, location: &str) -> Option<Self> {
        let lower = location.get(..8).unwrap_or(location).to_ascii_lowercase();
        let (scheme, rest) = if lower.starts_with("https://") {
            (UriScheme::Https, location.get(8..)?)
        } else if lower.starts_with("http://") {
            (UriScheme::Http, location.get(7..)?)
        } else if let Some(rest) = location.strip_prefix("//") {
            (self.scheme, rest)
        } else if location.split(['/', '?', '#']).next().is_some_and(|first| first.contains(':')) {
            // Another scheme.
            return None;
        } else {
            return Some(Self { target: self.relative(location), ..self.clone() });
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = split_authority(authority)?;
        Some(Self { scheme, host: host.to_owned(), port, target: target(path) })
    }

    /// The target of a reference without scheme and host.
    fn relative(&self, reference: &str) -> String {
        let path = self.target.split('?').next().unwrap_or_default();
        if reference.starts_with('/') {
            return target(reference);
        }
        if reference.is_empty() || reference.starts_with('#') {
            return self.target.clone();
        }
        if reference.starts_with('?') {
            return target(&format!("{path}{reference}"));
        }
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        target(&without_dots(&format!("{folder}/{reference}")))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            UriScheme::Http => "http",
            UriScheme::Https => "https",
        };
        write!(f, "{scheme}://{}{}", self.authority(), self.target)
    }
}

/// A URL without its scheme and host; other text as it is.
fn without_origin(text: &str) -> &str {
    let after_scheme = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)).map(|(_, rest)| rest);
    let Some(rest) = after_scheme.or_else(|| text.strip_prefix("//")) else { return text };
    rest.find(['/', '?', '#']).and_then(|end| rest.get(end..)).unwrap_or_default()
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':').unwrap_or(rest))
        }
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let port = if port.is_empty() { None } else { Some(port.parse().ok()?) };
    (!host.is_empty()).then_some((host, port))
}

/// A path with its query as it is sent: with a leading slash, without fragment, and escaped.
fn target(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    push_escaped(&mut out, path, b"$&+,/:;=@-_.~!*'()");
    if let Some(query) = query {
        out.push('?');
        push_escaped(&mut out, query, b"$&+,/:;=@-_.~!*'()?[]{}|\\^`\"<>");
    }
    out
}

/// Existing escapes are kept.
fn push_escaped(out: &mut String, text: &str, plain: &[u8]) {
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        let hex = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_hexdigit);
        let is_escape = *byte == b'%' && hex(at + 1) && hex(at + 2);
        if byte.is_ascii_alphanumeric() || plain.contains(byte) || is_escape {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// Removes `.` and `..` from the path before the query.
fn without_dots(reference: &str) -> String {
    let (path, query) =
        reference.find(['?', '#']).and_then(|at| reference.split_at_checked(at)).unwrap_or((reference, ""));
    let mut parts: Vec<&str> = Vec::new();
    let last = path.split('/').next_back().unwrap_or_default();
    for part in path.split('/').skip(1) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let slash = if matches!(last, "." | "..") && !parts.is_empty() { "/" } else { "" };
    format!("/{}{slash}{query}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_whole_url_as_path_only_path_and_query_are_sent() {
        for (path, sent) in [
            ("http://localhost:8080/ok?x=1", "/ok?x=1"),
            ("https://user@host/a", "/a"),
            ("http://localhost", "/"),
            ("//host/a", "/a"),
            ("/a?to=http://b/c", "/a?to=http://b/c"),
            ("a/b://c", "/a/b://c"),
        ] {
            assert_eq!(Url::new(UriScheme::Http, "10.0.0.1", 80, path).target, sent, "{path}");
        }
    }

    #[test]
    fn paths_are_escaped_only_where_needed() {
        for (path, sent) in [
            ("/", "/"),
            ("", "/"),
            ("healthz", "/healthz"),
            ("/a b", "/a%20b"),
            ("/a%20b%zz%", "/a%20b%25zz%25"),
            ("/x?y=1&z=a b#frag", "/x?y=1&z=a%20b"),
            ("/é", "/%C3%A9"),
            ("/a\r\nHost: evil", "/a%0D%0AHost:%20evil"),
            ("/x?a\r\nb", "/x?a%0D%0Ab"),
        ] {
            assert_eq!(Url::new(UriScheme::Http, "h", 80, path).target, sent, "{path:?}");
        }
    }

    #[test]
    fn authorities_contain_the_port() {
        let url = |host: &str| Url::new(UriScheme::Https, host, 8443, "/x").to_string();
        assert_eq!(url("10.0.0.1"), "https://10.0.0.1:8443/x");
        assert_eq!(url("fd00::1"), "https://[fd00::1]:8443/x");
        assert_eq!(url("example.com"), "https://example.com:8443/x");
    }

    #[test]
    fn redirects_are_resolved_relative_to_their_url() {
        let here = Url::new(UriScheme::Http, "10.0.0.1", 81, "/a/b?c");
        for (location, there) in [
            ("/login", "http://10.0.0.1:81/login"),
            ("x", "http://10.0.0.1:81/a/x"),
            ("../x?y", "http://10.0.0.1:81/x?y"),
            ("./", "http://10.0.0.1:81/a/"),
            ("../../..", "http://10.0.0.1:81/"),
            ("?d", "http://10.0.0.1:81/a/b?d"),
            ("", "http://10.0.0.1:81/a/b?c"),
            ("//other/x", "http://other/x"),
            ("https://10.0.0.1/x", "https://10.0.0.1/x"),
            ("HTTP://u:p@10.0.0.1:82", "http://10.0.0.1:82/"),
            ("http://[fd00::1]:8080/x", "http://[fd00::1]:8080/x"),
        ] {
            assert_eq!(here.join(location).map(|url| url.to_string()).as_deref(), Some(there), "{location}");
        }
        for nowhere in ["ftp://10.0.0.1/", "mailto:a", "http://", "http://h:99999/", "http://[::1"] {
            assert_eq!(here.join(nowhere), None, "{nowhere}");
        }
    }
}
