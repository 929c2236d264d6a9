//! Parses request heads from the bytes that a server has read. Pure.
//!
//! Rejects what two parsers could interpret differently (RFC 9112, section 11.2): lines must end in CRLF, headers may
//! not be folded nor have a space before the colon; one Host, one Content-Length, no other framing of the body.

use std::fmt::Write as _;

/// The head of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub method: String,
    /// Unescaped; it begins with a slash.
    pub path: String,
    /// Still escaped.
    pub query: String,
    headers: Vec<(String, String)>,
    /// The length of the body that follows.
    pub body: u64,
    /// The body of a form, still escaped; set by the connection that read it.
    pub form: String,
    /// The body that the handler named for: complete or empty; set by the connection that read it.
    pub content: Vec<u8>,
    /// Whether the client wants to keep the connection.
    pub keeps: bool,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not HTTP/1, or ambiguous.
    Malformed,
    /// More than [`MAX_REQUEST_HEAD_BYTES`] bytes, or too many headers.
    TooLong,
    /// A body without a Content-Length.
    Encoded,
}

/// A bearer token may take several kilobytes.
pub const MAX_REQUEST_HEAD_BYTES: usize = 16 * 1024;
const MAX_REQUEST_HEADERS: usize = 100;
/// Lists the subprotocols that a WebSocket client supports.
pub const PROTOCOLS: &str = "sec-websocket-protocol";
/// Browsers cannot set headers on a WebSocket: the subprotocol with this prefix holds the token in base64url.
pub const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

impl Request {
    /// Takes a head off the front of `bytes`. Returns it and its length; `Ok(None)` means that more bytes are needed.
    pub fn take(bytes: &[u8]) -> Result<Option<(Self, usize)>, Refusal> {
        Self::take_after(bytes, 0)
    }

    /// As [`Request::take`], for bytes of which the first `searched` have no complete head.
    pub fn take_after(bytes: &[u8], searched: usize) -> Result<Option<(Self, usize)>, Refusal> {
        // An empty line may precede a request (RFC 9112, section 2.2).
        let blank = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
        let rest = bytes.get(blank..).unwrap_or_default();
        // Three of the four bytes of the end may be among them.
        let from = searched.saturating_sub(blank + 3);
        let after = rest.get(from..).unwrap_or_default();
        let Some(end) = after.windows(4).position(|window| window == b"\r\n\r\n").map(|end| from + end) else {
            // Reject what cannot be a request at once: its end may never arrive.
            let is_text = rest.first().is_none_or(u8::is_ascii_uppercase);
            // Three of the four bytes of the end may have arrived.
            return match rest.len() >= MAX_REQUEST_HEAD_BYTES + 3 {
                true => Err(Refusal::TooLong),
                false if is_text || rest == b"\r" => Ok(None),
                false => Err(Refusal::Malformed),
            };
        };
        if end >= MAX_REQUEST_HEAD_BYTES {
            return Err(Refusal::TooLong);
        }
        let head = rest.get(..end).unwrap_or_default();
        let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        if head.iter().filter(|byte| **byte == b'\n').count() != head.windows(2).filter(|two| two == b"\r\n").count() {
            return Err(Refusal::Malformed);
        }
        let (mut request, is_1_1) = Self::of_line(lines.next().unwrap_or_default()).ok_or(Refusal::Malformed)?;
        for (number, line) in lines.enumerate() {
            if number >= MAX_REQUEST_HEADERS {
                return Err(Refusal::TooLong);
            }
            request.headers.push(header(line).ok_or(Refusal::Malformed)?);
        }
        request.settle(is_1_1)?;
        Ok(Some((request, blank + end + 4)))
    }

