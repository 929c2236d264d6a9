//! The texts of `--help`. Pure.

use crate::command_table::COMMANDS;
use crate::flag_table::AGENT_FLAGS;
use crate::texts::{CommandEntry, Flag, Value};

/// The help texts of the program, of the agent's flags, and then of each command, separated by form feeds.
pub(crate) fn all() -> String {
    let texts: Vec<String> = [program(), agent()].into_iter().chain(COMMANDS.iter().map(command)).collect();
    texts.join("\u{c}")
}

fn program() -> String {
    let mut text = "Coracle: a kubelet that a small board can carry. It keeps the pods of a manifest\n\
                    directory running.\n\nUsage:\n"
        .to_owned();
    entry(&mut text, "  coracle [FLAGS]", &["run the pods of this node until stopped".to_owned()], COMMAND_COLUMN);
    for command in COMMANDS {
        let head = format!("  coracle {} {}", command.name, command.brief);
        entry(&mut text, head.trim_end(), &wrapped(command.summary, WIDTH - COMMAND_COLUMN), COMMAND_COLUMN);
    }
    text + "\ncoracle help COMMAND explains a command, coracle help flags the flags of the\nagent.\n"
}

fn agent() -> String {
    let mut text = "Usage: coracle [FLAGS]\n\nRuns the pods of this node until stopped.\n".to_owned();
    for section in AGENT_FLAGS {
        text += &format!("\n{}:\n", section.title);
        for flag in section.flags {
            entry(&mut text, &format!("  {}", head(flag)), &explained(flag, FLAG_COLUMN), FLAG_COLUMN);
        }
    }
    let note = "All flags of the upstream kubelet that set a field of KubeletConfiguration are accepted. --flag VALUE \
                and --flag=VALUE are the same. A flag overrides the configuration files. Flags and fields without \
                effect are named at the start.";
    text + "\n" + &wrapped(note, WIDTH).join("\n") + "\n"
}

fn command(command: &CommandEntry) -> String {
    let usage = wrapped(&format!("Usage: coracle {} {}", command.name, command.usage), WIDTH - 9);
    let mut text = usage.join("\n         ") + "\n";
    for paragraph in command.description {
        text += "\n";
        for line in wrapped(paragraph, WIDTH) {
            text += &format!("{line}\n");
        }
    }
    if !command.flags.is_empty() {
        text += "\n";
        for flag in command.flags {
            entry(&mut text, &format!("  {}", head(flag)), &explained(flag, COMMAND_COLUMN), COMMAND_COLUMN);
        }
    }
    text += if command.examples.len() > 1 { "\nExamples:\n" } else { "\nExample:\n" };
    for example in command.examples {
        // A shell continues a line after a backslash.
        text += &format!("  {}\n", wrapped(example, WIDTH - 8).join(" \\\n      "));
    }
    text
}

/// For example `-o, --output wide|json`.
fn head(flag: &Flag) -> String {
    let short = flag.short.map(|short| format!("-{short}, ")).unwrap_or_default();
    format!("{short}--{}{}", flag.long(), value(flag.value))
}

/// The value as shown after the flag's name.
pub(crate) fn value(value: Value) -> String {
    match value {
        Value::Switch => String::new(),
        Value::Bool => "[=BOOL]".to_owned(),
        Value::OneOf(words) => format!(" {}", words.join("|")),
        Value::Directory => " DIR".to_owned(),
        Value::Container => " CONTAINER".to_owned(),
        Value::File(name) | Value::Text(name) => format!(" {name}"),
    }
}

/// The summary with the default, which is put on lines of its own if it does not fit.
fn explained(flag: &Flag, column: usize) -> Vec<String> {
    let width = WIDTH - column;
    let mut lines = wrapped(flag.summary, width);
    if flag.default.is_empty() {
        return lines;
    }
    let default = format!("[{}]", flag.default);
    match lines.last_mut() {
        Some(last) if last.chars().count() + 2 + default.chars().count() <= width => *last += &format!("  {default}"),
        _ => lines.extend(wrapped(&default, width)),
    }
    lines
}

/// Writes two columns: `head`, and `lines` from `column` on.
fn entry(out: &mut String, head: &str, lines: &[String], column: usize) {
    let mut start = head;
    if head.chars().count() + 2 > column {
        *out += &format!("{head}\n");
        start = "";
    }
    for line in lines {
        *out += &format!("{start:column$}{line}\n");
        start = "";
    }
}

/// Wraps at spaces, and at commas within long words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        for (at, part) in word.split_inclusive(',').enumerate() {
            let line = lines.last_mut().expect("there is a line");
            let space = if at == 0 && !line.is_empty() { " " } else { "" };
            if line.is_empty() || line.chars().count() + space.len() + part.chars().count() <= width {
                *line += &format!("{space}{part}");
            } else {
                lines.push(part.to_owned());
            }
        }
    }
    lines
}

const WIDTH: usize = 80;
const COMMAND_COLUMN: usize = 30;
const FLAG_COLUMN: usize = 34;
