//! The layers and habits of ARCHITECTURE.md, kept by reading the sources.
#![expect(clippy::string_slice, clippy::unwrap_used, reason = "a test: a panic here is its failure")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every top-level module and its layer. A module uses the layers below its own.
const LAYERS: &[(&str, u8)] = &[
    ("api", 0),
    ("cpu_set", 0),
    ("error", 0),
    ("log", 0),
    ("sorted", 0),
    ("time", 0),
    ("metrics", 1),
    ("wire", 1),
    ("apiserver", 2),
    ("cgroups", 2),
    ("config", 2),
    ("cri", 2),
    ("dbus", 2),
    ("host", 2),
    ("net", 2),
    ("plugin_registry", 2),
    ("rpc", 2),
    ("rt", 2),
    ("objects", 3),
    ("pods", 3),
    ("admission", 4),
    ("certificates", 4),
    ("container_manager", 4),
    ("csi", 4),
    ("devices", 4),
    ("eviction", 4),
    ("images", 4),
    ("kuberuntime", 4),
    ("logs", 4),
    ("node", 4),
    ("node_shutdown", 4),
    ("offline", 4),
    ("probes", 4),
    ("resource_managers", 4),
    ("stats", 4),
    ("status", 4),
    ("volumes", 4),
    ("cluster", 5),
    ("pleg", 5),
    ("pod_sources", 5),
    ("pod_workers", 5),
    ("server", 5),
    ("sync_loop", 5),
    ("cli", 6),
    ("lib", 6),
    ("main", 6),
    ("node_agent", 6),
];

/// The arrows inside a layer; layer 6 wires everything and may name all of it.
const ARROWS: &[(&str, &str)] = &[
    ("api", "sorted"),
    ("apiserver", "host"),
    ("apiserver", "net"),
    ("apiserver", "rpc"),
    ("apiserver", "rt"),
    // A serving certificate is for the addresses that the node has.
    ("certificates", "node"),
    ("cgroups", "config"),
    ("cgroups", "dbus"),
    ("cgroups", "rt"),
    ("config", "rt"),
    ("container_manager", "node"),
    ("cri", "rpc"),
    ("cri", "rt"),
    ("dbus", "rt"),
    ("csi", "node"),
    // Devices are one more thing that lies in NUMA nodes.
    ("devices", "resource_managers"),
    ("host", "rt"),
    ("kuberuntime", "images"),
    ("kuberuntime", "logs"),
    ("kuberuntime", "node"),
    ("net", "host"),
    ("net", "rt"),
    ("plugin_registry", "host"),
    ("plugin_registry", "rpc"),
    ("plugin_registry", "rt"),
    ("pods", "objects"),
    ("rpc", "rt"),
    // What is in a volume its driver knows.
    ("stats", "csi"),
    ("stats", "node"),
    ("status", "probes"),
    ("sync_loop", "cluster"),
    ("sync_loop", "pleg"),
    ("sync_loop", "pod_sources"),
    ("sync_loop", "pod_workers"),
    ("sync_loop", "server"),
    ("volumes", "csi"),
    ("volumes", "node"),
];

/// What a file that calls itself pure must not name: files, sockets, processes, clocks, waiting.
const EFFECTS: &[&str] = &[
    ".await",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "async fn",
    "crate::host",
    "crate::rt",
    "TcpListener",
    "TcpStream",
    "ToSocketAddrs",
    "UdpSocket",
    "std::env",
    "std::fs",
    "std::os",
    "std::process",
];

/// About what fits in a head; tests at a file's end do not count.
const LONGEST_FILE: usize = 550;

/// One source file: what ships of it, without comments, tests and the insides of strings.
struct Source {
    path: PathBuf,
    text: String,
    code: String,
}

impl Source {
    /// The top-level module that the file belongs to.
    fn module(&self) -> String {
        let first = self.path.components().next().unwrap();
        Path::new(first.as_os_str()).file_stem().unwrap().to_string_lossy().into_owned()
    }

    /// How many modules deep the file is: 1 for a top-level module.
    fn depth(&self) -> usize {
        let parts = self.path.components().count();
        if self.path.ends_with("mod.rs") { parts - 1 } else { parts }
    }

    /// The first paragraph of the file's own documentation.
    fn purpose(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("//!"));
        lines.take_while(|line| !line.trim().is_empty()).collect::<Vec<_>>().join(" ").trim().to_owned()
    }
}

