//! A signing key in the TPM of the board (TPM 2.0 Library, Part 3: Commands).
//!
//! The key is a primary key of the owner hierarchy: the TPM derives it from its own seed and from [`TEMPLATE`], the same
//! one each time, until the owner hierarchy is cleared. So nothing is stored, neither in the TPM nor in a file, and a copy
//! of the flash does not have it.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use std::{fmt, thread};

/// The kernel's resource manager, which lets many programs use the TPM.
pub(crate) const TPM_DEVICE: &str = "/dev/tpmrm0";

/// The largest response of any TPM.
const MAX_RESPONSE_BYTES: usize = 4096;
/// Tag, size and code.
const HEADER_BYTES: usize = 10;
/// For a socket; the kernel has timeouts of its own for a device.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(60);
/// Five seconds in all. Linux allows two for a long command.
const BUSY_RETRIES: usize = 20;
const BUSY_RETRY_DELAY: Duration = Duration::from_millis(250);

const NO_SESSIONS: [u8; 2] = [0x80, 0x01];
const SESSIONS: [u8; 2] = [0x80, 0x02];
const CREATE_PRIMARY: [u8; 4] = [0, 0, 0x01, 0x31];
const SIGN_COMMAND: [u8; 4] = [0, 0, 0x01, 0x5d];
const FLUSH_CONTEXT: [u8; 4] = [0, 0, 0x01, 0x65];
const OWNER_HIERARCHY: [u8; 4] = [0x40, 0, 0, 0x01];
/// One session: the empty password.
const EMPTY_PASSWORD: [u8; 13] = [0, 0, 0, 9, 0x40, 0, 0, 0x09, 0, 0, 0, 0, 0];
/// Busy, or still testing itself: TPM_RC_YIELDED, TPM_RC_TESTING and TPM_RC_RETRY.
const BUSY_CODES: [u32; 3] = [0x908, 0x90a, 0x922];
const COORDINATE_BYTES: usize = 32;

/// TPMT_PUBLIC of an ECDSA key on P-256 that never leaves the TPM. Its unique field makes it another key than those of other
/// programs, which may use the same attributes.
const TEMPLATE: &[u8] = b"\0\x23\0\x0b\
    \0\x04\x04\x72\
    \0\0\
    \0\x10\0\x18\0\x0b\0\x03\0\x10\
    \0\x15coracle re-enrolment \0\0";

/// An open TPM.
pub(crate) struct Tpm {
    connection: Box<dyn Connection>,
}

trait Connection: Read + Write {}
impl<T: Read + Write> Connection for T {}

/// The key while it is loaded.
pub(crate) struct SigningKey {
    handle: [u8; 4],
    /// X and Y, big endian.
    pub(crate) point: [[u8; COORDINATE_BYTES]; 2],
}

#[derive(Debug)]
pub(crate) enum TpmError {
    Io(io::Error),
    /// The response code of a command.
    Refused {
        command: &'static str,
        code: u32,
    },
    Malformed {
        command: &'static str,
    },
}