    /// Parses the request line. Returns true for HTTP/1.1, false for 1.0.
    fn of_line(line: &[u8]) -> Option<(Self, bool)> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        let is_1_1 = match (version, words.next()) {
            ("HTTP/1.1", None) => true,
            ("HTTP/1.0", None) => false,
            _ => return None,
        };
        let is_method = method.starts_with(|first: char| first.is_ascii_uppercase()) && method.bytes().all(is_token);
        if !is_method || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = unescape(path).filter(|path| path.starts_with('/') && !path.contains('\0'))?;
        Some((Self { method: method.to_owned(), path, query: query.to_owned(), ..Self::default() }, is_1_1))
    }

    fn settle(&mut self, is_1_1: bool) -> Result<(), Refusal> {
        let hosts = self.all("host").count();
        if hosts > 1 || (is_1_1 && hosts == 0) {
            return Err(Refusal::Malformed);
        }
        if self.header("transfer-encoding").is_some() {
            let both = self.header("content-length").is_some();
            return Err(if both { Refusal::Malformed } else { Refusal::Encoded });
        }
        if self.all("content-length").count() > 1 {
            return Err(Refusal::Malformed);
        }
        let length = self.header("content-length").map_or(Ok(0), |length| {
            match length.bytes().all(|byte| byte.is_ascii_digit()) {
                true => length.parse().map_err(|_| Refusal::Malformed),
                // `parse` would accept a sign.
                false => Err(Refusal::Malformed),
            }
        })?;
        let has_token = |word: &str| self.words("connection").any(|token| token.eq_ignore_ascii_case(word));
        let keeps = if is_1_1 { !has_token("close") } else { has_token("keep-alive") };
        (self.body, self.keeps) = (length, keeps);
        Ok(())
    }

    /// The first header with this name, which must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// Whether there is a header whose name begins so.
    pub fn has_header_like(&self, prefix: &str) -> bool {
        self.headers.iter().any(|(name, _)| name.starts_with(prefix))
    }

    /// The values of all headers with this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.headers.iter().filter(move |(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// The elements of a list header, over all of its lines.
    pub fn words<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        self.all(name).flat_map(|value| value.split(',')).map(str::trim)
    }

    /// Whether the body is a form as browsers and `curl -d` send it.
    pub fn has_form(&self) -> bool {
        let kind = self.header("content-type").unwrap_or_default();
        self.body > 0 && kind.split(';').next().is_some_and(|kind| kind.trim() == "application/x-www-form-urlencoded")
    }

    /// Whether the client wants to upgrade to WebSocket.
    pub fn is_web_socket(&self) -> bool {
        self.words("connection").any(|word| word.eq_ignore_ascii_case("upgrade"))
            && self.header("upgrade").is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
    }

    /// The head for another server, without the fields of this connection: host, credentials, body.
    pub fn head_for(&self, target: &str, host: &str) -> Vec<u8> {
        let mut head = format!("{} {target} HTTP/1.1\r\nHost: {host}\r\n", self.method);
        let own = ["host", "authorization", "content-length", "expect"];
        for (name, value) in self.headers.iter().filter(|(name, _)| !own.contains(&name.as_str())) {
            if name != PROTOCOLS || !value.contains(TOKEN_PROTOCOL) {
                head.extend([name, ": ", value, "\r\n"]);
                continue;
            }
            let others: Vec<&str> =
                value.split(',').map(str::trim).filter(|word| !word.starts_with(TOKEN_PROTOCOL)).collect();
            if !others.is_empty() {
                head.extend([name, ": ", &others.join(", "), "\r\n"]);
            }
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// The first value of a query parameter, unescaped; empty if it has none.
    pub fn query_value(&self, key: &str) -> Option<String> {
        self.query_values(key).into_iter().next()
    }

    /// All values of a query parameter that can be unescaped.
    pub fn query_values(&self, key: &str) -> Vec<String> {
        values(&self.query, key).flatten().collect()
    }

    /// All values of a query parameter; `None` if one cannot be unescaped. For values that mean something else without
    /// one of them, such as the words of a command.
    pub fn exact_query_values(&self, key: &str) -> Option<Vec<String>> {
        values(&self.query, key).collect()
    }

    /// The values of a form field, then those of the query parameter (net/http: `FormValue` is the first); `None` if one
    /// cannot be unescaped.
    pub fn exact_form_values(&self, key: &str) -> Option<Vec<String>> {
        values(&self.form, key).chain(values(&self.query, key)).collect()
    }
}

fn values<'a>(pairs: &'a str, key: &'a str) -> impl Iterator<Item = Option<String>> + 'a {
    let pairs = pairs.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let plain = |text: &str| unescape(&text.replace('+', " "));
    pairs.filter(move |(name, _)| plain(name).as_deref() == Some(key)).map(move |(_, value)| plain(value))
}

fn header(line: &[u8]) -> Option<(String, String)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = line.split_at_checked(colon)?;
    let value = value.get(1..)?;
    let is_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    if name.is_empty() || !name.iter().copied().all(is_token) || !value.iter().all(is_text) {
        return None;
    }
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    Some((name, String::from_utf8_lossy(value).trim_matches([' ', '\t']).to_owned()))
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Escapes `text` for a path or a query: everything but RFC 3986's unreserved characters.
pub fn push_escaped(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            byte => drop(write!(out, "%{byte:02X}")),
        }
    }
}

