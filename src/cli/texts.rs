//! The texts that the build generates from the table of commands: the completion scripts of bash, fish and zsh, the help
//! of the program, the flags of the agent, and the help of each command. Packed together, they take 4 KB less than
//! apart, as their words are the same.

use crate::protocol::gzip::unpacked_text;

/// The completion scripts come first.
pub(super) const SCRIPT_COUNT: usize = 3;

/// For [`split`].
pub(super) fn all() -> String {
    unpacked_text(PACKED_TEXTS)
}

pub(super) fn split(all: &str) -> impl Iterator<Item = &str> {
    all.split('\u{c}')
}

/// Separated by form feeds.
const PACKED_TEXTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/texts.gz"));
