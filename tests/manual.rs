//! Compares the manual page and the shell completions with the tables they are built from, and with the program's help.
//!
//! `UPDATE_GOLDEN=1 cargo test --test manual` rewrites the files.
#![expect(clippy::unwrap_used, reason = "a test: a panic here is its failure")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MANUAL: &str = include_str!("../man/coracle.8");
const BASH: &str = include_str!("../completions/coracle.bash");
const ZSH: &str = include_str!("../completions/coracle.zsh");
const FISH: &str = include_str!("../completions/coracle.fish");

/// Each file: its path, its content in the tree and its content as built.
const FILES: [(&str, &str, &str); 4] = [
    ("man/coracle.8", MANUAL, include_str!(concat!(env!("OUT_DIR"), "/coracle.8"))),
    ("completions/coracle.bash", BASH, include_str!(concat!(env!("OUT_DIR"), "/coracle.bash"))),
    ("completions/coracle.zsh", ZSH, include_str!(concat!(env!("OUT_DIR"), "/coracle.zsh"))),
    ("completions/coracle.fish", FISH, include_str!(concat!(env!("OUT_DIR"), "/coracle.fish"))),
];

type Words = BTreeSet<String>;

fn help_of(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_coracle")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The commands in the program's usage.
fn commands() -> Words {
    let help = help_of(&["--help"]);
    let usage = help.lines().filter_map(|line| line.strip_prefix("  coracle "));
    let first_words = usage.filter_map(|line| line.split(' ').next()).filter(|word| !word.starts_with('['));
    first_words.chain(["help"]).map(str::to_owned).collect()
}

/// Every option in any help: of the agent, of each command, and `--help` itself.
fn options() -> Words {
    let mut options = options_in(&help_of(&["help", "flags"]));
    // A placeholder for any flag.
    options.remove("--flag");
    for command in commands().iter().filter(|command| *command != "help") {
        // Examples have options of other programs.
        let help = help_of(&[command, "--help"]);
        options.append(&mut options_in(help.split("\nExamples:").next().unwrap()));
    }
    options
}

/// The words that begin with a hyphen, without attachments: `--name[=VALUE]`, `-o,`, `(-h`.
fn options_in(text: &str) -> Words {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let is_option = |word: &&str| match word.strip_prefix("--") {
        Some(name) => name.starts_with(|c: char| c.is_ascii_lowercase()),
        None => word.len() == 2 && word.starts_with('-') && word.ends_with(|c: char| c.is_ascii_alphabetic()),
    };
    words.filter(is_option).map(str::to_owned).collect()
}

/// mdoc: `.Fl v` is -v, `.Fl -config` is --config.
fn options_in_the_manual() -> Words {
    let lines = MANUAL.lines().filter(|line| line.starts_with(".It Fl"));
    options_in(&lines.collect::<Vec<_>>().join("\n").replace("Fl ", " -"))
}

/// fish: `-s v -l v`.
fn options_in_fish() -> Words {
    let words: Vec<&str> =
        FISH.lines().filter(|line| line.starts_with("complete")).flat_map(str::split_whitespace).collect();
    let option = |pair: &[&str]| match pair {
        ["-s", name] => Some(format!("-{name}")),
        ["-l", name] => Some(format!("--{name}")),
        _ => None,
    };
    words.windows(2).filter_map(option).collect()
}

#[test]
fn files_in_the_tree_match_the_build() {
    for (path, found, made) in FILES {
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(path), made).unwrap();
        } else {
            assert!(found == made, "{path} is out of date: UPDATE_GOLDEN=1 cargo test --test manual");
        }
    }
}

#[test]
fn manual_has_exactly_the_programs_options() {
    assert_eq!(options_in_the_manual(), options());
}

/// The options of other programs that messages name: of iptables, of systemctl, of an image build.
const OPTIONS_OF_OTHERS: [&str; 3] = ["--ctstate", "--now", "--platform"];

fn add_sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => add_sources(&path, files),
            false => files.push(path),
        }
    }
}

/// The string literals with a space of the code before the tests of a file: those without are arguments of a program.
fn messages(code: &str) -> impl Iterator<Item = &str> {
    let shipped = code.split("#[cfg(test)]\nmod ").next().unwrap();
    let code = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split('"').skip(1).step_by(2)).filter(|text| text.contains(' '))
}

