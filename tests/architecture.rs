//! Checks the layers and conventions of ARCHITECTURE.md against the sources.
#![expect(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "a test: a panic here is its failure"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The layers, lowest first: the folders of `src`. A module uses the layers below its own.
const LAYERS: &[&str] = &["types", "protocol", "platform", "state", "kubelet", "control"];

/// Wiring and the command line may use everything.
const WIRING: &[&str] = &["cli", "lib", "main", "node_agent"];

/// The permitted imports inside a layer.
const ARROWS: &[(&str, &str)] = &[
    ("api", "decimal"),
    ("api", "sorted"),
    ("api", "timestamp"),
    // What components have read is stored as the cluster's objects are.
    ("api_cache", "offline"),
    ("apiserver", "host"),
    ("apiserver", "net"),
    ("apiserver", "rpc"),
    ("apiserver", "rt"),
    // A serving certificate contains the node's addresses.
    ("certificates", "node"),
    ("cgroups", "config"),
    ("cgroups", "dbus"),
    // Pressure files share one format, and procfs knows the cgroup of a process.
    ("cgroups", "host"),
    ("cgroups", "rt"),
    // The name of a node may come from its board.
    ("config", "host"),
    ("container_manager", "node"),
    ("cri", "rpc"),
    ("cri", "rt"),
    // Each call is a span.
    ("cri", "tracing"),
    ("dbus", "rt"),
    ("cpu_set", "sorted"),
    ("cron_schedule", "time_zone"),
    ("cron_schedule", "timestamp"),
    ("csi", "node"),
    // Devices are allocated by NUMA node too.
    ("devices", "resource_managers"),
    // Device files of rules are devices of claims too.
    ("dra", "devices"),
    // ResourceSlices are removed once the node has registered.
    ("dra", "node"),
    // Joining verifies a cluster, and leaves the stored objects of the former one.
    ("enrolment", "certificates"),
    ("enrolment", "offline"),
    ("eviction", "pod_table"),
    ("eviction", "pod_workers"),
    // The images of versions that may run again are not removed.
    ("eviction", "versions"),
    ("grpc", "hpack"),
    ("host", "rt"),
    ("http2", "hpack"),
    ("image_signatures", "image_archives"),
    ("image_transfer", "image_archives"),
    ("image_transfer", "image_signatures"),
    ("images", "image_archives"),
    ("images", "image_credentials"),
    ("images", "image_signatures"),
    ("images", "image_transfer"),
    ("jobs", "pod_sources"),
    ("jobs", "pod_table"),
    ("jobs", "pod_workers"),
    ("jobs", "server"),
    ("kuberuntime", "allocation"),
    // A container gets the devices of plugins and claims, and the mounts of its volumes.
    ("kuberuntime", "devices"),
    ("kuberuntime", "dra"),
    ("kuberuntime", "image_archives"),
    ("kuberuntime", "image_credentials"),
    ("kuberuntime", "image_transfer"),
    ("kuberuntime", "images"),
    ("kuberuntime", "logs"),
    ("kuberuntime", "node"),
    ("kuberuntime", "volumes"),
    ("local_api", "cluster"),
    ("local_api", "jobs"),
    ("local_api", "pod_sources"),
    ("local_api", "pod_table"),
    ("local_api", "server"),
    ("local_api", "versions"),
    ("net", "host"),
    ("net", "rt"),
    ("node_shutdown", "pod_table"),
    ("node_shutdown", "pod_workers"),
    // A shutdown waits for applications that hold their pods.
    ("node_shutdown", "versions"),
    // One key material for both.
    ("offline", "sealed_secrets"),
    ("plugin_manager", "host"),
    ("plugin_manager", "rpc"),
    ("plugin_manager", "rt"),
    ("pod_admission", "pod_table"),
    ("pod_admission", "pod_workers"),
    // An update that is held back keeps its resources.
    ("pod_admission", "versions"),
    ("pod_resources", "devices"),
    ("pod_resources", "dra"),
    ("pod_resources", "resource_managers"),
    ("pod_table", "cluster"),
    ("pod_table", "pleg"),
    ("pod_table", "pod_sources"),
    ("pod_table", "pod_workers"),
    ("pods", "objects"),
    ("registry", "net"),
    ("rpc", "rt"),
    // A CSI driver knows the usage of its volumes.
    ("stats", "csi"),
    ("stats", "node"),
    ("status", "allocation"),
    ("status", "probes"),
    ("sync_loop", "cluster"),
    ("sync_loop", "eviction"),
    ("sync_loop", "jobs"),
    ("sync_loop", "local_api"),
    ("sync_loop", "node_shutdown"),
    ("sync_loop", "pod_admission"),
    ("sync_loop", "pod_sources"),
    ("sync_loop", "pod_table"),
    ("sync_loop", "pod_workers"),
    ("sync_loop", "server"),
    ("sync_loop", "versions"),
    ("time_zone", "timestamp"),
    ("tracing", "config"),
    ("tracing", "host"),
    ("tracing", "net"),
    ("tracing", "rpc"),
    ("tracing", "rt"),
    ("versions", "pod_sources"),
    ("versions", "pod_table"),
    ("versions", "pod_workers"),
    ("volumes", "csi"),
    ("volumes", "node"),
];

