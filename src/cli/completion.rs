//! `coracle completion`: the scripts that the packages install, for machines to which only the program was copied.

use super::commands::Shell;
use super::help::unpacked;

/// The completion script of a shell, as build/completion.rs makes it from the table of commands.
pub(super) fn script(shell: Shell) -> String {
    unpacked(match shell {
        Shell::Bash => BASH,
        Shell::Fish => FISH,
        Shell::Zsh => ZSH,
    })
}

const BASH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/coracle.bash.gz"));
const FISH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/coracle.fish.gz"));
const ZSH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/coracle.zsh.gz"));
