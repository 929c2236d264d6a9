//! Parses image names, and adds the default tag. Pure.
//!
//! The grammar and its terms are those of github.com/distribution/reference: `[domain/]path[:tag][@digest]`.

use std::fmt;

const DEFAULT_TAG: &str = "latest";
/// The grammar's `NameTotalLengthMax`; the longest tag is in its regular expression.
const MAX_IMAGE_PATH_CHARS: usize = 255;
const MAX_TAG_CHARS: usize = 128;

/// Why an image name is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InvalidName<'a> {
    Format,
    Hexadecimal { image: &'a str },
    TooLong,
    Uppercase { path: &'a str },
    Digest(DigestError),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DigestError {
    Algorithm,
    Length,
    Format,
}

/// Adds the default tag if the name has neither tag nor digest. Does not add a registry: resolving short names is up
/// to the runtime.
pub(crate) fn with_default_tag(image: &str) -> Result<String, InvalidName<'_>> {
    let Parts { tag, digest } = parse(image)?;
    Ok(if tag.is_none() && digest.is_none() { [image, ":", DEFAULT_TAG].concat() } else { image.to_owned() })
}

/// The name without tag and digest, with Docker Hub as the default registry.
pub(crate) fn repository(image: &str) -> Result<String, InvalidName<'_>> {
    let Parts { tag, digest } = parse(image)?;
    let name = digest.map_or(image, |digest| image.get(..image.len() - digest.len() - 1).unwrap_or(image));
    let name = tag.map_or(name, |tag| name.get(..name.len() - tag.len() - 1).unwrap_or(name));
    Ok(match split_domain(name) {
        (Some("docker.io" | "index.docker.io"), path) => of_docker_hub(path),
        (Some(_), _) => name.to_owned(),
        (None, path) => of_docker_hub(path),
    })
}

/// The location of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// Including the port.
    pub(crate) registry: String,
    /// The repository in the registry.
    pub(crate) path: String,
    tag: Option<String>,
    digest: Option<String>,
}

/// The parts of a name; a short name is Docker Hub's.
pub(crate) fn reference(image: &str) -> Result<Reference, InvalidName<'_>> {
    let Parts { tag, digest } = parse(image)?;
    let repository = repository(image)?;
    let (registry, path) = repository.split_once('/').unwrap_or((&repository, ""));
    Ok(Reference {
        registry: registry.to_owned(),
        path: path.to_owned(),
        tag: tag.map(str::to_owned),
        digest: digest.map(str::to_owned),
    })
}

impl Reference {
    /// The digest, or else the tag.
    pub(crate) fn reference(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or(DEFAULT_TAG)
    }

    /// With the registry, without tag and digest.
    pub(crate) fn repository(&self) -> String {
        [&self.registry, "/", &self.path].concat()
    }

    pub(crate) fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// `:tag`, `@digest`, or both; `None` if the name has neither.
    pub(crate) fn suffix(&self) -> Option<String> {
        let tag = self.tag.iter().flat_map(|tag| [":", tag]);
        let digest = self.digest.iter().flat_map(|digest| ["@", digest]);
        Some(tag.chain(digest).collect::<String>()).filter(|suffix| !suffix.is_empty())
    }

    /// The image of a pod: with the default tag if it has neither tag nor digest, and without a tag beside a digest.
    pub(crate) fn in_pod(self) -> Self {
        let tag = self.tag.or_else(|| Some(DEFAULT_TAG.to_owned())).filter(|_| self.digest.is_none());
        Self { tag, ..self }
    }

    /// The same repository, by digest.
    pub(crate) fn at_digest(&self, digest: &str) -> Self {
        Self { tag: None, digest: Some(digest.to_owned()), ..self.clone() }
    }

    /// The names under which the runtime's own pull stores the image with this digest.
    pub(crate) fn all_names(&self, digest: &str) -> Vec<String> {
        let Self { registry, path, tag, .. } = self;
        let by_tag = match (&self.digest, tag) {
            (None, tag) => Some(format!("{registry}/{path}:{}", tag.as_deref().unwrap_or(DEFAULT_TAG))),
            (Some(_), _) => None,
        };
        by_tag.into_iter().chain([format!("{registry}/{path}@{digest}")]).collect()
    }
}