/// Names of effects that a pure file must not use: files, sockets, processes, clocks, waiting.
const EFFECTS: &[&str] = &[
    ".await",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "async fn",
    "Procfs",
    "crate::platform::host",
    "crate::platform::rt",
    "TcpListener",
    "TcpStream",
    "ToSocketAddrs",
    "UdpSocket",
    "std::env",
    "std::fs",
    "std::os",
    "std::process",
];

/// Plain data of modules that have effects. `Procfs`, which reads procfs, is an effect.
const PLAIN_DATA: &[&str] = &["crate::platform::host::file_system::DiskSpace", "crate::platform::host::procfs"];

/// The API types refer to each other like those of Kubernetes.
const MAY_HAVE_CYCLES: &str = "types/api";

/// The maximum length of a file in lines, without the tests at its end.
const MAX_FILE_LINES: usize = 550;

/// The shipped code of one source file, without comments, tests and the contents of strings.
struct Source {
    path: PathBuf,
    text: String,
    code: String,
}

impl Source {
    /// The module of the file: a folder or file of a layer (`control/pleg`), or part of the wiring.
    fn module(&self) -> Module {
        let path = self.path.with_extension("");
        let mut parts = path.iter().map(|part| part.to_string_lossy().into_owned());
        let first = parts.next().unwrap();
        Module { name: parts.next().filter(|name| name != "mod"), layer: first }
    }

    /// How many `super::` lead out of the file's module: 1 for the file or folder of a layer.
    fn depth(&self) -> usize {
        self.address().len().saturating_sub(usize::from(!self.module().is_wiring())).max(1)
    }

    /// The segments of the file's module path: `control pleg exit_watch`.
    fn address(&self) -> Vec<String> {
        let path = self.path.with_extension("");
        let mut words: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if words.last().is_some_and(|last| last == "mod") {
            words.pop();
        }
        words
    }

    /// The absolute paths that the file names, from `crate::` or `super::`.
    fn named_addresses(&self) -> Vec<Vec<String>> {
        let own = self.address();
        let mut found = named_paths(&self.code, "crate::");
        for up in 1..=own.len() {
            let base = &own[..own.len() - up];
            let named = named_paths(&self.code, &"super::".repeat(up));
            let named = named.into_iter().filter(|path| path.first().is_none_or(|word| word != "super"));
            found.extend(named.map(|path| [base.to_vec(), path].concat()));
        }
        found
    }

    /// Whether the file's documentation says `Pure.`, or `Pure: the moment is an argument.`
    fn is_pure(&self) -> bool {
        let purpose = self.purpose();
        purpose.ends_with("Pure.") || purpose.contains("Pure:")
    }

