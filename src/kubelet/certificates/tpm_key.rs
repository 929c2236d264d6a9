//! A re-enrolment key in the TPM.

use std::io;
use std::path::{Path, PathBuf};

use ring::digest;

use crate::platform::host::tpm::{SigningKey, Tpm, TpmError};
use crate::protocol::der::{element, sequence, tag};

/// SubjectPublicKeyInfo of a P-256 key up to its coordinates (RFC 5480).
const P256_PUBLIC_KEY: &[u8] = b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\
    \x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00\x04";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TpmKey {
    pub(super) device: PathBuf,
    /// The DER of the SubjectPublicKeyInfo.
    pub(super) public: Vec<u8>,
}

impl TpmKey {
    /// The key of the TPM; `None` if the board has none. Blocks, for up to some seconds.
    pub(super) fn read(device: &Path) -> Result<Option<Self>, String> {
        let mut tpm = match Tpm::open(device) {
            Ok(tpm) => tpm,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", device.display())),
        };
        let public = with_key(&mut tpm, |_, key| Ok(public_key(key)));
        let public = public.map_err(|error| format!("{}: {error}", device.display()))?;
        Ok(Some(Self { device: device.to_owned(), public }))
    }

    /// An ECDSA signature with SHA-256, in DER. Blocks, for up to some seconds.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let shown = self.device.display();
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, message).as_ref());
        let mut tpm = Tpm::open(&self.device).map_err(|error| format!("{shown}: {error}"))?;
        let signed = with_key(&mut tpm, |tpm, key| {
            if public_key(key) != self.public {
                return Ok(None);
            }
            let [r, s] = tpm.sign(key, &hash)?;
            Ok(Some(sequence(&[&integer(&r), &integer(&s)])))
        });
        let signed = signed.map_err(|error| format!("{shown}: {error}"))?;
        signed.ok_or_else(|| {
            format!(
                "{shown} has another key than the one on the Node object: the TPM was cleared, or this is another board"
            )
        })
    }
}

fn with_key<T>(tpm: &mut Tpm, work: impl FnOnce(&mut Tpm, &SigningKey) -> Result<T, TpmError>) -> Result<T, TpmError> {
    let key = tpm.load()?;
    let result = work(tpm, &key);
    // Also after a failure: a TPM has room for few keys.
    tpm.flush(&key)?;
    result
}

fn public_key(key: &SigningKey) -> Vec<u8> {
    let [x, y] = &key.point;
    [P256_PUBLIC_KEY, x, y].concat()
}

/// A number that is not negative: without leading zeros, but for one before a set highest bit.
fn integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let digits = bytes.get(zeros..).unwrap_or_default();
    let padding: &[u8] = if digits.first().is_none_or(|first| first & 0x80 != 0) { &[0] } else { &[] };
    element(tag::INTEGER, &[padding, digits])
}

#[cfg(test)]
#[path = "../../../tests/swtpm/mod.rs"]
mod swtpm;

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

    use super::swtpm::Swtpm;
    use super::*;
    use crate::platform::rt::TestFolder;

    #[test]
    fn numbers_are_der() {
        assert_eq!(integer(&[0, 0, 0x7f]), [2, 1, 0x7f]);
        assert_eq!(integer(&[0x80, 1]), [2, 3, 0, 0x80, 1]);
        assert_eq!(integer(&[0, 0]), [2, 1, 0]);
    }

    #[test]
    fn board_without_tpm_has_no_key() {
        assert_eq!(TpmKey::read(Path::new("/nonexistent/tpm")), Ok(None));
        let error = TpmKey::read(Path::new("/dev/null")).unwrap_err();
        assert!(error.starts_with("/dev/null: "), "{error}");
    }

    /// A TPM has three slots for loaded keys.
    fn assert_signs_more_than_three_times(key: &TpmKey) {
        let point = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &key.public[26..]);
        for message in ["request", "", "another request", "more", "than", "three"] {
            let signature = key.sign(message.as_bytes()).unwrap();
            point.verify(message.as_bytes(), &signature).unwrap();
        }
    }

    #[test]
    #[ignore = "needs a TPM of this machine in CORACLE_TPM: qemu-tests runs it on a board that has one"]
    fn device_of_the_kernel_signs() {
        let device = std::env::var_os("CORACLE_TPM").expect("CORACLE_TPM names the device");
        let key = TpmKey::read(Path::new(&device)).unwrap().unwrap();
        assert_signs_more_than_three_times(&key);
        println!("public key: {}", key.public.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }

    #[test]
    fn key_is_the_same_after_each_start_and_signs() {
        let folder = TestFolder::new("tpm-key");
        let tpm = Swtpm::start(&folder.0);
        let key = TpmKey::read(&tpm.socket).unwrap().unwrap();
        assert_signs_more_than_three_times(&key);
        drop(tpm);
        let tpm = Swtpm::start(&folder.0);
        assert_eq!(TpmKey::read(&tpm.socket), Ok(Some(key)));
    }

    #[test]
    fn tpm_of_another_board_signs_nothing() {
        let (folder, other_folder) = (TestFolder::new("tpm-one"), TestFolder::new("tpm-other"));
        let (one, other) = (Swtpm::start(&folder.0), Swtpm::start(&other_folder.0));
        let key = TpmKey::read(&one.socket).unwrap().unwrap();
        let moved = TpmKey { device: other.socket.clone(), ..key };
        let error = moved.sign(b"request").unwrap_err();
        assert!(error.contains("has another key than the one on the Node object"), "{error}");
    }
}
