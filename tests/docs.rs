//! Checks that the documents name existing paths, headings and commands.
#![expect(clippy::unwrap_used, reason = "a test: a panic here is its failure")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};

const TOP: &str = env!("CARGO_MANIFEST_DIR");

/// The design pages.
const DESIGN: &str = "docs/design";

/// A document, with the line numbers of its parts.
struct Document {
    /// Relative to the root of the tree.
    path: PathBuf,
    /// Lines outside of code blocks.
    prose: Vec<(usize, String)>,
    /// Lines of code blocks.
    code: Vec<(usize, String)>,
}

fn document(path: &Path) -> Document {
    let text = std::fs::read_to_string(Path::new(TOP).join(path)).unwrap();
    let (mut prose, mut code, mut in_block) = (Vec::new(), Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let lines = if in_block { &mut code } else { &mut prose };
        lines.push((index + 1, line.to_owned()));
    }
    assert!(!in_block, "{}: a code block does not end", path.display());
    Document { path: path.to_owned(), prose, code }
}

fn documents() -> Vec<Document> {
    let mut paths: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(PathBuf::from).to_vec();
    for folder in ["docs", DESIGN] {
        let entries = std::fs::read_dir(Path::new(TOP).join(folder)).unwrap();
        let names = entries.map(|entry| Path::new(folder).join(entry.unwrap().file_name()));
        paths.extend(names.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    paths.sort();
    paths.iter().map(|path| document(path)).collect()
}

impl Document {
    /// All faults, with their places.
    fn faults(&self, lines: &[(usize, String)], fault: impl Fn(&str) -> Vec<String>) -> Vec<String> {
        let at = |number: &usize, fault| format!("{}:{number}: {fault}", self.path.display());
        lines.iter().flat_map(|(number, line)| fault(line).into_iter().map(move |fault| at(number, fault))).collect()
    }

    fn slugs(&self) -> BTreeSet<String> {
        self.prose.iter().filter(|(_, line)| line.starts_with('#')).map(|(_, line)| slug(line)).collect()
    }
}

/// GitHub's anchor for a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn code_spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// The targets of `[text](target)`.
fn link_targets(line: &str) -> Vec<&str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

/// Resolves `docs/../README.md` to `README.md`.
fn normalized(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            part => out.push(part),
        }
    }
    out
}

/// Every file and folder of the tree, without build outputs.
fn tree() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(Path::new(TOP).join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            let name = path.display().to_string();
            if matches!(&*name, ".git" | "target" | "dist") || name == "fuzz/target" {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            }
            all.insert(name);
        }
    }
    all
}