    /// The first paragraph of the file's documentation.
    fn purpose(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("//!"));
        lines.take_while(|line| !line.trim().is_empty()).collect::<Vec<_>>().join(" ").trim().to_owned()
    }
}

/// Every file under `src` that is compiled into the binary.
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

/// The code before the tests at a file's end, without comments and the contents of strings.
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

/// The length of the string literal that `text` begins with, including its quotes.
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

/// The paths in `code` after `prefix` (`crate::`), as segments: `crate::a::{b, c::d}` is `a b` and `a c d`.
fn named_paths(code: &str, prefix: &str) -> Vec<Vec<String>> {
    let starts = code.match_indices(prefix).filter(|(at, _)| !is_within_a_word(code, *at));
    starts.flat_map(|(at, found)| paths(&code[at + found.len()..]).0).collect()
}

/// Whether the byte before `at` belongs to the same path.
fn is_within_a_word(code: &str, at: usize) -> bool {
    code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
}

/// The paths at the start of `text`, and the rest of the text.
fn paths(text: &str) -> (Vec<Vec<String>>, &str) {
    if let Some(group) = text.strip_prefix('{') {
        return group_paths(group);
    }
    if let Some(rest) = text.strip_prefix('*') {
        return (vec![vec!["*".to_owned()]], rest);
    }
    let Some(word) = leading_word(text) else { return (vec![Vec::new()], text) };
    let rest = &text[word.len()..];
    let (tails, rest) = match rest.strip_prefix("::") {
        Some(tail) => paths(tail),
        None => (vec![Vec::new()], rest),
    };
    (tails.into_iter().map(|tail| [vec![word.clone()], tail].concat()).collect(), rest)
}

/// The paths of `a, b::{c, d}}`.
fn group_paths(group: &str) -> (Vec<Vec<String>>, &str) {
    let mut all = Vec::new();
    let mut rest = group.trim_start();
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return (all, rest);
        }
        let (found, after) = paths(rest);
        all.extend(found);
        let next = after.find([',', '}']).unwrap_or(after.len());
        rest = after[next..].trim_start_matches(',').trim_start();
        if rest.is_empty() {
            return (all, rest);
        }
    }
}

/// Whether `code` contains these words as whole words.
fn names(code: &str, words: &str) -> bool {
    let mut found = code.match_indices(words).map(|(at, _)| code[at + words.len()..].chars().next());
    found.any(|next| next.is_none_or(|c| !c.is_alphanumeric() && c != '_'))
}

fn leading_word(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// A folder or file of a layer, or the wiring, which has no name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Module {
    layer: String,
    name: Option<String>,
}

impl std::fmt::Display for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}/{name}", self.layer),
            None => f.write_str(&self.layer),
        }
    }
}

impl Module {
    fn of_path(path: &[String]) -> Option<Self> {
        let (layer, name) = (path.first()?.clone(), path.get(1).cloned());
        let name = name.filter(|_| !WIRING.contains(&layer.as_str()));
        Some(Self { layer, name })
    }

    fn rank(&self) -> Option<usize> {
        LAYERS.iter().position(|layer| *layer == self.layer)
    }

    fn is_wiring(&self) -> bool {
        WIRING.contains(&self.layer.as_str())
    }

    fn may_use(&self, other: &Self) -> bool {
        if self.is_wiring() || self == other {
            return true;
        }
        match (self.rank(), other.rank()) {
            (Some(above), Some(below)) if above == below => {
                let arrow = (self.name.as_deref().unwrap_or_default(), other.name.as_deref().unwrap_or_default());
                ARROWS.contains(&arrow)
            }
            (Some(above), Some(below)) => above > below,
            _ => false,
        }
    }
}

#[track_caller]
fn assert_none(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}:\n  {}", found.join("\n  "));
}

#[test]
fn imports_follow_the_permitted_arrows() {
    let mut found = BTreeSet::new();
    for source in sources() {
        let from = source.module();
        for to in named_paths(&source.code, "crate::").iter().filter_map(|path| Module::of_path(path)) {
            if !from.may_use(&to) {
                found.insert(format!("src/{}: {from} -> {to}", source.path.display()));
            }
        }
    }
    assert_none(found.into_iter().collect(), "an import against the layers, or of a module outside of them");
}

