//! `coracle completion`: the scripts that the packages install, for machines to which only the program was copied.

use std::io::Read as _;

use flate2::read::GzDecoder;

use super::commands::Shell;

/// What is to be read by this shell.
pub(super) fn script(shell: Shell) -> String {
    let packed = match shell {
        Shell::Bash => BASH,
        Shell::Fish => FISH,
        Shell::Zsh => ZSH,
    };
    let mut script = String::new();
    // It was packed with this program, and a test unpacks it.
    let _ = GzDecoder::new(packed).read_to_string(&mut script);
    script
}

const BASH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/coracle.bash.gz"));
const FISH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/coracle.fish.gz"));
const ZSH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/coracle.zsh.gz"));