fn of_docker_hub(path: &str) -> String {
    let folder = if path.contains('/') { "" } else { "library/" };
    ["docker.io/", folder, path].concat()
}

#[derive(Debug, PartialEq, Eq)]
struct Parts<'a> {
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

fn parse(image: &str) -> Result<Parts<'_>, InvalidName<'_>> {
    if image.len() == 64 && image.bytes().all(is_lower_hex) {
        return Err(InvalidName::Hexadecimal { image });
    }
    let (domain, rest) = split_domain(image);
    let path = rest.split_once(':').map_or(rest, |(path, _)| path);
    if path.chars().any(char::is_uppercase) {
        return Err(InvalidName::Uppercase { path });
    }
    let (rest, digest) = match rest.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (rest, None),
    };
    let (path, tag) = match rest.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    let well_formed = domain.is_none_or(is_domain)
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    if !well_formed {
        return Err(InvalidName::Format);
    }
    if path.len() > MAX_IMAGE_PATH_CHARS {
        return Err(InvalidName::TooLong);
    }
    digest.map_or(Ok(()), check_digest).map_err(InvalidName::Digest)?;
    Ok(Parts { tag, digest })
}

/// The part before the first slash is a registry if it looks like one.
fn split_domain(image: &str) -> (Option<&str>, &str) {
    match image.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':']) || first == "localhost" || first.chars().any(char::is_uppercase) =>
        {
            (Some(first), rest)
        }
        Some(_) | None => (None, image),
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            let is_address = !address.is_empty() && address.bytes().all(|c| c.is_ascii_hexdigit() || c == b':');
            return is_address && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port));
        }
        None => match domain.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (domain, None),
        },
    };
    let is_label = |label: &str| {
        let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let inside = label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
        inside && ends_well(label.chars().next()) && ends_well(label.chars().next_back())
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(port: &str) -> bool {
    !port.is_empty() && port.bytes().all(|c| c.is_ascii_digit())
}

/// Lower-case words separated by `.`, `_`, `__` or any number of `-`.
fn is_path_component(component: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut rest = component;
    loop {
        let after = rest.trim_start_matches(is_word);
        if after.len() == rest.len() {
            return false;
        }
        if after.is_empty() {
            return true;
        }
        let dashes = after.trim_start_matches('-');
        rest = if dashes.len() < after.len() {
            dashes
        } else {
            let separator = ["__", "_", "."].iter().find_map(|separator| after.strip_prefix(separator));
            let Some(next) = separator else { return false };
            next
        };
    }
}

fn is_tag(tag: &str) -> bool {
    let is_word = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    let begins_well = tag.bytes().next().is_some_and(is_word);
    begins_well && tag.len() <= MAX_TAG_CHARS && tag.bytes().all(|c| is_word(c) || c == b'.' || c == b'-')
}

/// `algorithm:hex`; the algorithm may be unknown.
fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|c| c.is_ascii_alphanumeric())
    };
    algorithm.split(['+', '.', '-', '_']).all(is_part) && hex.len() >= 32 && hex.bytes().all(|c| c.is_ascii_hexdigit())
}

/// Checks for a known algorithm and its digest length.
fn check_digest(digest: &str) -> Result<(), DigestError> {
    let (algorithm, hex) = digest.split_once(':').ok_or(DigestError::Format)?;
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(DigestError::Algorithm),
    };
    if hex.len() != length {
        return Err(DigestError::Length);
    }
    if hex.bytes().all(is_lower_hex) { Ok(()) } else { Err(DigestError::Format) }
}

fn is_lower_hex(c: u8) -> bool {
    matches!(c, b'0'..=b'9' | b'a'..=b'f')
}

