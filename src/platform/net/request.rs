//! GET requests as the upstream kubelet writes them. Pure.

use crate::platform::net::{GetError, Url};
use crate::types::api::HttpHeader;
use crate::types::sorted::SortOnce;

/// The Kubernetes version in the user agent.
pub(crate) const KUBERNETES: &str = "1.36";

/// The client that the user agent names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Lifecycle,
    Probe,
}

/// The headers of a request, including the usual ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    /// Replaces the host of the URL.
    host: Option<String>,
    /// In order, with names in canonical form.
    rest: Vec<Field>,
}

/// Name and value.
type Field = (String, String);

impl Headers {
    /// The given headers, plus `User-Agent` and `Accept` unless they are given. A given but empty one is not sent.
    pub(crate) fn new(headers: &[HttpHeader], purpose: Purpose) -> Self {
        let mut rest: Vec<(String, String)> =
            headers.iter().map(|header| (canonical(&header.name), header.value.clone())).collect();
        let find = |name: &str, rest: &[(String, String)]| {
            rest.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
        };
        let host = find("Host", &rest).filter(|host| !host.is_empty());
        let agent = find("User-Agent", &rest).unwrap_or_else(|| {
            let purpose = match purpose {
                Purpose::Lifecycle => "lifecycle",
                Purpose::Probe => "probe",
            };
            format!("kube-{purpose}/{KUBERNETES}")
        });
        let accept = find("Accept", &rest);
        rest.retain(|(name, _)| !NOT_PASSED_ON.contains(&name.as_str()));
        match accept.as_deref() {
            None => rest.push(("Accept".to_owned(), "*/*".to_owned())),
            Some("") => rest.retain(|(name, _)| name != "Accept"),
            Some(_) => {}
        }
        rest.sort_once_by(|one, other| one.0.cmp(&other.0));
        if !agent.is_empty() {
            rest.insert(0, ("User-Agent".to_owned(), agent));
        }
        Self { host, rest }
    }

    /// Removes credentials, for plain HTTP.
    pub(crate) fn without_authorization(mut self) -> Self {
        self.rest.retain(|(name, _)| name != "Authorization");
        self
    }

    /// Keeps only what any server may see, for a redirect to another origin. net/http removes `Authorization`, `Cookie`
    /// and the like, and only for another host; but a token may be in any header, and at another port may be another
    /// service.
    pub(super) fn for_another_origin(&self) -> Self {
        let rest = self.rest.iter().filter(|(name, _)| FOR_ANY_ORIGIN.contains(&name.as_str())).cloned();
        Self { host: None, rest: rest.collect() }
    }

    /// The host and the other headers; an error if one contains a line break.
    pub(super) fn fields(&self, url: &Url, keep_host: bool) -> Result<(String, &[Field]), GetError> {
        let kept_host = if keep_host { self.host.clone() } else { None };
        let host = kept_host.unwrap_or_else(|| url.authority());
        let is_broken = |value: &str| value.chars().any(|c| c != '\t' && c.is_control());
        if is_broken(&host) {
            return Err(GetError::Header("Host".to_owned()));
        }
        match self.rest.iter().find(|(_, value)| is_broken(value)) {
            Some((name, _)) => Err(GetError::Header(name.clone())),
            None => Ok((host, &self.rest)),
        }
    }

    /// The bytes of a GET request.
    pub(super) fn request(&self, url: &Url, keep_host: bool) -> Result<Vec<u8>, GetError> {
        let (host, rest) = self.fields(url, keep_host)?;
        let mut out = format!("GET {} HTTP/1.1\r\nHost: {}\r\n", url.target, host.trim());
        for (name, value) in rest {
            out.extend([name.as_str(), ": ", value.trim(), "\r\n"]);
        }
        out.push_str("Connection: close\r\n\r\n");
        Ok(out.into_bytes())
    }
}

/// Headers that the request sets itself or must not have.
const NOT_PASSED_ON: [&str; 6] = ["Connection", "Content-Length", "Host", "Trailer", "Transfer-Encoding", "User-Agent"];

const FOR_ANY_ORIGIN: [&str; 4] = ["Accept", "If-Modified-Since", "If-None-Match", "User-Agent"];

/// Converts `x-my-header` to `X-My-Header`.
fn canonical(name: &str) -> String {
    let mut begins = true;
    let letter = |c: char| {
        let made = if begins { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        begins = c == '-';
        made
    };
    name.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::api::UriScheme;

    #[track_caller]
    fn check(given: &[(&str, &str)], lines: &[&str]) {
        let header = |(name, value): &(&str, &str)| HttpHeader { name: (*name).into(), value: (*value).into() };
        let headers = Headers::new(&given.iter().map(header).collect::<Vec<_>>(), Purpose::Probe);
        let request = headers.request(&Url::new(UriScheme::Http, "10.0.0.1", 81, "/live"), true).unwrap();
        let text = String::from_utf8(request).unwrap();
        let expected = format!("GET /live HTTP/1.1\r\n{}\r\nConnection: close\r\n\r\n", lines.join("\r\n"));
        assert_eq!(text, expected);
    }

    #[test]
    fn probes_have_a_user_agent() {
        check(&[], &["Host: 10.0.0.1:81", "User-Agent: kube-probe/1.36", "Accept: */*"]);
    }

    #[test]
    fn given_headers_replace_defaults() {
        check(
            &[("x-b", "2"), ("HOST", "example.com"), ("x-a", " 1 "), ("User-Agent", "me"), ("accept", "text/html")],
            &["Host: example.com", "User-Agent: me", "Accept: text/html", "X-A: 1", "X-B: 2"],
        );
    }

    #[test]
    fn empty_header_removes_the_default() {
        check(&[("Accept", ""), ("User-Agent", "")], &["Host: 10.0.0.1:81"]);
    }

    #[test]
    fn repeated_headers_keep_their_order() {
        let usual = ["Host: 10.0.0.1:81", "User-Agent: kube-probe/1.36", "Accept: */*"];
        check(&[("X-A", "2"), ("x-a", "1")], &[&usual[..], &["X-A: 2", "X-A: 1"]].concat());
        check(&[("Content-Length", "7"), ("Transfer-Encoding", "chunked"), ("Connection", "keep-alive")], &usual);
    }

    #[test]
    fn authorization_can_be_removed() {
        let given = [("authorization", "Bearer x"), ("X-A", "1")]
            .map(|(name, value)| HttpHeader { name: name.to_owned(), value: value.to_owned() });
        let made = Headers::new(&given, Purpose::Lifecycle).without_authorization();
        let made = String::from_utf8(made.request(&Url::new(UriScheme::Http, "h", 80, "/"), true).unwrap()).unwrap();
        assert!(made.contains("X-A: 1") && !made.contains("Bearer"), "{made}");
    }

    #[test]
    fn multi_line_values_are_refused() {
        let given = [HttpHeader { name: "X-A".to_owned(), value: "1\r\nX-B: 2".to_owned() }];
        let headers = Headers::new(&given, Purpose::Lifecycle);
        let made = headers.request(&Url::new(UriScheme::Http, "h", 80, "/"), true);
        assert_eq!(made.unwrap_err().to_string(), "net/http: invalid header field value for \"X-A\"");
    }

    #[test]
    fn absolute_redirects_drop_the_host_header() {
        let given = [HttpHeader { name: "Host".to_owned(), value: "example.com".to_owned() }];
        let made = Headers::new(&given, Purpose::Probe).request(&Url::new(UriScheme::Http, "h", 80, "/"), false);
        assert!(String::from_utf8(made.unwrap()).unwrap().contains("\r\nHost: h:80\r\n"));
    }
}
