//! Locations of credentials: a registry and optional path, with wildcards. Pure.
//!
//! The rules of `k8s.io/kubernetes/pkg/credentialprovider`: host names are matched label by label, paths by prefix,
//! ports exactly.

/// A registry and a path prefix, such as `*.example.com/team`.
#[derive(Clone, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    /// Host with port, and path; locations are ordered by this text.
    text: String,
    /// Length of the host part.
    host_bytes: usize,
}

impl Location {
    /// `None` for an invalid location. The scheme and the registry API version are ignored.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = rest.find('/').and_then(|at| rest.split_at_checked(at)).unwrap_or((rest, ""));
        let host = host.rsplit('@').next().unwrap_or_default();
        let is_bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '<' | '>' | '\\' | '^' | '`');
        let (_, port) = split_port(host);
        if host.is_empty() || host.contains(is_bad) || !port.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        let path = match path.get(..4) {
            Some("/v1/" | "/v2/") => path.get(3..).unwrap_or_default(),
            _ => path,
        };
        let path = if path == "/" { "" } else { path };
        Some(Self { text: [host, path].concat(), host_bytes: host.len() })
    }

    pub(super) fn is_docker_hub(&self) -> bool {
        self.text == "index.docker.io"
    }

    /// Whether the location matches `repository`, such as `registry.example.com/team/app`.
    pub(crate) fn covers(&self, repository: &str) -> bool {
        let Some(wanted) = Self::parse_repository(repository) else { return false };
        let ((host, path), (wanted_host, wanted_path)) = (self.parts(), wanted.parts());
        let ((name, port), (wanted_name, wanted_port)) = (split_port(host), split_port(wanted_host));
        port == wanted_port
            && wanted_path.starts_with(path)
            && name.split('.').count() == wanted_name.split('.').count()
            && name.split('.').zip(wanted_name.split('.')).all(|(glob, label)| glob_matches(glob, label))
    }

    /// A repository itself may be named `v1`.
    fn parse_repository(repository: &str) -> Option<Self> {
        let host_bytes = repository.find('/').unwrap_or(repository.len());
        (host_bytes > 0).then(|| Self { text: repository.to_owned(), host_bytes })
    }

    fn parts(&self) -> (&str, &str) {
        self.text.split_at_checked(self.host_bytes).unwrap_or((&self.text, ""))
    }
}

/// The host without port, and the port or an empty string.
fn split_port(host: &str) -> (&str, &str) {
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (address, rest.strip_prefix(':').unwrap_or_default());
    }
    match host.split_once(':') {
        Some((name, port)) if !port.contains(':') => (name, port),
        Some(_) | None => (host, ""),
    }
}

/// Whether the image is from Docker Hub, whose credentials have a special location.
pub(super) fn is_of_docker_hub(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some(("docker.io" | "index.docker.io", _)) => true,
        Some((first, _)) => !first.is_empty() && !first.contains(['.', ':']),
    }
}

/// Matches one label with Go's `filepath.Match` syntax: `*`, `?`, `[a-z]` and `\`. A malformed pattern matches
/// nothing.
fn glob_matches(glob: &str, label: &str) -> bool {
    let Some(pattern) = parse_glob(glob) else { return false };
    let label: Vec<char> = label.chars().collect();
    let (mut at, mut next) = (0, 0);
    // Position after the last star, and how much of the label the star has consumed.
    let mut star: Option<(usize, usize)> = None;
    while let Some(letter) = label.get(at) {
        match pattern.get(next) {
            Some(Part::Star) => {
                star = Some((next, at));
                next += 1;
            }
            Some(Part::One(class)) if class.has(*letter) => {
                at += 1;
                next += 1;
            }
            Some(Part::One(_)) | None => {
                let Some((after_star, taken)) = star else { return false };
                star = Some((after_star, taken + 1));
                at = taken + 1;
                next = after_star + 1;
            }
        }
    }
    pattern.iter().skip(next).all(|part| matches!(part, Part::Star))
}

enum Part {
    Star,
    One(Class),
}

