//! The mirrors of a registry, from containerd's `hosts.toml`. Pure.
//!
//! Of the TOML in such files this reads comments, tables, strings, arrays of strings and booleans, on lines of their own.

use std::path::{Path, PathBuf};

/// A server that has a registry's images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mirror {
    /// Scheme, host and path before the repository, such as `https://registry.example.com/v2`.
    pub(crate) base: String,
    /// Resolves tags; otherwise it is only asked for content by digest.
    pub(crate) resolves: bool,
    /// CA bundles besides the system's.
    pub(crate) authorities: Vec<PathBuf>,
    pub(crate) skip_verify: bool,
    /// Headers for this server.
    pub(crate) headers: Vec<(String, String)>,
    /// The registry itself, so that credentials for the registry are for this server.
    pub(crate) is_origin: bool,
}

/// The servers to ask for images of `registry`, in order. `directory` is that of the files, for relative CA paths.
pub(crate) fn mirrors(registry: &str, file: Option<&str>, directory: &Path) -> Vec<Mirror> {
    let mut server = Mirror { base: String::new(), resolves: true, is_origin: true, ..Mirror::default() };
    let mut mirrors: Vec<Entry> = Vec::new();
    let mut table = Table::Server;
    for (name, value) in file.into_iter().flat_map(settings) {
        let Some(value) = value else {
            table = match host_of(&name) {
                Some((url, false)) => {
                    mirrors.push(Entry::new(url));
                    Table::Mirror
                }
                Some((_, true)) => Table::Headers,
                None => Table::Other,
            };
            continue;
        };
        let pulls_from = mirrors.last_mut();
        match (&table, pulls_from, name.as_str()) {
            (Table::Server, _, "server") => server.base = base_of(value.text(), false),
            (Table::Server, _, name) => set(&mut server, name, &value, directory),
            (Table::Mirror, Some(entry), "override_path") => entry.overrides_path = value.text() == "true",
            (Table::Mirror, Some(entry), "capabilities") => {
                entry.pulls = value.0.iter().any(|word| word == "pull");
                entry.mirror.resolves = value.0.iter().any(|word| word == "resolve");
            }
            (Table::Mirror, Some(entry), name) => set(&mut entry.mirror, name, &value, directory),
            (Table::Headers, Some(entry), name) => {
                entry.mirror.headers.extend(value.0.iter().map(|word| (name.to_owned(), word.clone())));
            }
            (Table::Mirror | Table::Headers, None, _) | (Table::Other, _, _) => {}
        }
    }
    if server.base.is_empty() {
        server.base = default_base(registry);
    }
    let origin = authority(&server.base).to_owned();
    let mut mirrors_in_order: Vec<Mirror> = mirrors
        .into_iter()
        .filter(|entry| entry.pulls)
        .map(|entry| {
            let base = base_of(&entry.url, entry.overrides_path);
            let is_origin = authority(&base) == origin;
            Mirror { base, is_origin, ..entry.mirror }
        })
        .collect();
    if !mirrors_in_order.iter().any(|mirror| mirror.base == server.base) {
        mirrors_in_order.push(server);
    }
    mirrors_in_order
}

struct Entry {
    url: String,
    mirror: Mirror,
    pulls: bool,
    overrides_path: bool,
}

impl Entry {
    fn new(url: String) -> Self {
        Self { url, mirror: Mirror { resolves: true, ..Mirror::default() }, pulls: true, overrides_path: false }
    }
}

enum Table {
    Server,
    Mirror,
    Headers,
    Other,
}

/// One string, several, or a word.
struct Setting(Vec<String>);

impl Setting {
    fn text(&self) -> &str {
        self.0.first().map(String::as_str).unwrap_or_default()
    }
}

fn set(mirror: &mut Mirror, name: &str, value: &Setting, directory: &Path) {
    match name {
        "ca" => mirror.authorities = value.0.iter().map(|path| directory.join(path)).collect(),
        "skip_verify" => mirror.skip_verify = value.text() == "true",
        _ => {}
    }
}

/// The lines of a file: a table's name alone, or a key with its values. Arrays may span lines.
fn settings(file: &str) -> Vec<(String, Option<Setting>)> {
    let mut settings = Vec::new();
    let mut lines = file.lines();
    while let Some(line) = lines.next() {
        let line = without_comment(line).trim();
        if let Some(table) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            settings.push((table.to_owned(), None));
        } else if let Some((key, value)) = line.split_once('=') {
            let mut value = value.trim().to_owned();
            while value.starts_with('[') && !value.ends_with(']') {
                let Some(more) = lines.next() else { break };
                value.push_str(without_comment(more).trim());
            }
            let items = value.trim_start_matches('[').trim_end_matches(']').split(',');
            let unquoted = items.map(|item| item.trim().trim_matches(['"', '\'']).to_owned());
            let key = key.trim().trim_matches(['"', '\'']).to_owned();
            settings.push((key, Some(Setting(unquoted.filter(|item| !item.is_empty()).collect()))));
        }
    }
    settings
}