#[test]
fn every_permitted_arrow_is_used() {
    let mut unused: BTreeSet<(String, String)> =
        ARROWS.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    for source in sources() {
        let Module { layer, name: Some(from) } = source.module() else { continue };
        for to in named_paths(&source.code, "crate::").iter().filter_map(|path| Module::of_path(path)) {
            if let Some(to) = to.name.filter(|_| to.layer == layer) {
                unused.remove(&(from.clone(), to));
            }
        }
    }
    assert_none(unused.into_iter().map(|(from, to)| format!("{from} -> {to}")).collect(), "an arrow without an import");
}

#[test]
fn no_folder_has_import_cycles() {
    assert_none(import_cycles(&sources()), "import cycles");
}

/// Import cycles between the files and folders of one folder.
///
/// Test modules are exempt. So is a folder's own `mod.rs`, because its files use its types and it uses theirs. Calls
/// between methods of one type that is implemented in several files are not detected.
fn import_cycles(sources: &[Source]) -> Vec<String> {
    let modules: BTreeMap<Vec<String>, &Source> = sources.iter().map(|source| (source.address(), source)).collect();
    // For each folder: which child imports which.
    let mut folders: BTreeMap<Vec<String>, BTreeSet<(String, String)>> = BTreeMap::new();
    for source in sources {
        let from = source.address();
        for to in source.named_addresses().iter().map(|path| defining_module(&modules, path)) {
            let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
            if let (Some(a), Some(b)) = (from.get(shared), to.get(shared)) {
                folders.entry(from[..shared].to_vec()).or_default().insert((a.clone(), b.clone()));
            }
        }
    }
    let mut found = Vec::new();
    for (folder, arrows) in folders.into_iter().map(|(folder, arrows)| (folder.join("/"), arrows)) {
        // Another test checks the layers.
        if folder.is_empty() || folder == MAY_HAVE_CYCLES {
            continue;
        }
        for (from, to) in arrows.iter().filter(|(from, to)| reaches(&arrows, to, from)) {
            found.push(format!("src/{folder}: {from} -> {to}"));
        }
    }
    found
}

/// The module that defines the item of `path`, through the re-exports of folders.
fn defining_module(modules: &BTreeMap<Vec<String>, &Source>, path: &[String]) -> Vec<String> {
    let known = (0..=path.len()).rev().find(|length| modules.contains_key(&path[..*length])).unwrap_or_default();
    let (module, rest) = path.split_at(known);
    let Some((name, door)) = rest.first().zip(modules.get(module)) else { return module.to_vec() };
    for export in named_paths(&door.code, "use ") {
        let Some((child, exported)) = export.split_first() else { continue };
        let child = [module, std::slice::from_ref(child)].concat();
        let Some(source) = modules.get(&child) else { continue };
        let is_exported = match exported.last().map(String::as_str) {
            None => false,
            Some("*") => defines(&source.code, name),
            Some(last) => last == name || names(&door.code, &format!("{last} as {name}")),
        };
        if is_exported {
            let exported = if exported.ends_with(&["*".to_owned()]) { std::slice::from_ref(name) } else { exported };
            return defining_module(modules, &[&child, exported].concat());
        }
    }
    module.to_vec()
}

/// Whether `code` defines an item of this name.
fn defines(code: &str, name: &str) -> bool {
    ["const", "enum", "fn", "static", "struct", "trait", "type"]
        .iter()
        .any(|kind| names(code, &format!("{kind} {name}")))
}

fn reaches(arrows: &BTreeSet<(String, String)>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut ahead = vec![from];
    while let Some(at) = ahead.pop() {
        for (_, next) in arrows.iter().filter(|(start, _)| start == at) {
            if next == to {
                return true;
            }
            if seen.insert(next) {
                ahead.push(next);
            }
        }
    }
    false
}

