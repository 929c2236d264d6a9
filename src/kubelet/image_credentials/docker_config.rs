//! Parses Docker's credential files: registries with usernames and passwords. Pure.

use std::{fmt, mem};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;

use super::keyring::Login;
use crate::types::api::Bytes;
use crate::types::sorted::SortedMap;

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
    let mut credentials = Vec::new();
    for_each(text, shape, &mut |registry, login| credentials.push((registry, login)))?;
    Ok(last_of_each(credentials))
}

/// Of several logins to one registry the last one counts.
pub(super) fn last_of_each(logins: Vec<(String, Login)>) -> Vec<(String, Login)> {
    SortedMap::from_iter(logins).into_iter().collect()
}

/// Passes each registry and its login on. The file's author may write tens of thousands, so they are not collected.
pub(super) fn for_each(
    text: &[u8],
    shape: ConfigFormat,
    each: &mut dyn FnMut(String, Login),
) -> Result<(), InvalidConfig> {
    let mut file = Reader { each, at: Place::Document, problem: None };
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = match shape {
        ConfigFormat::ConfigJson => Document(&mut file).deserialize(&mut json),
        ConfigFormat::Dockercfg => Registries(&mut file).deserialize(&mut json),
    };
    let read = read.and_then(|()| json.end());
    if let Some(problem) = file.problem {
        return Err(problem);
    }
    read.map_err(|error| match (error.classify(), file.at) {
        (Category::Data, Place::Document) => InvalidConfig::Expected("a mapping"),
        (Category::Data, Place::Auths) => InvalidConfig::Expected("a mapping under auths"),
        (Category::Data, Place::Entry(registry)) => InvalidConfig::Entry(registry, "a mapping"),
        (Category::Data, Place::Text(registry)) => InvalidConfig::Entry(registry, EXPECTED_AUTH_TEXTS),
        (Category::Eof | Category::Io | Category::Syntax, _) => InvalidConfig::NoJson,
    })
}

struct Reader<'a> {
    each: &'a mut dyn FnMut(String, Login),
    /// Where a value of another type is found.
    at: Place,
    problem: Option<InvalidConfig>,
}

enum Place {
    Document,
    Auths,
    /// The value of this registry.
    Entry(String),
    /// A value in the entry of this registry.
    Text(String),
}

/// The document of a `config.json`, of which only `auths` counts.
struct Document<'a, 'b>(&'a mut Reader<'b>);

/// Logins by registry.
struct Registries<'a, 'b>(&'a mut Reader<'b>);

/// The login of a registry.
struct Entry<'a, 'b>(&'a mut Reader<'b>);

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            if key == "auths" {
                self.0.at = Place::Auths;
                entries.next_value_seed(Registries(self.0))?;
                self.0.at = Place::Document;
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Registries<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        match self.0.at {
            Place::Auths => from.deserialize_any(self),
            Place::Document | Place::Entry(_) | Place::Text(_) => from.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for Registries<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    /// `auths` may be null.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(registry) = entries.next_key::<String>()? {
            self.0.at = Place::Entry(registry);
            entries.next_value_seed(Entry(self.0))?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Entry<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Entry<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Place::Entry(registry) = mem::replace(&mut self.0.at, Place::Document) else { return Ok(()) };
        self.0.at = Place::Text(registry);
        let [mut username, mut password, mut email, mut auth] = [const { String::new() }; 4];
        while let Some(key) = entries.next_key::<String>()? {
            let field = match key.as_str() {
                "username" => &mut username,
                "password" => &mut password,
                "email" => &mut email,
                "auth" => &mut auth,
                _ => {
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            *field = entries.next_value::<Option<String>>()?.unwrap_or_default();
        }
        let Place::Text(registry) = mem::replace(&mut self.0.at, Place::Document) else { return Ok(()) };
        match login(&username, &password, &email, &auth) {
            Some(login) => (self.0.each)(registry, login),
            None => drop(self.0.problem.get_or_insert(InvalidConfig::Entry(registry, AUTH))),
        }
        Ok(())
    }
}

/// `auth` takes precedence over username and password.
fn login(username: &str, password: &str, email: &str, auth: &str) -> Option<Login> {
    if auth.is_empty() {
        return Some(Login::new(username, password, email));
    }
    let decoded = decode(auth)?;
    let (username, password) = decoded.split_once(':')?;
    Some(Login::new(username, password, email))
}

const EXPECTED_AUTH_TEXTS: &str = "a string as username, password, email and auth";
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
    fn last_of_duplicate_registries_and_fields_counts() {
        let text = r#"{"x":[{}],"auths":{"b":{"username":"u"},"a":{"x":{}},"b":{"username":"v","username":"w"}}}"#;
        let expected = vec![("a".to_owned(), Login::new("", "", "")), ("b".to_owned(), Login::new("w", "", ""))];
        assert_eq!(given(text, ConfigFormat::ConfigJson), Ok(expected));
        let null = r#"{"r.io":{"username":null,"password":"p"}}"#;
        assert_eq!(given(null, ConfigFormat::Dockercfg), Ok(vec![("r.io".to_owned(), Login::new("", "p", ""))]));
    }

    #[test]
    fn error_shows_no_secrets() {
        let auth = "r.io: expected base64 of username:password as auth";
        for (text, problem) in [
            ("", "expected JSON"),
            ("secret", "expected JSON"),
            (r#"{"auths":{}} secret"#, "expected JSON"),
            (r#"{"auths":{"r.io":null}}"#, "r.io: expected a mapping"),
            (r#"{"auths":7}"#, "expected a mapping under auths"),
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