/// Character ranges, possibly negated.
struct Class {
    negated: bool,
    ranges: Vec<(char, char)>,
}

impl Class {
    fn has(&self, letter: char) -> bool {
        self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&letter)) != self.negated
    }
}

fn parse_glob(glob: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut letters = glob.chars().peekable();
    while let Some(letter) = letters.next() {
        parts.push(match letter {
            '*' => Part::Star,
            '?' => Part::One(Class { negated: true, ranges: Vec::new() }),
            '[' => Part::One(parse_class(&mut letters)?),
            '\\' => literal(letters.next()?),
            letter => literal(letter),
        });
    }
    Some(parts)
}

fn literal(letter: char) -> Part {
    Part::One(Class { negated: false, ranges: vec![(letter, letter)] })
}

fn parse_class(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Class> {
    let mut class = Class { negated: letters.next_if_eq(&'^').is_some(), ranges: Vec::new() };
    loop {
        if letters.peek() == Some(&']') && !class.ranges.is_empty() {
            letters.next();
            return Some(class);
        }
        let first = class_letter(letters)?;
        let last = if letters.next_if_eq(&'-').is_some() { class_letter(letters)? } else { first };
        class.ranges.push((first, last));
    }
}

fn class_letter(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    match letters.next()? {
        '-' | ']' => None,
        '\\' => letters.next(),
        letter => Some(letter),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(location: &str, repository: &str, covers: bool) {
        let found = Location::parse(location).is_some_and(|location| location.covers(repository));
        assert_eq!(found, covers, "{location} for {repository}");
    }

    #[test]
    fn location_covers_its_path_prefix() {
        for location in ["r.io", "https://r.io", "http://r.io/", "https://r.io/v2/", "r.io/v1/", "r.io/a", "r.io/a/b"] {
            check(location, "r.io/a/b", true);
        }
        check("r.io/v1/a", "r.io/a/b", true);
        check("https://u@r.io?x=y", "r.io/a/b", true);
        // As upstream, a path prefix need not end at a path component.
        check("r.io/a", "r.io/ab", true);
        for location in ["q.io", "r.io/b", "r.io:443", "io", "x.r.io", "r.io/a/b/c", "", "r io", "r.io:x"] {
            check(location, "r.io/a/b", false);
        }
        check("r.io/a", "r.io/v1/a", false);
    }

    #[test]
    fn ports_and_addresses_are_compared_exactly() {
        check("127.0.0.1:5000", "127.0.0.1:5000/a", true);
        check("127.0.0.1", "127.0.0.1:5000/a", false);
        check("[::1]:5000", "[::1]:5000/a", true);
        check("[::1]:5000", "[::1]:5001/a", false);
    }

    #[test]
    fn star_matches_one_label_or_a_part_of_it() {
        check("*.example.com", "r.example.com/a", true);
        check("*.example.com", "a.r.example.com/a", false);
        check("*.*.example.com", "a.r.example.com/a", true);
        check("*.example.com", "example.com/a", false);
        check("reg*.example.com/team", "registry.example.com/team/a", true);
        check("*a*b*.io", "xxaxxbxx.io/a", true);
        check("*a*b*.io", "xxbxxaxx.io/a", false);
        check("r[0-3x].io", "r2.io/a", true);
        check("r[^0-3x].io", "r2.io/a", false);
        check("r[0-.io", "r2.io/a", false);
        check("*.io:5000", "r.io:5000/a", true);
        let many = "*a".repeat(40);
        check(&format!("{many}.io"), &format!("{}b.io/x", "a".repeat(2000)), false);
    }

    #[test]
    fn image_without_registry_is_from_docker_hub() {
        for repository in ["busybox", "library/busybox", "docker.io/library/busybox", "index.docker.io/a/b"] {
            assert!(is_of_docker_hub(repository), "{repository}");
        }
        for repository in ["r.io/a", "localhost:5000/a", "/a"] {
            assert!(!is_of_docker_hub(repository), "{repository}");
        }
        assert!(Location::parse("https://index.docker.io/v1/").unwrap().is_docker_hub());
    }
}
