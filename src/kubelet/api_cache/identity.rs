//! The ServiceAccount that a bearer token names. Pure.
//!
//! The claims are not verified here: what an identity has read is only shown to tokens that the API server has accepted
//! (`accepted_tokens.rs`).

use serde_json::Value;

use crate::protocol::sha256::sha256;
use crate::types::api::Bytes;

/// A ServiceAccount by a token of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// `NAMESPACE/NAME`
    pub(super) account: String,
    /// Digest of issuer and subject: another issuer's subject of the same name is another identity.
    pub(super) id: String,
    /// Digest of the token.
    pub(super) token: String,
}

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

impl Identity {
    /// `None` if it is not the token of a ServiceAccount.
    pub(crate) fn of(token: &str) -> Option<Self> {
        let mut parts = token.split('.');
        let (_, claims, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else { return None };
        let claims: Value = serde_json::from_slice(&Bytes::from_base64url(claims)?.0).ok()?;
        let claim = |name: &str| claims.get(name).and_then(Value::as_str);
        let (issuer, subject) = (claim("iss")?, claim("sub")?);
        let (namespace, name) = subject.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
        Some(Self {
            account: format!("{namespace}/{name}"),
            id: sha256([issuer, "\0", subject].concat().as_bytes()),
            token: sha256(token.as_bytes()),
        })
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A token with these claims. `signature` tells tokens of one account apart.
    pub(crate) fn token(issuer: &str, subject: &str, signature: &str) -> String {
        let part = |text: String| Bytes(text.into_bytes()).to_base64url();
        let claims = serde_json::json!({"iss": issuer, "sub": subject}).to_string();
        format!("{}.{}.{}", part("{}".to_owned()), part(claims), part(signature.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::testing::token;
    use super::*;

    #[test]
    fn rotated_token_has_the_same_identity() {
        let of = |issuer, subject, signature| Identity::of(&token(issuer, subject, signature)).unwrap();
        let proxy = "system:serviceaccount:kube-system:kube-proxy";
        let (one, next) = (of("https://k", proxy, "a"), of("https://k", proxy, "b"));
        assert_eq!((&*one.account, &one.id), ("kube-system/kube-proxy", &next.id));
        assert_ne!(one.token, next.token);
        assert_ne!(one.id, of("https://other", proxy, "a").id);
        assert_ne!(one.id, of("https://k", "system:serviceaccount:kube-system:coredns", "a").id);
    }

    #[test]
    fn other_tokens_have_no_identity() {
        for other in ["", "abc.def", "a.b.c", "a.b.c.d", &token("i", "alice", "s"), &token("i", "system:node:n", "s")] {
            assert_eq!(Identity::of(other), None, "{other}");
        }
    }
}