impl fmt::Display for InvalidName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format => f.write_str("invalid reference format"),
            Self::Hexadecimal { image } => {
                write!(f, "invalid repository name ({image}), cannot specify 64-byte hexadecimal strings")
            }
            Self::TooLong => write!(f, "repository name must not be more than {MAX_IMAGE_PATH_CHARS} characters"),
            Self::Uppercase { path } => {
                write!(f, "invalid reference format: repository name ({path}) must be lowercase")
            }
            Self::Digest(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for DigestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Algorithm => "unsupported digest algorithm",
            Self::Length => "invalid checksum digest length",
            Self::Format => "invalid checksum digest format",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA256: &str = "@sha256:31dbc0b6ca50422614a6657aae5e8c02db2f433aef8b10756eb2283187d5b236";

    #[test]
    fn name_without_tag_and_digest_gets_latest() {
        for image in ["busybox", "a/b", "localhost/x", "host:5000/a", "[::1]:5000/a", "a__b", "a-----b", "1.2.3.4/a_b"]
        {
            assert_eq!(with_default_tag(image), Ok(format!("{image}:latest")));
        }
    }

    #[test]
    fn name_with_tag_or_digest_is_unchanged() {
        for image in ["busybox:1", "host:5000/a/b.c/d:V_1.2-3", "A.b/c:1", "Registry/a:1"] {
            assert_eq!(with_default_tag(image), Ok(image.to_owned()));
        }
        for image in ["busybox", "host:5000/a/b", "busybox:1.37"] {
            let image = [image, SHA256].concat();
            assert_eq!(with_default_tag(&image), Ok(image.clone()));
        }
    }

    #[test]
    fn repository_has_a_registry_but_no_tag_or_digest() {
        for (image, expected) in [
            ("busybox", "docker.io/library/busybox"),
            ("busybox:1", "docker.io/library/busybox"),
            ("a/b:1", "docker.io/a/b"),
            ("index.docker.io/busybox", "docker.io/library/busybox"),
            ("docker.io/a/b", "docker.io/a/b"),
            ("localhost/a:1", "localhost/a"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b"),
            ("127.0.0.1:5000/a/b:1", "127.0.0.1:5000/a/b"),
        ] {
            assert_eq!(repository(image), Ok(expected.to_owned()), "{image}");
            assert_eq!(repository(&[image, SHA256].concat()), Ok(expected.to_owned()), "{image} with a digest");
        }
        assert!(repository("a b").is_err());
    }

    #[test]
    fn invalid_name_is_refused() {
        let long_tag = format!("a:{}", "t".repeat(129));
        for image in [
            "",
            " ",
            "a b",
            "a/",
            "/a",
            "a//b",
            "a:",
            "a@",
            "a:b:c",
            "a.-b",
            "a___b",
            "-a",
            "a-",
            "a:-x",
            "ä",
            "a@b",
            "http://a/b",
            "host:x/a",
            "[::1/a",
            "-.x/a",
            "a@sha256:12",
            long_tag.as_str(),
        ] {
            assert_eq!(with_default_tag(image), Err(InvalidName::Format), "{image:?}");
        }
    }

    #[track_caller]
    fn check(image: &str, message: &str) {
        assert_eq!(with_default_tag(image).unwrap_err().to_string(), message, "{image}");
    }

    #[test]
    fn error_says_what_is_wrong() {
        check("Busybox", "invalid reference format: repository name (Busybox) must be lowercase");
        check("h:1/Ab/c:1", "invalid reference format: repository name (Ab/c) must be lowercase");
        let id = "a1".repeat(32);
        check(&id, &format!("invalid repository name ({id}), cannot specify 64-byte hexadecimal strings"));
        check(&"a".repeat(256), "repository name must not be more than 255 characters");
        check(&format!("a@sha257:{}", "0".repeat(64)), "unsupported digest algorithm");
        check(&format!("a@sha256:{}", "0".repeat(63)), "invalid checksum digest length");
        check(&format!("a@sha256:{}", "A".repeat(64)), "invalid checksum digest format");
    }
}