/// RFC 3986, section 2.1; `None` for a malformed escape or if the result is not UTF-8.
pub fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                digit()? << 4 | digit()?
            }
            byte => byte,
        });
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"GET /healthz?verbose HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n";

    #[test]
    fn request_is_partial_until_its_empty_line() {
        for cut in 0..WHOLE.len() {
            assert_eq!(Request::take(&WHOLE[..cut]), Ok(None), "{cut}");
        }
        let two = [WHOLE, b"GET"].concat();
        let (request, used) = Request::take(&two).unwrap().unwrap();
        assert_eq!((&*request.path, &*request.query, used), ("/healthz", "verbose", WHOLE.len()));
        assert_eq!((request.header("user-agent"), request.keeps, request.body), (Some("x"), true, 0));
        let (again, used) = Request::take(&[b"\r\n", WHOLE].concat()).unwrap().unwrap();
        assert_eq!((again, used), (request, WHOLE.len() + 2));
    }

    #[test]
    fn searched_bytes_are_not_searched_again() {
        for blank in ["", "\r\n"] {
            let whole = [blank.as_bytes(), WHOLE].concat();
            for cut in 0..whole.len() {
                assert_eq!(Request::take_after(&whole, cut), Request::take(&whole), "{cut}");
            }
        }
        // The end of a head where it was searched before.
        let mut changed = [WHOLE, b"GET / HTTP/1.1\r\n"].concat();
        let searched = changed.len();
        changed.extend_from_slice(b"Host: x\r\n");
        assert_eq!(Request::take_after(&changed, searched), Ok(None));
    }

    #[track_caller]
    fn check(text: &str, refusal: Refusal) {
        assert_eq!(Request::take(text.as_bytes()), Err(refusal), "{text:?}");
    }

    #[test]
    fn malformed_requests_are_refused() {
        for line in [
            "GET /x",
            "GET /x HTTP/2.0",
            "GET http://x/ HTTP/1.1",
            "GET /a b HTTP/1.1",
            "GET  /a HTTP/1.1",
            "G\u{e9}T /a HTTP/1.1",
            "get /a HTTP/1.1",
            " /a HTTP/1.1",
            "GET /\u{e9} HTTP/1.1",
            "GET /%zz HTTP/1.1",
            "GET /%ff HTTP/1.1",
            "GET /%00 HTTP/1.1",
            "GET x HTTP/1.1",
            "/ HTTP/1.1",
            "",
        ] {
            check(&format!("{line}\r\nHost: a\r\n\r\n"), Refusal::Malformed);
        }
        assert_eq!(Request::take(b"\x16\x03\x01"), Err(Refusal::Malformed));
        assert_eq!(Request::take(b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n").map(|taken| taken.is_some()), Ok(true));
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        for headers in [
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: 1\r\nContent-Length: 1",
            "Content-Length: +1",
            "Content-Length: -1",
            "Content-Length: 1, 1",
            "Content-Length: 99999999999999999999",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Content-Length : 1",
            " Content-Length: 1",
            "A: b\r\n c",
            "A: b\nContent-Length: 1",
            "A: b\rC: d",
            "A: b\0",
            "Host: b",
            ": a",
            "nothing",
        ] {
            check(&format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n\r\n"), Refusal::Malformed);
        }
        check("POST / HTTP/1.1\r\n\r\n", Refusal::Malformed);
        for coding in ["chunked", "gzip, chunked", "\tCHUNKED", "x"] {
            check(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\n\r\n"), Refusal::Encoded);
        }
    }

    #[test]
    fn endless_request_is_refused_at_the_limit() {
        assert_eq!(Request::take(&vec![b'X'; MAX_REQUEST_HEAD_BYTES + 2]), Ok(None));
        assert_eq!(Request::take(&vec![b'X'; MAX_REQUEST_HEAD_BYTES + 3]), Err(Refusal::TooLong));
        let headers = "A: b\r\n".repeat(MAX_REQUEST_HEADERS);
        check(&format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n"), Refusal::TooLong);
        let long = "x".repeat(MAX_REQUEST_HEAD_BYTES);
        check(&format!("GET / HTTP/1.1\r\nHost: a\r\nA: {long}\r\n\r\n"), Refusal::TooLong);
    }

    #[test]
    fn keep_alive_follows_the_client() {
        for (version, header, keeps) in [
            ("1.1", "A: b", true),
            ("1.1", "Connection: close", false),
            ("1.1", "Connection: Upgrade, Close", false),
            ("1.0", "A: b", false),
            ("1.0", "Connection: Keep-Alive", true),
        ] {
            let text = format!("GET / HTTP/{version}\r\nHost: a\r\n{header}\r\n\r\n");
            let (request, _) = Request::take(text.as_bytes()).unwrap().unwrap();
            assert_eq!(request.keeps, keeps, "{text}");
        }
    }

    #[test]
    fn forwarded_heads_lack_host_and_credentials() {
        let text = "POST /exec/a?b HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer secret\r\nContent-Length: 0\r\n\
                    Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-A: 1\r\nX-A: 2\r\n\r\n";
        let (request, _) = Request::take(text.as_bytes()).unwrap().unwrap();
        let head = "POST /c/token HTTP/1.1\r\nHost: 127.0.0.1:1\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
                    x-a: 1\r\nx-a: 2\r\n\r\n";
        assert_eq!(String::from_utf8(request.head_for("/c/token", "127.0.0.1:1")).unwrap(), head);
    }

    #[test]
    fn websocket_tokens_are_not_forwarded() {
        let text = "GET /exec/a HTTP/1.1\r\nHost: node\r\nSec-WebSocket-Protocol: \
                    base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io,v4.channel.k8s.io\r\n\
                    Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.c2VjcmV0\r\n\r\n";
        let (request, _) = Request::take(text.as_bytes()).unwrap().unwrap();
        let head = "GET /c HTTP/1.1\r\nHost: h\r\nsec-websocket-protocol: v5.channel.k8s.io, v4.channel.k8s.io\r\n\r\n";
        assert_eq!(String::from_utf8(request.head_for("/c", "h")).unwrap(), head);
    }

    #[test]
    fn form_values_precede_query_values() {
        let text = "POST /run?cmd=a&b=c HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\
                    Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n\r\n";
        let (mut request, _) = Request::take(text.as_bytes()).unwrap().unwrap();
        assert!(request.has_form());
        request.form = "cmd=ls+%2F".to_owned();
        assert_eq!(request.exact_form_values("cmd"), Some(vec!["ls /".to_owned(), "a".to_owned()]));
        assert_eq!(request.exact_form_values("b"), Some(vec!["c".to_owned()]));
        request.form = "b=%ff".to_owned();
        assert_eq!(request.exact_form_values("b"), None);
    }

    #[test]
    fn paths_and_query_values_are_unescaped() {
        let (request, _) =
            Request::take(b"GET /a%2Fb/%2e%2E?x=1%202&y=+&z&w=%zz HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().unwrap();
        assert_eq!(request.path, "/a/b/..");
        let asks = |key: &str| request.query_value(key);
        assert_eq!((asks("x"), asks("y")), (Some("1 2".to_owned()), Some(" ".to_owned())));
        assert_eq!((asks("z"), asks("w"), asks("v")), (Some(String::new()), None, None));
    }

    #[test]
    fn value_that_cannot_be_unescaped_is_left_out_or_refused() {
        let (request, _) = Request::take(b"GET /?a=rm&a=%ff&a=-r&b=1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().unwrap();
        assert_eq!(request.query_values("a"), ["rm", "-r"]);
        assert_eq!((request.exact_query_values("a"), request.exact_query_values("c")), (None, Some(vec![])));
        assert_eq!(request.exact_query_values("b"), Some(vec!["1".to_owned()]));
    }
}
