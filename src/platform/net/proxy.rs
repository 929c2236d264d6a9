//! The address of a proxy, and its credentials. Pure.

use std::fmt;

use super::Url;
use crate::protocol::http1::unescape;
use crate::types::api::UriScheme;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Proxy {
    pub(super) scheme: ProxyScheme,
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) credentials: Option<Credentials>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyScheme {
    Http,
    /// As `Http`, over TLS.
    Https,
    /// The proxy resolves names, as in Go, for `socks5` as for `socks5h`.
    Socks5,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: String,
    pub(super) password: String,
}

impl Proxy {
    /// Parses a URL or `HOST:PORT`, which stands for `http://HOST:PORT`. `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => ProxyScheme::Http,
            "https" => ProxyScheme::Https,
            "socks5" | "socks5h" => ProxyScheme::Socks5,
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if host.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return None;
        }
        let url = Url::parse(&format!("http://{host}"))?;
        let credentials = user.map(|user| {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            Some(Credentials { user: unescape(user)?, password: unescape(password)? })
        });
        let credentials = match credentials {
            Some(None) => return None,
            Some(credentials) => credentials,
            None => None,
        };
        let port = url.given_port().unwrap_or(match scheme {
            ProxyScheme::Http => 80,
            ProxyScheme::Https => 443,
            ProxyScheme::Socks5 => 1080,
        });
        Some(Self { scheme, host: url.host, port, credentials })
    }

    /// Whether it forwards requests for plain HTTP itself, so that no tunnel is needed.
    pub(super) fn forwards(&self, scheme: UriScheme) -> bool {
        scheme == UriScheme::Http && self.scheme != ProxyScheme::Socks5
    }
}

/// Without credentials.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            ProxyScheme::Http => "http",
            ProxyScheme::Https => "https",
            ProxyScheme::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}", authority(&self.host, self.port))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Host and port, with brackets around an IPv6 address.
pub(super) fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_or_host_and_port() {
        for (text, shown) in [
            ("http://p:3128", "http://p:3128"),
            ("HTTP://p/", "http://p:80"),
            ("https://p", "https://p:443"),
            ("socks5://10.0.0.1", "socks5://10.0.0.1:1080"),
            ("socks5h://[fd00::1]:9050", "socks5://[fd00::1]:9050"),
            ("p:3128", "http://p:3128"),
            (" p ", "http://p:80"),
            ("u:secret@p:3128", "http://p:3128"),
        ] {
            assert_eq!(Proxy::parse(text).map(|proxy| proxy.to_string()).as_deref(), Some(shown), "{text}");
        }
        for text in ["", "socks4://p", "ftp://p", "http://", "http://p:99999", "http://u:%zz@p", "a b", "p\r\nx"] {
            assert_eq!(Proxy::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn credentials_are_unescaped_and_hidden() {
        let proxy = Proxy::parse("http://dom%5Cuser:p%40ss@p:1").unwrap();
        let credentials = proxy.credentials.as_ref().unwrap();
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("dom\\user", "p@ss"));
        let shown = format!("{proxy} {proxy:?}");
        assert!(!shown.contains("p@ss") && !shown.contains("user"), "{shown}");
    }
}