#[test]
fn every_option_in_a_message_exists() {
    let mut files = Vec::new();
    add_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let is_test = |path: &Path| {
        path.components().any(|part| matches!(part.as_os_str().to_str(), Some("simulation" | "tests" | "tests.rs")))
    };
    let mut known = options();
    known.extend(OPTIONS_OF_OTHERS.map(str::to_owned));
    let mut named = 0;
    for path in files.iter().filter(|path| !is_test(path)) {
        let code = fs::read_to_string(path).unwrap();
        for option in messages(&code).flat_map(options_in).filter(|option| option.starts_with("--")) {
            named += 1;
            assert!(known.contains(&option), "{}: a message names {option}, which is no option", path.display());
        }
    }
    assert!(named > 100, "only {named} options are named");
}

#[test]
fn manual_has_every_command() {
    for command in commands() {
        assert!(MANUAL.contains(&format!("\n.It Cm {command}")), "{command}");
        assert!(MANUAL.contains(&format!("\n.Cm {command}\n")), "{command} in the synopsis");
    }
}

#[test]
fn every_shell_completes_exactly_the_programs_options() {
    let code = |text: &'static str| text.lines().filter(|line| !line.trim_start().starts_with('#'));
    // Completions are single-quoted.
    let bash = code(BASH).collect::<Vec<_>>().join("\n");
    let bash: Vec<&str> = bash.split('\'').skip(1).step_by(2).collect();
    assert_eq!(options_in(&bash.join("\n")), options(), "bash");

    // `local` declarations and the shell's own functions contain options of the shell.
    let zsh = code(ZSH).filter(|line| !line.trim_start().starts_with("local "));
    let zsh: Vec<String> = zsh.map(|line| line.replace("_arguments -s ", "")).collect();
    assert_eq!(options_in(&zsh.join("\n")), options(), "zsh");

    assert_eq!(options_in_fish(), options(), "fish");
}

#[test]
fn every_shell_completes_every_command() {
    let in_bash = BASH.lines().find_map(|line| line.trim().strip_prefix("[[ $COMP_CWORD -gt 1 ")).unwrap();
    let in_bash = in_bash.split('\'').nth(1).unwrap();
    for command in commands() {
        let in_bash = in_bash.split_whitespace().any(|word| word == command);
        let in_zsh = ZSH.contains(&format!("\n        '{command}:"));
        let in_fish = FISH.contains(&format!("__fish_use_subcommand -a {command} "));
        assert!(in_bash && in_zsh && in_fish, "{command}: bash {in_bash}, zsh {in_zsh}, fish {in_fish}");
    }
}

#[test]
fn program_prints_the_packaged_completion_scripts() {
    for (shell, script) in [("bash", BASH), ("zsh", ZSH), ("fish", FISH)] {
        let output = Command::new(env!("CARGO_BIN_EXE_coracle")).args(["completion", shell]).output().unwrap();
        assert!(output.stdout == script.as_bytes(), "{shell}");
    }
    let folder = Path::new(env!("CARGO_BIN_EXE_coracle")).parent().unwrap().display().to_string();
    let completed = |words: &str, at: usize| {
        let script = format!(
            "PATH={folder}:$PATH; source <(coracle completion bash); COMP_WORDS=({words}); COMP_CWORD={at}; _coracle
             printf %s \"${{COMPREPLY[*]}}\""
        );
        let output = Command::new("bash").args(["-c", &script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed("coracle po", 1), "pods port-forward");
    assert_eq!(completed("coracle logs --t", 2), "--tail --timestamps");
    assert_eq!(completed("coracle logs x --since 1h -n", 5), "-n");
    assert_eq!(completed("coracle --anonymous", 1), "--anonymous-auth");
    assert_eq!(completed("coracle help vali", 2), "validate");
}

/// A coracle that knows two pods, of which the first has three containers, and two images with names.
const FAKE: &str = r#"#!/bin/sh
case "$*" in
"pods -o name") printf 'pod/web-n1\npod/store-n1\n' ;;
"pods web-n1 -o jsonpath="*) echo 'setup main beside' ;;
"pods -o jsonpath="*) echo 'main beside other' ;;
images) printf 'IMAGE     ID  SIZE  USED BY\nweb:1     01  4MB   x/a\nbox:1.27  01  4MB   <none>\n<none>    01  4MB   <none>\n' ;;
*) exit 1 ;;
esac
"#;

