//! Lifetimes of tokens, and which tokens are worth storing. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use crate::types::api::Bytes;

/// Unix times, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenLifetime {
    pub(super) issued: i64,
    pub(super) expires: i64,
}

/// Shortest time between two writes of a token. More writes would wear the flash for an hour of lifetime.
const MIN_TOKEN_WRITE_INTERVAL_SECONDS: i64 = 6 * 3600;

impl TokenLifetime {
    /// Reads the dates in the token. An API server may issue a token that is valid for longer than it states beside it.
    pub(super) fn of(token: &str, now: i64, life: Duration) -> Self {
        let requested = i64::try_from(life.as_secs()).unwrap_or(i64::MAX);
        claimed(token).unwrap_or(Self { issued: now, expires: now.saturating_add(requested) })
    }

    /// The remaining lifetime; `None` once expired.
    pub(super) fn left(self, now: i64) -> Option<Duration> {
        let seconds = u64::try_from(self.expires.saturating_sub(now)).ok()?;
        (seconds > 0).then_some(Duration::from_secs(seconds))
    }

    pub(super) fn is_over(self, now: i64) -> bool {
        self.expires <= now
    }
}

/// The dates in the token itself (RFC 7519), if it is a JWT.
fn claimed(token: &str) -> Option<TokenLifetime> {
    let claims: Value = serde_json::from_slice(&Bytes::from_base64url(token.split('.').nth(1)?)?.0).ok()?;
    let date = |name: &str| claims.get(name).and_then(Value::as_i64);
    Some(TokenLifetime { issued: date("iat")?, expires: date("exp")? })
}

/// Whether to store a new token in place of one with these dates: after half of its lifetime, and not too often.
pub(super) fn is_worth_keeping(kept: Option<TokenLifetime>, now: i64) -> bool {
    kept.is_none_or(|TokenLifetime { issued, expires }| {
        let age = now.saturating_sub(issued);
        age >= MIN_TOKEN_WRITE_INTERVAL_SECONDS && age > expires.saturating_sub(issued) / 2
    })
}

pub(super) fn write(token: &str, dates: TokenLifetime) -> Value {
    json!({"token": token, "issued": dates.issued, "expires": dates.expires})
}

/// `None` if malformed.
pub(super) fn read(stored: &Value) -> Option<(String, TokenLifetime)> {
    let date = |name: &str| stored.get(name).and_then(Value::as_i64);
    let token = stored.get("token").and_then(Value::as_str)?;
    Some((token.to_owned(), TokenLifetime { issued: date("issued")?, expires: date("expires")? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;

    fn jwt(claims: &Value) -> String {
        format!("e30.{}.c2ln", Bytes(claims.to_string().into_bytes()).to_base64url())
    }

    #[test]
    fn lifetime_in_the_token_takes_precedence() {
        let life = Duration::from_secs(3607);
        let token = jwt(&json!({"iat": 100, "exp": 100 + 365 * 24 * HOUR, "sub": "é?>~"}));
        assert_eq!(TokenLifetime::of(&token, 7, life), TokenLifetime { issued: 100, expires: 100 + 365 * 24 * HOUR });
        for token in ["opaque", "a.b.c", "", &jwt(&json!({"iat": 100})), &jwt(&json!("exp"))] {
            assert_eq!(TokenLifetime::of(token, 7, life), TokenLifetime { issued: 7, expires: 7 + 3607 }, "{token}");
        }
    }

    #[test]
    fn stored_token_is_replaced_after_half_its_life_and_not_too_often() {
        let long = TokenLifetime { issued: 0, expires: 100 * HOUR };
        let short = TokenLifetime { issued: 0, expires: HOUR };
        for (kept, now, expected) in [
            (None, 0, true),
            (Some(long), 49 * HOUR, false),
            (Some(long), 51 * HOUR, true),
            (Some(short), HOUR, false),
            (Some(short), 6 * HOUR, true),
            // A clock that was set back.
            (Some(short), -HOUR, false),
        ] {
            assert_eq!(is_worth_keeping(kept, now), expected, "{kept:?} at {now}");
        }
    }

    #[test]
    fn written_token_reads_back() {
        let dates = TokenLifetime { issued: 1, expires: 2 };
        assert_eq!(read(&write("t", dates)), Some(("t".to_owned(), dates)));
        assert_eq!(read(&json!({"token": "t"})), None);
        assert!(dates.is_over(2) && !dates.is_over(1));
    }
}
