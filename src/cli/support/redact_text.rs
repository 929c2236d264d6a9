//! Removes secrets from text: private keys, passwords in URLs, tokens, and values of fields that are named so. Pure.

/// What stands for a secret.
pub(super) const REDACTED: &str = "REDACTED";

/// The text without secrets.
pub(super) fn redact_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_key = false;
    for line in text.split_inclusive('\n') {
        let begins = line.contains("-----BEGIN") && line.contains("PRIVATE KEY-----");
        let ends = line.rfind("-----END").is_some_and(|end| line.find("-----BEGIN").is_none_or(|begin| begin < end));
        match (in_key, begins) {
            (true, _) => in_key = !ends,
            (false, true) => {
                out.push_str(&format!("{REDACTED}: a line with a private key\n"));
                in_key = !ends;
            }
            (false, false) => line_into(line, &mut out),
        }
    }
    out
}

fn line_into(line: &str, out: &mut String) {
    let without_users = redact_urls(line);
    let without_fields = redact_fields(&without_users);
    let mut word = String::new();
    for c in without_fields.chars() {
        if c.is_ascii_alphanumeric() || "-_.+/".contains(c) {
            word.push(c);
            continue;
        }
        flush(&mut word, out);
        out.push(c);
    }
    flush(&mut word, out);
}

fn flush(word: &mut String, out: &mut String) {
    out.push_str(if is_token(word) { REDACTED } else { word });
    word.clear();
}

/// Beginnings of well-known tokens.
const TOKEN_PREFIXES: [&str; 7] = ["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-", "AKIA"];

fn is_token(word: &str) -> bool {
    let is_jwt = word.starts_with("eyJ") && word.len() > 30 && word.contains('.');
    let is_bootstrap = word.split_once('.').is_some_and(|(id, secret)| {
        let is_part = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        id.len() == 6 && secret.len() == 16 && is_part(id) && is_part(secret)
    });
    is_jwt || is_bootstrap || word.len() >= 16 && TOKEN_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
}

/// `https://user:password@host` without the user and password.
fn redact_urls(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let is_end = |c: char| c.is_whitespace() || "/\"'`<>,)".contains(c);
        let end = after.find(is_end).unwrap_or(after.len());
        let (authority, more) = after.split_at_checked(end).unwrap_or((after, ""));
        match authority.rsplit_once('@') {
            Some((_, host)) => out.push_str(&format!("{REDACTED}@{host}")),
            None => out.push_str(authority),
        }
        rest = more;
    }
    out.push_str(rest);
    out
}

/// Values behind the name of a secret field: `password=x`, `--token x` in one string, `"auth": "x"`, `password: x` at
/// the start of a line, and `Authorization: Bearer x`.
fn redact_fields(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['=', ':']) {
        let (name, after) = rest.split_at_checked(at).unwrap_or((rest, ""));
        let is_first = out.trim().is_empty();
        let separator = if after.starts_with('=') { '=' } else { ':' };
        let value = after.get(1..).unwrap_or_default();
        out.push_str(name);
        out.push(separator);
        rest = match secret_name(name, separator, is_first).then(|| skip_value(value)).flatten() {
            Some((space, after)) => {
                out.push_str(space);
                out.push_str(REDACTED);
                after
            }
            None => value,
        };
    }
    redact_flags(rest, &mut out);
    out
}

/// `--password x` within a command line.
fn redact_flags(text: &str, out: &mut String) {
    let mut redact_next = false;
    for word in text.split_inclusive(' ') {
        let bare = word.trim();
        if redact_next && !bare.is_empty() && !bare.starts_with('-') {
            out.push_str(&word.replace(bare, REDACTED));
        } else {
            out.push_str(word);
        }
        redact_next = bare.starts_with("--") && is_secret_name(bare);
    }
}

/// Whether the text before a separator ends in the name of a secret field.
fn secret_name(before: &str, separator: char, is_first: bool) -> bool {
    let trimmed = before.trim_end();
    let quoted = trimmed.ends_with(['"', '\'', '\\']);
    let bare = trimmed.trim_end_matches(['"', '\'', '\\']);
    let start = bare.rfind(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c)).map_or(0, |at| at + 1);
    let name = bare.get(start..).unwrap_or_default();
    // A colon follows a quoted name (JSON), a name at the start of a line (YAML), or that of a header. Others are prose.
    let is_field = separator == '=' || quoted || name.eq_ignore_ascii_case("authorization") || {
        is_first && before.get(..start).unwrap_or_default().trim_matches([' ', '-', '\t']).is_empty()
    };
    is_field && is_secret_name(name)
}