#[test]
fn paths_out_of_a_module_start_at_the_crate_root() {
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
    let named =
        sources().into_iter().filter(|source| !source.path.starts_with("platform/rt") && source.code.contains("smol"));
    assert_none(named.map(|source| format!("src/{}", source.path.display())).collect(), "smol is named outside of rt");
}

/// Simulations control the time that `rt` provides. The watchdog's thread and the CLI's commands run outside of them.
#[test]
fn monotonic_clock_is_read_through_rt() {
    let is_exempt = |source: &Source| {
        ["platform/rt", "cli", "control/server/watchdog"].iter().any(|exempt| source.path.starts_with(exempt))
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

/// On 32-bit musl the standard library panics in 2038. No decision depends on the wall clock anyway.
#[test]
fn only_one_file_reads_the_wall_clock() {
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
fn pure_files_name_no_effects() {
    let mut found = Vec::new();
    for source in sources().into_iter().filter(Source::is_pure) {
        let code = PLAIN_DATA.iter().fold(source.code.clone(), |code, data| code.replace(data, ""));
        for effect in EFFECTS.iter().filter(|effect| names(&code, effect)) {
            found.push(format!("src/{}: {effect}", source.path.display()));
        }
    }
    assert_none(found, "an effect in a pure file");
}

#[test]
fn every_file_begins_with_its_purpose() {
    let mute = sources().into_iter().filter(|source| !source.purpose().ends_with(['.', ':']));
    assert_none(mute.map(|source| format!("src/{}", source.path.display())).collect(), "no `//! What this is for.`");
}

#[test]
fn no_file_exceeds_the_longest_length() {
    let mut found = Vec::new();
    for source in sources() {
        let tests = source.text.find("#[cfg(test)]\nmod tests {").unwrap_or(source.text.len());
        let lines = source.text[..tests].lines().count();
        if lines > MAX_FILE_LINES {
            found.push(format!("src/{}: {lines} lines", source.path.display()));
        }
    }
    assert_none(found, "a file to be split by subject");
}

#[test]
fn no_test_name_begins_with_an_article() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    for folder in ["src", "tests"] {
        collect(&top.join(folder), &mut paths);
    }
    let mut found = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text.lines().map(str::trim_start);
        while lines.any(|line| line == "#[test]") {
            let Some(name) = lines.find_map(|line| line.strip_prefix("fn ")) else { continue };
            if ["a_", "an_", "the_"].iter().any(|article| name.starts_with(article)) {
                found.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert_none(found, "a test name with a leading article");
}

#[test]
fn no_file_has_a_meaningless_name() {
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
fn planted_faults_apply_to_the_sources() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = top.join("tests/data/planted-faults");
    let mut stale = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let diff = entry.unwrap().path();
        let output = Command::new("git").args(["apply", "--check"]).arg(&diff).current_dir(top).output().unwrap();
        if !output.status.success() {
            stale.push(String::from_utf8_lossy(&output.stderr).into_owned());
        }
    }
    assert_none(stale, "scripts/planted-faults applies these diffs");
}

#[test]
fn imports_are_found_in_code_only() {
    let text = "use crate::{protocol::{grpc::Status, http2}, types};\nfn f() { crate::rt::sleep(\"crate::cli\") } // crate::pleg\n\
                #[cfg(test)]\nmod tests {\n use crate::server;\n}\n";
    let names: Vec<String> =
        named_paths(&shipped_code(text), "crate::").into_iter().map(|path| path.join(" ")).collect();
    assert_eq!(names, ["protocol grpc Status", "protocol http2", "types", "rt sleep"]);
}

#[test]
fn forbidden_arrow_is_refused() {
    let module = |path: &str| {
        let words: Vec<String> = path.split('/').map(str::to_owned).collect();
        Module::of_path(&words).unwrap()
    };
    for (from, to, allowed) in [
        ("state/pods", "platform/cri", true),
        ("platform/cri", "platform/rpc", true),
        ("platform/cri", "platform/host", false),
        ("platform/rpc", "platform/cri", false),
        ("protocol/http2", "platform/rt", false),
        ("control/pod_workers", "control/sync_loop", false),
        ("cli", "node_agent", true),
        ("state/pods", "unheard_of", false),
    ] {
        assert_eq!(module(from).may_use(&module(to)), allowed, "{from} -> {to}");
    }
}

/// The constants and statics of a module, which stand at the start of a line.
fn module_constants(code: &str) -> Vec<(&str, &str)> {
    let constants = code.lines().filter_map(|line| {
        let (before, item) = line.split_once("const ").or(line.split_once("static "))?;
        let (name, kind) = item.split_once(": ")?;
        let is_item = before.is_empty() || before.starts_with("pub");
        let is_name = name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        (is_item && is_name).then_some((name, kind.split_once(" =").map_or(kind, |(kind, _)| kind)))
    });
    constants.filter(|(name, _)| *name != "_").collect()
}

/// A search for a constant finds one subject. Associated constants are named with their type.
#[test]
fn name_of_a_constant_stands_for_one_constant() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for (name, _) in module_constants(&source.code) {
            places.entry(name.to_owned()).or_default().push(source.path.display().to_string());
        }
    }
    assert!(places.len() > 800, "{} constants", places.len());
    let repeated: Vec<String> = places
        .iter()
        .filter(|(_, paths)| paths.len() > 1)
        .map(|(name, paths)| format!("{name}: {}", paths.join(", ")))
        .collect();
    assert!(repeated.is_empty(), "say subject and unit:\n{}", repeated.join("\n"));
}

/// A reader learns from a name what a number counts: bounds begin with MAX or MIN, and a single word is a unit. Numbers
/// of wire formats have the names that their specifications give them.
#[test]
fn name_of_a_number_says_what_it_counts() {
    const UNITS: [&str; 9] = ["GB", "GIB", "HOUR", "MB", "MINUTE", "MS", "PAGE", "S", "SECOND"];
    const WITHOUT_UNIT: [&str; 6] = ["FASTEST_", "LARGEST_", "LEAST_", "LONGEST_", "MOST_", "SHORTEST_"];
    let mut numbers = 0;
    let mut unclear = Vec::new();
    for source in sources() {
        for (name, kind) in module_constants(&source.code) {
            if !is_number(kind) {
                continue;
            }
            numbers += 1;
            let is_specified = source.path.starts_with("protocol");
            let is_word = !name.contains('_') && !UNITS.contains(&name) && !is_specified;
            if is_word || WITHOUT_UNIT.iter().any(|start| name.starts_with(start)) {
                unclear.push(format!("{}: {name}", source.path.display()));
            }
        }
    }
    assert!(numbers > 600, "{numbers} numbers");
    assert!(unclear.is_empty(), "say what it counts, and MAX or MIN for a bound:\n{}", unclear.join("\n"));
}

fn is_number(kind: &str) -> bool {
    let is_sized =
        |start: char| kind.strip_prefix(start).is_some_and(|rest| rest == "size" || rest.parse::<u8>().is_ok());
    kind == "Duration" || ['f', 'i', 'u'].into_iter().any(is_sized)
}

#[test]
fn import_cycles_through_re_exports_are_found() {
    let source = |path: &str, code: &str| Source { path: path.into(), text: String::new(), code: code.to_owned() };
    let cycles = |door: &str| {
        import_cycles(&[
            source("state/pods/mod.rs", door),
            source("state/pods/filter.rs", "use crate::state::pods::Object; struct Filter;"),
            source("state/pods/ring.rs", "use super::filter::Filter; struct Object; struct Thing;"),
        ])
    };
    let expected = ["src/state/pods: filter -> ring", "src/state/pods: ring -> filter"];
    for door in ["use ring::{Object, Thing};", "use ring::*;", "use ring::Thing as Object;"] {
        assert_eq!(cycles(door), expected, "{door}");
    }
    assert_eq!(cycles("struct Object; use ring::Thing;"), [""; 0]);
}
