//! `coracle page-token`: a token with which the owner may use the controls of the status page.

use std::fs;
use std::io;
use std::process::ExitCode;

use ring::rand::{SecureRandom as _, SystemRandom};

use super::command_table::PageToken;
use super::{failed, print};
use crate::control::server::PAGE_TOKEN;
use crate::platform::host::file;
use crate::protocol::sha256::sha256;

/// Characters of a token without its hyphens: 100 random bits.
const TOKEN_CHARACTERS: usize = 20;
/// Without characters that look alike.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

pub(super) fn run(command: &PageToken) -> ExitCode {
    let path = command.root_dir.join(PAGE_TOKEN);
    if command.remove {
        return match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                failed(&format!("remove {}: {error}", path.display()))
            }
            Ok(()) | Err(_) => print("the status page is read-only\n"),
        };
    }
    let mut random = [0; TOKEN_CHARACTERS];
    if SystemRandom::new().fill(&mut random).is_err() {
        return failed("the kernel has no random numbers");
    }
    let token = token(&random);
    // Only its digest is stored.
    if let Err(error) = file::replace(&path, (sha256(token.as_bytes()) + "\n").as_bytes()) {
        return failed(&format!("write {}: {error}", path.display()));
    }
    print(&format!("{token}\n"))
}

/// One character for each byte, and a hyphen after each fourth.
fn token(random: &[u8; TOKEN_CHARACTERS]) -> String {
    let mut token = String::new();
    for (at, byte) in random.iter().enumerate() {
        if at > 0 && at % 4 == 0 {
            token.push('-');
        }
        let character = ALPHABET.get(usize::from(byte % 32)).copied().unwrap_or(b'a');
        token.push(char::from(character));
    }
    token
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn token_is_easy_to_type() {
        assert_eq!(token(&[0; TOKEN_CHARACTERS]), "aaaa-aaaa-aaaa-aaaa-aaaa");
        assert_eq!(token(&[255; TOKEN_CHARACTERS]), "9999-9999-9999-9999-9999");
        for alike in "0o1l".bytes() {
            assert!(!ALPHABET.contains(&alike), "{alike}");
        }
    }

    #[test]
    fn only_the_digest_is_stored_and_remove_makes_the_page_read_only() {
        let root_dir = std::env::temp_dir().join(format!("coracle-token-{}", std::process::id()));
        let command = |remove| PageToken { remove, root_dir: PathBuf::from(&root_dir) };
        let path = root_dir.join(PAGE_TOKEN);
        run(&command(false));
        let first = fs::read_to_string(&path).unwrap();
        assert!(first.trim().len() == 64 && !first.contains('-'), "{first}");
        run(&command(false));
        assert_ne!(fs::read_to_string(&path).unwrap(), first, "a new token replaces the old one");
        run(&command(true));
        assert!(!path.exists());
        run(&command(true));
        fs::remove_dir_all(&root_dir).unwrap();
    }
}