/// Everything under `src` that is compiled into the binary.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    paths.sort();
    let mut read: Vec<Source> = paths
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let code = shipped_code(&text);
            Source { path: path.strip_prefix(&root).unwrap().to_owned(), text, code }
        })
        .collect();
    let only_tests: BTreeSet<PathBuf> = read.iter().flat_map(test_modules).collect();
    read.retain(|source| !source.path.ancestors().any(|part| only_tests.contains(&part.with_extension(""))));
    read
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
}

/// Modules that a file declares with `#[cfg(test)] mod name;`, as paths without an extension.
fn test_modules(source: &Source) -> Vec<PathBuf> {
    let stem = source.path.with_extension("");
    let is_folder = matches!(stem.file_name().unwrap().to_str(), Some("mod" | "lib" | "main"));
    let folder = if is_folder { stem.parent().unwrap().to_owned() } else { stem };
    let declared = source.text.split("#[cfg(test)]").skip(1).filter_map(|rest| {
        let item = rest.trim_start();
        let item = item.strip_prefix("pub(crate) ").or(item.strip_prefix("pub(super) ")).unwrap_or(item);
        let (name, end) = item.strip_prefix("mod ")?.split_once(|c: char| c == ';' || c.is_whitespace())?;
        (!end.trim_start().starts_with('{')).then(|| folder.join(name))
    });
    declared.collect()
}

/// The code before the tests at a file's end, its comments and the insides of its strings left out.
fn shipped_code(text: &str) -> String {
    let tests = text.match_indices("#[cfg(test)]").find(|(at, found)| {
        let item = text[at + found.len()..].trim_start();
        item.starts_with("mod ") && item.lines().next().unwrap_or_default().trim_end().ends_with('{')
    });
    let text = tests.map_or(text, |(at, _)| &text[..at]);
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = match c {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |at| at + 2),
            '\'' if rest.starts_with("'\"'") => 3,
            '\'' if rest.starts_with("'\\\"'") || rest.starts_with("'\\''") => 4,
            'r' if rest.starts_with("r#\"") => rest.find("\"#").map_or(rest.len(), |at| at + 2),
            '"' => string_length(rest),
            _ => {
                code.push(c);
                rest = &rest[c.len_utf8()..];
                continue;
            }
        };
        rest = &rest[skipped..];
    }
    code
}

/// The length of the string literal that `text` begins with, its quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The top-level modules that `code` names after `crate::`.
fn named_modules(code: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, found) in code.match_indices("crate::") {
        let after = &code[at + found.len()..];
        match after.strip_prefix('{') {
            Some(group) => names.extend(group_heads(group)),
            None => names.extend(leading_word(after)),
        }
    }
    names
}