/// Splits off the value: the space and quotes before it, and what follows it. `None`: there is none, or it is a list,
/// an object or a boolean.
fn skip_value(value: &str) -> Option<(&str, &str)> {
    let start = value.find(|c: char| !" \"'\\".contains(c))?;
    let (space, text) = value.split_at_checked(start)?;
    let text =
        ["Bearer ", "bearer ", "Basic ", "basic "].iter().find_map(|kind| text.strip_prefix(kind)).unwrap_or(text);
    let is_quoted = space.contains(['"', '\'']);
    let is_end = |c: char| match is_quoted {
        true => "\"'\\\n".contains(c),
        false => c.is_whitespace() || "\"',&;}])".contains(c),
    };
    let end = text.find(is_end).unwrap_or(text.len());
    let (secret, after) = text.split_at_checked(end)?;
    let is_secret = !secret.is_empty() && !["true", "false", "null", "{", "[", "|", ">"].contains(&secret);
    (is_secret && !secret.starts_with(['{', '['])).then_some((space, after))
}

/// Whether a field or flag of this name has a secret, in any spelling.
pub(super) fn is_secret_name(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    SECRET_ENDS.iter().any(|end| plain.ends_with(end)) || plain == "auth"
}

const SECRET_ENDS: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "keydata",
    "authorization",
    "credentials",
    "pwd",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(redact_text(text), expected);
    }

    #[test]
    fn passwords_of_urls_are_removed() {
        check("GET https://u:p@host:5/x?y z\n", "GET https://REDACTED@host:5/x?y z\n");
        check("a http://h/b@c and ftp://token@d", "a http://h/b@c and ftp://REDACTED@d");
        check("HTTPS_PROXY=\"http://u:p/w@h\"", "HTTPS_PROXY=\"http://u:p/w@h\"");
    }

    #[test]
    fn values_of_secret_fields_are_removed() {
        for (text, expected) in [
            ("PASSWORD=hunter2 app", "PASSWORD=REDACTED app"),
            ("--db-password=hunter2\n", "--db-password=REDACTED\n"),
            ("run --password hunter2 --x y", "run --password REDACTED --x y"),
            ("{\"password\": \"hunter 2\", \"a\": \"b\"}", "{\"password\": \"REDACTED\", \"a\": \"b\"}"),
            ("{\\\"token\\\":\\\"hunter2\\\"}", "{\\\"token\\\":\\\"REDACTED\\\"}"),
            ("  password: hunter2\n", "  password: REDACTED\n"),
            ("- token: 'hunter2'\n", "- token: 'REDACTED'\n"),
            ("password = \"hunter2\"\n", "password = \"REDACTED\"\n"),
            ("Authorization: Bearer hunter2", "Authorization: REDACTED"),
            ("curl -H 'Authorization: Basic aHVudGVyMg=='", "curl -H 'Authorization: REDACTED'"),
            ("a=1&access_key=hunter2&b=2", "a=1&access_key=REDACTED&b=2"),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn tokens_are_removed_wherever_they_are() {
        let jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6IiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.abc";
        check(&format!("got {jwt}, x"), "got REDACTED, x");
        check("join --token abcdef.0123456789abcdef h", "join --token REDACTED h");
        check("id abcdef.0123456789abcdef", "id REDACTED");
        check("ghp_0123456789abcdefABCD", "REDACTED");
    }

    #[test]
    fn private_keys_are_removed_with_their_lines() {
        let key = "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nx=\n-----END RSA PRIVATE KEY-----\nb\n";
        check(key, "a\nREDACTED: a line with a private key\nb\n");
        check(
            "k: -----BEGIN PRIVATE KEY-----\\nMI\\n-----END PRIVATE KEY-----\nb\n",
            "REDACTED: a line with a private key\nb\n",
        );
        let certificate = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
        check(certificate, certificate);
    }

    #[test]
    fn what_helps_stays() {
        for text in [
            "failed to read token: permission denied\n",
            "CreateContainerConfigError: container main: secret \"gone\" not found\n",
            "automountServiceAccountToken: false\n",
            "secretName: web\n",
            "2026-01-01T00:00:00.000000000Z stderr F started, pid=17, url=http://h/x\n",
            "{\"secret\": {\"secretName\": \"web\"}}\n",
            "image: docker.io/library/nginx:1.27@sha256:0123456789abcdef0123456789abcdef\n",
        ] {
            check(text, text);
        }
    }
}
