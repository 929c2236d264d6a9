//! What the manual page, the help texts and the completions of the shells say of each command and flag: plain data.
//!
//! `build/` makes all three from it. argh parses the commands, `config::flag_table` the flags of the agent, and the
//! tests of this folder hold both against these tables.
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
    /// What the overview shows behind the name.
    pub(crate) brief: &'static str,
    /// What the usage line shows behind the name. The manual page adds the flags that it leaves out.
    pub(crate) usage: &'static str,
    /// For the overview and completions: one line without a full stop.
    pub(crate) summary: &'static str,
    /// Paragraphs of `--help`.
    pub(crate) description: &'static [&'static str],
    /// What the manual page adds to the description, in mdoc.
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

/// What a shell offers for an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Completes {
    Nothing,
    Pods,
    Words(&'static [&'static str]),
    /// Here and for every further argument.
    Files,
    /// The same, but only where the argument before is this word.
    FilesAfter(&'static str),
}

#[derive(Debug)]
pub(crate) struct FlagSection {
    pub(crate) title: &'static str,
    /// What the manual page says of the whole section, in mdoc.
    pub(crate) manual: &'static str,
    pub(crate) flags: &'static [Flag],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flag {
    pub(crate) long: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) value: Value,
    pub(crate) may_repeat: bool,
    /// For help and completions, without a full stop, or a colon or bracket, which zsh would read.
    pub(crate) summary: &'static str,
    /// Empty where nothing is to be said of it.
    pub(crate) default: &'static str,
    /// What the manual page says in place of the summary, in mdoc; empty: the summary.
    pub(crate) manual: &'static str,
}

/// The value of a flag: its name in help texts, and what a shell offers for it.
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
