//! Bootstrap tokens: what a node is given to join with. Pure.

use std::fmt;
use std::str::FromStr;

/// `abcdef.0123456789abcdef`: the first part names it, the second is secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BootstrapToken {
    id: String,
    secret: String,
}

/// What was given instead is not shown: it may be a secret with a slip in it.
const EXPECTED: &str = "expected six lower-case letters or digits, a dot and sixteen more of them";

impl BootstrapToken {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// As it is shown to the API server, and to nobody else.
    pub(crate) fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

impl FromStr for BootstrapToken {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (id, secret) = text.split_once('.').ok_or(EXPECTED)?;
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret) {
            Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
        } else {
            Err(EXPECTED)
        }
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_a_name_and_a_secret_that_is_not_shown() {
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        assert_eq!((token.id(), token.reveal().as_str()), ("abcdef", "abcdef.0123456789abcdef"));
        assert_eq!(format!("{token:?}"), "BootstrapToken(abcdef)");
    }

    #[test]
    fn what_is_no_token_is_refused_without_showing_it() {
        for text in
            ["", "abcdef", "abcdef.", "abcdef.0123456789abcde", "Abcdef.0123456789abcdef", "abcde.0123456789abcdef"]
        {
            assert_eq!(text.parse::<BootstrapToken>(), Err(EXPECTED), "{text}");
        }
    }
}
