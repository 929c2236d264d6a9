//! Compares the manual page and the shell completions with the tables they are built from, and with the program's help.
//!
//! `UPDATE_GOLDEN=1 cargo test --test manual` rewrites the files.
#![expect(clippy::unwrap_used, reason = "a test: a panic here is its failure")]

use std::collections::BTreeSet;
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
            std::fs::write(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path), made).unwrap();
        } else {
            assert!(found == made, "{path} is out of date: UPDATE_GOLDEN=1 cargo test --test manual");
        }
    }
}

#[test]
fn manual_has_exactly_the_programs_options() {
    assert_eq!(options_in_the_manual(), options());
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

    // `local` declarations contain options of the shell itself.
    let zsh: Vec<&str> = code(ZSH).filter(|line| !line.trim_start().starts_with("local ")).collect();
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
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_coracle")).parent().unwrap().display().to_string();
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
