//! Bearer tokens of a request, in its Authorization header or among its WebSocket protocols. Pure.

use crate::protocol::http1::{PROTOCOLS, Request, TOKEN_PROTOCOL};
use crate::types::api::Bytes;

/// All tokens, in upstream's order. Fails if one is malformed.
pub(super) fn tokens(request: &Request) -> Result<Vec<String>, &'static str> {
    let header = request.header("authorization").and_then(bearer).map(str::to_owned);
    let web_socket = if request.is_web_socket() { among_protocols(request)? } else { None };
    Ok(header.into_iter().chain(web_socket).collect())
}

/// RFC 6750, as upstream parses it.
pub(in crate::control::server) fn bearer(authorization: &str) -> Option<&str> {
    let (kind, token) = authorization.trim().split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (kind.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// As in k8s.io/apiserver/pkg/authentication/request/websocket: one token, and at least one other protocol for the
/// response.
fn among_protocols(request: &Request) -> Result<Option<String>, &'static str> {
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        request.words(PROTOCOLS).partition(|word| word.starts_with(TOKEN_PROTOCOL));
    let Some((token, more)) = tokens.split_first() else { return Ok(None) };
    if !more.is_empty() {
        return Err("more than one token among the protocols");
    }
    if others.is_empty() {
        return Err("no protocol beside the token");
    }
    let text = token.strip_prefix(TOKEN_PROTOCOL).unwrap_or_default();
    let token = Bytes::from_base64url(text).and_then(|bytes| String::from_utf8(bytes.0).ok());
    let token = token.ok_or("a token among the protocols that is not base64url of a text")?;
    Ok(Some(token).filter(|token| !token.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens_of(headers: &str) -> Result<Vec<String>, &'static str> {
        let text = format!("GET /exec/a/b/c HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        let (request, _) = Request::take(text.as_bytes()).unwrap().unwrap();
        tokens(&request)
    }

    #[test]
    fn bearer_token_follows_its_scheme() {
        for (header, token) in [
            ("Bearer a", Some("a")),
            (" bearer a.b-c ", Some("a.b-c")),
            ("Bearer a b", Some("a")),
            ("Bearer", None),
            ("Bearer  a", None),
            ("Basic a", None),
            ("", None),
        ] {
            assert_eq!(bearer(header), token, "{header:?}");
        }
    }

    #[test]
    fn websocket_may_carry_its_token_among_the_protocols() {
        let upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n";
        // {"?>>":"\u{ff}"} encodes to both characters that differ in base64url.
        let protocols = |words: &str| tokens_of(&format!("{upgrade}Sec-WebSocket-Protocol: {words}\r\n"));
        let token = "base64url.bearer.authorization.k8s.io.";
        assert_eq!(protocols(&format!("{token}c2VjcmV0, v4.channel.k8s.io")), Ok(vec!["secret".to_owned()]));
        assert_eq!(protocols(&format!("v4.channel.k8s.io,{token}Pz8-w78")), Ok(vec!["??>\u{ff}".to_owned()]));
        assert_eq!(protocols("v4.channel.k8s.io"), Ok(vec![]));
        assert_eq!(protocols(&format!("{token}, v4.channel.k8s.io")), Ok(vec![]));
        for wrong in ["c2VjcmV0", "c2VjcmV0, c", "c2VjcmV0=, v4", "a+b/, v4", "a, v4", "_w, v4", "%, v4"] {
            let words = format!("{token}{wrong}");
            let words = if wrong.ends_with(", c") { format!("{words}, {token}YQ") } else { words };
            assert!(protocols(&words).is_err(), "{words}");
        }
        let both = format!("Authorization: Bearer a\r\n{upgrade}Sec-WebSocket-Protocol: {token}Yg, v4\r\n");
        assert_eq!(tokens_of(&both), Ok(vec!["a".to_owned(), "b".to_owned()]));
        // Only WebSocket requests carry tokens this way.
        assert_eq!(tokens_of(&format!("Sec-WebSocket-Protocol: {token}Yg, v4\r\n")), Ok(vec![]));
    }
}
