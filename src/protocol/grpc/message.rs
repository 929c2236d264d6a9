//! The framing of messages: flag, length, payload. Pure.

use std::fmt;

/// The limit of a response that most gRPC clients have.
pub const USUAL_MESSAGE_BYTES: u32 = 4 * 1024 * 1024;

/// The kubelet's limit of CRI responses.
pub const MAX_MESSAGE_BYTES: u32 = 16 * 1024 * 1024;

/// Takes one whole message off the front of `buf`. Returns its payload and the number of bytes to drop.
///
/// `Ok(None)` means that more bytes are needed; nothing is consumed.
pub fn take_message(buf: &[u8], limit: u32) -> Result<Option<(&[u8], usize)>, FramingError> {
    let Some((head, rest)) = buf.split_first_chunk::<5>() else { return Ok(None) };
    let [flag, len @ ..] = *head;
    if flag != 0 {
        return Err(FramingError::Compressed);
    }
    let len = u32::from_be_bytes(len);
    if len > limit {
        return Err(FramingError::TooLong { len, limit });
    }
    let len = usize::try_from(len).map_err(|_| FramingError::TooLong { len: u32::MAX, limit })?;
    Ok(rest.get(..len).map(|payload| (payload, head.len() + len)))
}

/// Prepends the header of an uncompressed message to `payload`.
pub fn frame_message(mut payload: Vec<u8>) -> Result<Vec<u8>, FramingError> {
    let too_long = FramingError::TooLong { len: u32::MAX, limit: u32::MAX };
    let [a, b, c, d] = u32::try_from(payload.len()).map_err(|_| too_long)?.to_be_bytes();
    payload.splice(0..0, [0, a, b, c, d]);
    Ok(payload)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// Compression was never offered, so the peer must not use it.
    Compressed,
    TooLong {
        len: u32,
        limit: u32,
    },
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compressed => f.write_str("compressed gRPC message"),
            Self::TooLong { len, limit } => write!(f, "gRPC message of {len} bytes, the limit is {limit}"),
        }
    }
}

impl std::error::Error for FramingError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_taken_once_complete() {
        let mut framed = frame_message(b"hello".to_vec()).unwrap();
        framed.extend(b"next");
        for end in 0..10 {
            assert_eq!(take_message(&framed[..end], 100), Ok(None), "{end} bytes");
        }
        assert_eq!(take_message(&framed[..10], 100), Ok(Some((&b"hello"[..], 10))));
        assert_eq!(take_message(&framed, 100), Ok(Some((&b"hello"[..], 10))));
    }

    #[test]
    fn empty_message_is_a_message() {
        assert_eq!(take_message(&[0; 5], 0), Ok(Some((&[][..], 5))));
    }

    #[test]
    fn message_over_the_limit_is_refused_early() {
        assert_eq!(take_message(&[0, 0, 0, 0, 9], 9), Ok(None));
        assert_eq!(take_message(&[0, 0, 0, 0, 10], 9), Err(FramingError::TooLong { len: 10, limit: 9 }));
    }

    #[test]
    fn compressed_message_is_refused() {
        assert_eq!(take_message(&[1, 0, 0, 0, 0], 9), Err(FramingError::Compressed));
    }
}
