//! Compares argh's structs and the agent's flags with the tables.

use std::collections::BTreeSet;

use super::*;
use crate::cli::commands;

const PARSER: &str =
    concat!(include_str!("../commands.rs"), include_str!("../devices.rs"), include_str!("../validate.rs"));

/// The flags of each command, as its argh struct declares them: `-o --output`.
fn declared(name: &str) -> BTreeSet<String> {
    let (_, rest) = PARSER.split_once(&format!("subcommand, name = \"{name}\"")).expect("the command has a struct");
    let (fields, _) = rest.split_once("\n}\n").expect("the struct ends");
    let mut flags = BTreeSet::new();
    let mut kind = "";
    for line in fields.lines().map(str::trim) {
        if line.starts_with("#[argh(") {
            kind = line;
        } else if let Some(field) = line.strip_prefix("pub(super) ").and_then(|line| line.split_once(':')) {
            if kind.contains("option") || kind.contains("switch") {
                flags.insert(format!("--{}", field.0.replace('_', "-")));
                let short = kind.split_once("short = '").and_then(|(_, rest)| rest.chars().next());
                flags.extend(short.map(|short| format!("-{short}")));
            }
        }
    }
    flags
}

#[test]
fn table_and_argh_have_the_same_flags() {
    for command in COMMANDS.iter().filter(|command| command.name != "help") {
        let long = command.flags.iter().map(|flag| format!("--{}", flag.long));
        let short = command.flags.iter().filter_map(|flag| flag.short).map(|short| format!("-{short}"));
        assert_eq!(long.chain(short).collect::<BTreeSet<_>>(), declared(command.name), "{}", command.name);
    }
}

#[test]
fn argh_parses_every_flag_of_the_table() {
    for command in COMMANDS.iter().filter(|command| command.name != "help") {
        for flag in command.flags {
            let line = [command.name.to_owned(), format!("--{}", flag.long)];
            let answer = format!("{:?}", commands::parse(&line));
            assert!(!answer.contains("Unrecognized"), "{line:?}: {answer}");
            let wants_a_value = answer.contains("No value provided");
            assert_eq!(wants_a_value, !matches!(flag.value, Value::Switch), "{line:?}: {answer}");
        }
    }
}

#[test]
fn table_and_parser_have_the_same_commands() {
    let mut names: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    names.sort_unstable();
    assert_eq!(names, commands::COMMANDS);
}

#[test]
fn agent_accepts_every_flag_of_the_table() {
    for flag in AGENT_FLAGS.iter().flat_map(|section| section.flags) {
        assert!(crate::platform::config::is_flag(flag.long), "--{}", flag.long);
    }
}

/// zsh interprets colons and brackets in a description.
#[test]
fn summaries_are_valid_in_completion_scripts() {
    let of_commands = COMMANDS.iter().map(|command| command.summary);
    let flags = COMMANDS.iter().flat_map(|command| command.flags).chain(AGENT_FLAGS.iter().flat_map(|all| all.flags));
    for summary in of_commands.chain(flags.map(|flag| flag.summary)) {
        assert!(!summary.contains([':', '[', ']', '"', '\\', '$', '`']), "{summary}");
        assert!(!summary.is_empty() && !summary.ends_with('.'), "{summary}");
    }
}
