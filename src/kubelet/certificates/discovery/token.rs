//! Bootstrap tokens. Pure.

use std::fmt;
use std::str::FromStr;

/// `abcdef.0123456789abcdef`: the id and the secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BootstrapToken {
    id: String,
    secret: String,
}

/// Does not show the input: it may be a mistyped secret.
const EXPECTED_TOKEN: &str = "expected six lower-case letters or digits, a dot and sixteen more of them";

impl BootstrapToken {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn secret(&self) -> &str {
        &self.secret
    }

    /// The full token, for the API server only.
    pub(crate) fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

impl FromStr for BootstrapToken {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (id, secret) = text.split_once('.').ok_or(EXPECTED_TOKEN)?;
        let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret) {
            Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
        } else {
            Err(EXPECTED_TOKEN)
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
    fn debug_output_has_no_secret() {
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();
        assert_eq!((token.id(), token.reveal().as_str()), ("abcdef", "abcdef.0123456789abcdef"));
        assert_eq!(format!("{token:?}"), "BootstrapToken(abcdef)");
    }

    #[test]
    fn malformed_tokens_are_refused_without_showing_them() {
        for text in
            ["", "abcdef", "abcdef.", "abcdef.0123456789abcde", "Abcdef.0123456789abcdef", "abcde.0123456789abcdef"]
        {
            assert_eq!(text.parse::<BootstrapToken>(), Err(EXPECTED_TOKEN), "{text}");
        }
    }
}
