//! The texts of each command and flag: types, and the macros that collect them from `src/cli/command_table.rs` and
//! `src/platform/config/flag_table.rs`. Pure.

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
    Pod,
    /// For this and every further argument.
    Pods,
    /// The same.
    PodsAndFiles,
    Words(&'static [&'static str]),
    /// For this and every further argument.
    Files,
    /// The same, after one of these words: files, and images of the node.
    After {
        files: &'static [&'static str],
        images: &'static [&'static str],
    },
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
    /// With dashes, or that of the field of a command with underscores.
    pub(crate) name: &'static str,
    pub(crate) short: Option<char>,
    pub(crate) value: Value,
    pub(crate) may_repeat: bool,
    /// For help and completions. Without a full stop, and without colons and brackets, which zsh interprets.
    pub(crate) summary: &'static str,
    /// Empty if there is no default to show.
    pub(crate) default: &'static str,
    /// Replaces the summary in the manual page, in mdoc; if empty, the summary is used.
    pub(crate) manual: &'static str,
    /// Replaces the summary in docs/configuration.md, in Markdown; if empty, the summary is used.
    pub(crate) reference: &'static str,
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
    /// A container of the pod that the command line names.
    Container,
}

/// The values of flags of the agent.
pub(crate) const DURATION: Value = Value::Text("DURATION");
pub(crate) const FILE: Value = Value::File("FILE");
pub(crate) const IP: Value = Value::Text("IP");
pub(crate) const N: Value = Value::Text("N");
pub(crate) const SOCKET: Value = Value::File("SOCKET");

/// A flag without a value. The macros add its name.
pub(crate) const fn switch(summary: &'static str) -> Flag {
    flag(Value::Switch, summary)
}

pub(crate) const fn flag(value: Value, summary: &'static str) -> Flag {
    Flag { name: "", short: None, value, may_repeat: false, summary, default: "", manual: "", reference: "" }
}

/// A flag that only docs/configuration.md names.
pub(crate) const fn reference_only(reference: &'static str) -> Flag {
    flag(Value::Text(""), "").reference(reference)
}

impl Flag {
    /// The name without the two dashes.
    pub(crate) fn long(&self) -> String {
        self.name.replace('_', "-")
    }

    pub(crate) const fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    pub(crate) const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    pub(crate) const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    pub(crate) const fn manual(self, manual: &'static str) -> Self {
        Self { manual, ..self }
    }

    pub(crate) const fn reference(self, reference: &'static str) -> Self {
        Self { reference, ..self }
    }

    pub(crate) const fn may_repeat(self) -> Self {
        Self { may_repeat: true, ..self }
    }
}

macro_rules! flags {
    (
        $($section:literal $(introduced_by $introduction:literal)? {
            $($name:literal: $effect:ident($($argument:tt)*) => $text:expr;)*
        })*
        not_in_the_help {
            $($other:literal: $other_effect:ident($($other_argument:tt)*) $(=> $other_text:expr)?;)*
        }
    ) => {
        use crate::texts::*;

        pub(crate) const AGENT_FLAGS: &[FlagSection] = &[$(FlagSection {
            title: $section,
            manual: concat!($($introduction)?),
            flags: &[$(Flag { name: $name, ..$text }),*],
        }),*];

        /// Flags that have a text, and are not in the help.
        pub(crate) const OTHER_AGENT_FLAGS: &[Flag] = &[$($(Flag { name: $other, ..$other_text },)?)*];
    };
}

macro_rules! commands {
    ($(command $command:ident $name:literal $texts:tt)* help_only $other:literal $other_texts:tt) => {
        use crate::texts::*;

        /// In the order of the overview.
        pub(crate) const COMMANDS: &[CommandEntry] =
            &[$(command_entry!($name $texts),)* command_entry!($other $other_texts)];
    };
}

macro_rules! command_entry {
    ($name:literal {
        $(brief: $brief:literal,)?
        usage: $usage:literal,
        summary: $summary:literal,
        description: [$($description:literal),* $(,)?],
        $(manual: $manual:literal,)?
        $(arguments {
            $($kind:tt $argument:ident: $outer:ident $(<$inner:ident>)?
                => [$(($label:literal, $completes:expr)),* $(,)?];)*
        })?
        $(flags { $($flags:tt)* })?
        examples: [$($example:literal),* $(,)?],
    }) => {
        CommandEntry {
            name: $name,
            brief: concat!($($brief)?),
            usage: $usage,
            summary: $summary,
            description: &[$($description),*],
            manual: concat!($($manual)?),
            arguments: &[$($($(Argument { label: $label, completes: $completes },)*)*)?],
            flags: command_flags!([] $($($flags)*)?),
            examples: &[$($example),*],
        }
    };
}

/// Makes an entry of one flag after the other.
macro_rules! command_flags {
    ([$($done:tt)*]) => { &[$($done)*] };
    ([$($done:tt)*] $shared:ident $(.$method:ident($text:literal))*; $($rest:tt)*) => {
        shared_flag!(command_flags { [$($done)*] } $shared { $(.$method($text))* } $($rest)*)
    };
    ([$($done:tt)*]
        $field:ident $([$short:literal])?: $outer:ident $(<$inner:ident>)? $(= $default:literal)? => $text:expr;
        $($rest:tt)*
    ) => {
        command_flags!([$($done)* Flag { name: stringify!($field), ..$text } $(.short($short))?,] $($rest)*)
    };
}
