//! Writes frames. Pure.

use super::{CONTROL_BIT, FLAG_FIN, SPDY_VERSION, StreamId, kind};

/// The sending side of a connection: numbers its streams, and keeps its headers in one deflate stream.
#[derive(Debug)]
pub struct Outgoing {
    next: StreamId,
    headers_begun: bool,
}

impl Default for Outgoing {
    fn default() -> Self {
        Self { next: 1, headers_begun: false }
    }
}

impl Outgoing {
    /// Opens a stream. Header names must be in lower case.
    pub fn open(&mut self, headers: &[(&str, &str)], out: &mut Vec<u8>) -> StreamId {
        let stream = self.next;
        self.next = self.next.wrapping_add(2);
        let mut body = stream.to_be_bytes().to_vec();
        // No associated stream, highest priority, no credential slot.
        body.extend_from_slice(&[0; 6]);
        self.headers(headers, &mut body);
        control(kind::SYN_STREAM, &body, out);
        stream
    }

    /// Writes headers in stored blocks, followed by an empty block, which flushes the decompressor.
    fn headers(&mut self, headers: &[(&str, &str)], out: &mut Vec<u8>) {
        let mut block = count(headers.len()).to_vec();
        for text in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.extend_from_slice(&count(text.len()));
            block.extend_from_slice(text.as_bytes());
        }
        if !std::mem::replace(&mut self.headers_begun, true) {
            out.extend_from_slice(&ZLIB_HEAD);
        }
        for part in block.chunks(MAX_STORED_BYTES).chain([&[][..]]) {
            let length = u16::try_from(part.len()).unwrap_or_default();
            // A stored block, not the last. Its length starts at the next byte boundary.
            out.push(0);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&(!length).to_le_bytes());
            out.extend_from_slice(part);
        }
    }
}

/// Sends `bytes` on a stream; they must be shorter than 16 MiB.
pub fn data(stream: StreamId, bytes: &[u8], out: &mut Vec<u8>) {
    frame(stream.to_be_bytes(), 0, bytes, out);
}

/// Ends this side of the stream.
pub fn end(stream: StreamId, out: &mut Vec<u8>) {
    frame(stream.to_be_bytes(), FLAG_FIN, &[], out);
}

/// A ping, or its echo.
pub fn ping(id: u32, out: &mut Vec<u8>) {
    control(kind::PING, &id.to_be_bytes(), out);
}

fn control(kind: u16, body: &[u8], out: &mut Vec<u8>) {
    let [[a, b], [c, d]] = [(CONTROL_BIT | SPDY_VERSION).to_be_bytes(), kind.to_be_bytes()];
    frame([a, b, c, d], 0, body, out);
}

fn frame(first: [u8; 4], flags: u8, body: &[u8], out: &mut Vec<u8>) {
    let [_, length @ ..] = count(body.len());
    out.extend_from_slice(&first);
    out.push(flags);
    out.extend_from_slice(&length);
    out.extend_from_slice(body);
}

fn count(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

/// RFC 1950: deflate with a preset dictionary, identified by its Adler-32.
const ZLIB_HEAD: [u8; 6] = [0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2];
const MAX_STORED_BYTES: usize = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_form_one_deflate_stream() {
        let (mut outgoing, mut out) = (Outgoing::default(), Vec::new());
        assert_eq!(outgoing.open(&[("streamtype", "error")], &mut out), 1);
        let mut block = vec![0, 0, 0, 1, 0, 0, 0, 10];
        block.extend_from_slice(b"streamtype\0\0\0\x05error");
        assert_eq!(block.len(), 27);
        let mut expected = vec![0x80, 3, 0, 1, 0, 0, 0, 10 + 6 + 5 + 27 + 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        expected.extend_from_slice(&[0x78, 0xbb, 0xe3, 0xc6, 0xa7, 0xc2, 0, 27, 0, 228, 255]);
        expected.extend_from_slice(&block);
        expected.extend_from_slice(&[0, 0, 0, 255, 255]);
        assert_eq!(out, expected);
        // The deflate stream continues.
        out.clear();
        assert_eq!(outgoing.open(&[("streamtype", "error")], &mut out), 3);
        assert_eq!(out[7], 10 + 5 + 27 + 5);
        assert_eq!(out[18..23], [0, 27, 0, 228, 255]);
    }

    #[test]
    fn stored_headers_inflate() {
        let (mut outgoing, mut out) = (Outgoing::default(), Vec::new());
        let long = "x".repeat(70_000);
        outgoing.open(&[("a", &long)], &mut out);
        let mut inflate = flate2::Decompress::new(false);
        let mut plain = vec![0; 80_000];
        // Skips the frame header, the SYN_STREAM fields and the zlib header, which names a dictionary.
        inflate.decompress(&out[8 + 10 + 6..], &mut plain, flate2::FlushDecompress::Sync).unwrap();
        let read = usize::try_from(inflate.total_out()).unwrap();
        assert_eq!(read, 4 + 4 + 1 + 4 + 70_000);
        assert_eq!(plain[..9], [0, 0, 0, 1, 0, 0, 0, 1, b'a']);
        assert!(plain[13..read].iter().all(|byte| *byte == b'x'));
        assert_eq!(
            usize::try_from(inflate.total_in()).unwrap(),
            out.len() - 24,
            "the end of the frame is that of a block"
        );
    }

    #[test]
    fn zlib_header_is_valid() {
        assert_eq!(u16::from_be_bytes([ZLIB_HEAD[0], ZLIB_HEAD[1]]) % 31, 0);
        assert_eq!(ZLIB_HEAD[1] & 0x20, 0x20, "a dictionary is named");
    }

    #[test]
    fn data_fin_and_control_frames() {
        let mut out = Vec::new();
        data(3, b"ab", &mut out);
        end(3, &mut out);
        ping(2, &mut out);
        let frames: [&[u8]; 3] = [
            &[0, 0, 0, 3, 0, 0, 0, 2, b'a', b'b'],
            &[0, 0, 0, 3, 1, 0, 0, 0],
            &[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 2],
        ];
        assert_eq!(out, frames.concat());
    }
}
