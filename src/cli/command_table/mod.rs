//! The texts of each command and flag for the manual page, the help and the shell completions: plain data.
//!
//! `build/` generates all three from it. argh parses the commands, `config::flag_table` the flags of the agent, and the
//! tests of this folder compare both with these tables.
#![cfg_attr(test, expect(dead_code, reason = "the build script reads the fields that the tests do not"))]

mod agent_flags;
mod commands;
#[cfg(test)]
mod tests;

pub(crate) use agent_flags::AGENT_FLAGS;
pub(crate) use commands::COMMANDS;

#[derive(Debug)]
pub(crate) struct CommandEntry {
    pub(crate) name: &'static str,
    /// Text after the name in the overview.
    pub(crate) brief: &'static str,
    /// Text after the name in the usage line. The manual page adds the flags that it omits.
    pub(crate) usage: &'static str,
    /// For the overview and completions: one line without a full stop.
    pub(crate) summary: &'static str,
    /// Paragraphs of `--help`.
    pub(crate) description: &'static [&'static str],
    /// Addition to the description in the manual page, in mdoc.
    pub(crate) manual: &'static str,
    pub(crate) arguments: &'static [Argument],
    pub(crate) flags: &'static [Flag],
    pub(crate) examples: &'static [&'static str],
}

#[derive(Debug)]
pub(crate) struct Argument {
    pub(crate) label: &'static str,
    pub(crate) completes: Completes,
}

/// The completions of an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Completes {
    Nothing,
    Pods,
    Words(&'static [&'static str]),
    /// For this and every further argument.
    Files,
    /// The same, but only if the previous argument is one of these words.
    FilesAfter(&'static [&'static str]),
}

#[derive(Debug)]
pub(crate) struct FlagSection {
    pub(crate) title: &'static str,
    /// Introduction of the section in the manual page, in mdoc.
    pub(crate) manual: &'static str,
    pub(crate) flags: &'static [Flag],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub(crate) long: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) value: Value,
    pub(crate) may_repeat: bool,
    /// For help and completions. Without a full stop, and without colons and brackets, which zsh interprets.
    pub(crate) summary: &'static str,
    /// Empty if there is no default to show.
    pub(crate) default: &'static str,
    /// Replaces the summary in the manual page, in mdoc; if empty, the summary is used.
    pub(crate) manual: &'static str,
}

/// The value of a flag: its name in help texts, and its completions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value {
    /// No value.
    Switch,
    /// `--flag`, `--flag=true` or `--flag=false`.
    Bool,
    OneOf(&'static [&'static str]),
    File(&'static str),
    Directory,
    Text(&'static str),
}

/// A flag without a value.
pub(crate) const fn switch(long: &'static str, summary: &'static str) -> Flag {
    flag(long, Value::Switch, summary)
}

pub(crate) const fn flag(long: &'static str, value: Value, summary: &'static str) -> Flag {
    Flag { long, short: None, value, may_repeat: false, summary, default: "", manual: "" }
}

impl Flag {
    pub(crate) const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    pub(crate) const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    pub(crate) const fn manual(self, manual: &'static str) -> Self {
        Self { manual, ..self }
    }

    pub(crate) const fn may_repeat(self) -> Self {
        Self { may_repeat: true, ..self }
    }
}
