//! Chooses the proxy for a URL from the environment, with the rules of Go's `golang.org/x/net/http/httpproxy`. Pure.
//!
//! Go does not read `ALL_PROXY`. Here it applies if the variable of the scheme is not set, as in curl.

use std::net::IpAddr;

use super::{Proxy, Url};
use crate::types::api::UriScheme;

/// The proxies of the environment. The default has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProxySettings {
    http: Option<Proxy>,
    https: Option<Proxy>,
    exceptions: Vec<Exception>,
}

/// An entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    All,
    Network {
        address: IpAddr,
        prefix: u32,
    },
    Address {
        address: IpAddr,
        port: Option<String>,
    },
    /// Names that end in `suffix`, which begins with a dot, and with `itself` also the name behind the dot.
    Domain {
        suffix: String,
        itself: bool,
        port: Option<String>,
    },
}

impl ProxySettings {
    /// Reads the variables. Also returns the names of those whose value is not a proxy.
    pub(crate) fn from_variables(variable: impl Fn(&str) -> Option<String>) -> (Self, Vec<&'static str>) {
        let first_set = |names: &[&'static str]| {
            let mut set = names.iter().filter_map(|name| Some((*name, variable(name)?)));
            set.find(|(_, value)| !value.is_empty())
        };
        let mut ignored = Vec::new();
        let mut proxy = |names: &[&'static str]| {
            let (name, value) = first_set(names)?;
            let proxy = Proxy::parse(&value);
            if proxy.is_none() && !ignored.contains(&name) {
                ignored.push(name);
            }
            proxy
        };
        let http = proxy(&["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]);
        let https = proxy(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]);
        let exceptions = first_set(&["NO_PROXY", "no_proxy"]).map(|(_, value)| exceptions(&value)).unwrap_or_default();
        (Self { http, https, exceptions }, ignored)
    }

    /// The proxy for a request to `url`; `None` to connect directly.
    pub(crate) fn proxy_for(&self, url: &Url) -> Option<&Proxy> {
        let proxy = match url.scheme {
            UriScheme::Http => self.http.as_ref(),
            UriScheme::Https => self.https.as_ref(),
        };
        let proxy = proxy?;
        let host = url.host.trim().to_lowercase();
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
            return None;
        }
        let port = url.port().to_string();
        let is_excepted = self.exceptions.iter().any(|exception| exception.matches(&host, address, &port));
        (!is_excepted).then_some(proxy)
    }
}

impl Exception {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_lowercase();
        if text == "*" {
            return Some(Self::All);
        }
        if let Some(network) = network(&text) {
            return Some(network);
        }
        let (host, port) = host_and_port(&text);
        let port = port.filter(|port| !port.is_empty()).map(str::to_owned);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(Self::Address { address: address.to_canonical(), port });
        }
        let host = if host.starts_with("*.") { host.strip_prefix('*').unwrap_or(host) } else { host };
        match host.strip_prefix('.') {
            _ if host.is_empty() => None,
            Some(_) => Some(Self::Domain { suffix: host.to_owned(), itself: false, port }),
            None => Some(Self::Domain { suffix: format!(".{host}"), itself: true, port }),
        }
    }

    fn matches(&self, host: &str, address: Option<IpAddr>, at: &str) -> bool {
        let has_port = |port: &Option<String>| port.as_deref().is_none_or(|port| port == at);
        match self {
            Self::All => true,
            Self::Network { address: network, prefix } => {
                address.is_some_and(|address| share_bits(address, *network, *prefix))
            }
            Self::Address { address: excepted_address, port } => address == Some(*excepted_address) && has_port(port),
            Self::Domain { suffix, itself, port } => {
                let is_itself = *itself && suffix.strip_prefix('.') == Some(host);
                address.is_none() && (host.ends_with(suffix) || is_itself) && has_port(port)
            }
        }
    }
}

fn exceptions(list: &str) -> Vec<Exception> {
    list.split(',').filter_map(Exception::parse).collect()
}

fn network(text: &str) -> Option<Exception> {
    let (address, prefix) = text.split_once('/')?;
    let address = address.parse::<IpAddr>().ok()?;
    let prefix = prefix.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (prefix <= longest).then_some(Exception::Network { address, prefix })
}

/// Whether the first bits of two addresses of one family are equal.
fn share_bits(one: IpAddr, other: IpAddr, prefix: u32) -> bool {
    let different = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => u128::from(one.to_bits() ^ other.to_bits()) << 96,
        (IpAddr::V6(one), IpAddr::V6(other)) => one.to_bits() ^ other.to_bits(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
    };
    different.leading_zeros() >= prefix
}

