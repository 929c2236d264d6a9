//! Requests of the owner, who proves it by a token: ends of logs, restart, rollback, confirm. Without a token file there
//! is no owner, and the page is read-only.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::control::server::http::{Response, Status};
use crate::control::server::peer_buckets::{PeerBuckets, PeerLimits};
use crate::platform::host::file;
use crate::platform::rt;
use crate::protocol::http1::Request;
use crate::protocol::sha256::sha256;

/// The file with the digest of the token, below the root directory.
pub(crate) const PAGE_TOKEN: &str = "coracle/page-token";
const MAX_PAGE_TOKEN_BYTES: u64 = 256;
const WRONG_TOKENS: PeerLimits = PeerLimits { burst: 5, period: Duration::from_secs(30), max_peers: 32 };

pub(super) struct Owner {
    file: PathBuf,
    /// Wrong tokens; a right one takes nothing.
    attempts: RefCell<PeerBuckets>,
}

impl Owner {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, attempts: RefCell::new(PeerBuckets::new(WRONG_TOKENS)) }
    }

    /// Whether the owner sends this request; the error is the response.
    ///
    /// The token is a header that pages of other sites cannot set (a preflight request would be needed, which is
    /// refused), so a browser never sends it unasked.
    pub(super) async fn authorize(&self, request: &Request, peer: IpAddr) -> Result<(), Response> {
        let file = self.file.clone();
        let digest = rt::blocking(move || file::read_all(&file, MAX_PAGE_TOKEN_BYTES)).await;
        let Ok(digest) = digest else {
            let text = "this page is read-only: `coracle page-token` on the node makes a token for it\n";
            return Err(Response::text(Status::Forbidden, text));
        };
        if !self.attempts.borrow().has_token(peer, rt::now()) {
            return Err(Response::text(Status::TooManyRequests, "too many wrong tokens: try again in a minute\n"));
        }
        let token = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let Some(token) = token else {
            return Err(Response::text(Status::Unauthorized, "the token is missing\n"));
        };
        if is_token(token, &digest) {
            return Ok(());
        }
        self.attempts.borrow_mut().take_some(peer, 1, rt::now());
        Err(Response::text(Status::Unauthorized, "wrong token\n"))
    }
}

/// Whether the token has this digest. Takes the same time for every digest of this length.
fn is_token(token: &str, digest: &[u8]) -> bool {
    let (token_digest, digest) = (sha256(token.trim().as_bytes()), digest.trim_ascii());
    let differing = token_digest.bytes().zip(digest).fold(0, |bits, (a, b)| bits | (a ^ b));
    token_digest.len() == digest.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_of_the_digest_is_right() {
        let digest = sha256(b"abcd-efgh") + "\n";
        assert!(is_token("abcd-efgh", digest.as_bytes()) && is_token(" abcd-efgh ", digest.as_bytes()));
        for (token, digest) in [("abcd-efgi", digest.as_bytes()), ("", digest.as_bytes()), ("abcd-efgh", b"")] {
            assert!(!is_token(token, digest), "{token}");
        }
        // The digest itself is no token.
        assert!(!is_token(digest.trim(), digest.as_bytes()));
    }
}
