//! The tokens that the API server has accepted, by their digests. Pure.
//!
//! Without the server a token cannot be verified. A token is accepted then if the server has accepted the same token
//! before, or if this node has requested it from the server for one of its pods. The claims of any other token may be
//! forged.

use serde_json::{Value, json};

use super::identity::Identity;

/// In the order of their last use, the newest last.
#[derive(Debug, Default)]
pub(super) struct AcceptedTokens(Vec<Identity>);

/// Of one account. A pod's token is replaced every 48 minutes, and the node stores one every six hours.
const MAX_TOKENS_OF_ACCOUNT: usize = 16;

impl AcceptedTokens {
    /// Returns whether the token is a new one.
    pub(super) fn add(&mut self, identity: &Identity) -> bool {
        let accepted = self.0.iter().position(|accepted| accepted == identity);
        if let Some(index) = accepted {
            self.0.remove(index);
        }
        self.0.push(identity.clone());
        let is_of_account = |accepted: &&Identity| accepted.account == identity.account;
        if self.0.iter().filter(is_of_account).count() > MAX_TOKENS_OF_ACCOUNT {
            let oldest = self.0.iter().position(|accepted| accepted.account == identity.account);
            oldest.map(|index| self.0.remove(index));
        }
        accepted.is_none()
    }

    /// The server does not accept the token any longer.
    pub(super) fn remove(&mut self, identity: &Identity) -> bool {
        let before = self.0.len();
        self.0.retain(|accepted| accepted != identity);
        self.0.len() < before
    }

    pub(super) fn has(&self, identity: &Identity) -> bool {
        self.0.contains(identity)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn write(&self, account: &str) -> Value {
        let of_account = self.0.iter().filter(|identity| identity.account == account);
        of_account.map(|identity| json!({"id": identity.id, "token": identity.token})).collect()
    }

    /// Adds what was written. Skips what is malformed.
    pub(super) fn read(&mut self, account: &str, content: &Value) {
        for entry in content.as_array().into_iter().flatten() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
            if let (Some(id), Some(token)) = (text("id"), text("token")) {
                self.add(&Identity { account: account.to_owned(), id, token });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::api_cache::identity::testing::token;

    fn identity(subject: &str, signature: &str) -> Identity {
        Identity::of(&token("https://k", &format!("system:serviceaccount:kube-system:{subject}"), signature)).unwrap()
    }

    #[test]
    fn only_the_same_token_is_accepted() {
        let mut tokens = AcceptedTokens::default();
        let (real, forged) = (identity("kube-proxy", "real"), identity("kube-proxy", "forged"));
        assert!(tokens.add(&real) && !tokens.add(&real));
        assert_eq!((real.id == forged.id, tokens.has(&real), tokens.has(&forged)), (true, true, false));
        assert!(tokens.remove(&real) && !tokens.has(&real));
    }

    #[test]
    fn written_tokens_are_read_back() {
        let (mut tokens, mut read) = (AcceptedTokens::default(), AcceptedTokens::default());
        let (proxy, dns) = (identity("kube-proxy", "a"), identity("coredns", "b"));
        tokens.add(&proxy);
        tokens.add(&dns);
        read.read("kube-system/kube-proxy", &tokens.write("kube-system/kube-proxy"));
        read.read("kube-system/kube-proxy", &json!([{"id": 1}, 2]));
        assert_eq!((read.has(&proxy), read.has(&dns)), (true, false));
    }

    #[test]
    fn oldest_token_of_an_account_is_dropped() {
        let mut tokens = AcceptedTokens::default();
        tokens.add(&identity("coredns", "a"));
        for number in 0..=MAX_TOKENS_OF_ACCOUNT {
            tokens.add(&identity("kube-proxy", &number.to_string()));
        }
        let has = |subject, signature| tokens.has(&identity(subject, signature));
        assert!(has("coredns", "a") && !has("kube-proxy", "0") && has("kube-proxy", "1") && has("kube-proxy", "16"));
    }
}
