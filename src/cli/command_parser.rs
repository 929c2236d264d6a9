//! The macro that makes argh's structs of `command_table.rs`. Pure.

/// What is known of a command before argh reads its arguments.
#[derive(Debug)]
pub(super) struct CommandForm {
    pub(super) name: &'static str,
    /// The letters of flags without a value, which may stand together, as in `-fp`.
    pub(super) switches: &'static str,
    /// Manifests are its arguments, or values of its flag `-f`.
    pub(super) takes_manifests: bool,
}

/// Makes the struct of each command, the enum of them, and the list of their forms. Leaves out the texts, which only
/// the build script needs.
macro_rules! commands {
    (
        $(command $command:ident $name:tt {
            $(brief: $brief:literal,)?
            usage: $usage:literal,
            summary: $summary:tt,
            description: [$($description:literal),* $(,)?],
            $(manual: $manual:literal,)?
            $(arguments { $(($($kind:tt)*) $argument:ident: $outer:ident $(<$inner:ident>)? => $completes:tt;)* })?
            $(flags { $($flags:tt)* })?
            examples: $examples:tt,
        })*
        help_only $other_name:literal $other:tt
    ) => {
        use std::path::PathBuf;
        use std::time::Duration;

        use argh::FromArgs;

        use super::age::{Age, Patience};
        use super::command_parser::CommandForm;
        use crate::kubelet::enrolment::{KUBERNETES_DIR, ROOT_DIR};
        use super::local_api::default_socket;
        use super::outputs::{
            CgroupDriverName, ImagesOutput, PodsOutput, RuntimeName, Shell, StatusOutput, TopOutput, VersionOutput,
        };
        use super::ports::{Addresses, PortPair};
        use super::rollout::{Amount, Order, Percentages};
        use super::selector::Selector;
        use super::wait::WaitedState;
        use crate::kubelet::certificates::discovery::Pin;
        use crate::platform::config::NameTemplate;

        #[derive(Debug, PartialEq, FromArgs)]
        #[argh(subcommand)]
        pub(super) enum Command {
            $($command($command),)*
        }

        pub(super) const COMMANDS: &[CommandForm] =
            &[$(command_form!($name [] [] $($($flags)*)?),)* command_form!($other_name [] [])];

        $(command_struct! {
            $command $name $summary
            { $($(#[argh($($kind)*)] pub(super) $argument: $outer $(<$inner>)?,)*)? }
            $($($flags)*)?
        })*
    };
}

/// Moves one flag after the other into the fields of the struct.
macro_rules! command_struct {
    ($command:ident $name:tt $summary:tt { $($fields:tt)* }) => {
        #[doc = $summary]
        #[derive(Debug, PartialEq, FromArgs)]
        #[argh(subcommand, name = $name)]
        pub(super) struct $command { $($fields)* }
    };
    ($command:ident $name:tt $summary:tt { $($fields:tt)* }
        $shared:ident $(.$method:ident($text:literal))*; $($rest:tt)*
    ) => {
        shared_flag! {
            command_struct { $command $name $summary { $($fields)* } } $shared { $(.$method($text))* } $($rest)*
        }
    };
    ($command:ident $name:tt $summary:tt { $($fields:tt)* }
        $field:ident $([$short:tt])?: bool => switch($($text:tt)*) $(.$method:ident($($more:tt)*))*; $($rest:tt)*
    ) => {
        command_struct! { $command $name $summary {
            $($fields)*
            #[argh(switch $(, short = $short)?)]
            pub(super) $field: bool,
        } $($rest)* }
    };
    ($command:ident $name:tt $summary:tt { $($fields:tt)* }
        $field:ident $([$short:tt])?: $outer:ident $(<$inner:ident>)? $(= $default:tt)? => flag($($text:tt)*)
        $(.$method:ident($($more:tt)*))*; $($rest:tt)*
    ) => {
        command_struct! { $command $name $summary {
            $($fields)*
            #[argh(option $(, short = $short)? $(, default = $default)?)]
            pub(super) $field: $outer $(<$inner>)?,
        } $($rest)* }
    };
}

/// Collects the letters of switches, and a `true` if the flag for manifests is there.
macro_rules! command_form {
    ($name:tt [$($letter:tt)*] [$($manifests:tt)*]) => {
        CommandForm { name: $name, switches: concat!($($letter),*), takes_manifests: false $(|| $manifests)* }
    };
    ($name:tt [$($letter:tt)*] [$($manifests:tt)*]
        filename ['f']: Vec<PathBuf> => flag($($text:tt)*) $(.$method:ident($($more:tt)*))*; $($rest:tt)*
    ) => {
        command_form!($name [$($letter)*] [$($manifests)* true] $($rest)*)
    };
    ($name:tt [$($letter:tt)*] [$($manifests:tt)*]
        $field:ident $([$short:tt])?: bool => switch($($text:tt)*) $(.$method:ident($($more:tt)*))*; $($rest:tt)*
    ) => {
        command_form!($name [$($letter)* $($short)?] [$($manifests)*] $($rest)*)
    };
    ($name:tt [$($letter:tt)*] [$($manifests:tt)*]
        $field:ident $([$short:tt])?: $outer:ident $(<$inner:ident>)? $(= $default:tt)? => flag($($text:tt)*)
        $(.$method:ident($($more:tt)*))*; $($rest:tt)*
    ) => {
        command_form!($name [$($letter)*] [$($manifests)*] $($rest)*)
    };
    ($name:tt [$($letter:tt)*] [$($manifests:tt)*]
        $shared:ident $(.$method:ident($text:literal))*; $($rest:tt)*
    ) => {
        command_form!($name [$($letter)*] [$($manifests)*] $($rest)*)
    };
}