/// Command lines, and what completes their last word, sorted.
const COMPLETIONS: [(&str, &str); 9] = [
    ("logs -f ", "store-n1 web-n1"),
    ("logs --since 1h w", "web-n1"),
    ("exec -it s", "store-n1"),
    ("stop -n default w", "web-n1"),
    ("delete web-n1 s", "store-n1"),
    ("logs web-n1 -c ", "beside main setup"),
    ("logs -c ", "beside main other"),
    ("images rm w", "web:1"),
    ("images remove b", "box:1.27"),
];

/// The folder with the fake, and the path that begins with it.
fn fake() -> (PathBuf, String) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("completions");
    fs::create_dir_all(&folder).unwrap();
    // Written in one step: another test may run it now.
    let (new, name) = (folder.join(format!("new-{:?}", std::thread::current().id())), folder.join("coracle"));
    fs::write(&new, FAKE).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, name).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    (folder, path)
}

/// What a shell prints for a script; `None` if it is not installed.
fn printed_by(shell: &str, arguments: &[&str], script: &str) -> Option<String> {
    let (_, path) = fake();
    let output = Command::new(shell).args(arguments).args(["-c", script]).env("PATH", path).output().ok()?;
    Some(String::from_utf8(output.stdout).unwrap())
}

fn completion_script(shell: &str) -> String {
    format!("{}/completions/coracle.{shell}", env!("CARGO_MANIFEST_DIR"))
}

#[track_caller]
fn check_completed(shell: &str, line: &str, found: &str, expected: &str) {
    let mut found: Vec<&str> = found.split_whitespace().collect();
    found.sort_unstable();
    assert_eq!(found.join(" "), expected, "{shell}: coracle {line}");
}

#[test]
fn bash_completes_pods_containers_and_images() {
    let completed = |words: &str, at: usize| {
        let script = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={at}; _coracle; printf '%s ' \"${{COMPREPLY[@]}}\"",
            completion_script("bash")
        );
        printed_by("bash", &["--norc"], &script).unwrap()
    };
    for (line, expected) in COMPLETIONS {
        let words = if line.ends_with(' ') { format!("coracle {line}''") } else { format!("coracle {line}") };
        check_completed("bash", line, &completed(&words, words.split_whitespace().count() - 1), expected);
    }
    // bash splits words at colons and equals signs.
    check_completed("bash", "images rm box:1", &completed("coracle images rm box : 1", 5), "1.27");
    check_completed(
        "bash",
        "logs web-n1 --container=",
        &completed("coracle logs web-n1 --container =", 4),
        "beside main setup",
    );
    check_completed("bash", "wait --timeout=3s s", &completed("coracle wait --timeout = 3s s", 5), "store-n1");
}

#[test]
fn fish_completes_pods_containers_and_images() {
    for (line, expected) in COMPLETIONS {
        let script = format!(
            "source {}; complete -C 'coracle {line}' | string replace -r '\\t.*' ''",
            completion_script("fish")
        );
        let Some(found) = printed_by("fish", &["--no-config"], &script) else { return };
        check_completed("fish", line, &found, expected);
    }
}

#[test]
fn zsh_completes_pods_containers_and_images() {
    let (folder, _) = fake();
    let found = folder.join("zsh-words");
    for (line, expected) in COMPLETIONS {
        fs::write(&found, "").unwrap();
        // Each word passes compadd. Calls with -A, -D and -O only ask. The line is typed when the editor waits for it.
        let script = format!(
            r#"zmodload zsh/zpty
            zpty z zsh -f -i
            zpty -w z 'PROMPT=; autoload -U compinit; compinit -u -D; source {script}; compadd() {{ local -a shown; [[ " $* " == *" -"[ADO]" "* ]] || {{ builtin compadd -O shown "$@"; print -rl -- $shown >>{found}; }}; builtin compadd "$@" }}; zle-line-init() {{ print RE""ADY }}; zle -N zle-line-init'
            zpty -r z text '*READY*'
            zpty -wn z 'coracle {line}'$'\t'
            zpty -wn z $'\025'
            zpty -w z 'print DO""NE'
            zpty -r z text '*DONE*'"#,
            script = completion_script("zsh"),
            found = found.display(),
        );
        let Some(_) = printed_by("zsh", &["-f"], &script) else { return };
        check_completed("zsh", line, &fs::read_to_string(&found).unwrap(), expected);
    }
}