impl Tpm {
    /// Opens a character device, or a socket as swtpm has it. Blocks, as all functions here.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if path.metadata()?.file_type().is_socket() {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
            return Ok(Self { connection: Box::new(stream) });
        }
        Ok(Self { connection: Box::new(OpenOptions::new().read(true).write(true).open(path)?) })
    }

    /// Derives the key, which takes up to some seconds. Give it back with [`Tpm::flush`].
    pub(crate) fn load(&mut self) -> Result<SigningKey, TpmError> {
        let command = "CreatePrimary";
        // No password and no data; neither outside information nor registers.
        let sensitive: &[u8] = &[0, 4, 0, 0, 0, 0];
        let size = u16::try_from(TEMPLATE.len()).unwrap_or(u16::MAX).to_be_bytes();
        let rest: &[u8] = &[0, 0, 0, 0, 0, 0];
        let pieces = [&OWNER_HIERARCHY[..], &EMPTY_PASSWORD, sensitive, &size, TEMPLATE, rest];
        let response = self.execute(command, SESSIONS, CREATE_PRIMARY, &pieces)?;
        loaded_key(&response).ok_or(TpmError::Malformed { command })
    }

    /// The two numbers of an ECDSA signature, big endian.
    pub(crate) fn sign(&mut self, key: &SigningKey, digest: &[u8; 32]) -> Result<[Vec<u8>; 2], TpmError> {
        let command = "Sign";
        // The scheme of the key; no ticket, which only restricted keys need.
        let rest: &[u8] = &[0, 0x10, 0x80, 0x24, 0x40, 0, 0, 0x07, 0, 0];
        let pieces = [&key.handle, &EMPTY_PASSWORD[..], &[0, 32], digest, rest];
        let response = self.execute(command, SESSIONS, SIGN_COMMAND, &pieces)?;
        signature_of(&response).ok_or(TpmError::Malformed { command })
    }

    /// Frees the slot of the key in the TPM. The kernel does so when the device is closed, a socket does not.
    pub(crate) fn flush(&mut self, key: &SigningKey) -> Result<(), TpmError> {
        self.execute("FlushContext", NO_SESSIONS, FLUSH_CONTEXT, &[&key.handle]).map(drop)
    }

    /// The parameters of the response.
    fn execute(
        &mut self,
        command: &'static str,
        tag: [u8; 2],
        code: [u8; 4],
        pieces: &[&[u8]],
    ) -> Result<Vec<u8>, TpmError> {
        let body = pieces.concat();
        let size = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX).to_be_bytes();
        let request = [&tag[..], &size, &code, &body].concat();
        for _ in 0..BUSY_RETRIES {
            let mut response = self.exchange(&request).map_err(TpmError::Io)?;
            let header = response.first_chunk::<HEADER_BYTES>().ok_or(TpmError::Malformed { command })?;
            let [_, _, _, _, _, _, code @ ..] = *header;
            match u32::from_be_bytes(code) {
                0 => return Ok(response.split_off(HEADER_BYTES)),
                code if BUSY_CODES.contains(&code) => thread::sleep(BUSY_RETRY_DELAY),
                code => return Err(TpmError::Refused { command, code }),
            }
        }
        Err(TpmError::Io(io::ErrorKind::TimedOut.into()))
    }

    fn exchange(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        // A device takes a command in one piece only.
        if self.connection.write(request)? != request.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let mut response = vec![0; MAX_RESPONSE_BYTES];
        let mut length = 0;
        loop {
            let count = self.connection.read(response.get_mut(length..).unwrap_or_default())?;
            length += count;
            let size = response.get(2..6).and_then(|size| size.try_into().ok()).map(u32::from_be_bytes);
            let size = size.and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
            if length >= HEADER_BYTES && length >= size {
                response.truncate(length);
                return Ok(response);
            }
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Reads big-endian fields in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A TPM2B: its size in two bytes, then its bytes.
    fn sized(&mut self) -> Option<&'a [u8]> {
        let size = self.bytes(2)?.try_into().ok().map(u16::from_be_bytes)?;
        self.bytes(size.into())
    }
}

/// Handle, size of the parameters, TPM2B_PUBLIC and more.
fn loaded_key(response: &[u8]) -> Option<SigningKey> {
    let mut fields = Fields(response);
    let handle = fields.bytes(4)?.try_into().ok()?;
    fields.bytes(4)?;
    let mut public = Fields(fields.sized()?);
    // Type, hash and attributes; then the policy, the parameters, and the point.
    public.bytes(8)?;
    public.sized()?;
    public.bytes(10)?;
    let point = [coordinate(public.sized()?)?, coordinate(public.sized()?)?];
    Some(SigningKey { handle, point })
}

/// A TPM may leave out leading zeros.
fn coordinate(bytes: &[u8]) -> Option<[u8; COORDINATE_BYTES]> {
    let mut padded = [0; COORDINATE_BYTES];
    let start = COORDINATE_BYTES.checked_sub(bytes.len())?;
    padded.get_mut(start..)?.copy_from_slice(bytes);
    Some(padded)
}

/// Size of the parameters, algorithm, hash, and the two numbers.
fn signature_of(response: &[u8]) -> Option<[Vec<u8>; 2]> {
    let mut fields = Fields(response);
    fields.bytes(8)?;
    Some([fields.sized()?.to_vec(), fields.sized()?.to_vec()])
}

impl fmt::Display for TpmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Refused { command, code } => write!(f, "the TPM refuses {command} with code {code:#x}"),
            Self::Malformed { command } => write!(f, "the TPM's response to {command} is malformed"),
        }
    }
}
