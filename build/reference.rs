//! The texts of flags for docs/configuration.md. Pure.

use crate::command_table::COMMANDS;
use crate::flag_table::{AGENT_FLAGS, OTHER_AGENT_FLAGS};
use crate::texts::{Flag, Value};

/// Name, default and effect of each flag that has a text, in Markdown and separated by tabs. The test that writes the
/// table knows which flags set a field.
pub(crate) fn flags() -> String {
    let flags = AGENT_FLAGS.iter().flat_map(|section| section.flags).chain(OTHER_AGENT_FLAGS);
    flags.map(|flag| format!("{}\t{}\t{}\n", flag.long(), default(flag), effect(flag))).collect()
}

fn default(flag: &Flag) -> String {
    match (flag.default, flag.value) {
        ("", Value::Switch | Value::Bool) => "`false`".to_owned(),
        ("", _) => "not set".to_owned(),
        (prose, _) if prose.contains(' ') => prose.to_owned(),
        (value, _) => format!("`{value}`"),
    }
}

fn effect(flag: &Flag) -> String {
    if !flag.reference.is_empty() {
        return flag.reference.to_owned();
    }
    let word = |word: &str| if word.starts_with("--") { format!("`{word}`") } else { word.to_owned() };
    flag.summary.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// zsh interprets colons and brackets in a description.
pub(crate) fn check_summaries() {
    let flags = COMMANDS.iter().flat_map(|command| command.flags);
    let flags = flags.chain(AGENT_FLAGS.iter().flat_map(|section| section.flags));
    for summary in COMMANDS.iter().map(|command| command.summary).chain(flags.map(|flag| flag.summary)) {
        assert!(!summary.contains([':', '[', ']', '"', '\\', '$', '`']), "zsh interprets {summary:?}");
        assert!(!summary.is_empty() && !summary.ends_with('.'), "a summary is a fragment: {summary:?}");
    }
}
