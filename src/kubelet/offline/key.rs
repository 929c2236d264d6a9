//! Encrypts records with the node's key: `ChaCha20-Poly1305`, which is fast without hardware support.
//!
//! Each encryption has a random 96-bit nonce from the kernel: flash wears out before a nonce is likely to repeat. The
//! record's name is authenticated too, so that no record can take the place of another.

use std::fmt;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::types::api::Bytes;

pub(super) struct Key(Box<LessSafeKey>);

/// Minimum size of key material in bytes.
pub(super) const MIN_KEY_BYTES: usize = 32;
/// Context of the key derivation; another record format would use another one.
const PURPOSE: &[u8] = b"coracle offline store, format 1";

impl Key {
    /// Derives a key from the bytes of a file or a credential. `None` if they are too few.
    pub(super) fn derive(material: &[u8]) -> Option<Self> {
        if material.len() < MIN_KEY_BYTES {
            return None;
        }
        let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, PURPOSE), material);
        UnboundKey::new(&CHACHA20_POLY1305, secret.as_ref()).ok().map(|key| Self(Box::new(LessSafeKey::new(key))))
    }

    /// Nonce, content, tag in base64; `None` if the kernel returns no random bytes.
    pub(super) fn seal(&self, name: &str, content: &[u8]) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let mut text = content.to_vec();
        let sealing = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_append_tag(sealing, Aad::from(name), &mut text).ok()?;
        Some(Bytes([&nonce[..], &text].concat()).to_base64())
    }

    /// Decrypts the content; `None` if it was encrypted with another key or for another record.
    pub(super) fn open(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let Bytes(sealed) = Bytes::from_base64(std::str::from_utf8(sealed).ok()?)?;
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let opening = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(opening, Aad::from(name), &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(material: u8) -> Key {
        Key::derive(&[material; MIN_KEY_BYTES]).unwrap()
    }

    #[test]
    fn content_is_opened_only_with_its_key_and_name() {
        let sealed = key(1).seal("secret/ns/a", b"hidden").unwrap();
        assert_eq!(key(1).open("secret/ns/a", sealed.as_bytes()).as_deref(), Some(&b"hidden"[..]));
        assert_eq!(key(2).open("secret/ns/a", sealed.as_bytes()), None);
        assert_eq!(key(1).open("secret/ns/b", sealed.as_bytes()), None);
        assert!(Key::derive(&[1; MIN_KEY_BYTES - 1]).is_none());
    }

    #[test]
    fn equal_contents_have_different_ciphertexts() {
        let (one, other) = (key(1).seal("a", b"hidden").unwrap(), key(1).seal("a", b"hidden").unwrap());
        assert_ne!(one, other);
        let Bytes(bytes) = Bytes::from_base64(&one).unwrap();
        assert!(bytes.windows(3).all(|part| part != b"hid" && part != b"den"));
    }

    #[test]
    fn flipped_bit_is_detected() {
        let Bytes(sealed) = Bytes::from_base64(&key(1).seal("a", b"hidden").unwrap()).unwrap();
        for bit in 0..sealed.len() * 8 {
            let mut bad = sealed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(key(1).open("a", Bytes(bad).to_base64().as_bytes()), None, "bit {bit}");
        }
        for strange in ["", "AAAA", "not base64"] {
            assert_eq!(key(1).open("a", strange.as_bytes()), None);
        }
    }
}