/// The first word of each part of `a, b::{c, d}, e}`.
fn group_heads(group: &str) -> Vec<String> {
    let mut heads = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in group.char_indices() {
        match c {
            ',' | '}' if depth == 0 => {
                heads.extend(leading_word(group[start..at].trim()));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    heads
}

/// Whether `code` has these words, and not only longer ones that begin so.
fn names(code: &str, words: &str) -> bool {
    let mut found = code.match_indices(words).map(|(at, _)| code[at + words.len()..].chars().next());
    found.any(|next| next.is_none_or(|c| !c.is_alphanumeric() && c != '_'))
}

fn leading_word(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

fn layer(module: &str) -> Option<u8> {
    LAYERS.iter().find(|(name, _)| *name == module).map(|(_, layer)| *layer)
}

fn may_use(from: &str, to: &str) -> bool {
    match (layer(from), layer(to)) {
        (Some(above), Some(below)) => above > below || above == 6 || from == to || ARROWS.contains(&(from, to)),
        _ => false,
    }
}

#[track_caller]
fn assert_none(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

#[test]
fn every_import_follows_an_arrow_of_the_table() {
    let mut found = Vec::new();
    for source in sources() {
        let from = source.module();
        for to in named_modules(&source.code) {
            if !may_use(&from, &to) {
                found.push(format!("src/{}: {from} -> {to}", source.path.display()));
            }
        }
    }
    assert_none(found, "an import against the layers, or of a module that has none");
}

#[test]
fn a_path_out_of_a_module_is_written_from_the_crate_root() {
    let mut found = Vec::new();
    for source in sources() {
        let inner_modules = usize::from(source.code.contains("mod ") && source.code.contains("use super::"));
        let out = "super::".repeat(source.depth() + inner_modules);
        if source.code.contains(&out) {
            found.push(format!("src/{}: {out}", source.path.display()));
        }
    }
    assert_none(found, "super:: hides an arrow from the table");
}

#[test]
fn only_rt_names_the_executor() {
    let named = sources().into_iter().filter(|source| source.module() != "rt" && source.code.contains("smol"));
    assert_none(named.map(|source| format!("src/{}", source.path.display())).collect(), "smol is named outside of rt");
}

/// A simulation owns the time that `rt` gives; the watchdog's thread and the commands of the CLI run outside of it.
#[test]
fn the_monotonic_clock_is_read_through_rt() {
    let is_exempt = |source: &Source| {
        ["rt", "cli"].contains(&source.module().as_str()) || source.path.starts_with("server/watchdog")
    };
    let mut found = Vec::new();
    for source in sources().into_iter().filter(|source| !is_exempt(source)) {
        for clock in ["Instant::now", ".elapsed()"] {
            if source.code.contains(clock) {
                found.push(format!("src/{}: {clock}", source.path.display()));
            }
        }
    }
    assert_none(found, "the monotonic clock is read past rt::now");
}

/// On 32 bits with musl the standard library panics in 2038; and nothing is to be decided by that clock anyway.
#[test]
fn the_wall_clock_is_read_in_one_place_only() {
    let mut found = Vec::new();
    for source in sources() {
        for clock in ["SystemTime::now", "Timestamp::now", "Zoned::now", "ClockId::Realtime"] {
            if names(&source.code, clock) && !source.path.ends_with("host/clock.rs") {
                found.push(format!("src/{}: {clock}", source.path.display()));
            }
        }
    }
    assert_none(found, "the wall clock is read past host::clock");
}

#[test]
fn a_file_that_calls_itself_pure_has_no_effects() {
    let mut found = Vec::new();
    for source in sources().into_iter().filter(|source| source.purpose().ends_with("Pure.")) {
        for effect in EFFECTS.iter().filter(|effect| names(&source.code, effect)) {
            found.push(format!("src/{}: {effect}", source.path.display()));
        }
    }
    assert_none(found, "an effect in a pure file");
}

#[test]
fn a_file_says_first_what_it_is_for() {
    let mute = sources().into_iter().filter(|source| !source.purpose().ends_with(['.', ':']));
    assert_none(mute.map(|source| format!("src/{}", source.path.display())).collect(), "no `//! What this is for.`");
}

#[test]
fn a_file_fits_in_a_head() {
    let mut found = Vec::new();
    for source in sources() {
        let tests = source.text.find("#[cfg(test)]\nmod tests {").unwrap_or(source.text.len());
        let lines = source.text[..tests].lines().count();
        if lines > LONGEST_FILE {
            found.push(format!("src/{}: {lines} lines", source.path.display()));
        }
    }
    assert_none(found, "a file to be split by subject");
}

#[test]
fn no_file_is_named_after_nothing() {
    let empty = ["utils", "util", "helpers", "helper", "common", "misc"];
    let named = sources().into_iter().filter(|source| {
        source
            .path
            .components()
            .any(|part| empty.iter().any(|name| Path::new(part.as_os_str()).file_stem() == Some(name.as_ref())))
    });
    assert_none(named.map(|source| format!("src/{}", source.path.display())).collect(), "a name that says nothing");
}

#[test]
fn imports_are_seen_in_groups_and_paths_but_not_in_comments_strings_and_tests() {
    let text = "use crate::{wire::{grpc, http2}, api};\nfn f() { crate::rt::sleep(\"crate::cli\") } // crate::pleg\n\
                #[cfg(test)]\nmod tests {\n use crate::server;\n}\n";
    let names: Vec<String> = named_modules(&shipped_code(text)).into_iter().collect();
    assert_eq!(names, ["api", "rt", "wire"]);
}

#[test]
fn an_arrow_upwards_or_sideways_is_refused() {
    for (from, to, allowed) in [
        ("pods", "cri", true),
        ("cri", "rpc", true),
        ("cri", "host", false),
        ("rpc", "cri", false),
        ("wire", "rt", false),
        ("pod_workers", "sync_loop", false),
        ("cli", "node_agent", true),
        ("pods", "unheard_of", false),
    ] {
        assert_eq!(may_use(from, to), allowed, "{from} -> {to}");
    }
}
