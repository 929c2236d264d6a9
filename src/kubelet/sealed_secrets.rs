//! Values of Secrets that only one board can open: they are sealed to its public key, wherever that is known, and may lie
//! in any repository.
//!
//! ```text
//! value of the Secret = ephemeral public key (32 bytes), content encrypted with ChaCha20-Poly1305, tag (16 bytes)
//! its key             = HMAC-SHA256(VALUE_PURPOSE, shared secret of X25519, ephemeral public key, board's public key)
//! ```
//!
//! Each value has a key of its own, so the nonce is zero. Namespace, name and key of the value are authenticated: a sealed
//! value cannot be moved to another Secret, whose pods others may read.

use std::fmt;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use x25519_dalek::{X25519_BASEPOINT_BYTES, x25519};

use crate::types::api::Bytes;

/// The private key of the board.
pub(crate) struct BoardKey {
    private: [u8; KEY_BYTES],
    /// Computed once: each value that is opened needs it, and a small board takes a millisecond.
    public: SealKey,
}

/// The public key of a board, shown in base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealKey([u8; KEY_BYTES]);

const KEY_BYTES: usize = 32;
/// Size of a sealed value that is empty.
pub(crate) const MIN_SEALED_BYTES: usize = KEY_BYTES + 16;
/// Context of the key derivation; another format would use another one.
const BOARD_PURPOSE: &[u8] = b"coracle board key, format 1";
const VALUE_PURPOSE: &[u8] = b"coracle sealed value, format 1";

/// What a value belongs to.
pub(crate) fn scope(namespace: &str, name: &str, key: &str) -> String {
    [namespace, "/", name, "/", key].concat()
}

impl BoardKey {
    /// Derives the key from the key material of the offline store, so that a board has one secret to keep.
    pub(crate) fn derive(material: &[u8]) -> Self {
        let private = derived(BOARD_PURPOSE, &[material]);
        Self { private, public: SealKey(x25519(private, X25519_BASEPOINT_BYTES)) }
    }

    pub(crate) fn public(&self) -> SealKey {
        self.public
    }

    /// `None` if the value was sealed to another key or for another scope, or is damaged.
    pub(crate) fn open(&self, scope: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (ephemeral, content) = sealed.split_first_chunk::<KEY_BYTES>()?;
        let cipher = cipher(self.private, *ephemeral, ephemeral, &self.public.0)?;
        let mut content = content.to_vec();
        let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        let length = cipher.open_in_place(nonce, Aad::from(scope), &mut content).ok()?.len();
        content.truncate(length);
        Some(content)
    }
}

impl SealKey {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Bytes::from_base64(text.trim())?.0.try_into().ok().map(Self)
    }

    /// `None` if the kernel returns no random bytes, or if this is no key of a board.
    pub(crate) fn seal(&self, scope: &str, content: &[u8]) -> Option<Vec<u8>> {
        let mut ephemeral = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut ephemeral).ok()?;
        let public = x25519(ephemeral, X25519_BASEPOINT_BYTES);
        let cipher = cipher(ephemeral, self.0, &public, &self.0)?;
        let mut sealed = content.to_vec();
        let nonce = Nonce::assume_unique_for_key([0; NONCE_LEN]);
        cipher.seal_in_place_append_tag(nonce, Aad::from(scope), &mut sealed).ok()?;
        Some([&public[..], &sealed].concat())
    }
}

/// The cipher of one value. `None` if `theirs` is one of the few points with which anyone gets the same secret.
fn cipher(
    ours: [u8; KEY_BYTES],
    theirs: [u8; KEY_BYTES],
    ephemeral: &[u8; KEY_BYTES],
    board: &[u8; KEY_BYTES],
) -> Option<LessSafeKey> {
    let shared = x25519(ours, theirs);
    if shared == [0; KEY_BYTES] {
        return None;
    }
    let key = derived(VALUE_PURPOSE, &[&shared, ephemeral, board]);
    UnboundKey::new(&CHACHA20_POLY1305, &key).ok().map(LessSafeKey::new)
}

fn derived(purpose: &[u8], parts: &[&[u8]]) -> [u8; KEY_BYTES] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, purpose), &parts.concat());
    let mut key = [0; KEY_BYTES];
    // A tag of SHA-256 has this size.
    key.copy_from_slice(tag.as_ref());
    key
}

impl fmt::Display for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Bytes(self.0.to_vec()).to_base64())
    }
}

impl fmt::Debug for BoardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoardKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_opened_only_by_its_board_and_for_its_scope() {
        let (board, other) = (BoardKey::derive(&[1; 32]), BoardKey::derive(&[2; 32]));
        for content in [&b""[..], b"hidden", &[7; 100_000]] {
            let sealed = board.public().seal("default/db/password", content).unwrap();
            assert_eq!(sealed.len(), MIN_SEALED_BYTES + content.len());
            assert_eq!(board.open("default/db/password", &sealed).as_deref(), Some(content));
            assert_eq!(other.open("default/db/password", &sealed), None);
            assert_eq!(board.open("default/other/password", &sealed), None);
        }
    }

    #[test]
    fn equal_values_are_sealed_differently_and_show_nothing() {
        let key = BoardKey::derive(&[1; 32]).public();
        let (one, other) = (key.seal("s", b"hidden").unwrap(), key.seal("s", b"hidden").unwrap());
        assert_ne!(one, other);
        assert!(one.windows(3).all(|part| part != b"hid" && part != b"den"));
    }

    #[test]
    fn flipped_bit_is_detected() {
        let board = BoardKey::derive(&[1; 32]);
        let sealed = board.public().seal("s", b"hidden").unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut bad = sealed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // The highest bit of a public key has no meaning in X25519, but is authenticated with the others.
            assert_eq!(board.open("s", &bad), None, "bit {bit}");
        }
        for short in [0, 31, 32, MIN_SEALED_BYTES - 1] {
            assert_eq!(board.open("s", &sealed[..short]), None, "{short} bytes");
        }
    }

    #[test]
    fn key_of_low_order_seals_nothing() {
        assert_eq!(SealKey([0; KEY_BYTES]).seal("s", b"hidden"), None);
        assert_eq!(BoardKey::derive(&[1; 32]).open("s", &[0; 64]), None);
    }

    #[test]
    fn key_is_shown_and_read_in_base64() {
        let key = BoardKey::derive(&[1; 32]).public();
        assert_eq!(SealKey::parse(&format!("{key}\n")), Some(key));
        for wrong in ["", "AAAA", "%", &Bytes(vec![0; 33]).to_base64()] {
            assert_eq!(SealKey::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn shared_secret_is_what_another_implementation_computes() {
        use ring::agreement::{EphemeralPrivateKey, UnparsedPublicKey, X25519, agree_ephemeral};
        let board = BoardKey::derive(&[1; 32]);
        let theirs = EphemeralPrivateKey::generate(&X25519, &SystemRandom::new()).unwrap();
        let their_public: [u8; 32] = theirs.compute_public_key().unwrap().as_ref().try_into().unwrap();
        let board_public = UnparsedPublicKey::new(&X25519, board.public().0);
        agree_ephemeral(theirs, &board_public, |shared| assert_eq!(shared, x25519(board.private, their_public)))
            .unwrap();
    }
}
