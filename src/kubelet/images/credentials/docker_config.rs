//! Parses Docker's credential files: registries with usernames and passwords. Pure.

use std::fmt;

use serde_json::{Map, Value};

use super::keyring::Login;
use crate::types::api::Bytes;

/// The two formats of these files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigFormat {
    /// `config.json`, `.dockerconfigjson`: registries under `auths`.
    ConfigJson,
    /// `.dockercfg`: registries at the top level.
    Dockercfg,
}

/// Why a file is invalid. Never contains the secret content.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum InvalidConfig {
    NoJson,
    Expected(&'static str),
    /// In the entry of this registry.
    Entry(String, &'static str),
}

/// The registries and logins in the file.
pub(super) fn parse(text: &[u8], shape: ConfigFormat) -> Result<Vec<(String, Login)>, InvalidConfig> {
    let document: Value = serde_json::from_slice(text).map_err(|_| InvalidConfig::NoJson)?;
    let Value::Object(mut document) = document else { return Err(InvalidConfig::Expected("a mapping")) };
    let registries = match shape {
        ConfigFormat::Dockercfg => document,
        ConfigFormat::ConfigJson => match document.remove("auths") {
            Some(Value::Object(registries)) => registries,
            Some(Value::Null) | None => Map::new(),
            Some(_) => return Err(InvalidConfig::Expected("a mapping under auths")),
        },
    };
    let entries = registries.into_iter().map(|(registry, entry)| match login(&entry) {
        Ok(login) => Ok((registry, login)),
        Err(expected) => Err(InvalidConfig::Entry(registry, expected)),
    });
    entries.collect()
}

/// `auth` takes precedence over username and password.
fn login(entry: &Value) -> Result<Login, &'static str> {
    let Value::Object(entry) = entry else { return Err("a mapping") };
    let text = |name: &str| match entry.get(name) {
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(Value::Null) | None => Ok(""),
        Some(_) => Err("a string as username, password, email and auth"),
    };
    let (username, password, email, auth) = (text("username")?, text("password")?, text("email")?, text("auth")?);
    if auth.is_empty() {
        return Ok(Login::new(username, password, email));
    }
    let decoded = decode(auth).ok_or(AUTH)?;
    let (username, password) = decoded.split_once(':').ok_or(AUTH)?;
    Ok(Login::new(username, password, email))
}

const AUTH: &str = "base64 of username:password as auth";

/// With or without padding.
fn decode(auth: &str) -> Option<String> {
    let padding = if auth.trim_end().ends_with('=') { 0 } else { (4 - auth.trim().len() % 4) % 4 };
    let padded = [auth.trim(), "===".get(..padding)?].concat();
    String::from_utf8(Bytes::from_base64(&padded)?.0).ok()
}

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJson => f.write_str("expected JSON"),
            Self::Expected(what) => write!(f, "expected {what}"),
            Self::Entry(registry, what) => write!(f, "{registry}: expected {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str, shape: ConfigFormat) -> Result<Vec<(String, Login)>, String> {
        parse(text.as_bytes(), shape).map_err(|error| error.to_string())
    }

    #[test]
    fn login_is_username_and_password_or_auth() {
        let login = |name, password| Ok(vec![("r.io".to_owned(), Login::new(name, password, ""))]);
        for (entry, expected) in [
            (r#"{"username":"u","password":"p"}"#, login("u", "p")),
            (r#"{"auth":"dTpwOnE="}"#, login("u", "p:q")),
            (r#"{"auth":"dTpwOnE"}"#, login("u", "p:q")),
            (r#"{"auth":"dTpwOnE=","username":"x","password":"y"}"#, login("u", "p:q")),
            (r#"{"identitytoken":"t"}"#, login("", "")),
        ] {
            assert_eq!(
                given(&format!(r#"{{"auths":{{"r.io":{entry}}},"credsStore":"x"}}"#), ConfigFormat::ConfigJson),
                expected
            );
            assert_eq!(given(&format!(r#"{{"r.io":{entry}}}"#), ConfigFormat::Dockercfg), expected);
        }
        assert_eq!(given("{}", ConfigFormat::ConfigJson), Ok(Vec::new()));
        assert_eq!(given(r#"{"auths":null}"#, ConfigFormat::ConfigJson), Ok(Vec::new()));
    }

    #[test]
    fn error_shows_no_secrets() {
        let auth = "r.io: expected base64 of username:password as auth";
        for (text, problem) in [
            ("", "expected JSON"),
            ("secret", "expected JSON"),
            ("[]", "expected a mapping"),
            (r#"{"auths":[]}"#, "expected a mapping under auths"),
            (r#"{"auths":{"r.io":"secret"}}"#, "r.io: expected a mapping"),
            (r#"{"auths":{"r.io":{"auth":"secret!"}}}"#, auth),
            (r#"{"auths":{"r.io":{"auth":"c2VjcmV0"}}}"#, auth),
            (r#"{"auths":{"r.io":{"auth":"/////w=="}}}"#, auth),
            (r#"{"auths":{"r.io":{"password":7}}}"#, "r.io: expected a string as username, password, email and auth"),
        ] {
            assert_eq!(given(text, ConfigFormat::ConfigJson), Err(problem.to_owned()), "{text}");
        }
    }
}
