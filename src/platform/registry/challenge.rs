//! The `WWW-Authenticate` header of a registry. Pure.

/// How the registry wants requests to be authenticated.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer {
        /// The URL of the token server.
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// Parses one header; `None` for another scheme or a malformed header.
    pub(super) fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service, mut scope) = (None, None, None);
        let mut rest = rest.trim_start();
        while !rest.is_empty() {
            let (name, after) = rest.split_once('=')?;
            let (value, after) = value(after.trim_start())?;
            match name.trim().to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                "scope" => scope = Some(value),
                _ => {}
            }
            rest = after.trim_start().trim_start_matches(',').trim_start();
        }
        Some(Self::Bearer { realm: realm?, service, scope })
    }
}

/// A token or a quoted string, and what follows it.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (token, rest) = text.split_once(',').unwrap_or((text, ""));
        return Some((token.trim().to_owned(), rest));
    };
    let mut value = String::new();
    let mut chars = quoted.chars();
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(chars.next()?),
            c => value.push(c),
        }
    }
}

/// The URL with the parameters of a token request.
pub(super) fn token_url(realm: &str, service: Option<&str>, scope: &str) -> String {
    let mut url = realm.to_owned();
    let mut separator = if realm.contains('?') { '&' } else { '?' };
    for (name, value) in [("service", service), ("scope", Some(scope))] {
        if let Some(value) = value {
            url.push(separator);
            url.extend([name, "=", &escaped(value)]);
            separator = '&';
        }
    }
    url
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'/' | b',' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_of_known_registries_are_parsed() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
            scope: scope.map(str::to_owned),
        };
        for (header, expected) in [
            ("Basic realm=\"test\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\",scope=\"repository:a/b:pull,push\"",
                Some(bearer(
                    "https://auth.docker.io/token",
                    Some("registry.docker.io"),
                    Some("repository:a/b:pull,push"),
                )),
            ),
            ("bearer realm=\"https://r/t\", error=\"invalid_token\"", Some(bearer("https://r/t", None, None))),
            ("Bearer realm=https://r/t, service=x", Some(bearer("https://r/t", Some("x"), None))),
            ("Bearer service=\"x\"", None),
            ("Bearer realm=\"open", None),
            ("Negotiate", None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(header), expected, "{header}");
        }
    }

    #[test]
    fn token_request_is_escaped() {
        let url = token_url("https://r/t?a=1", Some("my registry"), "repository:a/b:pull");
        assert_eq!(url, "https://r/t?a=1&service=my%20registry&scope=repository:a/b:pull");
    }
}
