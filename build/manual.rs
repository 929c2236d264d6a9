//! The manual page in mdoc(7). Pure.

use crate::command_table::COMMANDS;
use crate::flag_table::AGENT_FLAGS;
use crate::help;
use crate::texts::{CommandEntry, Flag, Value};

/// Fills the parts of the template that describe commands and flags.
pub(crate) fn page(template: &str) -> String {
    let synopsis: String = COMMANDS.iter().map(synopsis).collect();
    let commands: String = COMMANDS.iter().map(command).collect();
    let flags: String = AGENT_FLAGS
        .iter()
        .map(|section| {
            let flags: String = section.flags.iter().map(item).collect();
            format!(".Ss {}\n{}.Bl -tag -width Ds\n{flags}.El\n", section.title, section.manual)
        })
        .collect();
    template.replace("@SYNOPSIS@", &synopsis).replace("@COMMANDS@", &commands).replace("@FLAGS@", &flags)
}

fn synopsis(command: &CommandEntry) -> String {
    let used = groups(command.usage);
    let names_flag = |flag: &&Flag| {
        let names = [format!("--{}", flag.long()), flag.short.map(|short| format!("-{short}")).unwrap_or_default()];
        used.iter()
            .any(|group| group.trim_matches(['[', ']']).split(' ').any(|word| names.iter().any(|name| name == word)))
    };
    let others = command.flags.iter().filter(|flag| !names_flag(flag));
    let others: Vec<String> = others.map(|flag| format!("[--{}{}]", flag.long(), help::value(flag.value))).collect();
    // Flags after `--` would belong to the command in the container.
    let end = used.iter().position(|group| group == "--").unwrap_or(used.len());
    let (before, after) = used.split_at(end);
    let lines = before.iter().chain(&others).chain(after).map(|group| format!(".{}\n", macros(group)));
    format!(".Nm\n.Cm {}\n{}", command.name, lines.collect::<String>())
}

fn command(command: &CommandEntry) -> String {
    let head: Vec<String> = groups(command.brief).iter().map(|group| head_macros(group)).collect();
    let mut lines = format!(".It Cm {} {}", command.name, head.join(" ")).trim_end().to_owned() + "\n";
    lines += &command.description.iter().map(|paragraph| sentences(paragraph)).collect::<Vec<_>>().join(".Pp\n");
    lines += command.manual;
    let flags: Vec<&Flag> = command.flags.iter().filter(|flag| !is_local_socket(flag)).collect();
    if !flags.is_empty() {
        lines += ".Bl -tag -width Ds\n";
        lines.extend(flags.into_iter().map(item));
        lines += ".El\n";
    }
    lines
}

fn item(flag: &Flag) -> String {
    let short = flag.short.map(|short| format!("Fl {short} , ")).unwrap_or_default();
    let value = match flag.value {
        Value::Switch => String::new(),
        Value::Bool => " Ns Op = Ns Ar BOOL".to_owned(),
        Value::OneOf(words) => format!(" Cm {}", words.join(" Ns | Ns Cm ")),
        Value::Directory => " Ar DIR".to_owned(),
        Value::Container => " Ar CONTAINER".to_owned(),
        Value::File(name) | Value::Text(name) => format!(" Ar {}", quoted(name)),
    };
    let text = match (flag.manual, flag.default) {
        ("", "") => sentences(&format!("{}.", capitalized(flag.summary))),
        ("", default) => sentences(&format!("{}; by default {default}.", capitalized(flag.summary))),
        (manual, _) => manual.to_owned(),
    };
    format!(".It {short}Fl -{}{value}\n{text}", flag.long())
}

/// The words of a usage line. A group in brackets counts as one word, and so does a flag with its value.
fn groups(usage: &str) -> Vec<String> {
    let mut groups: Vec<String> = Vec::new();
    for word in usage.split_whitespace() {
        let belongs_to = |last: &String| {
            let is_open = last.matches('[').count() > last.matches(']').count();
            let is_flag = last.starts_with('-') && last != "--" && !last.contains(' ');
            is_open || is_flag && !word.starts_with('[')
        };
        match groups.last_mut().filter(|last| belongs_to(last)) {
            Some(last) => *last += &format!(" {word}"),
            None => groups.push(word.to_owned()),
        }
    }
    groups
}

/// Converts `[-n NAMESPACE]` to `Op Fl n Ar NAMESPACE`.
fn macros(group: &str) -> String {
    if let Some(inside) = group.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return format!("Op {}", macros(inside));
    }
    let word = |word: &str| match word.strip_prefix('-') {
        Some(flag) => format!("Fl {flag}"),
        None if word.starts_with(|first: char| first.is_ascii_lowercase()) => format!("Cm {word}"),
        None if word == "|" => word.to_owned(),
        None => format!("Ar {}", quoted(word)),
    };
    group.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The same macros for a line on which more text follows.
fn head_macros(group: &str) -> String {
    let line = macros(group);
    line.strip_prefix("Op ").map(|inside| format!("Oo {inside} Oc")).unwrap_or(line)
}

/// Puts each sentence on its own line. Escapes the dashes of flags and a leading `.` or `'`, which would start a
/// request.
fn sentences(text: &str) -> String {
    let word = |word: &str| if word.starts_with('-') { word.replace('-', "\\-") } else { word.to_owned() };
    let text = text.replace(". ", ".\n");
    let line = |line: &str| {
        let start = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        format!("{start}{}\n", line.split(' ').map(word).collect::<Vec<_>>().join(" "))
    };
    text.split('\n').map(line).collect()
}

/// Escapes a word that mdoc would otherwise treat as punctuation.
fn quoted(word: &str) -> String {
    if word.contains(['[', ',', '|']) { format!("\\&{word}") } else { word.to_owned() }
}

fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map(|first| first.to_uppercase().chain(rest).collect()).unwrap_or_default()
}

fn is_local_socket(flag: &Flag) -> bool {
    flag.long() == "local-socket"
}