#[test]
fn links_lead_to_files_and_headings() {
    let documents = documents();
    let slugs: BTreeMap<&Path, BTreeSet<String>> =
        documents.iter().map(|document| (&*document.path, document.slugs())).collect();
    let fault = |document: &Document, target: &str| {
        if target.contains("://") {
            return None;
        }
        let (path, heading) = target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
        let path = match path {
            "" => document.path.clone(),
            path => normalized(&document.path.parent().unwrap().join(path)),
        };
        if !Path::new(TOP).join(&path).exists() {
            return Some(format!("no file {}", path.display()));
        }
        let known = heading.is_none_or(|heading| slugs.get(&*path).is_some_and(|slugs| slugs.contains(heading)));
        (!known).then(|| format!("no heading {target}"))
    };
    let faults: Vec<String> = documents
        .iter()
        .flat_map(|document| {
            document.faults(&document.prose, |line| {
                link_targets(line).into_iter().filter_map(|target| fault(document, target)).collect()
            })
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Whether the text is a path without placeholders, patterns or options, such as `src/lib.rs` or `qemu-tests/run`.
fn is_plain_path(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/._-".contains(c);
    let is_path = text.contains('/') || text.ends_with(".rs");
    is_path && text.chars().all(is_plain) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

#[test]
fn paths_in_backticks_exist() {
    let tree = tree();
    let layers: Vec<&String> = tree.iter().filter(|path| is_folder_of_src(path)).collect();
    // ARCHITECTURE.md and the design pages name files of src by their path below the layer.
    let exists = |path: &str| {
        let path = path.trim_end_matches('/');
        if !path.contains('/') {
            return tree.iter().any(|other| other.rsplit('/').next() == Some(path));
        }
        let below = |layer: &&&String| tree.contains(&format!("{layer}/{path}"));
        tree.contains(path) || tree.contains(&format!("src/{path}")) || layers.iter().any(|layer| below(&layer))
    };
    let is_ours = |path: &str| {
        let first = path.split('/').next().unwrap();
        path.ends_with(".rs") || (tree.contains(first) && !first.contains('.'))
    };
    let fault = |span: &str| (is_plain_path(span) && is_ours(span) && !exists(span)).then(|| format!("no path {span}"));
    let faults: Vec<String> = documents()
        .iter()
        .flat_map(|document| {
            document.faults(&document.prose, |line| code_spans(line).into_iter().filter_map(fault).collect())
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn is_folder_of_src(path: &str) -> bool {
    let name = path.strip_prefix("src/").unwrap_or_default();
    !name.is_empty() && !name.contains(['/', '.'])
}

#[test]
fn files_in_design_diagrams_exist() {
    let tree = tree();
    // A diagram may shorten the path of a file.
    let exists = |file: &str| tree.iter().any(|path| path == file || path.ends_with(&format!("/{file}")));
    let fault = |line: &str| -> Vec<String> {
        let words = line.split_whitespace().map(|word| word.trim_end_matches(','));
        let files = words.filter(|word| word.ends_with(".rs") && is_plain_path(word));
        files.filter(|file| !exists(file)).map(|file| format!("no file {file}")).collect()
    };
    let is_design = |path: &Path| path == Path::new("ARCHITECTURE.md") || path.starts_with(DESIGN);
    let pages = documents().into_iter().filter(|document| is_design(&document.path));
    let faults: Vec<String> = pages.flat_map(|document| document.faults(&document.code, fault)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn coracle(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_coracle"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The output of `--help` for a command, or for the program if there is no such command.
fn help_of(command: Option<&str>) -> String {
    let output = command.map_or_else(|| coracle(&["help", "flags"]), |command| coracle(&[command, "--help"]));
    String::from_utf8(output.stdout).unwrap()
}

/// The words of a command line, up to a pipe, a redirection or a comment.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (None, '|' | '<' | '>' | ';' | '#' | '&' | ')') => break,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if open == c => quote = None,
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The program's command lines in a line of a code block, without the program's name.
fn command_lines(line: &str) -> Vec<Vec<String>> {
    let starts = line.match_indices("coracle ").filter(|(at, _)| {
        let before = line.get(..*at).unwrap_or_default().trim_start();
        let before = before.strip_prefix("$ ").unwrap_or(before);
        before.is_empty()
            || ["sudo ", "ssh board ", "| ", "; ", "&& ", "(", "ssh board '"].iter().any(|end| before.ends_with(end))
    });
    starts.map(|(at, name)| shell_words(line.get(at + name.len()..).unwrap_or_default())).collect()
}

/// The part of a command that the program rejects.
fn fault_of(words: &[String]) -> Option<String> {
    let first = words.first()?;
    if first.starts_with(|c: char| c.is_ascii_uppercase()) {
        return None;
    }
    let command = (!first.starts_with('-')).then_some(&**first);
    let help = help_of(command);
    if command.is_some_and(|command| command != "help" && !help.starts_with(&format!("Usage: coracle {command}"))) {
        return Some(format!("no command {first}"));
    }
    // Words after two hyphens belong to a command in a container.
    let own = words.iter().take_while(|word| *word != "--");
    let options = own.filter(|word| word.len() > 1 && word.starts_with('-'));
    let known: BTreeSet<&str> = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).collect();
    let names = options.map(|option| option.split('=').next().unwrap_or(option));
    let is_known = |name: &str| {
        // -it is -i -t, and -v4 is -v 4.
        let letters = name.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
        match letters {
            Some(letters) => letters.chars().all(|c| c.is_ascii_digit() || known.contains(&*format!("-{c}"))),
            None => known.contains(name),
        }
    };
    let unknown = { names }.find(|name| !is_known(name))?;
    Some(format!("no option {unknown} of coracle {first}"))
}

/// The parse error of a command that only talks to the agent. No agent listens on the given socket.
fn refusal_of(words: &[String]) -> Option<String> {
    let (command, rest) = words.split_first()?;
    // This one does its work without an agent: it writes an archive.
    let is_only_client = command != "support" && help_of(Some(command)).contains("--local-socket");
    if !is_only_client {
        return None;
    }
    let rest = rest.iter().map(String::as_str);
    let mut arguments: Vec<&str> =
        [&**command, "--local-socket", "/nonexistent/coracle.sock"].into_iter().chain(rest).collect();
    // It also waits for the agent.
    if command == "wait" {
        match arguments.iter_mut().skip_while(|word| **word != "--timeout").nth(1) {
            Some(time) => *time = "1s",
            None => arguments.extend(["--timeout", "1s"]),
        }
    }
    let output = coracle(&arguments);
    (output.status.code() == Some(2)).then(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

#[test]
fn commands_in_code_blocks_parse() {
    let mut found = 0;
    let mut faults = Vec::new();
    for document in documents() {
        for (number, line) in &document.code {
            for words in command_lines(line) {
                found += 1;
                let at = |fault| format!("{}:{number}: {fault}: {}", document.path.display(), words.join(" "));
                faults.extend(fault_of(&words).or_else(|| refusal_of(&words)).map(at));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(found > 30, "only {found} commands found");
}

#[test]
fn commands_in_backticks_have_known_names_and_options() {
    let mut faults = Vec::new();
    for document in documents() {
        faults.extend(document.faults(&document.prose, |line| {
            let spans = code_spans(line).into_iter().filter(|span| span.starts_with("coracle "));
            spans.flat_map(command_lines).filter_map(|words| fault_of(&words)).collect()
        }));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The words of the reasons that the program's sources use, by the constants of `reason.rs`.
fn recorded_reasons() -> BTreeSet<String> {
    let reasons = std::fs::read_to_string(Path::new(TOP).join("src/types/api/reason.rs")).unwrap();
    let constants: BTreeMap<&str, &str> =
        reasons.lines().filter_map(|line| line.trim().strip_suffix("\";")?.split_once(" = \"")).collect();
    let mut sources = String::new();
    let mut folders = vec![Path::new(TOP).join("src")];
    while let Some(folder) = folders.pop() {
        // Readers of events know reasons that nothing here records.
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let readers = ["status/problem", "server/status_page", "api/reason.rs"];
            let is_reader = readers.iter().any(|reader| path.ends_with(reader));
            if path.is_dir() && !is_reader && !path.ends_with("tests") {
                folders.push(path);
            } else if path.is_file() && !is_reader && !path.ends_with("tests.rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap_or_default());
            }
        }
    }
    let words = sources.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect::<BTreeSet<_>>();
    constants.into_iter().filter(|(name, _)| words.contains(name)).map(|(_, word)| word.to_owned()).collect()
}

#[test]
fn events_of_upstream_are_recorded_or_declared() {
    let recorded = recorded_reasons();
    let path = Path::new("docs/differences-from-upstream.md");
    let differences = std::fs::read_to_string(Path::new(TOP).join(path)).unwrap();
    let table = differences.split("### Events that are missing").nth(1).unwrap();
    let table = table.split("### ").next().unwrap();
    let upstream = std::fs::read_to_string(Path::new(TOP).join("tests/data/upstream-1.36/events.txt")).unwrap();
    assert!(upstream.lines().count() > 50);
    for event in upstream.lines() {
        let rows = table.lines().filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
        let is_declared = rows.into_iter().any(|row| row.contains(&format!("`{event}`")));
        assert_ne!(recorded.contains(event), is_declared, "{event}: recorded {}", recorded.contains(event));
    }
}