fn without_comment(line: &str) -> &str {
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('#', None) => return line.get(..at).unwrap_or(line),
            _ => {}
        }
    }
    line
}

/// The URL of a table such as `host."https://mirror"`, and whether it is that of its headers.
fn host_of(table: &str) -> Option<(String, bool)> {
    let rest = table.trim().strip_prefix("host.")?;
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (url, rest) = rest.get(1..)?.split_once(quote)?;
    match rest.trim() {
        "" => Some((url.to_owned(), false)),
        ".header" => Some((url.to_owned(), true)),
        _ => None,
    }
}

fn base_of(url: &str, overrides_path: bool) -> String {
    let url = if url.contains("://") { url.to_owned() } else { ["https://", url].concat() };
    let url = url.trim_end_matches('/').to_owned();
    if overrides_path || url.ends_with("/v2") { url } else { url + "/v2" }
}

/// containerd's defaults: HTTP on this machine, Docker Hub under another name.
fn default_base(registry: &str) -> String {
    let host = if registry == "docker.io" { "registry-1.docker.io" } else { registry };
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_local = name == "localhost" || name.starts_with("127.") || name == "[::1]";
    format!("{}://{host}/v2", if is_local { "http" } else { "https" })
}

/// Scheme, host and port of a URL.
pub(super) fn authority(url: &str) -> &str {
    let start = url.find("://").map_or(0, |at| at + 3);
    let length = url.get(start..).and_then(|rest| rest.find(['/', '?', '#']));
    length.and_then(|length| url.get(..start + length)).unwrap_or(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases(registry: &str, file: Option<&str>) -> Vec<String> {
        mirrors(registry, file, Path::new("/d")).into_iter().map(|mirror| mirror.base).collect()
    }

    #[test]
    fn registries_without_a_file_have_containerds_defaults() {
        for (registry, base) in [
            ("docker.io", "https://registry-1.docker.io/v2"),
            ("r.example.com:5000", "https://r.example.com:5000/v2"),
            ("127.0.0.1:5000", "http://127.0.0.1:5000/v2"),
            ("localhost", "http://localhost/v2"),
        ] {
            assert_eq!(bases(registry, None), [base]);
        }
    }

    #[test]
    fn mirrors_come_first_with_their_settings() {
        let file = "server = \"https://r.example.com\" # the registry\n\n[host.\"http://10.0.0.2:5000\"]\n  \
                    capabilities = [\"pull\"]\n  skip_verify = true\n[host.\"http://10.0.0.2:5000\".header]\n  \
                    x-site = [\"a\", \"b\"]\n[host.'https://m/path#x']\n  override_path = true\n  capabilities = [\n \
                    \"pull\", # both\n \"resolve\"]\n  ca = \"m.pem\"\n[host.\"https://push\"]\ncapabilities = [\"push\"]\n";
        let all = mirrors("r.example.com", Some(file), Path::new("/d"));
        let first = Mirror {
            base: "http://10.0.0.2:5000/v2".to_owned(),
            skip_verify: true,
            headers: [("x-site", "a"), ("x-site", "b")].map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
            ..Mirror::default()
        };
        let second = Mirror {
            base: "https://m/path#x".to_owned(),
            resolves: true,
            authorities: vec![PathBuf::from("/d/m.pem")],
            ..Mirror::default()
        };
        let server = Mirror {
            base: "https://r.example.com/v2".to_owned(),
            resolves: true,
            is_origin: true,
            ..Mirror::default()
        };
        assert_eq!(all, [first, second, server]);
    }

    #[test]
    fn registry_among_its_mirrors_is_asked_once() {
        let file = "server = \"http://r:5000\"\n[host.\"http://r:5000\"]\n";
        let all = mirrors("r:5000", Some(file), Path::new("/d"));
        assert_eq!(
            all.iter().map(|one| (one.base.as_str(), one.is_origin)).collect::<Vec<_>>(),
            [("http://r:5000/v2", true)]
        );
        assert_eq!(bases("r", Some("= \n[\n[host.]\n[host.\"]\nca")), ["https://r/v2"]);
    }
}