/// Go's `net.SplitHostPort`: an IPv6 address with a port has brackets.
fn host_and_port(text: &str) -> (&str, Option<&str>) {
    match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, port.strip_prefix(':')),
        None if text.matches(':').count() == 1 => {
            text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
        }
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &str)]) -> ProxySettings {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        ProxySettings::from_variables(find).0
    }

    #[track_caller]
    fn check(variables: &[(&str, &str)], url: &str, expected: Option<&str>) {
        let url = Url::parse(url).unwrap();
        let settings = settings(variables);
        let chosen = settings.proxy_for(&url).map(|proxy| proxy.to_string());
        assert_eq!(chosen.as_deref(), expected, "{variables:?} {url}");
    }

    #[test]
    fn scheme_selects_the_variable() {
        for (variables, url, expected) in [
            (&[][..], "https://h/", None),
            (&[("HTTPS_PROXY", "http://p:1")][..], "https://h/", Some("http://p:1")),
            (&[("HTTPS_PROXY", "http://p:1")], "http://h/", None),
            (&[("http_proxy", "p:1")], "http://h/", Some("http://p:1")),
            (&[("http_proxy", "p:1")], "https://h/", None),
            // The upper-case variable takes precedence, and an empty one counts as unset.
            (&[("HTTPS_PROXY", "p:1"), ("https_proxy", "q:1")], "https://h/", Some("http://p:1")),
            (&[("HTTPS_PROXY", ""), ("https_proxy", "q:1")], "https://h/", Some("http://q:1")),
            (&[("ALL_PROXY", "socks5://p")], "https://h/", Some("socks5://p:1080")),
            (&[("all_proxy", "socks5h://p:1")], "http://h/", Some("socks5://p:1")),
            (&[("ALL_PROXY", "socks5://p"), ("https_proxy", "q:1")], "https://h/", Some("http://q:1")),
        ] {
            check(variables, url, expected);
        }
        let (_, ignored) = ProxySettings::from_variables(|name| (name == "all_proxy").then(|| "ftp://p".to_owned()));
        assert_eq!(ignored, ["all_proxy"]);
    }

    /// The table `UseProxyTests` of httpproxy.
    #[test]
    fn no_proxy_matches_as_in_go() {
        let list = "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, 10.0.0.0/30, \
                    2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64";
        for (host, is_proxied) in [
            ("localhost", false),
            ("127.0.0.1", false),
            ("127.0.0.2", false),
            ("[::1]", false),
            ("[::2]", true),
            ("192.168.1.1", false),
            ("192.168.1.2", true),
            ("192.168.1.3", false),
            ("192.168.1.4", true),
            ("10.0.0.2", false),
            ("10.0.0.4", true),
            ("[2001:db8::52:0:1]", false),
            ("[2001:db8::52:0:2]", true),
            ("[2001:db8::52:0:3]", false),
            ("[2002:db8:a::123]", false),
            ("[fe80::424b:c8be:1643:a1b6]", true),
            ("barbaz.net", true),
            ("www.barbaz.net", false),
            ("foobar.com", false),
            ("FOObar.com", false),
            ("www.foobar.com", false),
            ("foofoobar.com", true),
            ("baz.com", true),
            ("localhost.net", true),
            ("local.localhost", true),
            ("barbarbaz.net", true),
            ("wildcard.io", true),
            ("nested.wildcard.io", false),
            ("awildcard.io", true),
        ] {
            let expected = is_proxied.then_some("http://p:1");
            check(&[("HTTP_PROXY", "p:1"), ("NO_PROXY", list)], &format!("http://{host}"), expected);
        }
    }

    #[test]
    fn ports_and_stars_and_malformed_entries() {
        for (list, url, is_proxied) in [
            ("*", "https://h/", false),
            ("a.b, * ,c.d", "https://10.0.0.1/", false),
            (":1", "http://example.com/", true),
            ("", "https://h/", true),
            (",,.", "https://h/", true),
            ("h:443", "https://h/", false),
            ("h:444", "https://h/", true),
            (".cluster.local:6443", "https://api.cluster.local:6443/", false),
            ("10.96.0.0/12", "https://10.96.0.1/", false),
            ("10.96.0.0/12", "https://[::ffff:10.96.0.1]/", false),
            ("10.96.0.0/33", "https://10.96.0.1/", true),
            ("0.0.0.0/0", "https://10.96.0.1/", false),
            ("0.0.0.0/0", "https://[fd00::1]/", true),
            ("::/0", "https://[fd00::1]/", false),
            // A domain does not match an address.
            ("0.1", "https://10.0.0.1/", true),
        ] {
            let expected = is_proxied.then_some("http://p:1");
            check(&[("ALL_PROXY", "p:1"), ("no_proxy", list)], url, expected);
        }
        check(&[("ALL_PROXY", "p:1")], "https://[::ffff:127.0.0.1]/", None);
        check(&[("ALL_PROXY", "p:1")], "https://LOCALHOST/", None);
    }
}
