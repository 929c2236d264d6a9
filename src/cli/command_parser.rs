//! The macro that makes argh's structs of `command_table.rs`. Pure.

/// Makes the struct of each command, the enum of them, and the list of their names. Leaves out the texts, which only the
/// build script needs.
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

        pub(super) const COMMANDS: &[&str] = &[$($name,)* $other_name];

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
        NAMESPACE $(.$method:ident($text:literal))*; $($rest:tt)*
    ) => {
        command_struct! { $command $name $summary {
            $($fields)*
            #[argh(option, short = 'n')]
            pub(super) namespace: Option<String>,
        } $($rest)* }
    };
    ($command:ident $name:tt $summary:tt { $($fields:tt)* }
        CONTAINER $(.$method:ident($text:literal))*; $($rest:tt)*
    ) => {
        command_struct! { $command $name $summary {
            $($fields)*
            #[argh(option, short = 'c')]
            pub(super) container: Option<String>,
        } $($rest)* }
    };
    ($command:ident $name:tt $summary:tt { $($fields:tt)* } LOCAL_SOCKET; $($rest:tt)*) => {
        command_struct! { $command $name $summary {
            $($fields)*
            #[argh(option, default = "default_socket()")]
            pub(super) local_socket: PathBuf,
        } $($rest)* }
    };
    ($command:ident $name:tt $summary:tt { $($fields:tt)* } KUBERNETES_DIR; $($rest:tt)*) => {
        command_struct! { $command $name $summary {
            $($fields)*
            #[argh(option, default = "PathBuf::from(KUBERNETES_DIR)")]
            pub(super) kubernetes_dir: PathBuf,
        } $($rest)* }
    };
    ($command:ident $name:tt $summary:tt { $($fields:tt)* } ROOT_DIR; $($rest:tt)*) => {
        command_struct! { $command $name $summary {
            $($fields)*
            #[argh(option, default = "PathBuf::from(ROOT_DIR)")]
            pub(super) root_dir: PathBuf,
        } $($rest)* }
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
